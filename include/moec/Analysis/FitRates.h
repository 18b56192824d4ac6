//===- FitRates.h - a part's coefficients from times ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// How `moe-bench --fit` makes a PartFit of times that it measured on a part,
// beginning with one that is borrowed. Times tell little of some coefficients:
// each is held to where it began, by a spring that gives way where many times
// ask for it.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_FITRATES_H
#define MOEC_ANALYSIS_FITRATES_H

#include "moec/Analysis/Device.h"

#include <functional>

namespace moec {

/// A coefficient of PartFit.
struct Coefficient {
  llvm::StringLiteral name;
  double PartFit::*member;
  llvm::StringLiteral unit;
  /// Where it comes from when a part is fitted: ceilings are measured by
  /// themselves, others are fitted to times, the rest stay as they are
  /// borrowed.
  enum Source { Measured, Fitted, Borrowed } source;
};

/// All of PartFit, in its order.
llvm::ArrayRef<Coefficient> getCoefficients();

/// The time of launches that were measured together.
struct TimedRun {
  /// Runs of one row have the same other launches, which no model is of.
  size_t row;
  /// Measured, in microseconds.
  double us;
  /// What the launches with a model are predicted to take, in microseconds. Is
  /// called from several threads.
  std::function<double(const DeviceRates &)> predict;
};

struct RatesFit {
  DeviceRates rates;
  /// How far predictions are off, root mean square in logarithms: as it began,
  /// and with `rates`.
  double before = 0, after = 0;
};

/// Changes the fitted coefficients of `start` so that predictions come near the
/// times. `others`, by row: the most that its other launches may take, in
/// microseconds; how much it is is fitted too.
RatesFit fitRates(const DeviceRates &start, llvm::ArrayRef<TimedRun> runs,
                  llvm::ArrayRef<double> others);

/// The entry of the table of fits (lib/Analysis/Cost/Fits): `comment` is put
/// above it, one line each.
void printFit(const PartFit &fit, llvm::StringRef part,
              llvm::ArrayRef<std::string> comment, llvm::raw_ostream &os);

} // namespace moec

#endif // MOEC_ANALYSIS_FITRATES_H
