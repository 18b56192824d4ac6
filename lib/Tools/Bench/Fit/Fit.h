//===- Fit.h - a part's coefficients from times -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_FIT_FIT_H
#define MOEC_LIB_TOOLS_BENCH_FIT_FIT_H

#include "../Tune/Tune.h"
#include "moec/Analysis/FitRates.h"

namespace moec::bench {

/// The times of one row's layer, all of products apart.
struct TimedConfigs {
  struct Run {
    KernelConfigs configs;
    double seconds = 0;
  };
  std::vector<Run> runs;
  /// What its launches without a model take at most.
  double othersSeconds = 0;
  int64_t numFailed = 0;
};

/// Measures the row with the configs that are chosen, then with `limits
/// .candidates` others of each kernel, from the best by the model to the middle
/// of all.
moert::Result<TimedConfigs> timeConfigs(Session &session, LayerOnDevice &layer,
                                        RowRun &run, const Row &row,
                                        const TuneLimits &limits);

/// A field that all such rows of a record have.
inline constexpr char kTimedField[] = "fit_runs";
/// As fields of a row of a record, whose names begin with fit_; times in us.
void writeTimedConfigs(const TimedConfigs &row, llvm::json::Object &result);
/// What it wrote; nothing where it did not.
TimedConfigs readTimedConfigs(const llvm::json::Object &result);

/// What --fit has learned of a device's part.
struct PartRates {
  RatesFit fit;
  size_t numRuns = 0, numRows = 0;
};

/// Fits the coefficients of the session's part to the times of rows; `ceilings`
/// were measured on the device.
moert::Result<PartRates>
fitPart(const Session &session, const Table &table, const Ceilings &ceilings,
        const std::map<std::string, TimedConfigs> &rows);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_FIT_FIT_H
