//===- PhaseTime.h - expected time of a phase -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_PHASETIME_H
#define MOEC_LIB_TOOLS_PHASETIME_H

#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Device.h"
#include "moec/Schedules/Schedules.h"

namespace moec {

struct LaunchedPhase {
  plan::LaunchOp launch;
  tile::KernelOp kernel;
  mlir::Operation *op;
  /// The kernel's name, or that of the phase's result if the kernel has several
  /// phases.
  std::string name;
  /// Whether it is the kernel's first phase, which pays for the launch, and the
  /// only one.
  bool isFirst, isAlone;
};

/// The phases of all launches of a variant.
llvm::SmallVector<LaunchedPhase> getLaunchedPhases(plan::VariantOp variant);

/// The schedule that has a cost model of the phase, or null.
const ModelsTime *findModelled(const LaunchedPhase &phase,
                               const Target &target);

/// The time of a phase if experts are equally likely, by the cost model of its
/// schedule. Without a model it is a lower bound from bytes, operations and the
/// launch.
Prediction predictPhase(const LaunchedPhase &phase, int64_t tokens,
                        int64_t topK, const Target &target,
                        const DeviceRates &device);

/// The time of a variant's collective by NCCL between GPUs of one host.
Prediction predictCollective(plan::CollectiveOp collective, int64_t tokens,
                             const DeviceRates &device);
/// " columns 0 to 3583" for a launch or a collective of these columns; empty
/// for all columns.
std::string describeColumns(std::optional<llvm::ArrayRef<int64_t>> columns);
/// "all_gather dp".
std::string getName(plan::CollectiveOp collective);

/// A line about rows that the collective moves only to their destination ranks,
/// through the memory of other ranks; empty if all rows go to all ranks.
std::string describeDestinations(plan::CollectiveOp collective);

/// A line about the sums or the quantization that the collective's kernel does
/// itself; empty if it does neither.
std::string describeReplaced(plan::CollectiveOp collective);

} // namespace moec

#endif // MOEC_LIB_TOOLS_PHASETIME_H
