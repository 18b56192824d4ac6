//===- Sm90Repack.h - weights in the order of tensor cores ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90REPACK_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90REPACK_H

#include "../../AsyncEmitter.h"
#include "../../Word.h"
#include "moec/Analysis/Sm90.h"
#include "moec/Dialect/Moe/Fragments.h"

namespace moec {

/// A row's scale of a group, i32: exponent and first digits, before it is kept,
/// an exponent of 0 standing for 2^-127 where all scales are powers of two; and
/// its sign, as what is kept has it.
struct GroupScale {
  Word bits, sign;
};

/// Of a kernel of sm90.repack, what one CTA does: `Sm90Repack.cpp` has scales
/// and the whole, `Sm90RepackWords.cpp` codes.
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

  /// The address of a byte (index) of a run in a memref.
  mlir::Value getAddress(mlir::Value memref, int64_t run, mlir::Value byte);
  /// Indices of a row of the CTA's block.
  llvm::SmallVector<mlir::Value> getIndices(mlir::Value row);
  /// The row in its matrix of one in shared memory, and its row of scales.
  mlir::Value getMatrixRow(mlir::Value sharedRow);
  mlir::Value getScaleRow(mlir::Value sharedRow);
  /// Makes the units from one on (index) the part that is held.
  void setPart(mlir::Value first);
  /// Reads the part.
  void loadPart();
  /// The largest scales of a row in the part, and what they are before it
  /// (i32): of groups that are not zeros, and of all.
  llvm::SmallVector<mlir::Value> findLargest(mlir::Value row,
                                             mlir::ValueRange before);
  /// The same of all of the thread's row, which may be none.
  llvm::SmallVector<mlir::Value> findLargest(mlir::Value isRow);
  /// How much less a row's exponents are stored, and its number.
  void storeExcess(mlir::Value row, mlir::ValueRange largest);
  /// The number of all of a row: its scale, or that of the matrix; null for 1.
  mlir::Value loadFactor(mlir::Value sharedRow);
  void storeRowScale(mlir::Value sharedRow, mlir::Value excess,
                     mlir::Value largest);
  void storeCodes();
  /// The pair of codes at a byte of a row, at the low ends of both halves.
  Word loadPair(mlir::Value sharedRow, mlir::Value byte);
  /// The word that becomes two registers of e4m3, of a row: four codes from a
  /// byte on, and four more that are 16 on.
  Word packBytes(mlir::Value sharedRow, mlir::Value byte);
  /// Four codes from a byte on, in the lowest bits.
  Word loadFour(mlir::Value sharedRow, mlir::Value byte);
  /// The word of four codes of 8 bits from a byte on, which is a register of
  /// e4m3.
  Word loadE4M3(mlir::Value sharedRow, mlir::Value byte);
  /// Codes as they are with the least step, where the scale of the element's
  /// group is less.
  Word weaken(Word codes, mlir::Value sharedRow, mlir::Value element);
  void storeScales();
  /// The row, in shared memory, of a row of a unit (i32).
  mlir::Value getSharedRow(mlir::Value unitRow);
  /// The offset in shared memory of a byte (i32) of a row, which is of the
  /// part.
  mlir::Value getOffset(mlir::Value sharedRow, mlir::Value byte);
  /// A byte at an offset of shared memory, as i32.
  Word loadByte(mlir::Value offset);

  //===--- What a row's element (i32) has; rows are those of shared memory
  //---===//

  /// The indices of the scale of an element, or of its zero point.
  llvm::SmallVector<mlir::Value> getScaleIndices(mlir::Value sharedRow,
                                                 mlir::Value element);
  /// What lies there in a memref, as i32.
  Word loadOfElement(mlir::Value memref, mlir::Value sharedRow,
                     mlir::Value element);
  GroupScale loadScale(mlir::Value sharedRow, mlir::Value element);
  Word loadZeroPoint(mlir::Value sharedRow, mlir::Value element);
  /// Whether all that shares a scale with an element, in a unit, is 0; i1.
  mlir::Value isZero(mlir::Value sharedRow, mlir::Value element);
  /// Whether some of it is no number; i1.
  mlir::Value hasNaN(mlir::Value sharedRow, mlir::Value element);
  /// All words of its codes, of which each becomes one that is added by OR.
  Word gather(mlir::Value sharedRow, mlir::Value element,
              llvm::function_ref<Word(Word)> change);
  /// As they are kept, in a row of a unit that is one of the first 8 (0), or of
  /// the second.
  Word getKeptScale(mlir::Value sharedRow, mlir::Value element,
                    int64_t unitRow);
  Word getKeptZeroPoint(mlir::Value sharedRow, mlir::Value element,
                        int64_t unitRow);
  /// A number of a code, f32, as it is kept as a zero point.
  Word keepZeroPoint(mlir::Value number, int64_t unitRow);
  /// A minimum as a whole number of scales, above the code of 0, and what that
  /// is more; f32.
  std::pair<mlir::Value, mlir::Value> splitMinimum(mlir::Value sharedRow,
                                                   mlir::Value element);
  /// The same of a minimum's zero point, and its rest.
  std::pair<Word, Word> getKeptMinimum(mlir::Value sharedRow,
                                       mlir::Value element, int64_t unitRow);

  Word word(mlir::Value value) { return {&b, value}; }
  Word word(int64_t number) { return {&b, emitter.i32(number)}; }
  Word max(Word x, Word y) {
    return word(mlir::arith::MaxSIOp::create(b, x.value, y.value));
  }
  mlir::Value isEqual(Word x, int64_t number) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::eq,
                                       x.value, emitter.i32(number));
  }
  Word toSingle(Word bits) {
    return word(mlir::arith::BitcastOp::create(b, b.getF32Type(), bits.value));
  }
  Word toBits(mlir::Value single) {
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
  /// The CTA's matrix and block; index and i32.
  mlir::Value matrix, block;
  /// The part's first unit, and that behind its last; index.
  mlir::Value firstUnit, endUnit;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90REPACK_H
