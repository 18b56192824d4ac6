//===- LoadRows.cpp - many loads of the rows of a table ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowTable.h"

#include "../../Run/PlanRun.h"
#include "../Loads/Loads.h"
#include "../TryStatus.h"
#include "llvm/Support/FormatVariadic.h"

using namespace moec;
using namespace moec::bench;
using moert::Status;

Status RowTable::measureLoads(LayerOnDevice &layer, const Row &row,
                              llvm::json::Object &result) {
  double left = options.timeLimit - (getSeconds() - begin);
  LoadsLimits limits;
  limits.loads = options.loads;
  limits.candidates = options.getCandidates();
  limits.seconds = std::min(tuneSeconds, left);
  // Other sets only make weights cold. A run that reads more than the caches
  // hold needs none, nor does a device without a clock.
  auto experts = static_cast<double>(std::min(
      layer.getLayer().localExperts, row.tokens * layer.getLayer().topK));
  bool isCold = experts * layer.getLayer().getExpertBytes() >= kColdBytes;
  limits.sets = isCold || !session.hasClock ? 1 : getNumSets(row);
  LoadsOfRow loads;
  MOEC_TRY_ASSIGN(
      loads, bench::measureLoads(session, layer, row, limits, llvm::outs()));
  writeLoads(loads, result);
  llvm::outs() << llvm::formatv(
      "{0}: {1} of {2} loads, {3} configs, {4} failed\n", row.getName(),
      loads.loads.size(), limits.loads, loads.configs.size(), loads.numFailed);
  printRegrets(loads, llvm::outs());
  return Status::ok();
}

/// Prints the regret over the loads of all rows, including those of a resumed
/// record; returns the exit code.
int RowTable::finishLoads() {
  double sum = 0, most = 0;
  int64_t count = 0, numMeasured = 0;
  std::string worst;
  for (const std::string &name : names) {
    if (!record.isMeasured(name))
      continue;
    ++numMeasured;
    const llvm::json::Array *loads = record.find(name)->getArray(kLoadsField);
    if (!loads)
      continue;
    for (const llvm::json::Value &value : *loads) {
      const llvm::json::Object *load = value.getAsObject();
      std::optional<double> regret =
          load ? load->getNumber("regret") : std::nullopt;
      if (!regret)
        continue;
      sum += *regret;
      ++count;
      if (worst.empty() || *regret > most) {
        most = *regret;
        worst = name + ", " + load->getString("load").value_or("").str();
      }
    }
  }
  if (count > 0)
    llvm::outs() << llvm::formatv(
        "the chosen configs take {0:P2} more than the best found (mean of {1} "
        "loads), at most {2:P2} ({3})\n",
        sum / static_cast<double>(count), count, most, worst);
  return numFailed > 0                                      ? 1
         : numMeasured < static_cast<int64_t>(names.size()) ? 2
                                                            : 0;
}
