//===- Targets.h - what kernels are compiled for ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_TARGETS_H
#define MOEC_SUPPORT_TARGETS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace moec {

/// Instruction sets that kernels are written for, one per target.
enum class Architecture {
#define MOEC_TARGET(ARCHITECTURE, ...) ARCHITECTURE,
#include "moec/Support/Targets.def"
};

/// A row of Targets.def.
struct TargetFacts {
  Architecture architecture;
  /// The name in `--target`; for a GPU as ptxas names it.
  llvm::StringLiteral name;
  /// GPU: architecture of the device that the simulator runs the target's code
  /// as.
  llvm::StringLiteral simulated;
  /// GPU: oldest version of PTX with all instructions of the target's kernels,
  /// times 10: 80 is 8.0, which corresponds to CUDA 12.0.
  unsigned ptxVersion;
  /// GPU: name of the part that configs are chosen for if no other is named;
  /// empty if the target's choices depend on no part.
  llvm::StringLiteral defaultPart;
  /// Schedules have a cost model.
  bool hasModel;
};

/// All targets, in the order of `Architecture`.
llvm::ArrayRef<TargetFacts> getTargets();

/// The target called `name`, or null.
const TargetFacts *findTarget(llvm::StringRef name);

/// The target with the fastest schedules that run on a GPU of `architecture`
/// ("sm_90"); empty if there is none.
std::string chooseTarget(llvm::StringRef architecture);

/// The name of the target `name`. For the name of a GPU's architecture that is
/// no target ("sm_89"), the target of `chooseTarget`; `name` if there is none.
std::string resolveTarget(llvm::StringRef name);

/// Names for `--help`: "cpu|sm_80", and without "cpu".
llvm::StringRef getTargetChoices();
llvm::StringRef getGpuTargetChoices();

/// Names of GPUs for a message: "sm_80, sm_90a".
std::string listGpuTargets();

} // namespace moec

#endif // MOEC_SUPPORT_TARGETS_H
