//===- Fragments.h - weights in the order of tensor cores -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `packing = fragments` and `fragments_f16` of `#moe.quant`: a matrix of
// weights of 4 or 8 bits as Hopper's tensor cores take it from registers, to
// multiply it by bf16 or by f16 (docs/decoded-products.md). It has the
// bytes of the weights, in another order: rows go in blocks of 64, each of them
// two *runs* of 32 rows that follow one another in memory; with gate and up
// halves one run is of either. A block's bytes stay where its runs were.
//
// A run of codes is `[depth / 64][pieces][256]` words of 4 bytes: the halves of
// *units* of 64 rows by 64 of the depth. A unit has one *piece* of 16 bytes per
// thread of a warpgroup, or, with codes of 8 bits, two. Scales, and zero points
// beside them, are bytes of a tensor of their own: a run of them is `[depth /
// 64][16][getQuadBytes()]`, what four neighbouring threads have of a unit: of
// two rows that are 8 apart, group by group, the scales, then the zero points.
//
// A code is a bf16 or f16 of few bits, small by a power of two (`getExponent`),
// and a stored scale is greater by as much, and less by 2^r, where r is one
// number for a row. A scale for all of a row, or of a matrix, is a factor of
// the row's own number, an f32 that sums are multiplied with.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_FRAGMENTS_H
#define MOEC_DIALECT_MOE_FRAGMENTS_H

#include "moec/Dialect/Moe/Moe.h"

namespace moec::moe {

/// Whether elements are in an order of fragments.
bool isFragments(Packing packing);

/// Whether gate and up rows are two halves.
bool hasHalves(WeightLayoutAttr layout);

class Fragments {
public:
  /// Rows and depth of a unit; rows of a run.
  static constexpr int64_t kRows = 64, kDepth = 64, kRunRows = 32;
  /// Words of a run's half of a piece, and those that a thread has of it;
  /// groups of four threads that share two rows of a unit.
  static constexpr int64_t kPieceWords = 256, kThreadWords = 4, kQuads = 16;
  /// `wgmma` instructions of a unit, and a fragment's registers, each of which
  /// has a pair of codes.
  static constexpr int64_t kProducts = 4, kPairs = 4;
  /// Two rows that are 8 apart, one of either in a byte's halves.
  static constexpr int64_t kQuadRows = 2;

  /// The order of weights that are multiplied by elements of that type, bf16 or
  /// f16.
  static Packing getPacking(mlir::Type input);

  /// Why weights with such scales, of `group` neighbours where these are of
  /// groups or blocks, have not the order `packing`; empty if they have.
  static std::string whyNot(mlir::Type storage, mlir::Type scale,
                            Granularity granularity, int64_t group,
                            bool hasZeroPoints, Packing packing);
  /// Why weights that lie in memory as they are, or in pairs, have it not.
  static std::string whyNot(QuantAttr plain, Packing packing);
  /// Why a matrix of so many elements has none; empty if it has.
  static std::string whyNot(int64_t rows, int64_t depth);

  /// What the order `packing` makes of weights in memory.
  static QuantAttr getQuant(QuantAttr plain, Packing packing);

  /// Of weights in an order of fragments.
  explicit Fragments(QuantAttr quant);

  //===--- Codes ---===//

  /// Sign, exponent and mantissa of e2m1 or e4m3, or a number from 0 to 15 or
  /// to 255.
  enum class Codes { E2M1, Int4, E4M3, Int8 };
  Codes codes;
  bool areIntegers() const {
    return codes == Codes::Int4 || codes == Codes::Int8;
  }
  /// Bits of a code.
  int64_t getCodeBits() const {
    return codes == Codes::E2M1 || codes == Codes::Int4 ? 4 : 8;
  }
  /// What integers without zero points are less by.
  int64_t getMiddle() const { return codes == Codes::Int4 ? 8 : 128; }
  /// Which bits of a code in memory are others here: the sign of int8 without
  /// zero points.
  int64_t getTurnedBits() const {
    return codes == Codes::Int8 && !hasZeroPoints ? 0x80 : 0;
  }
  /// What they become on their way to tensor cores.
  enum class Numbers { BF16, F16 };
  Numbers numbers;

  /// By how many powers of two a code, as the bits of such a number, is less
  /// than its own, in a row of a unit.
  int64_t getExponent(int64_t unitRow) const;

  //===--- Scales ---===//

  /// What a scale of a group is kept as: the exponent of a bf16, of 8 bits; the
  /// lowest 5 bits of the exponent, with 3 of mantissa; a bf16; an f16, which
  /// has few exponents: where codes become bf16 it stands for 2^112 times its
  /// number, and for two bf16 whose sum that is; an f32 of 16 digits, which are
  /// those of the sum of two bf16.
  enum class Scales { E8M0, E5M3, BF16, F16, F32 };
  Scales scales;
  /// Contracted elements of a unit that share a scale; those that share one in
  /// a matrix may be more, 0 standing for all of a row.
  int64_t group, matrixGroup;
  bool hasZeroPoints;

