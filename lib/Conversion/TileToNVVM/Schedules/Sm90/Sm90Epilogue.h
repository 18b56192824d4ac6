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

/// Makes results of a thread's sums, and writes them.
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
  /// What emitRegion made as elements of 16 bits.
  virtual mlir::Value round(mlir::Value results);
  /// The results of `octets` octets from `first` on, of one block; a fragment
  /// per octet.
  mlir::Value emitRegion(int64_t block, int64_t first, int64_t octets);
  /// `body` for a warp with a lane that has the flag: all of it. Lanes that
  /// agree are counted all the same, lest ptxas thinks that they might not: it
  /// would keep the stages of later tiles, and what follows from them, in
  /// registers of threads instead of warps.
  void ifAny(mlir::Value flag, llvm::function_ref<void()> body);
  /// The consumer's number; i32.
  mlir::Value getConsumer();
  /// The buffer of rows of results: the consumer's, or with rows on M the
  /// warp's.
  mlir::Value getBuffer();
  /// Ahead of results that are staged, the tile's first ones or others: waits
  /// until all have read what they overwrite. All warps of a consumer are there
  /// for the first ones.
  void takeBuffer(bool isFirst);
  /// Waits for all who share the buffer.
  void bufferBarrier();
  /// Weights on M: how far into a block's columns of the buffer the warp has
  /// its own; i32.
  mlir::Value getWarpOffset();
  /// Rows on M: the warp's first row.
  mlir::Value getWarpRow();
  /// Where a piece of a row of the buffer belongs, which a thread stores: its
  /// first column (i32).
  using ColumnOf = llvm::function_ref<mlir::Value(mlir::Value)>;
  /// The same of the first columns of the part.
  mlir::Value getColumnOfPiece(mlir::Value piece);
  /// Stores what is in the buffer, piece by piece.
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
  /// All of a consumer's columns in some rows of the part; rows on M: the
  /// warp's rows of all of its columns.
  void emitRows(int64_t first, int64_t rows);
  void emitColumns();
  /// What becomes of a region's results: they go to a place in the buffer, or
  /// to memory.
  void put(int64_t block, int64_t first, int64_t octets, int64_t chunk);
  void stage(int64_t chunk, mlir::Value rounded);
  void storeSingly(int64_t block, int64_t first, mlir::Value results);
  /// Whether a result is one; i1.
  mlir::Value isThere(mlir::Value row, mlir::Value column);
  /// Sums of projections, times the scales of whole rows; the same octets.
  void applyScales(llvm::MutableArrayRef<mlir::Value> projections,
                   int64_t block, int64_t first, int64_t octets);
  /// One f32 per element of `octets` fragments. `load(octet, element)`.
  mlir::Value gather(int64_t first, int64_t octets,
                     llvm::function_ref<mlir::Value(int64_t, int64_t)> load);
};

/// The same of a product that quantizes its results.
mlir::LogicalResult emitSm90Quantized(Sm90Contract &contract,
                                      const ContractPart &part,
                                      const ContractOperands &operands,
                                      const ContractSums &sums);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90EPILOGUE_H
