//===- ExpectedRun.h - expected time and work of a run ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_EXPECTEDRUN_H
#define MOEC_LIB_TOOLS_EXPECTEDRUN_H

#include "PhaseTime.h"
#include "PhaseWork.h"

namespace moec {

/// A phase of a launch, or a collective.
struct ExpectedStep {
  std::string name;
  bool isCollective = false;
  /// Empty if no rates of the target are known.
  std::optional<Prediction> time;
  /// The bound of `time`: getBound(), or "link" for a collective.
  llvm::StringRef bound;
  /// Least work; none for a collective.
  Work work;
};

/// One run of a layer with some number of tokens, its steps in sequence and its
/// experts equally likely.
struct ExpectedRun {
  std::vector<ExpectedStep> steps;
  size_t numLaunches = 0;
  Work work;
  /// Empty if no rates of the target are known.
  std::optional<double> us;
  double floorUs = 0;
  /// The part of `us` that collectives take.
  double exchangeUs = 0;
  /// The bound of the steps that take longest together; empty without times.
  llvm::StringRef bound;

  /// `floorUs` in percent of `us`.
  double getFloorPercent() const {
    return us && *us > 0 ? 100 * floorUs / *us : 0;
  }
};

/// The only place where times of steps are added up. `device` is null if no
/// rates of the target are known.
ExpectedRun expectRun(plan::VariantOp variant, int64_t tokens, int64_t topK,
                      const Target &target, const DeviceRates *device);

} // namespace moec

#endif // MOEC_LIB_TOOLS_EXPECTEDRUN_H
