//===- Fragments.h - weights in the order of tensor cores -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `packing = fragments`, `fragments_f16` and `fragments_e4m3` of `#moe.quant`:
// a matrix of weights of 4 or 8 bits as Hopper's tensor cores take it from
// registers, to multiply it by bf16, f16 or e4m3 (docs/decoded-products.md). It
// has the bytes of the weights, in another order: rows go in blocks of 64, each
// of them two *runs* of 32 rows that follow one another in memory; with gate
// and up halves one run is of either. A block's bytes stay where its runs were.
//
// A run of codes is `[depth / 64][pieces][256]` words of 4 bytes: the halves of
// *units* of 64 rows by 64 of the depth. A unit has one *piece* of 16 bytes per
// thread of a warpgroup, or, with codes of 8 bits, two. Scales, and zero points
// beside them, are bytes of a tensor of their own: a run of them is `[depth /
// 64][16][getQuadBytes()]`, what four neighbouring threads have of a unit: of
// two rows that are 8 apart, group by group, the scales, then the zero points,
// then the rests of minima.
//
// A code is a bf16 or f16 of few bits, small by a power of two (`getExponent`),
// or the number of one, and a stored scale is greater by as much, and less by
// 2^r, where r is one number for a row. A scale for all of a row, or of a
// matrix, is a factor of the row's own number, an f32 that sums are multiplied
// with.
//
// A minimum is the whole number of scales that is nearest to it, which is kept
// as a zero point is, and a rest, which is added to a code's product.
//
// An e4m3 has no digits for a scale but for powers of two: of e2m1 the scale is
// a step among those that leave a code's digits whole (`Scales::Steps`), and
// the codes of groups with less are rounded to those of the least.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_FRAGMENTS_H
#define MOEC_DIALECT_MOE_FRAGMENTS_H

#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/Moe.h"

