//===- Fit.h - fits a part's coefficients to times --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_FIT_FIT_H
#define MOEC_LIB_TOOLS_BENCH_FIT_FIT_H

#include "../Tune/Tune.h"
#include "moec/Schedules/FitRates.h"

namespace moec::bench {

/// Times of one row's layer with several configs, without joined gemms.
struct TimedConfigs {
  struct Run {
    KernelConfigs configs;
    double seconds = 0;
  };
  std::vector<Run> runs;
  /// Upper bound on the time of launches without a cost model.
  double othersSeconds = 0;
  int64_t numFailed = 0;
};

/// Measures the row with the chosen configs, then with `limits.candidates`
/// others of each kernel, sampled from the model's best down to the median.
moert::Result<TimedConfigs> timeConfigs(Session &session, LayerOnDevice &layer,
                                        RowRun &run, const Row &row,
                                        const TuneLimits &limits);

/// A field that marks such rows in a record.
inline constexpr char kTimedField[] = "fit_runs";
/// Writes the fields of a record's row that begin with fit_; times in us.
void writeTimedConfigs(const TimedConfigs &row, llvm::json::Object &result);
/// Reads these fields; an empty result if there are none.
TimedConfigs readTimedConfigs(const llvm::json::Object &result);

/// The coefficients of a device's part that --fit has found.
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
