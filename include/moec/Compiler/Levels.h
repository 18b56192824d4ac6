//===- Levels.h - IR levels and their pipelines -----------------*- C++ -*-===//
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

/// IR levels of docs/design/architecture.md above kernel code.
enum class Level { Moe, Plan, Tile };

/// "moe", "plan" or "tile".
llvm::StringRef stringifyLevel(Level level);

/// The level of `module`, detected from its ops. A module without a level, or
/// with kernels of two levels, is an error.
mlir::FailureOr<Level> detectLevel(mlir::ModuleOp module);

/// Lowers level moe (layers or pipeline ops) to level plan, for what `target`
/// supports; `manager` is one of builtin.module. With `keepAllBuffers` each
/// buffer gets its own slot, so that all can be read after a run.
void buildMoeToPlanPipeline(mlir::OpPassManager &manager,
                            llvm::StringRef target,
                            bool keepAllBuffers = false);

/// Options of kernels at level tile.
struct TileOptions {
  /// "cpu", or a GPU as in "sm_80" or "sm_90a".
  std::string target = "cpu";
  /// The GPU part for which configs are chosen, as in "h100-sxm"
  /// (moec/Support/Parts.h). Empty: the target's default.
  std::string part;
  /// f32 elements of a CPU vector; 0: those of the host.
  int64_t lanes = 0;
  /// Instructions of a CPU for products (`Target::findProducts`); empty: FMAs,
  /// or with the host's lanes those of the host.
  std::string products;
  /// Lets a GPU launch start before the preceding one has ended, if the target
  /// can.
  bool dependentLaunches = true;
  /// For debugging: each buffer gets its own workspace slot, so that it can be
  /// read after a run, and rewrites that add or remove buffers are off.
  bool keepAllBuffers = false;
  /// Rewrites of GPU launches to disable, by name, and parameters of others
  /// (moec/Transforms/LaunchRewrites.h).
  std::vector<std::string> disable, set;
  /// Forced configs, as in "experts_hidden@1-64:block_m=16 block_n=64"
  /// (moec/Schedules/ConfigText.h).
  std::vector<std::string> configs;

  bool isGpu() const { return target != "cpu"; }
};

/// Lowers level plan to configured kernels at level tile.
void buildPlanToTilePipeline(mlir::OpPassManager &manager,
                             const TileOptions &options = {});

/// Within level tile: chooses configs for phases without one (hand-written IR)
/// and adapts launches to the configs.
void buildTilePipeline(mlir::OpPassManager &manager,
                       const TileOptions &options = {});

/// Registers the textual pipelines `moe-to-plan` and `plan-to-tile`.
void registerLevelPipelines();

} // namespace moec

#endif // MOEC_COMPILER_LEVELS_H
