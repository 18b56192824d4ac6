//===- RankIds.h - what rank makes of an expert's id ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_EMISSION_RANKIDS_H
#define MOEC_LIB_CONVERSION_EMISSION_RANKIDS_H

#include "KernelEmitter.h"

namespace moec {

/// The experts that ids name.
struct RankExperts {
  RankExperts(tile::RankOp op)
      : numExperts(op.getNumExperts()), numZero(op.getNumZeroExperts()),
        local(op.getLocalExperts()) {}
  RankExperts(tile::CountSlotsOp op)
      : numExperts(op.getNumExperts()), numZero(0),
        local(op.getLocalExperts()) {}
  /// A product with ids.
  RankExperts(tile::ContractOp op)
      : numExperts(*op.getNumExperts()), numZero(0),
        local(op.getLocalExperts()) {}

  int64_t numExperts, numZero;
  /// The global ids of those that are here; all if there are none.
  std::optional<llvm::ArrayRef<int64_t>> local;
};

/// Values are i32.
class RankIds {
public:
  /// `localTable`, a memref of i32, has `getLocalTable`; null where local
  /// experts have their global ids.
  RankIds(RankExperts all, KernelEmitter &emitter, mlir::Value localTable)
      : all(all), emitter(emitter), b(emitter.b), localTable(localTable) {}

  static int64_t getNumLocal(RankExperts all);
  /// The local expert per global id; `getNumLocal` for those of other ranks.
  static llvm::SmallVector<int32_t> getLocalTable(RankExperts all);

  /// The local expert that a slot chose; the number of them where it is not
  /// here.
  mlir::Value localOf(mlir::Value id);
  mlir::Value isHere(mlir::Value local);
  /// What `position` says of a slot that has none.
  mlir::Value positionOfOther(mlir::Value id);

private:
  mlir::Value isBelow(mlir::Value x, int64_t bound);
  mlir::Value choose(mlir::Value condition, mlir::Value x, mlir::Value y);

  RankExperts all;
  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  mlir::Value localTable;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_RANKIDS_H
