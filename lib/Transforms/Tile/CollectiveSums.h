//===- CollectiveSums.h - sums that a collective may make -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TRANSFORMS_TILE_COLLECTIVESUMS_H
#define MOEC_LIB_TRANSFORMS_TILE_COLLECTIVESUMS_H

#include "moec/Dialect/Plan/Plan.h"
#include "moec/Dialect/SlotSums.h"

namespace moec {

/// The sums that the kernel of a collective may make itself: its one input is
/// all that a launch before it on its stream makes, by a gather_reduce alone,
/// and nobody else reads it. Nulls where there are none.
SlotSums findSums(plan::CollectiveOp collective, mlir::SymbolTable &symbols);

/// Lets it make these.
void setSums(plan::CollectiveOp collective, const SlotSums &sums);

/// Whether ranks of the collective's axis may run it through each other's
/// memory: they are several, and not too many, and their parts have rows of one
/// number.
bool hasExchange(plan::CollectiveOp collective);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_COLLECTIVESUMS_H
