//===- Fragments.h - layout of prepacked weights ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layout of prepacked weights: `packing = fragments`, `fragments_f16` and
// `fragments_e4m3` of `#moe.quant`. A matrix of 4-bit or 8-bit weights is
// stored as Hopper's tensor cores take it from registers, to multiply it by
// bf16, f16 or e4m3 (docs/design/gemm-hopper.md). The bytes of the weights are
// permuted: rows form blocks of 64, each of two *runs* (halves) of 32 rows that
// are adjacent in memory. With gate and up halves, a block has one run of each.
// The bytes of a block stay in the memory of its runs.
//
// A run of quantized values is `[depth / 64][pieces][256]` words of 4 bytes:
// its halves of all *units* (packed tiles), each of 64 rows by 64 of K. A unit
// has one *piece* of 16 bytes per thread of a warpgroup, or two with 8-bit
// values. Scales, and zero points beside them, are bytes of another tensor. A
// run of scales is `[depth / 64][16][getQuadBytes()]`: the bytes that four
// neighbouring threads need of a unit, for two rows that are 8 apart, group by
// group: the scales, then the zero points, then the rests of minima.
//
// A value is stored as bits of a bf16 or f16, which is 2^-e times the
// value (e is `getExponent`), or as an index into a code book. Stored scales
// compensate: `stored = scale * 2^(e - r)`, with one r per row. A scale of a
// whole row or matrix becomes a factor of the row's `row_scale`, an f32 that
// multiplies sums.
//
// A minimum is split into the nearest integer multiple of its scale, which is
// stored like a zero point, and a rest, which is added to the scaled value.
//
// An e4m3 can only be scaled by powers of two without rounding: the scale of
// e2m1 is a step in the range that keeps all bits of a value (`Scales::Steps`),
// and values of groups with a smaller scale are rounded to those of the least
// step.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_FRAGMENTS_H
#define MOEC_DIALECT_MOE_FRAGMENTS_H

#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/Moe.h"

#include <optional>

namespace moec::moe {

/// Whether elements are prepacked.
bool isFragments(Packing packing);

/// Whether gate and up rows are two halves, not interleaved.
bool hasHalves(WeightLayoutAttr layout);

class Fragments {
public:
  /// Rows and K of a unit; rows of a run.
  static constexpr int64_t kRows = 64, kDepth = 64, kRunRows = 32;
  /// Words of a run in one piece of a unit; words of a thread in a piece;
  /// groups of four threads that share two rows of a unit.
  static constexpr int64_t kPieceWords = 256, kThreadWords = 4, kQuads = 16;
  /// Registers of operand A of one `wgmma`, per thread.
  static constexpr int64_t kRegisters = 4;
  /// Rows of a thread in a unit; 8 apart.
  static constexpr int64_t kQuadRows = 2;

  /// The packing for a gemm with inputs of type `input`: bf16, f16 or e4m3;
  /// nothing for other types.
  static std::optional<Packing> getPacking(mlir::Type input);

  /// Data stored beside each scale.
  enum class Beside { Nothing, ZeroPoints, Minima };
  static Beside getBeside(bool hasZeroPoints, bool hasMinima) {
    if (hasMinima)
      return Beside::Minima;
    return hasZeroPoints ? Beside::ZeroPoints : Beside::Nothing;
  }

  /// Reason why weights with such scales cannot have `packing`; empty if they
  /// can. `group`: elements per scale along K, for groups and blocks.
  static std::string whyNot(mlir::Type storage, mlir::Type scale,
                            Granularity granularity, int64_t group,
                            Beside beside, Packing packing);
  /// Reason why weights that are not prepacked yet cannot be; empty if they
  /// can.
  static std::string whyNot(QuantAttr plain, Packing packing);
  /// Reason why a matrix of this size cannot be prepacked; empty if it can.
  static std::string whyNot(int64_t rows, int64_t depth);

  /// The quant of weights after prepacking.
  static QuantAttr getQuant(QuantAttr plain, Packing packing);

  /// `quant` has one of the three packings.
  explicit Fragments(QuantAttr quant);

  //===--- Codes ---===//

