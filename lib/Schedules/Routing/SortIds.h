//===- SortIds.h - what rank makes of an expert's id ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_SORTIDS_H
#define MOEC_LIB_SCHEDULES_ROUTING_SORTIDS_H

#include "KernelBuilder/KernelEmitter.h"

namespace moec {

/// Experts that ids refer to.
struct RankExperts {
  RankExperts(tile::SortByExpertOp op)
      : numExperts(op.getNumExperts()), numZero(op.getNumZeroExperts()),
        local(op.getLocalExperts()) {}
  RankExperts(tile::CountSlotsOp op)
      : numExperts(op.getNumExperts()), numZero(0),
        local(op.getLocalExperts()) {}
  /// For a gemm with ids.
  RankExperts(tile::GemmOp op)
      : numExperts(*op.getNumExperts()), numZero(0),
        local(op.getLocalExperts()) {}

  int64_t numExperts, numZero;
  /// Global ids of the local experts; all experts if absent.
  std::optional<llvm::ArrayRef<int64_t>> local;
};

/// Mapping from ids to local experts.
class SortIds {
public:
  /// `localTable`: a memref of i32 with the contents of `getLocalTable`; null
  /// if local experts have their global ids.
  SortIds(RankExperts all, KernelEmitter &emitter, mlir::Value localTable)
      : all(all), emitter(emitter), localTable(localTable) {}

  static int64_t getNumLocal(RankExperts all);
  /// The local expert per global id; `getNumLocal` for experts of other ranks.
  static llvm::SmallVector<int32_t> getLocalTable(RankExperts all);

  /// The local expert of a slot; the number of local experts if it is on
  /// another rank.
  I32 localOf(mlir::Value id);
  Flag isHere(mlir::Value local);
  /// Value of `position` for a slot without a local expert.
  I32 positionOfOther(I32 id);

private:
  RankExperts all;
  KernelEmitter &emitter;
  mlir::Value localTable;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_ROUTING_SORTIDS_H
