//===- Epilogue.h - the results of sm90.gemm --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_EPILOGUE_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_EPILOGUE_H

#include "Schedules/Sm90Gemm/AccumulatorLayout.h"

namespace moec {

/// Computes results from a thread's accumulators, and stores them.
class Sm90Epilogue {
public:
  Sm90Epilogue(Sm90Gemm &gemm, const Sm90Part &part,
               const Sm90EpilogueOperands &operands, const Sm90Sums &sums)
      : gemm(gemm), emitter(gemm.emitter), b(gemm.b), shape(gemm.shape),
        op(gemm.op), part(part), tile(part.tile), operands(operands),
        sums(sums), isOnM(!shape.tile().swapsAB(part.blockM)),
        staging(shape.problem(), shape.tile(), part.blockM),
        accumulators(gemm, part), result(emitter.operand(op.getResult())) {}
  virtual ~Sm90Epilogue() = default;
  mlir::LogicalResult emit();

protected:
  /// Converts the results of `emitRegion` to 16-bit elements.
  virtual mlir::Value round(mlir::Value results);
  /// Results of `octets` octets from `first` on, of one block; one fragment per
  /// octet.
  mlir::Value emitRegion(int64_t block, int64_t first, int64_t octets);
  /// Runs `body` in a warp where any lane has the flag. Uses a ballot even for
  /// a uniform flag, because ptxas would otherwise assume divergence and keep
  /// the stages of later tiles, and values derived from them, in per-thread
  /// instead of uniform registers.
  void ifAny(Flag flag, llvm::function_ref<void()> body);
  /// Index of the consumer.
  I32 getConsumer() { return accumulators.getThread() / kWarpgroup + -1; }
  /// The staging buffer: the consumer's or, with rows on M, the warp's.
  mlir::Value getBuffer();
  /// Waits until all threads have read the part of the staging buffer that is
  /// about to be overwritten, for the tile's first results or for others. For
  /// the first ones all warps of a consumer take part.
  void takeBuffer(bool isFirst);
  /// Barrier of the threads that share the buffer.
  void bufferBarrier();
  /// With swapped A and B: offset of the warp's columns within a block's
  /// columns in the buffer.
  I32 getWarpOffset();
  /// With rows on M: the warp's first row.
  I32 getWarpRow();
  /// Maps a chunk of a row of the buffer, which a thread stores, to its first
  /// column.
  using ColumnOf = llvm::function_ref<I32(I32)>;
  /// The first column of a chunk, for the part's first columns.
  I32 getColumnOfChunk(I32 chunk);
  /// Stores the contents of the buffer, chunk by chunk.
  void storeStaged(I32 firstRow, int64_t rows, ColumnOf columnOf);

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::GemmShape &shape;
  tile::GemmOp op;
  const Sm90Part &part;
  const Sm90Tile &tile;
  const Sm90EpilogueOperands &operands;
  const Sm90Sums &sums;
  bool isOnM;
  sm90::ResultStaging staging;
  Sm90AccumulatorLayout accumulators;
  mlir::Value result;
  mlir::LogicalResult status = mlir::success();

private:
  /// Emits all of a consumer's columns in some rows of the part; with rows on
  /// M, the warp's rows in all of its columns.
  void emitRows(int64_t first, int64_t rows);
  void emitColumns();
  /// Writes the results of a region to the staging buffer or directly to
  /// memory.
  void put(int64_t block, int64_t first, int64_t octets, int64_t chunk);
  void stage(int64_t chunk, mlir::Value rounded);
  void storeSingly(int64_t block, int64_t first, mlir::Value results);
  /// Whether the row and column are inside the result.
  Flag isThere(I32 row, I32 column);
  /// Applies the scales of whole rows to the sums of gate and up, for these
  /// octets.
  void applyScales(llvm::MutableArrayRef<mlir::Value> projections,
                   int64_t block, int64_t first, int64_t octets);
  /// A vector of one f32 per element of `octets` fragments, from
  /// `load(octet, element)`.
  F32 gather(int64_t first, int64_t octets,
             llvm::function_ref<F32(int64_t, int64_t)> load);
};

/// Epilogue of a gemm that quantizes its results.
mlir::LogicalResult emitSm90Quantized(Sm90Gemm &gemm, const Sm90Part &part,
                                      const Sm90EpilogueOperands &operands,
                                      const Sm90Sums &sums);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_EPILOGUE_H