  /// Format of quantized values: e2m1, an integer from 0 to 15, e4m3, an
  /// integer from 0 to 255, or an index into a code book.
  enum class Codes { E2M1, Int4, E4M3, Int8, Book };
  Codes codes;
  /// The 16 code-book entries, rounded to the compute type, and their bits.
  std::optional<CodeBook> book;
  int64_t encodeOfBook(int64_t code) const;
  /// The index of 0.0 in the code book, if there is one.
  std::optional<int64_t> findZero() const;
  bool areIntegers() const {
    return codes == Codes::Int4 || codes == Codes::Int8;
  }
  /// Bits of a quantized value.
  int64_t getCodeBits() const {
    return codes == Codes::E4M3 || codes == Codes::Int8 ? 8 : 4;
  }
  /// The implied zero point of integers.
  int64_t getMiddle() const { return codes == Codes::Int4 ? 8 : 128; }
  /// Bits that prepacking inverts: the sign of signed int8 (without zero points
  /// in memory), of int4 that becomes e4m3, and of e4m3 that stays e4m3, which
  /// else could be loaded straight into the registers of a `wgmma`.
  int64_t getTurnedBits() const {
    if ((codes == Codes::Int8 && (!hasZeroPoints || hasMinima)) || isE4M3())
      return 0x80;
    return isSignMagnitude() ? 8 : 0;
  }
  /// Whether prepacking also inverts the lower bits of a negative int4, which
  /// is stored as a sign and its magnitude less one.
  bool isSignMagnitude() const {
    return codes == Codes::Int4 && numbers == Numbers::E4M3;
  }
  /// Whether tensor cores multiply the stored values without conversion.
  bool isE4M3() const {
    return codes == Codes::E4M3 && numbers == Numbers::E4M3;
  }
  /// The prepacked form of a value in memory, without the step of its group.
  int64_t toKept(int64_t code) const {
    code ^= getTurnedBits();
    return isSignMagnitude() && code & 8 ? code ^ 7 : code;
  }
  /// The inverse, for int4 that becomes e4m3.
  int64_t fromKept(int64_t kept) const {
    return (kept & 8 ? kept ^ 7 : kept) ^ getTurnedBits();
  }
  /// Compute type: the type to which values are dequantized.
  enum class Numbers { BF16, F16, E4M3 };
  Numbers numbers;

  /// e in a row of a unit: the stored bits, read as the compute type, are 2^-e
  /// times the value.
  int64_t getExponent(int64_t unitRow) const;

  //===--- Scales ---===//

  /// Stored form of a group's scale.
  /// - E8M0: the exponent of a bf16, 8 bits.
  /// - E5M3: the lowest 5 bits of an exponent and 3 of mantissa; if the compute
  ///   type is f16, the first bits of an f16, also for scales of E8M0.
  /// - BF16: a bf16.
  /// - F16: an f16, which has few exponents. If the compute type is bf16, it
  ///   stands for 2^112 times its value, and for two bf16 that add up to it.
  /// - F32: an f32 with 16 significant bits, those of a sum of two bf16.
  /// - Steps: 8 times a step from 0 to 11, added to the bits of an e4m3.
  enum class Scales { E8M0, E5M3, BF16, F16, F32, Steps };
  Scales scales;
  /// Elements along K that share a scale: within a unit, and in the matrix,
  /// where 0 stands for a whole row.
  int64_t group, matrixGroup;
  /// Whether each scale has a zero point; with minima, the one near its
  /// minimum.
  bool hasZeroPoints, hasMinima;

  // Before encoding, a scale is the exponent of a bf16 or f32 followed by the
  // first `getDigits()` bits of the mantissa.

