//===- Sm90Epilogue.h - the results of sm90.contract ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90EPILOGUE_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90EPILOGUE_H

#include "Sm90Fragments.h"

namespace moec {

/// Computes results from a thread's accumulators, and stores them.
class Sm90Epilogue {
public:
  Sm90Epilogue(Sm90Contract &contract, const ContractPart &part,
               const ContractOperands &operands, const ContractSums &sums)
      : contract(contract), emitter(contract.emitter), b(contract.b),
        shape(contract.shape), op(contract.op), part(part), tile(part.tile),
        operands(operands), sums(sums),
        isOnM(shape.hasRowsOnM(part.tileHeight)), fragments(contract, part),
        result(emitter.operand(op.getResult())) {}
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
  void ifAny(mlir::Value flag, llvm::function_ref<void()> body);
  /// Index of the consumer; i32.
  mlir::Value getConsumer();
  /// The staging buffer: the consumer's or, with rows on M, the warp's.
  mlir::Value getBuffer();
  /// Waits until all threads have read the part of the staging buffer that is
  /// about to be overwritten, for the tile's first results or for others. For
  /// the first ones all warps of a consumer take part.
  void takeBuffer(bool isFirst);
  /// Barrier of the threads that share the buffer.
  void bufferBarrier();
  /// With swapped A and B: offset of the warp's columns within a block's
  /// columns in the buffer; i32.
  mlir::Value getWarpOffset();
  /// With rows on M: the warp's first row.
  mlir::Value getWarpRow();
  /// Maps a chunk of a row of the buffer, which a thread stores, to its first
  /// column (i32).
  using ColumnOf = llvm::function_ref<mlir::Value(mlir::Value)>;
  /// The first column of a chunk, for the part's first columns.
  mlir::Value getColumnOfPiece(mlir::Value piece);
  /// Stores the contents of the buffer, chunk by chunk.
  void storeStaged(mlir::Value firstRow, int64_t rows, ColumnOf columnOf);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  tile::ContractOp op;
  const ContractPart &part;
  const ContractTile &tile;
  const ContractOperands &operands;
  const ContractSums &sums;
  bool isOnM;
  Sm90Fragments fragments;
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
  /// Whether the row and column are inside the result; i1.
  mlir::Value isThere(mlir::Value row, mlir::Value column);
  /// Applies the scales of whole rows to the sums of gate and up, for these
  /// octets.
  void applyScales(llvm::MutableArrayRef<mlir::Value> projections,
                   int64_t block, int64_t first, int64_t octets);
  /// One f32 per element of `octets` fragments, from `load(octet, element)`.
  mlir::Value gather(int64_t first, int64_t octets,
                     llvm::function_ref<mlir::Value(int64_t, int64_t)> load);
};

/// Epilogue of a gemm that quantizes its results.
mlir::LogicalResult emitSm90Quantized(Sm90Contract &contract,
                                      const ContractPart &part,
                                      const ContractOperands &operands,
                                      const ContractSums &sums);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90EPILOGUE_H
