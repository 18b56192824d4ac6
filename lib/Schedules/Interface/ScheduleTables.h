//===- ScheduleTables.h - the tables behind Schedules.h ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_INTERFACE_SCHEDULETABLES_H
#define MOEC_LIB_SCHEDULES_INTERFACE_SCHEDULETABLES_H

#include "moec/Schedules/Schedules.h"

#include <type_traits>

namespace moec {

// The choice of each schedule.
#define MOEC_CPU_SCHEDULE(NAME, OP) const Schedule &getCpu##NAME##Schedule();
#define MOEC_GPU_SCHEDULE(NAME, TARGETS) const Schedule &get##NAME##Schedule();
#define MOEC_GPU_CHOICE(NAME, CODE, TARGETS)                                   \
  const Schedule &get##NAME##Schedule();
#include "moec/Schedules/Schedules.def"

/// The only object of a schedule's class.
template <typename Class>
const Class &getOnly() {
  static const Class schedule;
  return schedule;
}

// Helpers to compose reasons.
inline std::string number(int64_t value) { return std::to_string(value); }

inline std::string needsPositive(llvm::StringRef field, int64_t value) {
  return value > 0
             ? std::string()
             : (field + " = " + llvm::Twine(value) + "; give at least 1").str();
}

/// Reason to decline a gemm that quantizes its result; empty if it does not.
inline std::string declineQuantized(tile::GemmOp op) {
  return op.quantizesResult() ? "this schedule quantizes no results; use a "
                                "tile.quantize of the result"
                              : std::string();
}

/// Reason to decline a gemm that takes only some of the groups; empty if it
/// takes all.
inline std::string declineSomeGroups(tile::GemmOp op) {
  return op.takesAllGroups() ? std::string()
                             : "this schedule does not select groups by "
                               "their rows; remove 'group_rows'";
}

/// Number of CTAs, each for `rows` tokens.
inline moert::Expr rowBlocks(int64_t rows) {
  return moert::Expr::ceilDiv(moert::Expr::tokens(), rows);
}

/// Number of CTAs, each for `rows` positions; there are `topK` positions per
/// token.
inline moert::Expr positionBlocks(int64_t topK, int64_t rows) {
  return moert::Expr::ceilDiv(moert::Expr::tokens() * moert::Expr(topK), rows);
}

/// Number of CTAs of a gemm: one per tile of `rows` rows, or per group, and per
/// N tile (`nTiles`).
inline moert::Expr tileBlocks(bool isGrouped, int64_t groups, int64_t rows,
                              int64_t nTiles) {
  return (isGrouped ? moert::Expr(groups) : rowBlocks(rows)) *
         moert::Expr(nTiles);
}

/// Dimensions of a tensor map's view, outermost first.
struct MapDimensions {
  llvm::SmallVector<int64_t> sizes, along, steps, box;

  /// Adds a dimension of `size` indices with a stride of `step` along the
  /// operand's dimension `dimension`; a box has `part` of them.
  void add(int64_t size, int64_t dimension, int64_t step, int64_t part) {
    sizes.push_back(size);
    along.push_back(dimension);
    steps.push_back(step);
    box.push_back(part);
  }
  /// Makes the tensor map of an operand of `op` that is an argument of its
  /// kernel.
  tile::TensorMapAttr make(mlir::Operation *op, mlir::Value operand,
                           int64_t swizzle) const {
    return tile::TensorMapAttr::get(
        op->getContext(),
        mlir::cast<mlir::BlockArgument>(operand).getArgNumber(), sizes, along,
        steps, box, swizzle);
  }
};

/// A schedule composed of functions. A CPU schedule has no `Block`.
template <auto WhyIllegal, auto Choose, auto Grid, auto Block = nullptr>
class ScheduleOf : public Schedule {
public:
  using Schedule::Schedule;

  std::string whyConfigIllegal(mlir::Operation *op, tile::ConfigAttr config,
                               const Target &target) const override {
    return WhyIllegal(op, config, target);
  }
  tile::ConfigAttr choose(mlir::Operation *op,
                          const Target &target) const override {
    return Choose(op, target);
  }
  moert::Expr grid(mlir::Operation *op, tile::ConfigAttr config,
                   const Target &target) const override {
    return Grid(op, config, target);
  }
  int64_t block(mlir::Operation *op, tile::ConfigAttr config) const override {
    if constexpr (std::is_null_pointer_v<decltype(Block)>)
      return Schedule::block(op, config);
    else
      return Block(op, config);
  }
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_INTERFACE_SCHEDULETABLES_H
