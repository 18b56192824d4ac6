//===- RowOwners.h - which ranks need a row ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_ROWOWNERS_H
#define MOEC_DIALECT_ROWOWNERS_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/ValueRange.h"

namespace moec {

/// The weight `placement.owners`: of each expert the place on the axis dp of
/// the rank that has it, among the ranks with one place on tp; -1 if none of
/// them has.
inline constexpr llvm::StringLiteral kOwnersTensor = "placement.owners";

/// What an op that moves rows between ranks says of those that not all ranks
/// need: the owners of a row are the ranks that have an expert of its ids. Of
/// moe.dispatch, moe.combine, plan.collective and tile.exchange, on tensors and
/// on memrefs.
struct RowOwners {
  /// The table above, or with `expertsPerOwner` that of replicas; null where
  /// all rows go to all ranks.
  mlir::Value owners;
  /// The ids of the rank's own rows; of sums, then those of all ranks' rows.
  mlir::ValueRange ids;
  /// The operands that `pairs` numbers, ascending, whose rows are moved for
  /// their owners alone.
  llvm::ArrayRef<int64_t> owned;
  /// Physical experts of each place on the axis, in whose order they are
  /// numbered. The table has numbers of such then, for each expert as many as
  /// it may have replicas, of which rows go to all; -1 is none.
  std::optional<int64_t> expertsPerOwner;
};

/// Checks the whole of it for an op that moves `pairs` and takes so many `ids`;
/// none where it has no owners.
inline mlir::LogicalResult verifyRowOwners(mlir::Operation *op,
                                           const RowOwners &given,
                                           mlir::ValueRange pairs,
                                           size_t numIds) {
  using namespace mlir;
  if (!given.owners && given.ids.empty() && given.owned.empty() &&
      !given.expertsPerOwner)
    return success();
  if (numIds == 0)
    return op->emitOpError("gives all ranks the same sums; drop 'owners', "
                           "'ids' and 'owned'");
  if (!given.owners || given.ids.size() != numIds || given.owned.empty())
    return op->emitOpError("has ")
           << (given.owners ? "" : "no ") << "'owners', " << given.ids.size()
           << " 'ids' and " << given.owned.size() << " 'owned'; give 'owners', "
           << numIds << " 'ids' and at least one number of 'owned', or none";
  auto table = cast<ShapedType>(given.owners.getType());
  int64_t rank = given.expertsPerOwner ? 2 : 1;
  if (table.getRank() != rank || !table.hasStaticShape() ||
      !table.getElementType().isInteger(32))
    return op->emitOpError("has 'owners' of type ")
           << table << "; give one i32 per expert"
           << (rank > 1 ? " and replica, as it has 'experts_per_owner'" : "");
  if (given.expertsPerOwner && *given.expertsPerOwner < 1)
    return op->emitOpError("has ") << *given.expertsPerOwner
                                   << " as 'experts_per_owner'; give 1 or more";
  for (Value ids : given.ids) {
    auto type = cast<ShapedType>(ids.getType());
    if (type.getRank() != 2 || !type.isDynamicDim(0) || type.isDynamicDim(1) ||
        !type.getElementType().isInteger(32) ||
        type != given.ids.front().getType())
      return op->emitOpError("has 'ids' of type ")
             << type << "; give tokens x top_k of i32, all of one type";
  }
  int64_t least = 0;
  for (int64_t number : given.owned) {
    if (number < least || number >= int64_t(pairs.size()))
      return op->emitOpError("has ")
             << number << " in 'owned'; give numbers of what it moves, "
             << "ascending from 0 to " << int64_t(pairs.size()) - 1;
    auto type = cast<ShapedType>(pairs[size_t(number)].getType());
    if (type.getRank() == 0 || !type.isDynamicDim(0))
      return op->emitOpError("has ") << number << " in 'owned', which is "
                                     << type << " and has no row per token";
    least = number + 1;
  }
  return success();
}

} // namespace moec

#endif // MOEC_DIALECT_ROWOWNERS_H
