//===- PackedValues.cpp - arithmetic of prepacked weights -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/PackedValues.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/bit.h"

#include <algorithm>
#include <cmath>

using llvm::APFloat;

namespace moec::moe {

static const llvm::fltSemantics &getSemantics(DecodedType type) {
  return type == DecodedType::F16 ? APFloat::IEEEhalf() : APFloat::BFloat();
}

int64_t encodeFloat(DecodedType type, double number) {
  APFloat rounded(number);
  bool losesInfo;
  rounded.convert(getSemantics(type), APFloat::rmNearestTiesToEven, &losesInfo);
  return int64_t(rounded.bitcastToAPInt().getZExtValue());
}

double decodeFloat(DecodedType type, int64_t bits) {
  constexpr unsigned width = 16;
  return APFloat(getSemantics(type), llvm::APInt(width, bits))
      .convertToDouble();
}

int64_t toKept(const PrepackedFormat &format, int64_t code) {
  code ^= format.getInvertedBits();
  return format.values.isSignMagnitude() && code & 8 ? code ^ 7 : code;
}

int64_t fromKept(const ValueFormat &format, int64_t kept) {
  return (kept & 8 ? kept ^ 7 : kept) ^ format.inverted;
}

int64_t weaken(int64_t code, int64_t by) {
  constexpr int64_t magnitude = 7, nibble = 4;
  uint32_t values = kWeakenedValues[std::clamp<int64_t>(by, 0, kWeakened)];
  return (code & ~magnitude) |
         (values >> nibble * (code & magnitude) & magnitude);
}

int64_t encodeScale(const ScaleFormat &format, int64_t bits) {
  bits = std::max<int64_t>(bits - (format.bias << format.digits), 0);
  int64_t more = format.storedDigits - format.digits;
  return more > 0 ? bits << more : bits >> -more;
}

double decodeScale(const ScaleFormat &format, int64_t kept) {
  int64_t fewer = format.digits - format.storedDigits;
  switch (format.stored) {
  case StoredScale::E8M0:
  case StoredScale::E5M3: {
    // Subnormal f16 are stored too.
    constexpr int64_t halfDigits = 10;
    if (format.decoded == DecodedType::F16)
      return decodeFloat(DecodedType::F16,
                         kept << (halfDigits - format.storedDigits));
    int64_t bits = (kept << fewer) + (format.bias << format.digits);
    return decodeFloat(DecodedType::BF16, bits);
  }
  case StoredScale::BF16:
    return decodeFloat(DecodedType::BF16, kept);
  case StoredScale::F32:
    return llvm::bit_cast<float>(uint32_t(kept));
  case StoredScale::F16:
    return std::ldexp(decodeFloat(DecodedType::F16, kept),
                      int(format.bias - kF16Bias));
  case StoredScale::Steps: {
    constexpr int64_t bias = 127;
    int64_t exponent = (kept >> format.storedDigits) + format.bias;
    return std::ldexp(1.0, int(exponent - bias));
  }
  }
  llvm_unreachable("all scales are listed");
}

int64_t encodeZeroPoint(const ValueFormat &format, int64_t zeroPoint,
                        int64_t tileRow) {
  double number =
      std::ldexp(double(zeroPoint), -int(format.getExponent(tileRow)));
  return encodeFloat(format.decoded, number);
}

double decodeZeroPoint(const ValueFormat &format, int64_t kept,
                       int64_t tileRow) {
  return std::ldexp(decodeFloat(format.decoded, kept),
                    int(format.getExponent(tileRow)));
}

SplitMinimum splitMinimum(const ValueFormat &format, float scale, float minimum,
                          bool isOfZeros) {
  int64_t zero = format.zeroCode;
  if (isOfZeros)
    return {zero, -minimum};
  // fmax maps NaN (0 / 0) to the least.
  float whole =
      std::fmin(std::fmax(std::nearbyint(minimum / scale), -float(zero)),
                float(format.getLargest() - zero));
  return {int64_t(whole) + zero, std::fma(whole, scale, -minimum)};
}

int64_t encodeRest(DecodedType type, float rest, int64_t excess) {
  // Two factors, since 2^-excess may not be a normal number.
  int64_t half = excess / 2;
  float less = rest * std::ldexp(1.0F, -int(half)) *
               std::ldexp(1.0F, -int(excess - half));
  return encodeFloat(type, less);
}

} // namespace moec::moe
