//===- Sm90Repack.h - weights in the order of tensor cores ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90REPACK_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90REPACK_H

#include "../../AsyncEmitter.h"
#include "moec/Analysis/Sm90.h"
#include "moec/Dialect/Moe/Fragments.h"

namespace moec {

/// A row's scale of a group, i32. `bits`: exponent and leading digits as stored
/// in memory (exponent 0 is 2^-127 where all scales are powers of two). `sign`:
/// in the prepacked form.
struct GroupScale {
  I32 bits, sign;
};

/// Weight prepacking in one CTA. `Sm90Repack.cpp` has the kernel and scales,
/// `Sm90RepackWords.cpp` quantized values.
class Sm90Repack {
public:
  Sm90Repack(tile::RepackOp op, AsyncEmitter &emitter)
      : op(op), emitter(emitter), b(emitter.b), shape(op),
        format(moe::Fragments::getQuant(op.getQuant(), op.getPacking())),
        digits(format.getDigits()), shared(emitter.dynamicShared()) {}

  void emit();

private:
  static constexpr int64_t kRuns =
      moe::Fragments::kRows / moe::Fragments::kRunRows;
  static constexpr int64_t kWordBytes = 4, kPieceBytes = 16;

  /// The address of byte `byte` (index) of a half in a memref.
  mlir::Value getAddress(mlir::Value memref, int64_t run, mlir::Value byte);
  /// Indices of a row of the CTA's block.
  llvm::SmallVector<mlir::Value> getIndices(mlir::Value row);
  /// Row of the matrix, and row of scales, for a row in shared memory.
  mlir::Value getMatrixRow(mlir::Value sharedRow);
  mlir::Value getScaleRow(mlir::Value sharedRow);
  /// Selects the part held in shared memory: packed tiles from `first` (index)
  /// on.
  void setPart(mlir::Value first);
  /// Loads the part into shared memory.
  void loadPart();
  /// Maxima of a row's scales in the part and `before` (i32): over groups that
  /// are not all zero, and over all groups.
  llvm::SmallVector<mlir::Value> findLargest(mlir::Value row,
                                             mlir::ValueRange before);
  /// Maxima over the thread's whole row, which may not exist.
  llvm::SmallVector<mlir::Value> findLargest(mlir::Value isRow);
  /// Stores the reduction of a row's exponents, and the row's factor.
  void storeExcess(mlir::Value row, mlir::ValueRange largest);
  /// The factor of a whole row: its scale, or that of the matrix; null for 1.
  mlir::Value loadFactor(mlir::Value sharedRow);
  void storeRowScale(mlir::Value sharedRow, mlir::Value excess,
                     mlir::Value largest);
  void storeCodes();
  /// The pair of 4-bit values at a byte of a row, in the low bits of both
  /// halves.
  I32 loadPair(mlir::Value sharedRow, mlir::Value byte);
  /// The word of a row that decodes to two registers of e4m3: four values from
  /// a byte on, and the four 16 elements further.
  I32 packBytes(mlir::Value sharedRow, mlir::Value byte);
  /// Four values from a byte on, in the lowest bits.
  I32 loadFour(mlir::Value sharedRow, mlir::Value byte);
  /// Four 8-bit values from a byte on, which are one register of e4m3.
  I32 loadE4M3(mlir::Value sharedRow, mlir::Value byte);
  /// Rescales values to the least stored scale, if the scale of the element's
  /// group is smaller.
  I32 weaken(I32 codes, mlir::Value sharedRow, mlir::Value element);
  void storeScales();
  /// Row in shared memory of a row of a packed tile (i32).
  mlir::Value getSharedRow(mlir::Value unitRow);
  /// Offset in shared memory of a byte (i32) of a row; the byte is in the part.
  mlir::Value getOffset(mlir::Value sharedRow, mlir::Value byte);
  /// The byte at an offset of shared memory, as i32.
  I32 loadByte(mlir::Value offset);

  //===--- What a row's element (i32) has; rows are those of shared memory
  //---===//

  /// Indices of the scale, or zero point, of an element.
  llvm::SmallVector<mlir::Value> getScaleIndices(mlir::Value sharedRow,
                                                 mlir::Value element);
  /// Loads the element's scale or zero point from a memref, as i32.
  I32 loadOfElement(mlir::Value memref, mlir::Value sharedRow,
                    mlir::Value element);
  GroupScale loadScale(mlir::Value sharedRow, mlir::Value element);
  I32 loadZeroPoint(mlir::Value sharedRow, mlir::Value element);
  /// Whether all values of a packed tile that share a scale with an element are
  /// 0; i1.
  mlir::Value isZero(mlir::Value sharedRow, mlir::Value element);
  /// Whether any of these values is NaN; i1.
  mlir::Value hasNaN(mlir::Value sharedRow, mlir::Value element);
  /// Combines all words of these values by OR, each after `change`.
  I32 gather(mlir::Value sharedRow, mlir::Value element,
             llvm::function_ref<I32(I32)> change);
  /// The scale in prepacked form, for a packed tile's row among the first 8 (0)
  /// or the second.
  I32 getKeptScale(mlir::Value sharedRow, mlir::Value element, int64_t unitRow);
  I32 getKeptZeroPoint(mlir::Value sharedRow, mlir::Value element,
                       int64_t unitRow);
  /// Prepacked form of a zero point, given as an f32 value.
  I32 keepZeroPoint(mlir::Value number, int64_t unitRow);
  /// Splits a minimum into a whole number of scales, relative to the stored
  /// value 0, and a remainder; f32.
  std::pair<mlir::Value, mlir::Value> splitMinimum(mlir::Value sharedRow,
                                                   mlir::Value element);
  /// Prepacked form of a minimum: its zero point and its remainder.
  std::pair<I32, I32> getKeptMinimum(mlir::Value sharedRow, mlir::Value element,
                                     int64_t unitRow);

  I32 word(mlir::Value value) { return {b, value}; }
  I32 word(int64_t number) { return emitter.i32(number); }
  mlir::Value isEqual(I32 x, int64_t number) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::eq, x,
                                       emitter.i32(number));
  }
  I32 toSingle(I32 bits) {
    return word(mlir::arith::BitcastOp::create(b, b.getF32Type(), bits));
  }
  I32 toBits(mlir::Value single) {
    return word(mlir::arith::BitcastOp::create(b, b.getI32Type(), single));
  }
  mlir::Value toI32(mlir::Value index) { return emitter.toI32(index); }
  mlir::Value addI32(mlir::Value x, mlir::Value y) {
    return b.createOrFold<mlir::arith::AddIOp>(x, y);
  }
  mlir::Value excessAddress(mlir::Value row) {
    return emitter.advance(shared,
                           emitter.scale(row, sm90::Repack::kExcessBytes,
                                         shape.getExcessOffset()));
  }

  tile::RepackOp op;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm90::Repack shape;
  moe::Fragments format;
  int64_t digits;
  mlir::Value shared;
  /// The CTA's matrix (index) and block (i32).
  mlir::Value matrix, block;
  /// The part's first packed tile, and the end; index.
  mlir::Value firstUnit, endUnit;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90REPACK_H
