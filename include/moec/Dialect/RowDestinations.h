//===- RowDestinations.h - destination ranks of rows ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_ROWDESTINATIONS_H
#define MOEC_DIALECT_ROWDESTINATIONS_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/ValueRange.h"

namespace moec {

/// The weight `placement.destinations`: for each expert the index on the axis
/// dp of the rank that holds it, among ranks with equal index on tp; -1 for
/// none.
inline constexpr llvm::StringLiteral kDestinationsTensor =
    "placement.destinations";

/// Operands of moe.dispatch, moe.combine, plan.collective and tile.exchange
/// (tensors or memrefs) that send rows only to their destination ranks: the
/// ranks that hold an expert of the row's ids.
struct RowDestinations {
  /// The table above, or with `expertsPerRank` that of replicas; null if all
  /// rows go to all ranks.
  mlir::Value destinations;
  /// The ids of the rank's own rows; for sums followed by those of all ranks'
  /// rows.
  mlir::ValueRange ids;
  /// Ascending indices of the pairs whose rows go only to destination ranks.
  llvm::ArrayRef<int64_t> routed;
  /// Physical experts per rank of the axis, numbered in rank order. The table
  /// then has the physical ids of each expert's replicas, padded with -1; rows
  /// go to the ranks of all replicas.
  std::optional<int64_t> expertsPerRank;
};

/// Verifies `given` for an op that moves `pairs` and takes `numIds` ids; 0 if
/// the op cannot have destinations.
inline mlir::LogicalResult verifyRowDestinations(mlir::Operation *op,
                                                 const RowDestinations &given,
                                                 mlir::ValueRange pairs,
                                                 size_t numIds) {
  using namespace mlir;
  if (!given.destinations && given.ids.empty() && given.routed.empty() &&
      !given.expertsPerRank)
    return success();
  if (numIds == 0)
    return op->emitOpError("gives all ranks the same sums; remove "
                           "'destinations', 'ids' and 'routed'");
  if (!given.destinations || given.ids.size() != numIds || given.routed.empty())
    return op->emitOpError("has ")
           << (given.destinations ? "" : "no ") << "'destinations', "
           << given.ids.size() << " 'ids' and " << given.routed.size()
           << " 'routed'; give 'destinations', " << numIds
           << " 'ids' and one or more indices in 'routed', or none of these";
  auto table = cast<ShapedType>(given.destinations.getType());
  int64_t rank = given.expertsPerRank ? 2 : 1;
  if (table.getRank() != rank || !table.hasStaticShape() ||
      !table.getElementType().isInteger(32))
    return op->emitOpError("has 'destinations' of type ")
           << table << "; give one i32 per expert"
           << (rank > 1 ? " and replica, because of 'experts_per_rank'" : "");
  if (given.expertsPerRank && *given.expertsPerRank < 1)
    return op->emitOpError("has ")
           << *given.expertsPerRank << " as 'experts_per_rank'; give 1 or more";
  for (Value ids : given.ids) {
    auto type = cast<ShapedType>(ids.getType());
    if (type.getRank() != 2 || !type.isDynamicDim(0) || type.isDynamicDim(1) ||
        !type.getElementType().isInteger(32) ||
        type != given.ids.front().getType())
      return op->emitOpError("has 'ids' of type ")
             << type << "; give i32 of shape tokens x top_k, all of one type";
  }
  int64_t least = 0;
  for (int64_t number : given.routed) {
    if (number < least || number >= int64_t(pairs.size()))
      return op->emitOpError("has ")
             << number << " in 'routed'; give indices of the moved tensors, "
             << "ascending from 0 to " << int64_t(pairs.size()) - 1;
    auto type = cast<ShapedType>(pairs[size_t(number)].getType());
    if (type.getRank() == 0 || !type.isDynamicDim(0))
      return op->emitOpError("has ") << number << " in 'routed', which is "
                                     << type << " and has no row per token";
    least = number + 1;
  }
  return success();
}

} // namespace moec

#endif // MOEC_DIALECT_ROWDESTINATIONS_H
