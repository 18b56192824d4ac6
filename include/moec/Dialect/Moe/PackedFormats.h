//===- PackedFormats.h - formats of prepacked weights -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Two tables with one row per format: how a stored value is decoded to the
// compute type, and how the scale of a group is stored beside it. Prepacking,
// decoding, the interpreter and the cost model read the rows.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_PACKEDFORMATS_H
#define MOEC_DIALECT_MOE_PACKEDFORMATS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

#include <cstdint>

namespace moec::moe {

/// Format of quantized values: e2m1, an integer from 0 to 15, e4m3, an integer
/// from 0 to 255, or an index into a code book.
enum class StoredValue { E2M1, Int4, E4M3, Int8, Book };

/// Compute type: the type to which values are decoded.
enum class DecodedType { BF16, F16, E4M3 };

/// Stored form of a group's scale.
/// - E8M0: the exponent of a bf16, 8 bits.
/// - E5M3: the lowest 5 bits of an exponent and 3 of mantissa; if the compute
///   type is f16, the first bits of an f16, also for scales of E8M0.
/// - BF16: a bf16.
/// - F16: an f16, which has few exponents. If the compute type is bf16, it
///   stands for 2^112 times its value, and for two bf16 that add up to it.
/// - F32: an f32 with 16 significant bits, those of a sum of two bf16.
/// - Steps: 8 times a step from 0 to 11, added to the bits of an e4m3.
enum class StoredScale { E8M0, E5M3, BF16, F16, F32, Steps };

/// Difference between the exponent of a bf16 and that of an f16 of equal value.
inline constexpr int64_t kF16Bias = 112;
/// Exponents of the lowest and the highest step: 0.5 becomes 2^-6, the least
/// normal e4m3, with the lowest, and 6 becomes 384 with the highest.
inline constexpr int64_t kLeastStep = 122, kMostStep = 133;

/// One term of the decoding of a register with two 16-bit floats: the word is
/// moved left by `left` bits (right, if negative) or rotated, and masked.
struct DecodeStep {
  int64_t left, mask;
  bool rotates = false;
};

/// The terms whose sum is a register of a word, by register. Terms without a
/// mask do not exist.
struct Decoding {
  DecodeStep steps[4][2];
};

/// A row of the table of values.
struct ValueFormat {
  StoredValue stored;
  DecodedType decoded;
  /// Bits of a quantized value.
  int64_t bits;
  /// e of the first and the second row of a thread: the stored bits, read as
  /// the compute type, are 2^-e times the value.
  int64_t exponents[2];
  /// The implied zero point of integers; with minima, the stored value that
  /// stands for 0.
  int64_t middle, zeroCode;
  /// Bits that prepacking inverts: the sign of signed int8, of int4 that
  /// becomes e4m3, and of e4m3 that stays e4m3, which else could be loaded
  /// straight into the registers of a `wgmma`.
  int64_t inverted;
  /// Powers of two between the compute type's largest number and the product
  /// of a scale with the largest value.
  int64_t headroom;
  /// For bf16 and f16, except from code books.
  const Decoding &decoding;

  int64_t getExponent(int64_t tileRow) const;
  bool isInteger() const { return middle != 0; }
  /// Whether tensor cores multiply the stored values without conversion.
  bool isNative() const {
    return stored == StoredValue::E4M3 && decoded == DecodedType::E4M3;
  }
  /// Whether prepacking also inverts the lower bits of a negative int4, which
  /// is stored as a sign and its magnitude less one.
  bool isSignMagnitude() const {
    return stored == StoredValue::Int4 && decoded == DecodedType::E4M3;
  }
  /// The largest stored value.
  int64_t getLargest() const { return (1 << bits) - 1; }
  /// The terms of register `i` of a word.
  llvm::ArrayRef<DecodeStep> getSteps(int64_t i) const;

  //===--- Packed tiles ---===//

  /// Bytes of an input row over the K of a packed tile.
  int64_t getInputBytes() const;
  /// `wgmma` instructions of a packed tile; each reads 32 bytes of an input
  /// row.
  int64_t getProducts() const { return getInputBytes() / 32; }
  /// Bytes of a packed tile's quantized values, and words of a half in it.
  int64_t getTileBytes() const;
  int64_t getHalfWords() const;
  /// Chunks of a packed tile; words of a thread per `wgmma`; A registers per
  /// word, alternating between both rows, or of one row (`e4m3`).
  int64_t getChunks() const { return bits / 4; }
  int64_t getProductWords() const;
  int64_t getWordRegisters() const;
  /// Bits, highest first, of the first (0) or second (1) value of pair `pair`
  /// in a word, for the compute types bf16 and f16: where `decoding` takes
  /// them from.
  llvm::SmallVector<int64_t, 8> getPairBits(int64_t pair, int64_t code) const;
  /// Bits of value `code` in register `inWord` (0 or 1) of a word, for e4m3.
  llvm::SmallVector<int64_t, 8> getBits(int64_t inWord, int64_t code) const;
};

/// A row of the table of scales. Before encoding, a scale is the exponent of a
/// bf16 or f32 followed by the first `digits` bits of the mantissa.
struct ScaleFormat {
  StoredScale stored;
  DecodedType decoded;
  int64_t bytes, digits;
  /// Mantissa bits of the stored form.
  int64_t storedDigits;
  /// The exponent that 0 stands for in the stored form.
  int64_t bias;
  /// Exponent of the least stored scale, and of the largest scale of a row with
  /// r = 0 that can still be stored times 2^e; 0: depends on the values.
  int64_t least, largest;
  /// The least r.
  int64_t leastExcess;
  /// Whether a scale is applied as a sum of two bf16.
  bool isSum;

  /// Whether scales are powers of two, and so never 0.
  bool isPower() const {
    return stored == StoredScale::E8M0 || stored == StoredScale::Steps;
  }
  /// Whether scales have a sign and all bits of a float.
  bool isNumber() const { return bytes > 1; }
  /// Whether a stored scale is a byte of 5 exponent and 3 mantissa bits.
  bool isE5M3() const {
    return storedDigits == 3 && stored != StoredScale::Steps;
  }
  /// The sign bit of a stored bf16, f16 or f32 scale.
  int64_t getSign() const { return int64_t(1) << (8 * bytes - 1); }
  /// The largest stored scale, exponent and mantissa.
  int64_t getLargestKept() const;
};

/// Exponent, in bf16 encoding, of the largest number of a compute type that
/// products with scales are rounded to.
int64_t getLargestExponent(DecodedType type);

/// The rows of all formats.
llvm::ArrayRef<ValueFormat> getValueFormats();
llvm::ArrayRef<ScaleFormat> getScaleFormats();

/// The row of a format, which the table has.
const ValueFormat &getValueFormat(StoredValue stored, DecodedType decoded);
const ScaleFormat &getScaleFormat(StoredScale stored, DecodedType decoded);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_PACKEDFORMATS_H
