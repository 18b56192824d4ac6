//===- Prepack.h - weights in the order of tensor cores ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_PREPACKEDWEIGHTS_PREPACK_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_PREPACKEDWEIGHTS_PREPACK_H

#include "KernelBuilder/AsyncEmitter.h"
#include "Schedules/Sm90Gemm/Shape.h"
#include "moec/Dialect/Moe/PackedValues.h"
#include "moec/Dialect/Moe/Prepacking.h"

namespace moec {

/// A row's scale of a group, i32. `bits`: exponent and leading digits as stored
/// in memory (exponent 0 is 2^-127 where all scales are powers of two). `sign`:
/// in the prepacked form.
struct GroupScale {
  I32 bits, sign;
};

/// Weight prepacking in one CTA. `Prepack.cpp` has the kernel and scales,
/// `PrepackWords.cpp` quantized values.
class Sm90Prepack {
public:
  Sm90Prepack(tile::PrepackOp op, AsyncEmitter &emitter)
      : op(op), emitter(emitter), b(emitter.b), shape(op),
        format(moe::getPrepacked(op.getQuant(), op.getPacking())),
        digits(format.scale.digits), shared(emitter.dynamicShared()) {}

  void emit();

private:
  static constexpr int64_t kTileHalves =
      moe::PrepackedFormat::kRows / moe::PrepackedFormat::kHalfRows;
  static constexpr int64_t kWordBytes = 4, kChunkBytes = 16;

  /// Maxima of a row's scales: over groups that are not all zero, and over all
  /// groups.
  struct Largest {
    I32 used, all;

    auto fields() { return std::tie(used, all); }
  };

  /// The address of byte `byte` of a half in a memref.
  mlir::Value getAddress(mlir::Value memref, int64_t tileHalf, Index byte);
  /// Indices of a row of the CTA's block.
  llvm::SmallVector<mlir::Value> getIndices(I32 row);
  /// Row of the matrix, and row of scales, for a row in shared memory.
  I32 getMatrixRow(I32 sharedRow);
  I32 getScaleRow(I32 sharedRow);
  /// Selects the part held in shared memory: packed tiles from `first`
  /// on.
  void setPart(Index first);
  /// Loads the part into shared memory.
  void loadPart();
  /// Maxima of a row's scales in the part and `before`.
  Largest findLargest(I32 row, Largest before);
  /// Maxima over the thread's whole row, which may not exist.
  Largest findLargest(Flag isRow);
  /// Stores the reduction of a row's exponents, and the row's factor.
  void storeExcess(I32 row, Largest largest);
  /// The factor of a whole row: its scale, or that of the matrix; null for 1.
  F32 loadFactor(I32 sharedRow);
  void storeRowScale(I32 sharedRow, I32 excess, I32 largest);
  void storeValues();
  /// The pair of 4-bit values at a byte of a row, in the low bits of both
  /// halves.
  I32 loadPair(I32 sharedRow, I32 byte);
  /// The word of a row that decodes to two registers of e4m3: four values from
  /// a byte on, and the four 16 elements further.
  I32 packBytes(I32 sharedRow, I32 byte);
  /// Four values from a byte on, in the lowest bits.
  I32 loadFour(I32 sharedRow, I32 byte);
  /// Four 8-bit values from a byte on, which are one register of e4m3.
  I32 loadE4M3(I32 sharedRow, I32 byte);
  /// Rescales values to the least stored scale, if the scale of the element's
  /// group is smaller.
  I32 weaken(I32 values, I32 sharedRow, I32 element);
  void storeScales();
  /// Row in shared memory of a row of a packed tile.
  I32 getSharedRow(I32 tileRow);
  /// Offset in shared memory of a byte of a row; the byte is in the part.
  I32 getOffset(I32 sharedRow, I32 byte);
  /// The byte at an offset of shared memory, as i32.
  I32 loadByte(I32 offset);

  //===--- What a row's element has; rows are those of shared memory
  //---===//

  /// Indices of the scale, or zero point, of an element.
  llvm::SmallVector<mlir::Value> getScaleIndices(I32 sharedRow, I32 element);
  /// Loads the element's scale or zero point from a memref, as i32.
  I32 loadOfElement(mlir::Value memref, I32 sharedRow, I32 element);
  GroupScale loadScale(I32 sharedRow, I32 element);
  I32 loadZeroPoint(I32 sharedRow, I32 element);
  /// Whether all values of a packed tile that share a scale with an element are
  /// 0; i1.
  Flag isZero(I32 sharedRow, I32 element);
  /// Whether any of these values is NaN.
  Flag hasNaN(I32 sharedRow, I32 element);
  /// Combines all words of these values by OR, each after `change`.
  I32 gather(I32 sharedRow, I32 element, llvm::function_ref<I32(I32)> change);
  /// The scale in prepacked form, for a packed tile's row among the first 8 (0)
  /// or the second.
  I32 getKeptScale(I32 sharedRow, I32 element, int64_t tileRow);
  I32 getKeptZeroPoint(I32 sharedRow, I32 element, int64_t tileRow);
  /// Prepacked form of a zero point, given as a number.
  I32 keepZeroPoint(F32 number, int64_t tileRow);
  /// Splits a minimum into a whole number of scales, relative to the stored
  /// value 0, and a remainder.
  std::pair<F32, F32> splitMinimum(I32 sharedRow, I32 element);
  /// Prepacked form of a minimum: its zero point and its remainder.
  std::pair<I32, I32> getKeptMinimum(I32 sharedRow, I32 element,
                                     int64_t tileRow);

  I32 word(int64_t number) { return emitter.i32(number); }
  /// The bits of a 16-bit float.
  IntegerValue<int16_t> toBits(mlir::Value half) {
    return {b, mlir::arith::BitcastOp::create(b, b.getI16Type(), half)};
  }
  /// Reduction of a row's exponents.
  I32 loadExcess(I32 row) { return emitter.loadWord(excessAddress(row)); }
  mlir::Value excessAddress(I32 row) {
    return emitter.advance(shared, row * sm90::Prepack::kExcessBytes +
                                       shape.getExcessOffset());
  }

  tile::PrepackOp op;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm90::Prepack shape;
  moe::PrepackedFormat format;
  int64_t digits;
  mlir::Value shared;
  /// The CTA's matrix and block.
  Index matrix;
  I32 block;
  /// The part's first packed tile, and the end.
  Index firstPackedTile, endPackedTile;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_PREPACKEDWEIGHTS_PREPACK_H
