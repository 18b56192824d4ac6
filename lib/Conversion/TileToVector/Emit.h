//===- Emit.h - the schedules of the CPU ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Entry points of CPU emission: one function per op of the tile dialect, which
// writes the body of its kernel for one CTA.

#ifndef MOEC_LIB_CONVERSION_TILETOVECTOR_EMIT_H
#define MOEC_LIB_CONVERSION_TILETOVECTOR_EMIT_H

#include "../Emission/KernelEmitter.h"
#include "../Emission/Phase.h"

namespace moec {

/// Fails with a diagnostic unless `lanes` is a supported vector length: 4, 8 or
/// 16.
mlir::LogicalResult requireLanes(mlir::Operation *op, int64_t lanes);

// Schedules. Each emits the work of one CTA at the emitter's position, and
// fails with a diagnostic on a config that it cannot emit.
mlir::LogicalResult emitContract(tile::ContractOp op, KernelEmitter &emitter);
mlir::LogicalResult emitTopK(tile::TopKOp op, KernelEmitter &emitter);
mlir::LogicalResult emitRank(tile::RankOp op, KernelEmitter &emitter);
mlir::LogicalResult emitPlaceIds(tile::PlaceIdsOp op, KernelEmitter &emitter);
mlir::LogicalResult emitRowMap(tile::RowMapOp op, KernelEmitter &emitter);
mlir::LogicalResult emitTensorScale(tile::TensorScaleOp op,
                                    KernelEmitter &emitter);
mlir::LogicalResult emitQuantize(tile::QuantizeOp op, KernelEmitter &emitter);
mlir::LogicalResult emitGatherRows(tile::GatherRowsOp op,
                                   KernelEmitter &emitter);
mlir::LogicalResult emitGatherReduce(tile::GatherReduceOp op,
                                     KernelEmitter &emitter);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETOVECTOR_EMIT_H
