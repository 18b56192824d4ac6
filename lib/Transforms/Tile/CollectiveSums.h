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

/// Sums that the kernel of a collective may make itself: its only input is the
/// only result of an earlier launch on its stream, of a single gather_reduce,
/// and has no other use. Nulls if there are none.
SlotSums findSums(plan::CollectiveOp collective, mlir::SymbolTable &symbols);

/// Makes the collective compute the sums.
void setSums(plan::CollectiveOp collective, const SlotSums &sums);

/// Whether ranks of the collective's axis may run it through peer memory: there
/// are several, not too many, and all pairs have the same number of rows.
bool hasExchange(plan::CollectiveOp collective);

} // namespace moec

#endif // MOEC_LIB_TRANSFORMS_TILE_COLLECTIVESUMS_H
