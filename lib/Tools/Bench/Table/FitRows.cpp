//===- FitRows.cpp - fits coefficients to the rows of a table ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowTable.h"

#include "../Fit/Fit.h"
#include "../TryStatus.h"
#include "moec/Compiler/OutputFile.h"
#include "llvm/Support/FormatVariadic.h"

using namespace moec;
using namespace moec::bench;
using moert::Status;

Status RowTable::fitRow(LayerOnDevice &layer, const Row &row,
                        llvm::json::Object &result) {
  std::unique_ptr<RowRun> run;
  MOEC_TRY_ASSIGN(run, createRun(layer, row));
  TimedConfigs timed;
  MOEC_TRY_ASSIGN(timed, timeConfigs(session, layer, *run, row,
                                     {tuneSeconds, options.getCandidates()}));
  writeTimedConfigs(timed, result);
  llvm::outs() << llvm::formatv(
      "{0}: {1} configs measured, {2} failed; chosen ones {3:F2} us, of which "
      "at most {4:F2} us without a cost model\n",
      row.getName(), timed.runs.size(), timed.numFailed,
      timed.runs.front().seconds * 1e6, timed.othersSeconds * 1e6);
  return Status::ok();
}

/// Fits the coefficients and writes the part's entry; returns the exit code.
int RowTable::finishFit() {
  std::map<std::string, TimedConfigs> rows;
  for (const Row &row : table.rows)
    if (record.isMeasured(row.getName()) && row.isUniform())
      rows[row.getName()] = readTimedConfigs(*record.find(row.getName()));
  if (rows.empty())
    return options.complain("--fit: no row was measured"), 1;
  moert::Result<PartRates> found = fitPart(session, table, ceilings, rows);
  if (!found)
    return options.complain("--fit: " + found.status().message()), 1;
  const RatesFit &fit = found->fit;
  std::string part = session.jit.compile.part;
  std::vector<std::string> comment = {
      session.device.name() + ": fitted by moe-bench --fit to " +
          std::to_string(found->numRuns) + " times of layers,",
      llvm::formatv("{0} rows, commit {1}. Off by {2:F1} % (root mean square); "
                    "by what it began",
                    found->numRows, record.getCommit(), fit.after * 100),
      llvm::formatv("with, {0:F1} %. What times tell little of stays near "
                    "there.",
                    fit.before * 100)};
  std::string text;
  llvm::raw_string_ostream os(text);
  printFit(fit.rates, part, comment, os);
  if (failed(writeOutputFile(options.fit, text)))
    return options.complain("--fit: '" + options.fit + "' cannot be written"),
           1;
  llvm::outs() << llvm::formatv(
      "{0}: {1} times of {2} rows, predicted {3:F1} % off before and {4:F1} % "
      "after (root mean square); '{5}' goes to lib/Schedules/Interface/Fits\n",
      part, found->numRuns, found->numRows, fit.before * 100, fit.after * 100,
      options.fit);
  return numFailed > 0 ? 1 : rows.size() < names.size() ? 2 : 0;
}
