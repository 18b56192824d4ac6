//===- PackedValues.h - arithmetic of prepacked weights ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Encoding and decoding of prepacked values, scales, zero points and minima on
// the host. GPU code that prepacks computes the same bits.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_DIALECT_MOE_PACKEDVALUES_H
#define MOEC_DIALECT_MOE_PACKEDVALUES_H

#include "moec/Dialect/Moe/PrepackedFormat.h"

namespace moec::moe {

/// The bits of a bf16 or f16 that is nearest to a number; and the number.
int64_t encodeFloat(DecodedType type, double number);
double decodeFloat(DecodedType type, int64_t bits);

//===--- Values ---===//

/// The prepacked form of a value in memory, without the step of its group.
int64_t toKept(const PrepackedFormat &format, int64_t code);
/// The inverse, for int4 that becomes e4m3.
int64_t fromKept(const ValueFormat &format, int64_t kept);

/// A scale 2^kWeakened below the lowest step makes all values of its group 0.
/// Entry `by`: the magnitudes of e2m1 after `weaken`, 4 bits each, lowest bits
/// first.
inline constexpr int64_t kWeakened = 5;
inline constexpr uint32_t kWeakenedValues[kWeakened + 1] = {
    0x76543210, 0x54322100, 0x32211000, 0x21100000, 0x10000000, 0};
/// The e2m1 nearest to 2^-by times a value, ties to even.
int64_t weaken(int64_t code, int64_t by);

//===--- Scales ---===//

/// Bits of the largest f32 scale whose mantissa is rounded to the stored bits;
/// larger ones are truncated, since they might become infinite.
inline constexpr int64_t kMostRounded = 0x7F000000;

/// Encodes a scale that is not negative and has been multiplied by 2^(e - r).
int64_t encodeScale(const ScaleFormat &format, int64_t bits);
/// The value of a stored scale, perhaps negative.
double decodeScale(const ScaleFormat &format, int64_t kept);

//===--- Zero points and minima ---===//

/// Encodes a zero point as the bits of the equal value in that row.
int64_t encodeZeroPoint(const ValueFormat &format, int64_t zeroPoint,
                        int64_t tileRow);
/// The inverse.
double decodeZeroPoint(const ValueFormat &format, int64_t kept,
                       int64_t tileRow);

/// Splits a minimum m with scale s into the zero point z for which z s is
/// nearest to m, and `z s - m`. In a group of zeros, all values are z, whatever
/// s is.
struct SplitMinimum {
  int64_t zeroPoint;
  float rest;
};
SplitMinimum splitMinimum(const ValueFormat &format, float scale, float minimum,
                          bool isOfZeros);
/// Encodes a rest, times 2^-excess, as the bits of a bf16 or f16.
int64_t encodeRest(DecodedType type, float rest, int64_t excess);

} // namespace moec::moe

#endif // MOEC_DIALECT_MOE_PACKEDVALUES_H