  /// Whether a stored scale is a byte of 5 exponent and 3 mantissa bits, and
  /// the exponent that 0 stands for.
  bool areE5M3() const {
    return scales == Scales::E5M3 ||
           (scales == Scales::E8M0 && numbers == Numbers::F16);
  }
  int64_t getLeastExponent() const {
    constexpr int64_t ofBF16 = 235;
    return numbers == Numbers::F16 ? kF16Bias : ofBF16;
  }
  /// Exponents of the lowest and the highest step: 0.5 becomes 2^-6, the least
  /// normal e4m3, with the lowest, and 6 becomes 384 with the highest.
  static constexpr int64_t kLeastStep = 122, kMostStep = 133;
  /// One step in the bits of an e4m3: the lowest bit of its exponent.
  static constexpr int64_t kStepBits = 8;
  /// A scale 2^kWeakened below the lowest step makes all values of its group 0.
  /// Entry `by`: the magnitudes of e2m1 after `weaken`, 4 bits each, lowest
  /// bits first.
  static constexpr int64_t kWeakened = 5;
  static constexpr uint32_t kWeakenedCodes[kWeakened + 1] = {
      0x76543210, 0x54322100, 0x32211000, 0x21100000, 0x10000000, 0};
  /// The e2m1 nearest to 2^-by times a value, ties to even.
  static int64_t weaken(int64_t code, int64_t by);
  /// Bits of the largest f32 scale whose mantissa is rounded to the stored
  /// bits; larger ones are truncated, since they might become infinite.
  static constexpr int64_t kMostRounded = 0x7F000000;
  /// Mantissa bits of a scale before encoding.
  int64_t getDigits() const {
    return scales == Scales::F32 ? 15 : scales == Scales::F16 ? 10 : 7;
  }
  /// Exponents: of the largest scale of a row with r = 0 that can still be
  /// stored times 2^e, and of the least stored scale; smaller ones become 0.
  int64_t getLargestExponent() const;
  int64_t getLeastKept(int64_t unitRow) const;
  /// The least r.
  int64_t getLeastExcess() const;
  /// The largest stored scale, exponent and mantissa.
  int64_t getLargestKept() const;
  /// Difference between the exponent of a bf16 and that of an f16 of equal
  /// value, and between that of a scale and that of its stored f16.
  static constexpr int64_t kF16Bias = 112;
  int64_t getKeptBias() const {
    return numbers == Numbers::F16 ? kF16Bias : 2 * kF16Bias;
  }

  /// Whether scales multiply sums of groups, since e4m3 cannot be scaled
  /// exactly. Scales of whole rows are part of `row_scale` instead.
  bool areScalesOfSums() const {
    return numbers == Numbers::E4M3 && scales != Scales::Steps && matrixGroup;
  }
  /// Units per group; 0 for groups smaller than a unit.
  int64_t getGroupUnits() const { return matrixGroup / kDepth; }

  int64_t getGroups() const { return kDepth / group; }
  /// Whether scales are powers of two, and so never 0.
  bool arePowers() const {
    return scales == Scales::E8M0 || scales == Scales::Steps;
  }
  bool areNumbers() const {
    return scales == Scales::BF16 || scales == Scales::F16 ||
           scales == Scales::F32;
  }
  /// Whether a scale is applied as a sum of two bf16.
  bool haveRests() const {
    return scales == Scales::F32 ||
           (scales == Scales::F16 && numbers == Numbers::BF16);
  }
  int64_t getScaleBytes() const {
    return scales == Scales::F32 ? 4 : areNumbers() ? 2 : 1;
  }
  int64_t getZeroPointBytes() const { return hasZeroPoints ? 2 : 0; }
  int64_t getRestBytes() const { return hasMinima ? 2 : 0; }
  /// The sign bit of a stored bf16, f16 or f32 scale.
  int64_t getSign() const { return int64_t(1) << (8 * getScaleBytes() - 1); }
  /// Scale bytes of one row of a unit, and of the two rows of a thread.
  int64_t getRowBytes() const {
    return getGroups() *
           (getScaleBytes() + getZeroPointBytes() + getRestBytes());
  }
  int64_t getQuadBytes() const { return kQuadRows * getRowBytes(); }
  /// Scale bytes of a row of a matrix: the width of the tensor.
  int64_t getRowBytes(int64_t depth) const {
    return depth / kDepth * getRowBytes();
  }

