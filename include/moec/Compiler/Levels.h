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

#include <string>
#include <vector>

namespace moec {

/// The levels of docs/architecture.md above the kernels' code.
enum class Level { Moe, Plan, Tile };

/// "moe", "plan" or "tile".
llvm::StringRef stringifyLevel(Level level);

/// The level of `module`, told by its ops; an error on a module of no level or
/// with kernels of two.
mlir::FailureOr<Level> detectLevel(mlir::ModuleOp module);

/// From level moe (layers or pipeline ops) to level plan, where `target` can do
/// what they say; `manager` is one of builtin.module. `keepAllBuffers` gives
/// each buffer a slot of its own, so that all can be read after a run.
void buildMoeToPlanPipeline(mlir::OpPassManager &manager,
                            llvm::StringRef target,
                            bool keepAllBuffers = false);

/// How kernels at level tile are made.
struct TileOptions {
  /// "cpu", or a GPU as in "sm_80" or "sm_90a".
  std::string target = "cpu";
  /// The part of a GPU that configs are chosen for, as in "h100-sxm"
  /// (moec/Support/Parts.h); empty: the target's default.
  std::string part;
  /// f32 elements of a vector, 0 for that of the host.
  int64_t lanes = 0;
  /// Lets launches on a GPU begin before the one before them has ended, where
  /// the target can.
  bool dependentLaunches = true;
  /// Rewrites of launches on a GPU that do not run, by name, and parameters of
  /// others (moec/Transforms/LaunchRewrites.h).
  std::vector<std::string> disable, set;
  /// Configs to take instead of those that would be chosen, as in
  /// "experts_hidden@1-64:tile_rows=16 tile_columns=64"
  /// (moec/Analysis/ConfigText.h).
  std::vector<std::string> configs;

  bool isGpu() const { return target != "cpu"; }
};

/// From level plan to configured kernels at level tile.
void buildPlanToTilePipeline(mlir::OpPassManager &manager,
                             const TileOptions &options = {});

/// At level tile: configs for phases that IR by hand has without, and launches
/// as configs say.
void buildTilePipeline(mlir::OpPassManager &manager,
                       const TileOptions &options = {});

/// Makes `moe-to-plan` and `plan-to-tile` known to pass pipelines as text.
void registerLevelPipelines();

} // namespace moec

#endif // MOEC_COMPILER_LEVELS_H
