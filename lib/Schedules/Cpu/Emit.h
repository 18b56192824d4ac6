//===- Emit.h - the schedules of the CPU ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Entry points of CPU emission: one function per op of the tile dialect, which
// writes the body of its kernel for one CTA.

#ifndef MOEC_LIB_SCHEDULES_CPU_EMIT_H
#define MOEC_LIB_SCHEDULES_CPU_EMIT_H

#include "KernelBuilder/KernelEmitter.h"
#include "KernelBuilder/Phase.h"

namespace moec {

/// Fails with a diagnostic unless `lanes` is a supported vector length: 4, 8 or
/// 16.
mlir::LogicalResult requireLanes(mlir::Operation *op, int64_t lanes);

/// Emits a CTA of an op on rows: those of its block that exist, one after the
/// other, by `Rows(op, emitter, lanes).emitRow(row)`. With offsets, the last
/// one is the number of rows.
template <typename Rows, typename ConfigT, typename OpT>
mlir::LogicalResult emitRows(OpT op, KernelEmitter &emitter) {
  auto config = requireConfig<ConfigT>(op, op.getConfigAttr());
  if (failed(config) ||
      failed(requirePositive(op, "rows_per_cta", config->getRowsPerCta())) ||
      failed(requireLanes(op, config->getLanes())))
    return mlir::failure();
  RowRange range = emitter.rowsOfCta(config->getRowsPerCta());
  if (mlir::Value offsets = emitter.operand(op.getOffsets())) {
    int64_t last =
        mlir::cast<mlir::MemRefType>(offsets.getType()).getDimSize(0) - 1;
    Index rows = emitter.loadIndex(offsets, emitter.index(last));
    range.end = min(range.begin + config->getRowsPerCta(), rows);
  }
  Rows rows(op, emitter, config->getLanes());
  emitter.loop(range.begin, range.end, 1,
               [&](Index row) { rows.emitRow(row); });
  return mlir::success();
}

// Schedules. Each emits the work of one CTA at the emitter's position, and
// fails with a diagnostic on a config that it cannot emit.
#define MOEC_CPU_SCHEDULE(NAME, OP)                                            \
  mlir::LogicalResult emit##NAME(tile::OP op, KernelEmitter &emitter);
#include "moec/Schedules/Schedules.def"

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_CPU_EMIT_H