  /// Encodes a scale that is not negative and has been multiplied by 2^(e - r).
  int64_t encodeScale(int64_t bits) const;
  /// The value of a stored scale, perhaps negative.
  double decodeScale(int64_t kept) const;
  /// Encodes a zero point as the bf16 or f16 bits of the equal value in that
  /// row.
  int64_t encodeZeroPoint(int64_t zeroPoint, int64_t unitRow) const;
  /// The inverse.
  double decodeZeroPoint(int64_t kept, int64_t unitRow) const;

  /// With minima: the stored value that stands for 0, and the largest one.
  int64_t getZeroCode() const { return codes == Codes::Int8 ? 128 : 0; }
  int64_t getLargestCode() const { return (1 << getCodeBits()) - 1; }
  /// Splits a minimum m with scale s into the zero point z for which z s is
  /// nearest to m, and `z s - m`. In a group of zeros, all values are z,
  /// whatever s is.
  struct SplitMinimum {
    int64_t zeroPoint;
    float rest;
  };
  SplitMinimum splitMinimum(float scale, float minimum, bool isOfZeros) const;
  /// Encodes a rest, times 2^-excess, as the bits of a bf16 or f16.
  int64_t encodeRest(float rest, int64_t excess) const;
  double decodeRest(int64_t kept) const;
  /// Whether a row's r must also leave headroom for rests, and by how many
  /// powers of two a rest may exceed the largest scale then.
  bool areRestsBounded() const { return hasMinima && numbers == Numbers::F16; }
  int64_t getRestRoom() const;

  //===--- Addresses ---===//

  /// The first row in memory of run 0 or 1 of a block, in a matrix of `rows`.
  static int64_t getRunRow(int64_t block, int64_t run, int64_t rows,
                           WeightLayoutAttr layout);
  /// The index within its unit of a row of a matrix.
  static int64_t getUnitRow(int64_t row, int64_t rows, WeightLayoutAttr layout);

  /// Bytes of an input row over the K of a unit.
  int64_t getInputBytes() const {
    return numbers == Numbers::E4M3 ? kDepth : 2 * kDepth;
  }
  /// `wgmma` instructions of a unit; each reads 32 bytes of an input row.
  int64_t getProducts() const { return getInputBytes() / 32; }
  /// Bytes of a unit's quantized values, and words of a run in it.
  int64_t getUnitBytes() const { return kRows * kDepth * getCodeBits() / 8; }
  int64_t getRunWords() const { return getPieces() * kPieceWords; }
  /// Pieces of a unit; words of a thread per `wgmma`; A registers per word,
  /// alternating between both rows, or of one row (`e4m3`).
  int64_t getPieces() const { return getCodeBits() / 4; }
  int64_t getProductWords() const {
    return getPieces() * kThreadWords / getProducts();
  }
  int64_t getWordRegisters() const { return kRegisters / getProductWords(); }

  /// Address of an element of a matrix: the first row in memory of its run, the
  /// word within the run, and its bits, highest first.
  struct Place {
    int64_t firstRow, word;
    llvm::SmallVector<int64_t, 8> bits;
  };
  Place getPlace(int64_t row, int64_t element, int64_t rows,
                 WeightLayoutAttr layout) const;
  /// Bits of the first (0) or second (1) value of pair `pair` in a word, for
  /// the compute types bf16 and f16.
  llvm::SmallVector<int64_t, 8> getPairBits(int64_t pair, int64_t code) const;
  /// Bits of value `code` in register `inWord` (0 or 1) of a word, for e4m3.
  llvm::SmallVector<int64_t, 8> getBits(int64_t inWord, int64_t code) const;
  /// Address of the scale of an element: the first row of its run, the byte
  /// within the run, and the bytes of its zero point and of the rest of its
  /// minimum.
  struct ScalePlace {
    int64_t firstRow, byte, zeroPoint, rest;
  };
  ScalePlace getScalePlace(int64_t row, int64_t element, int64_t rows,
                           WeightLayoutAttr layout) const;

private:
  /// Bits of the first value of a pair. Those of the second are 16 above,
  /// modulo 32.
  llvm::ArrayRef<int64_t> getHalfBits(int64_t pair) const;
};

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_FRAGMENTS_H