#include <optional>

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
  /// A fragment's registers.
  static constexpr int64_t kRegisters = 4;
  /// Two rows that are 8 apart, one of either in a byte's halves.
  static constexpr int64_t kQuadRows = 2;

  /// The order of weights that are multiplied by elements of that type, bf16,
  /// f16 or e4m3; nothing of others.
  static std::optional<Packing> getPacking(mlir::Type input);

  /// What lies beside each scale.
  enum class Beside { Nothing, ZeroPoints, Minima };
  static Beside getBeside(bool hasZeroPoints, bool hasMinima) {
    if (hasMinima)
      return Beside::Minima;
    return hasZeroPoints ? Beside::ZeroPoints : Beside::Nothing;
  }

  /// Why weights with such scales, of `group` neighbours where these are of
  /// groups or blocks, have not the order `packing`; empty if they have.
  static std::string whyNot(mlir::Type storage, mlir::Type scale,
                            Granularity granularity, int64_t group,
                            Beside beside, Packing packing);
  /// Why weights that lie in memory as they are, or in pairs, have it not.
  static std::string whyNot(QuantAttr plain, Packing packing);
  /// Why a matrix of so many elements has none; empty if it has.
  static std::string whyNot(int64_t rows, int64_t depth);

  /// What the order `packing` makes of weights in memory.
  static QuantAttr getQuant(QuantAttr plain, Packing packing);

  /// Of weights in an order of fragments.
  explicit Fragments(QuantAttr quant);

  //===--- Codes ---===//

  /// Sign, exponent and mantissa of e2m1 or e4m3, a number from 0 to 15 or to
  /// 255, or the number of one of 16.
  enum class Codes { E2M1, Int4, E4M3, Int8, Book };
  Codes codes;
  /// Those 16, which are rounded to what they become; and the bits of that.
  std::optional<CodeBook> book;
  int64_t encodeOfBook(int64_t code) const;
  /// The code of a book of which groups are zeros, if there is one.
  std::optional<int64_t> findZero() const;
  bool areIntegers() const {
    return codes == Codes::Int4 || codes == Codes::Int8;
  }
  /// Bits of a code.
  int64_t getCodeBits() const {
    return codes == Codes::E4M3 || codes == Codes::Int8 ? 8 : 4;
  }
  /// What integers without zero points are less by.
  int64_t getMiddle() const { return codes == Codes::Int4 ? 8 : 128; }
  /// Which bits of a code in memory are others here: the sign of int8 that has
  /// one, without zero points in memory, of int4 that becomes e4m3, and of e4m3
  /// that stays one, which else were in a product's registers as it is loaded.
  int64_t getTurnedBits() const {
    if ((codes == Codes::Int8 && (!hasZeroPoints || hasMinima)) || isE4M3())
      return 0x80;
    return isSignMagnitude() ? 8 : 0;
  }
  /// Whether the lower bits of a negative int4 are turned too: it is kept as a
  /// sign and one less than its magnitude.
  bool isSignMagnitude() const {
    return codes == Codes::Int4 && numbers == Numbers::E4M3;
  }
  /// Whether codes are the numbers that tensor cores multiply.
  bool isE4M3() const {
    return codes == Codes::E4M3 && numbers == Numbers::E4M3;
  }
  /// A code in memory as it is kept here, but for the group's steps.
  int64_t toKept(int64_t code) const {
    code ^= getTurnedBits();
    return isSignMagnitude() && code & 8 ? code ^ 7 : code;
  }
  /// The other way round, for int4 that becomes e4m3.
  int64_t fromKept(int64_t kept) const {
    return (kept & 8 ? kept ^ 7 : kept) ^ getTurnedBits();
  }
  /// What they become on their way to tensor cores.
  enum class Numbers { BF16, F16, E4M3 };
  Numbers numbers;

  /// By how many powers of two a code, as the bits of such a number, is less
  /// than its own, in a row of a unit.
  int64_t getExponent(int64_t unitRow) const;

  //===--- Scales ---===//

  /// What a scale of a group is kept as: the exponent of a bf16, of 8 bits; the
  /// lowest 5 bits of the exponent, with 3 of mantissa, which where codes
  /// become f16 are the first bits of one, of exponents too; a bf16; an f16,
  /// which has few exponents: where codes become bf16 it stands for 2^112 times
  /// its number, and for two bf16 whose sum that is; an f32 of 16 digits, which
  /// are those of the sum of two bf16; a step, 0 to 11 times 8, that the bits
  /// of e4m3 are greater by.
  enum class Scales { E8M0, E5M3, BF16, F16, F32, Steps };
  Scales scales;
  /// Contracted elements of a unit that share a scale; those that share one in
  /// a matrix may be more, 0 standing for all of a row.
  int64_t group, matrixGroup;
  /// Whether a number of a code is subtracted, for each scale; with minima one
  /// that is near them.
  bool hasZeroPoints, hasMinima;

  // Before it is kept, a scale is an exponent as a bf16 or f32 has it, behind
  // which are the first bits of the mantissa.

  /// Whether a byte has 5 bits of an exponent and 3 of mantissa, and the
  /// exponent that its lowest stands for.
  bool areE5M3() const {
    return scales == Scales::E5M3 ||
           (scales == Scales::E8M0 && numbers == Numbers::F16);
  }
  int64_t getLeastExponent() const {
    constexpr int64_t ofBF16 = 235;
    return numbers == Numbers::F16 ? kF16Bias : ofBF16;
  }
  /// The exponents of the lowest and the highest step: with the lowest, 0.5 is
  /// the least normal e4m3, 2^-6, and with the highest 6 is 384.
  static constexpr int64_t kLeastStep = 122, kMostStep = 133;
  /// A step, as the bits of an e4m3 count it.
  static constexpr int64_t kStepBits = 8;
  /// By how many powers of two the scale of a group may be less than that of
  /// the lowest step before all of its codes are 0; and what codes of e2m1
  /// without their signs, the lowest bits first, become with so many.
  static constexpr int64_t kWeakened = 5;
  static constexpr uint32_t kWeakenedCodes[kWeakened + 1] = {
      0x76543210, 0x54322100, 0x32211000, 0x21100000, 0x10000000, 0};
  /// The nearest e2m1 to that code's number by 2^-by, of two the even one.
  static int64_t weaken(int64_t code, int64_t by);
  /// The bits of an f32 up to which scales that have more digits than are kept
  /// are rounded; above, where they might become infinite, these are left out.
  static constexpr int64_t kMostRounded = 0x7F000000;
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

  /// Whether sums of groups are multiplied with them, since no code has digits
  /// for them. Those that a row has in common are a part of its number.
  bool areScalesOfSums() const {
    return numbers == Numbers::E4M3 && scales != Scales::Steps && matrixGroup;
  }
  /// Units of a group of at least one; 0 of smaller ones.
  int64_t getGroupUnits() const { return matrixGroup / kDepth; }

  int64_t getGroups() const { return kDepth / group; }
  /// Powers of two, as which no scale is 0.
  bool arePowers() const {
    return scales == Scales::E8M0 || scales == Scales::Steps;
  }
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
  int64_t getRestBytes() const { return hasMinima ? 2 : 0; }
  /// The sign of a kept scale that is a number.
  int64_t getSign() const { return int64_t(1) << (8 * getScaleBytes() - 1); }
  /// Of a row of a unit, and of two rows.
  int64_t getRowBytes() const {
    return getGroups() *
           (getScaleBytes() + getZeroPointBytes() + getRestBytes());
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

  /// Beside minima, the code, as it is kept, that stands for 0, and the largest
  /// of all.
  int64_t getZeroCode() const { return codes == Codes::Int8 ? 128 : 0; }
  int64_t getLargestCode() const { return (1 << getCodeBits()) - 1; }
  /// A minimum m beside a scale s: the code z that stands for what is nearest
  /// to m / s, and `z s - m`. Codes of a group of zeros are all z, whatever s
  /// is.
  struct SplitMinimum {
    int64_t zeroPoint;
    float rest;
  };
  SplitMinimum splitMinimum(float scale, float minimum, bool isOfZeros) const;
  /// That rest as it is kept: the bits of a bf16 or f16, less by 2^excess.
  int64_t encodeRest(float rest, int64_t excess) const;
  double decodeRest(int64_t kept) const;
  /// Whether a row's r has to leave room for its rests, too, and by how many
  /// powers of two one may be greater than a scale that leaves as much.
  bool areRestsBounded() const { return hasMinima && numbers == Numbers::F16; }
  int64_t getRestRoom() const;

  //===--- Places ---===//

  /// The first memory row of a run (0 or 1) of a block, in a matrix of `rows`.
  static int64_t getRunRow(int64_t block, int64_t run, int64_t rows,
                           WeightLayoutAttr layout);
  /// Which row of its unit a row of a matrix is.
  static int64_t getUnitRow(int64_t row, int64_t rows, WeightLayoutAttr layout);

  /// Bytes of an input row that a unit is multiplied with.
  int64_t getInputBytes() const {
    return numbers == Numbers::E4M3 ? kDepth : 2 * kDepth;
  }
  /// `wgmma` instructions of a unit, of 32 bytes of an input row each.
  int64_t getProducts() const { return getInputBytes() / 32; }
  /// Bytes of the codes of a unit, and words of a run's half of them.
  int64_t getUnitBytes() const { return kRows * kDepth * getCodeBits() / 8; }
  int64_t getRunWords() const { return getPieces() * kPieceWords; }
  /// Pieces of a unit; words that a thread has of a product, and registers that
  /// a word becomes: of both rows in turns, or of one (`e4m3`).
  int64_t getPieces() const { return getCodeBits() / 4; }
  int64_t getProductWords() const {
    return getPieces() * kThreadWords / getProducts();
  }
  int64_t getWordRegisters() const { return kRegisters / getProductWords(); }

  /// Where an element of a matrix is: the row in memory of its run's first
  /// byte, the word there, and its bits, the highest first.
  struct Place {
    int64_t firstRow, word;
    llvm::SmallVector<int64_t, 8> bits;
  };
  Place getPlace(int64_t row, int64_t element, int64_t rows,
                 WeightLayoutAttr layout) const;
  /// The bits of a word for the first (0) or second code of its pair of that
  /// number. Of words that become bf16 or f16.
  llvm::SmallVector<int64_t, 8> getPairBits(int64_t pair, int64_t code) const;
  /// The same of the code of that number in a register (0 or 1) of a word that
  /// becomes e4m3.
  llvm::SmallVector<int64_t, 8> getBits(int64_t inWord, int64_t code) const;
  /// Where the scale of an element is: the first row of its run, the byte
  /// there; and the bytes of its zero point, and of the rest of its minimum.
  struct ScalePlace {
    int64_t firstRow, byte, zeroPoint, rest;
  };
  ScalePlace getScalePlace(int64_t row, int64_t element, int64_t rows,
                           WeightLayoutAttr layout) const;

private:
  /// Of the first code of a pair, where the second's are 16 above, or below
  /// where there are none.
  llvm::ArrayRef<int64_t> getHalfBits(int64_t pair) const;
};

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_FRAGMENTS_H