  // Before it is kept, a scale is an exponent as a bf16 or f32 has it, behind
  // which are the first bits of the mantissa.

  /// The exponent that the lowest of `E5M3` stands for.
  static constexpr int64_t kLeastExponent = 235;
  /// Bits of the mantissa.
  int64_t getDigits() const {
    return scales == Scales::F32 ? 15 : scales == Scales::F16 ? 10 : 7;
  }
  /// Exponents: of the largest scale of a row that has r = 0, for one greater
  /// by `getExponent` can be kept; and of the least that is kept so, others
  /// being 0.
  int64_t getLargestExponent() const;
  int64_t getLeastKept(int64_t unitRow) const;
  /// The least r.
  int64_t getLeastExcess() const;
  /// The largest that is kept, its mantissa too.
  int64_t getLargestKept() const;
  /// By how much the exponent of an f16 is less than that of a bf16 of the same
  /// number, and than that of a scale which is kept as f16.
  static constexpr int64_t kF16Bias = 112;
  int64_t getKeptBias() const {
    return numbers == Numbers::F16 ? kF16Bias : 2 * kF16Bias;
  }

  int64_t getGroups() const { return kDepth / group; }
  bool areNumbers() const {
    return scales == Scales::BF16 || scales == Scales::F16 ||
           scales == Scales::F32;
  }
  /// Whether they are multiplied as the sum of two bf16.
  bool haveRests() const {
    return scales == Scales::F32 ||
           (scales == Scales::F16 && numbers == Numbers::BF16);
  }
  int64_t getScaleBytes() const {
    return scales == Scales::F32 ? 4 : areNumbers() ? 2 : 1;
  }
  int64_t getZeroPointBytes() const { return hasZeroPoints ? 2 : 0; }
  /// The sign of a kept scale that is a number.
  int64_t getSign() const { return int64_t(1) << (8 * getScaleBytes() - 1); }
  /// Of a row of a unit, and of two rows.
  int64_t getRowBytes() const {
    return getGroups() * (getScaleBytes() + getZeroPointBytes());
  }
  int64_t getQuadBytes() const { return kQuadRows * getRowBytes(); }
  /// Of a row of a matrix: the width of the tensor.
  int64_t getRowBytes(int64_t depth) const {
    return depth / kDepth * getRowBytes();
  }

  /// A scale as it is kept, of one that is not negative and has been made
  /// greater.
  int64_t encodeScale(int64_t bits) const;
  /// The number that a kept scale, perhaps negative, stands for.
  double decodeScale(int64_t kept) const;
  /// A zero point as it is kept: the bits of the bf16 or f16 that the code of
  /// that number would be.
  int64_t encodeZeroPoint(int64_t zeroPoint, int64_t unitRow) const;
  /// The other way round.
  double decodeZeroPoint(int64_t kept, int64_t unitRow) const;

  //===--- Places ---===//

  /// The first memory row of a run (0 or 1) of a block, in a matrix of `rows`.
  static int64_t getRunRow(int64_t block, int64_t run, int64_t rows,
                           WeightLayoutAttr layout);
  /// Which row of its unit a row of a matrix is.
  static int64_t getUnitRow(int64_t row, int64_t rows, WeightLayoutAttr layout);

  /// Bytes of the codes of a unit, and words of a run's half of them.
  int64_t getUnitBytes() const { return kRows * kDepth * getCodeBits() / 8; }
  int64_t getRunWords() const { return getPieces() * kPieceWords; }
  /// Pieces of a unit; words and pairs of them that a thread has.
  int64_t getPieces() const { return getCodeBits() / 4; }
  int64_t getProductWords() const { return getPieces(); }
  int64_t getWordPairs() const { return kPairs / getProductWords(); }

  /// Where an element of a matrix is: the row in memory of its run's first
  /// byte, the word there, and its bits, the highest first.
  struct Place {
    int64_t firstRow, word;
    llvm::SmallVector<int64_t, 8> bits;
  };
  Place getPlace(int64_t row, int64_t element, int64_t rows,
                 WeightLayoutAttr layout) const;
  /// The bits of a word for its pair of that number: of the first of its two
  /// codes; 16 above are the second's.
  llvm::ArrayRef<int64_t> getBits(int64_t pair) const;
  /// Where the scale of an element is: the first row of its run, the byte
  /// there; and the byte of its zero point.
  struct ScalePlace {
    int64_t firstRow, byte, zeroPoint;
  };
  ScalePlace getScalePlace(int64_t row, int64_t element, int64_t rows,
                           WeightLayoutAttr layout) const;
};

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_FRAGMENTS_H
