//===- FitRates.h - a part's coefficients from times ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Fits a PartFit to times that `moe-bench --fit` measured on a part, starting
// from a borrowed one. Some coefficients have little effect on times, so a
// quadratic penalty holds each near its start unless many times contradict it.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_FITRATES_H
#define MOEC_SCHEDULES_FITRATES_H

#include "Device.h"

#include <functional>

namespace moec {

/// A coefficient of PartFit.
struct Coefficient {
  llvm::StringLiteral name;
  double PartFit::*member;
  llvm::StringLiteral unit;
  /// Source of the value when a part is fitted: ceilings are measured directly,
  /// others are fitted to times, the rest stay borrowed.
  enum Source { Measured, Fitted, Borrowed } source;
};

/// All coefficients of PartFit, in its order.
llvm::ArrayRef<Coefficient> getCoefficients();

/// A measured time of several launches together.
struct TimedRun {
  /// Runs of one row share their other launches, which have no cost model.
  size_t row;
  /// Measured, in microseconds.
  double us;
  /// Predicted microseconds of the launches with a cost model. Called from
  /// several threads.
  std::function<double(const DeviceRates &)> predict;
};

struct RatesFit {
  DeviceRates rates;
  /// Root mean square of the logarithmic errors of predictions: at the start,
  /// and with `rates`.
  double before = 0, after = 0;
};

/// Adjusts the fitted coefficients of `start` so that predictions approach the
/// times. `others`, by row: upper bound in microseconds of the row's other
/// launches, whose time is fitted too.
RatesFit fitRates(const DeviceRates &start, llvm::ArrayRef<TimedRun> runs,
                  llvm::ArrayRef<double> others);

/// Prints an entry of the table of fits (lib/Schedules/Interface/Fits), with
/// `comment` above it, one line each.
void printFit(const PartFit &fit, llvm::StringRef part,
              llvm::ArrayRef<std::string> comment, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_SCHEDULES_FITRATES_H
