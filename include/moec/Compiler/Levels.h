//===- Levels.h - the levels of IR and the way down -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_COMPILER_LEVELS_H
#define MOEC_COMPILER_LEVELS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"

namespace moec {

/// The levels of docs/architecture.md above the kernels' code.
enum class Level { Moe, Plan, Tile };

/// "moe", "plan" or "tile".
llvm::StringRef stringifyLevel(Level level);

/// The level of `module`, told by its ops; an error on a module of no level or
/// with kernels of two.
mlir::FailureOr<Level> detectLevel(mlir::ModuleOp module);

/// From level moe (layers or pipeline ops) to level plan; `manager` is one of
/// builtin.module. `keepAllBuffers` gives each buffer a slot of its own, so
/// that all can be read after a run.
void buildMoeToPlanPipeline(mlir::OpPassManager &manager,
                            bool keepAllBuffers = false);

/// From level plan to configured kernels at level tile. `lanes` is the number
/// of f32 elements of a vector, 0 for that of the host. `dependentLaunches` lets
/// launches begin before the one before them has ended, where the target can.
void buildPlanToTilePipeline(mlir::OpPassManager &manager,
                             llvm::StringRef target = "cpu", int64_t lanes = 0,
                             bool dependentLaunches = true);

/// Makes `moe-to-plan` and `plan-to-tile` known to pass pipelines as text.
void registerLevelPipelines();

} // namespace moec

#endif // MOEC_COMPILER_LEVELS_H
