//===- PhaseTime.h - what a phase is expected to take -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_PHASETIME_H
#define MOEC_LIB_TOOLS_PHASETIME_H

#include "moec/Analysis/Cost.h"
#include "moec/Analysis/Device.h"
#include "moec/Analysis/Schedules.h"

namespace moec {

struct LaunchedPhase {
  plan::LaunchOp launch;
  tile::KernelOp kernel;
  mlir::Operation *op;
  /// The kernel's, or what the phase makes, where a kernel has several.
  std::string name;
  /// Only the first phase of a kernel has to be launched.
  bool isFirst, isAlone;
};

/// Those of all launches of a variant.
llvm::SmallVector<LaunchedPhase> getLaunchedPhases(plan::VariantOp variant);

/// The schedule that has a model of the phase's time, or null.
const ModelsTime *findModelled(const LaunchedPhase &phase,
                               const Target &target);

/// The time of a phase if experts are equally likely: by the model of its
/// schedule, or of its bytes or operations and a launch where there is none:
/// at least.
Prediction predictPhase(const LaunchedPhase &phase, int64_t tokens,
                        int64_t topK, const Target &target,
                        const DeviceRates &device);

/// The time of a collective of a variant, through NCCL between GPUs of one
/// host.
Prediction predictCollective(plan::CollectiveOp collective, int64_t tokens,
                             const DeviceRates &device);
/// " columns 0 to 3583" of a launch or a collective of these; nothing for all.
std::string describeColumns(std::optional<llvm::ArrayRef<int64_t>> columns);
/// "all_gather dp".
std::string getName(plan::CollectiveOp collective);

/// A line about what it moves for owners alone through the memory of other
/// ranks; nothing where all rows go to all.
std::string describeOwners(plan::CollectiveOp collective);

/// Whether the collective's kernel makes the sums or codes that it moves: a
/// line, or nothing.
std::string describeReplaced(plan::CollectiveOp collective);

/// What takes the longest of a prediction: "memory", "tensor cores", "L2",
/// "power" or "launch".
llvm::StringRef getBound(const Prediction &prediction);

} // namespace moec

#endif // MOEC_LIB_TOOLS_PHASETIME_H
