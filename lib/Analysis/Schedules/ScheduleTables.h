//===- ScheduleTables.h - the tables behind Schedules.h ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SCHEDULETABLES_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SCHEDULETABLES_H

#include "moec/Analysis/Schedules.h"

#include <type_traits>

namespace moec {

llvm::ArrayRef<const Schedule *> getCpuSchedules();
/// Schedules that every GPU from sm_80 on can run.
llvm::ArrayRef<const Schedule *> getSm80Schedules();
/// Those of Hopper GPUs, before those of every GPU.
llvm::ArrayRef<const Schedule *> getSm90Schedules();
/// Those of Blackwell GPUs with tensor memory, likewise.
llvm::ArrayRef<const Schedule *> getSm100Schedules();

// What reasons are made of.
inline std::string number(int64_t value) { return std::to_string(value); }

inline std::string needsPositive(llvm::StringRef field, int64_t value) {
  return value > 0
             ? std::string()
             : (field + " = " + llvm::Twine(value) + "; give at least 1").str();
}

/// What a schedule whose code quantizes no results says; empty if there are
/// none to.
inline std::string declineQuantized(tile::ContractOp op) {
  return op.quantizesResult() ? "sm90.contract alone quantizes results; give a "
                                "tile.quantize of the result"
                              : std::string();
}

/// What a schedule whose code takes all groups says; empty if it may.
inline std::string declineSomeGroups(tile::ContractOp op) {
  return op.takesAllGroups()
             ? std::string()
             : "groups are told apart by their rows in sm90.contract alone; "
               "give no 'group_rows'";
}

/// CTAs that own `rows` tokens each.
inline moert::Expr rowBlocks(int64_t rows) {
  return moert::Expr::ceilDiv(moert::Expr::tokens(), rows);
}

/// CTAs that own `rows` positions each, of `topK` per token.
inline moert::Expr positionBlocks(int64_t topK, int64_t rows) {
  return moert::Expr::ceilDiv(moert::Expr::tokens() * moert::Expr(topK), rows);
}

/// CTAs of a product with one for each tile of `rows` rows, or each group, and
/// each of its `panels` of columns.
inline moert::Expr tileBlocks(bool isGrouped, int64_t groups, int64_t rows,
                              int64_t panels) {
  return (isGrouped ? moert::Expr(groups) : rowBlocks(rows)) *
         moert::Expr(panels);
}

/// What a tensor map says of its view, dimension by dimension from the outer
/// ones on.
struct MapDimensions {
  llvm::SmallVector<int64_t> sizes, along, steps, box;

  /// One of `size` indices, each `step` of the operand's dimension `dimension`,
  /// of which a box has `part`.
  void add(int64_t size, int64_t dimension, int64_t step, int64_t part) {
    sizes.push_back(size);
    along.push_back(dimension);
    steps.push_back(step);
    box.push_back(part);
  }
  /// The map of an operand of `op`, an argument of its kernel.
  tile::TensorMapAttr make(mlir::Operation *op, mlir::Value operand,
                           int64_t swizzle) const {
    return tile::TensorMapAttr::get(
        op->getContext(),
        mlir::cast<mlir::BlockArgument>(operand).getArgNumber(), sizes, along,
        steps, box, swizzle);
  }
};

/// A schedule whose parts are functions; those of a CPU have no `Block`.
template <auto WhyIllegal, auto Choose, auto Grid, auto Block = nullptr>
class ScheduleOf : public Schedule {
public:
  using Schedule::Schedule;

  std::string whyIllegal(mlir::Operation *op, tile::ConfigAttr config,
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

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SCHEDULETABLES_H
