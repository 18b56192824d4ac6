//===- PrepackedFormat.h - layout of prepacked weights ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layout of prepacked weights: `packing = prepacked`, `prepacked_f16` and
// `prepacked_e4m3` of `#moe.quant`. A matrix of 4-bit or 8-bit weights is
// stored as Hopper's tensor cores take it from registers, to multiply it by
// bf16, f16 or e4m3 (docs/design/gemm-hopper.md). The bytes of the weights are
// permuted: rows form blocks of 64, each of two *halves* of 32 rows that
// are adjacent in memory. With gate and up halves, a block has one half of
// each. The bytes of a block stay in the memory of its halves.
//
// A half of quantized values is `[K / 64][chunks][256]` words of 4 bytes:
// its halves of all *packed tiles*, each of 64 rows by 64 of K. A packed tile
// has one *chunk* of 16 bytes per thread of a warpgroup, or two with 8-bit
// values. Scales, and zero points beside them, are bytes of another tensor. A
// half of scales is `[K / 64][16][getQuadBytes()]`, or `[K / 128]` where two
// packed tiles along K share a copy (`scaleTiles`): the bytes that four
// neighbouring threads need of a packed tile, for two rows that are 8 apart,
// group by group: the scales, then the zero points, then the rests of minima.
//
// A value is stored as bits of a bf16 or f16, which is 2^-e times the
// value (e is `ValueFormat::exponents`), or as an index into a code book.
// Stored scales compensate: `stored = scale * 2^(e - r)`, with one r per row. A
// scale of a whole row or matrix becomes a factor of the row's `row_scale`, an
// f32 that multiplies sums.
//
// A minimum is split into the nearest integer multiple of its scale, which is
// stored like a zero point, and a rest, which is added to the scaled value.
//
// An e4m3 can only be scaled by powers of two without rounding: the scale of
// e2m1 is a step in the range that keeps all bits of a value
// (`StoredScale::Steps`), and values of groups with a smaller scale are rounded
// to those of the least step.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_PREPACKEDFORMAT_H
#define MOEC_DIALECT_MOE_PREPACKEDFORMAT_H

#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/Moe.h"
#include "moec/Dialect/Moe/PackedFormats.h"

#include <optional>

namespace moec::moe {

/// Whether elements are prepacked.
bool isPrepacked(Packing packing);

/// Whether gate and up rows are two halves, not interleaved.
bool hasHalves(WeightLayoutAttr layout);

/// A matrix of prepacked weights: the formats of its values and scales, and
/// their addresses.
class PrepackedFormat {
public:
  /// Rows and K of a packed tile; rows of a half.
  static constexpr int64_t kRows = 64, kSizeK = 64, kHalfRows = 32;
  /// Words of a half in one chunk of a packed tile; words of a thread in a
  /// chunk; groups of four threads that share two rows of a packed tile.
  static constexpr int64_t kChunkWords = 256, kThreadWords = 4, kQuads = 16;
  /// Registers of operand A of one `wgmma`, per thread.
  static constexpr int64_t kRegisters = 4;
  /// Rows of a thread in a packed tile; 8 apart.
  static constexpr int64_t kQuadRows = 2;

  /// `quant` has one of the three packings.
  explicit PrepackedFormat(QuantAttr quant);

  const ValueFormat &values;
  const ScaleFormat &scale;
  /// The 16 code-book entries, rounded to the compute type.
  std::optional<CodeBook> book;
  /// Elements along K that share a scale: within a packed tile, and in the
  /// matrix, where 0 stands for a whole row.
  int64_t group, matrixGroup;
  /// Packed tiles along K that share one copy of their scales.
  int64_t scaleTiles;
  /// Whether each scale has a zero point; with minima, the one near its
  /// minimum.
  bool hasZeroPoints, hasMinima;

  /// The index of 0.0 in the code book, if there is one.
  std::optional<int64_t> findZero() const;
  /// Bits that prepacking inverts. Zero points in memory are those of unsigned
  /// values.
  int64_t getInvertedBits() const;

  //===--- Scales ---===//

  /// Exponents: of the largest scale, times 2^e, that a row with r = 0 can
  /// store; and of the least stored scale, below which scales become 0.
  int64_t getLargestExponent() const;
  int64_t getLeastKept(int64_t tileRow) const;
  /// Whether scales multiply sums of groups, since e4m3 cannot be scaled
  /// exactly. Scales of whole rows are part of `row_scale` instead.
  bool areScalesOfSums() const {
    return values.decoded == DecodedType::E4M3 &&
           scale.stored != StoredScale::Steps && matrixGroup;
  }
  /// Packed tiles per group; 0 for groups smaller than a packed tile.
  int64_t getGroupTiles() const { return matrixGroup / kSizeK; }
  int64_t getGroups() const { return kSizeK / group; }
  int64_t getZeroPointBytes() const { return hasZeroPoints ? 2 : 0; }
  int64_t getRestBytes() const { return hasMinima ? 2 : 0; }
  /// Scale bytes of one row of a packed tile, and of the two rows of a thread;
  /// packed tiles may share them.
  int64_t getRowBytes() const {
    return getGroups() * (scale.bytes + getZeroPointBytes() + getRestBytes());
  }
  int64_t getQuadBytes() const { return kQuadRows * getRowBytes(); }
  /// Scale bytes of a row of a matrix: the width of the tensor.
  int64_t getRowBytes(int64_t sizeK) const {
    return sizeK / (kSizeK * scaleTiles) * getRowBytes();
  }
  /// Whether a row's r must also leave headroom for rests, and by how many
  /// powers of two a rest may exceed the largest scale then.
  bool areRestsBounded() const {
    return hasMinima && values.decoded == DecodedType::F16;
  }
  int64_t getRestHeadroom() const;

  //===--- Addresses ---===//

  /// The first row in memory of half 0 or 1 of a block, in a matrix of `rows`.
  static int64_t getHalfRow(int64_t block, int64_t tileHalf, int64_t rows,
                            WeightLayoutAttr layout);
  /// The index within its packed tile of a row of a matrix.
  static int64_t getTileRow(int64_t row, int64_t rows, WeightLayoutAttr layout);
  /// The index, 0 or 1, of a packed tile's row among its thread's two rows.
  static int64_t getParity(int64_t tileRow);

  /// Address of an element of a matrix: the first row in memory of its half,
  /// the word within the half, and its bits, highest first.
  struct Address {
    int64_t firstRow, word;
    llvm::SmallVector<int64_t, 8> bits;
  };
  Address getAddress(int64_t row, int64_t element, int64_t rows,
                     WeightLayoutAttr layout) const;
  /// Address of the scale of an element: the first row of its half, the byte
  /// within the half, and the bytes of its zero point and of the rest of its
  /// minimum.
  struct ScaleAddress {
    int64_t firstRow, byte, zeroPoint, rest;
  };
  ScaleAddress getScaleAddress(int64_t row, int64_t element, int64_t rows,
                               WeightLayoutAttr layout) const;
};

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_PREPACKEDFORMAT_H
