//===- TuneRows.cpp - tunes the rows of a table -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowTable.h"

#include "../TryStatus.h"
#include "../Tune/Tune.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace moec;
using namespace moec::bench;
using moert::Status;

Status RowTable::tuneRow(LayerOnDevice &layer, const Row &row,
                         llvm::json::Object &result) {
  std::unique_ptr<RowRun> run;
  MOEC_TRY_ASSIGN(run, createRun(layer, row));
  TunedRow best;
  MOEC_TRY_ASSIGN(best, bench::tuneRow(session, layer, *run, row,
                                       {tuneSeconds, options.getCandidates()},
                                       llvm::outs()));
  writeTunedRow(best, result);
  llvm::outs() << llvm::formatv(
      "{0}: chosen {1:F2} us, best {2:F2} us ({3:F3}x) of {4} measured, {5} "
      "failed\n",
      row.getName(), best.chosenSeconds * 1e6, best.getBestSeconds() * 1e6,
      best.getRatio(), best.numMeasured, best.numFailed);
  return Status::ok();
}

/// Writes the configs that were found, including rows of a resumed record;
/// returns the exit code.
int RowTable::finishTuning() {
  std::map<std::string, std::map<int64_t, TunedRow>> tuned;
  double sum = 0, most = 1;
  int64_t count = 0, numTuned = 0;
  std::string worst;
  for (const Row &row : table.rows) {
    if (!record.isMeasured(row.getName()))
      continue;
    ++numTuned;
    TunedRow found = readTunedRow(*record.find(row.getName()));
    // Rows without measurements, for lack of time, do not count.
    if (found.numMeasured > 0) {
      double ratio = found.getRatio();
      sum += std::log(ratio);
      ++count;
      if (ratio > most) {
        most = ratio;
        worst = " (" + row.getName() + ")";
      }
    }
    // Plans do not depend on the routing, so only uniform rows give configs.
    if (row.isUniform())
      tuned[table.layers[row.layer].name][row.tokens] = std::move(found);
  }
  for (const auto &[layer, rows] : tuned)
    if (Status status =
            writeTuning(options.tune, layer, session.jit.compile.target,
                        getRanges(rows, session.maxTokens));
        !status)
      return options.complain(status.message()), 1;
  if (count > 0)
    llvm::outs() << llvm::formatv(
        "the chosen configs take {0:F3} times as long as the best (geometric "
        "mean of {1} rows), at most {2:F3}{3}\n",
        std::exp(sum / static_cast<double>(count)), count, most, worst);
  return numFailed > 0                                   ? 1
         : numTuned < static_cast<int64_t>(names.size()) ? 2
                                                         : 0;
}
