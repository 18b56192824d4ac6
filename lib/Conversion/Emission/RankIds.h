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

/// Experts that ids refer to.
struct RankExperts {
  RankExperts(tile::RankOp op)
      : numExperts(op.getNumExperts()), numZero(op.getNumZeroExperts()),
        local(op.getLocalExperts()) {}
  RankExperts(tile::CountSlotsOp op)
      : numExperts(op.getNumExperts()), numZero(0),
        local(op.getLocalExperts()) {}
  /// For a gemm with ids.
  RankExperts(tile::ContractOp op)
      : numExperts(*op.getNumExperts()), numZero(0),
        local(op.getLocalExperts()) {}

  int64_t numExperts, numZero;
  /// Global ids of the local experts; all experts if absent.
  std::optional<llvm::ArrayRef<int64_t>> local;
};

/// Mapping from ids to local experts. Values are i32.
class RankIds {
public:
  /// `localTable`: a memref of i32 with the contents of `getLocalTable`; null
  /// if local experts have their global ids.
  RankIds(RankExperts all, KernelEmitter &emitter, mlir::Value localTable)
      : all(all), emitter(emitter), b(emitter.b), localTable(localTable) {}

  static int64_t getNumLocal(RankExperts all);
  /// The local expert per global id; `getNumLocal` for experts of other ranks.
  static llvm::SmallVector<int32_t> getLocalTable(RankExperts all);

  /// The local expert of a slot; the number of local experts if it is on
  /// another rank.
  mlir::Value localOf(mlir::Value id);
  mlir::Value isHere(mlir::Value local);
  /// Value of `position` for a slot without a local expert.
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
