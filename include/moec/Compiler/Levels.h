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
#include "llvm/Support/CommandLine.h"

#include <optional>
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

/// Whether rows are copied into order ahead of a product: where that is
/// expected to take less time, nowhere, or wherever it can be.
enum class PermuteRows { Auto, Never, Always };

/// For options of a command line.
inline llvm::cl::ValuesClass getPermuteRowsValues() {
  return llvm::cl::values(
      clEnumValN(PermuteRows::Auto, "auto",
                 "where that is expected to take less time"),
      clEnumValN(PermuteRows::Never, "never", "nowhere"),
      clEnumValN(PermuteRows::Always, "always", "wherever that can be"));
}

/// How kernels at level tile are made.
struct TileOptions {
  std::string target = "cpu";
  /// Of a GPU: the part that configs are chosen for, as in "h100-sxm"; empty:
  /// the target's default.
  std::string part;
  /// f32 elements of a vector, 0 for that of the host.
  int64_t lanes = 0;
  /// Lets launches begin before the one before them has ended, where the target
  /// can.
  bool dependentLaunches = true;
  /// Lets products count ids, where launches are dependent and the schedule
  /// can.
  bool countIds = true;
  /// Lets products quantize their results, where the schedule can and that is
  /// expected to take less time.
  bool quantizeResults = true;
  PermuteRows permuteRows = PermuteRows::Auto;
  /// Lets groups with many rows have launches of their own, where the schedule
  /// can tell groups apart and that is expected to take less time.
  bool splitHeavy = true;
  /// Lets two products be one kernel, where the schedule can and that is
  /// expected to take less time.
  bool joinProducts = true;
  /// The most slots that one launch ranks, where the schedule can do it in two;
  /// negative: any number. Nothing: as tile-split-ranking has it.
  std::optional<int64_t> splitRanking;
  /// Lets the launch that routes tokens count or rank their slots.
  bool fuseRouting = true;
  /// Configs to take instead of those that would be chosen (ConfigText.h).
  std::vector<std::string> configs;
  /// Kernels at most, before those that tile-specialize has not seen. Nothing:
  /// as that has it.
  std::optional<int64_t> maxKernels;
};

/// From level plan to configured kernels at level tile.
void buildPlanToTilePipeline(mlir::OpPassManager &manager,
                             const TileOptions &options = {});

/// Makes `moe-to-plan` and `plan-to-tile` known to pass pipelines as text.
void registerLevelPipelines();

} // namespace moec

#endif // MOEC_COMPILER_LEVELS_H
