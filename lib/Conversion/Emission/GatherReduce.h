//===- GatherReduce.h - the sum of a token's rows ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_EMISSION_GATHERREDUCE_H
#define MOEC_LIB_CONVERSION_EMISSION_GATHERREDUCE_H

#include "KernelEmitter.h"

#include <algorithm>

namespace moec {

/// Writes the sum of one token's rows for some of its columns, each held in
/// registers while the rows are added in order of j.
class GatherReduce {
public:
  GatherReduce(tile::GatherReduceOp op, KernelEmitter &emitter, int64_t lanes)
      : emitter(emitter), b(emitter.b), lanes(lanes),
        rows(emitter.operand(op.getRows())),
        position(emitter.operand(op.getPosition())),
        identity(emitter.operand(op.getIdentity())),
        identityWeights(emitter.operand(op.getIdentityWeights())),
        addend(emitter.operand(op.getAddend())),
        result(emitter.operand(op.getResult())), topK(getColumns(position)) {}

  /// Writes `vectors` times `lanes` columns of a token.
  void emitColumns(mlir::Value token, mlir::Value column, int64_t vectors,
                   mlir::Value mask);
  /// Writes `lanes` columns of a token, and asks for many rows before it adds
  /// the first: for machines that wait long for memory, and have registers.
  /// `slots` is what `loadSlots` made.
  void emitColumnsAhead(mlir::Value token, mlir::Value column,
                        mlir::ValueRange slots);
  /// Where the token's first rows are.
  llvm::SmallVector<mlir::Value> loadSlots(mlir::Value token) {
    return loadSlots(token, emitter.index(0), std::min(topK, kRowsAtOnce));
  }

private:
  /// Rows that are on their way at once.
  static constexpr int64_t kRowsAtOnce = 16;

  llvm::SmallVector<mlir::Value> loadSlots(mlir::Value token, mlir::Value first,
                                           int64_t count);
  mlir::Value load(mlir::Value memref, mlir::Value row, mlir::Value column,
                   int64_t i, mlir::Value mask) {
    return emitter.loadVector(memref, {row, emitter.add(column, i * lanes)},
                              lanes, mask);
  }
  llvm::SmallVector<mlir::Value> addRow(mlir::ValueRange sums, mlir::Value row,
                                        mlir::Value column, mlir::Value mask);
  llvm::SmallVector<mlir::Value> addIdentity(mlir::ValueRange sums,
                                             mlir::Value token, mlir::Value j,
                                             mlir::Value column,
                                             mlir::Value mask);
  /// Adds the rows of slots from number `first` on, all of them loaded before.
  mlir::Value addAhead(mlir::Value sum, mlir::Value token, mlir::Value first,
                       mlir::ValueRange slots, mlir::Value column,
                       mlir::Value self);

  KernelEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  int64_t lanes;
  mlir::Value rows, position, identity, identityWeights, addend, result;
  int64_t topK;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_GATHERREDUCE_H
