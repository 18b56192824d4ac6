//===- ConvertForms.cpp - cvt -----------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Numbers/Floats.h"
#include "Decoder.h"

#include <algorithm>

using namespace moec::ptx;

namespace {

/// A scalar type of `cvt`.
struct Type {
  enum class Kind : uint8_t { Signed, Unsigned, F32, F64, Small };
  Kind kind = Kind::Unsigned;
  unsigned bytes = 0;
  const FloatFormat *format = nullptr;

  bool isFloat() const { return kind >= Kind::F32; }
  static Type parse(const std::string &name) {
    Type type;
    type.bytes = typeBytes(name);
    if (name == "f16" || name == "bf16" || name == "tf32") {
      type.kind = Kind::Small;
      type.format = name == "f16" ? &kHalf : name == "bf16" ? &kBfloat : &kTf32;
    } else if (name == "f32" || name == "f64") {
      type.kind = name == "f32" ? Kind::F32 : Kind::F64;
    } else if (name.size() < 2 || !strchr("su", name[0]) || !isdigit(name[1])) {
      type.bytes = 0;
    } else {
      type.kind = name[0] == 's' ? Kind::Signed : Kind::Unsigned;
    }
    return type;
  }
};

//===----------------------------------------------------------------------===//
// Quick forms
//===----------------------------------------------------------------------===//

struct ToBfloat {
  static uint16_t apply(float a) { return floatToBfloat(a); }
};
struct ToHalf {
  static uint16_t apply(float a) { return floatToHalf(a); }
};
/// Keeps the payload of a NaN.
struct FromBfloat {
  static float apply(uint16_t a) { return bfloatToFloat(a); }
};
struct FromHalf {
  static float apply(uint16_t a) { return canonical(halfToFloat(a)); }
};
struct ToBfloatPair {
  static uint32_t apply(float high, float low) {
    return uint32_t(floatToBfloat(high)) << 16 | floatToBfloat(low);
  }
};
struct ToHalfPair {
  static uint32_t apply(float high, float low) {
    return uint32_t(floatToHalf(high)) << 16 | floatToHalf(low);
  }
};
template <typename D, typename S>
struct Resize {
  static D apply(S a) { return D(a); }
};

Handler pickQuick(const std::string &to, const std::string &from,
                  unsigned toRegister, unsigned fromRegister,
                  const std::string &rounding) {
  if (toRegister != typeBytes(to) || fromRegister != typeBytes(from))
    return nullptr;
  if (from == "f32" && rounding == "rn") {
    if (to == "bf16")
      return unary<ToBfloat, uint16_t, float>;
    if (to == "f16")
      return unary<ToHalf, uint16_t, float>;
  }
  if (to == "f32" && from == "bf16")
    return unary<FromBfloat, float, uint16_t>;
  if (to == "f32" && from == "f16")
    return unary<FromHalf, float, uint16_t>;
  if (to == "u64" && from == "u32")
    return unary<Resize<uint64_t, uint32_t>, uint64_t, uint32_t>;
  if (to == "s64" && from == "s32")
    return unary<Resize<int64_t, int32_t>, int64_t, int32_t>;
  if (to == "u32" && from == "u64")
    return unary<Resize<uint32_t, uint64_t>, uint32_t, uint64_t>;
  return nullptr;
}

//===----------------------------------------------------------------------===//
// All others, lane by lane
//===----------------------------------------------------------------------===//

enum class RoundTo : uint8_t { None, Nearest, Zero, Down, Up };

struct Conversion {
  Type to, from;
  RoundTo rounding = RoundTo::None;
  /// Rounds to a whole number although the result is a float.
  bool isIntegral = false;
  bool saturates = false, flushes = false;
  unsigned toRegister = 0, fromRegister = 0;
};

double roundToWhole(double value, RoundTo rounding) {
  switch (rounding) {
  case RoundTo::None:
  case RoundTo::Zero:
    return std::trunc(value);
  case RoundTo::Nearest:
    return std::nearbyint(value);
  case RoundTo::Down:
    return std::floor(value);
  case RoundTo::Up:
    return std::ceil(value);
  }
  return value;
}

/// Clamps as hardware does. A NaN becomes 0, or the least number in 64 bits.
uint64_t toInteger(double value, const Type &to) {
  if (value != value)
    return to.bytes == 8 ? uint64_t(1) << 63 : 0;
  unsigned bits = 8 * to.bytes;
  if (to.kind == Type::Kind::Signed) {
    double limit = std::ldexp(1, int(bits) - 1);
    int64_t most = bits == 64 ? INT64_MAX : (int64_t(1) << (bits - 1)) - 1;
    return uint64_t(value >= limit    ? most
                    : value <= -limit ? -most - 1
                                      : int64_t(value));
  }
  uint64_t most = bits == 64 ? UINT64_MAX : (uint64_t(1) << bits) - 1;
  return value >= std::ldexp(1, int(bits)) ? most
         : value <= 0                      ? 0
                                           : uint64_t(value);
}

Rounding toRounding(RoundTo rounding) {
  switch (rounding) {
  case RoundTo::Zero:
    return Rounding::Zero;
  case RoundTo::Down:
    return Rounding::Down;
  case RoundTo::Up:
    return Rounding::Up;
  default:
    return Rounding::Nearest;
  }
}

constexpr FloatFormat kSingle{8, 23, true};

uint32_t encode(const FloatFormat &format, double value, const Conversion &c) {
  Rounding rounding = toRounding(c.rounding);
  return rounding == Rounding::Nearest
             ? encodeNearest(format, value)
             : encodeFloat(format, value, rounding, /*saturates=*/false);
}

uint64_t fromDouble(double value, const Conversion &c) {
  if (c.saturates)
    // A NaN and -0 also become 0.
    value = value > 0 ? std::min(value, 1.0) : 0;
  switch (c.to.kind) {
  case Type::Kind::F64:
    return bitCast<uint64_t>(canonical(value));
  case Type::Kind::F32: {
    float result = canonical(bitCast<float>(encode(kSingle, value, c)));
    return bitCast<uint32_t>(c.flushes ? flushDenormal(result) : result);
  }
  default: {
    uint32_t bits = encode(*c.to.format, value, c);
    // A tf32 is an f32 whose low 13 bits are unused.
    return c.to.format == &kTf32 ? bits << 13 : bits;
  }
  }
}

uint64_t convertOne(uint64_t bits, const Conversion &c) {
  unsigned fromBits = 8 * c.from.bytes;
  if (!c.from.isFloat()) {
    bool isSigned = c.from.kind == Type::Kind::Signed;
    unsigned shift = 64 - fromBits;
    int64_t wide = isSigned ? int64_t(bits << shift) >> shift
                            : int64_t(bits << shift >> shift);
    if (c.to.isFloat()) {
      // 64 bits do not fit a double: round to odd, so that the later rounding
      // is exact.
      uint64_t magnitude =
          isSigned && wide < 0 ? 0 - uint64_t(wide) : uint64_t(wide);
      double value = addToOdd(double(magnitude >> 32) * 4294967296.0,
                              double(uint32_t(magnitude)));
      return fromDouble(isSigned && wide < 0 ? -value : value, c);
    }
    if (!c.saturates)
      return uint64_t(wide);
    if (c.to.kind == Type::Kind::Unsigned) {
      uint64_t most =
          c.to.bytes == 8 ? UINT64_MAX : (uint64_t(1) << (8 * c.to.bytes)) - 1;
      return isSigned && wide < 0 ? 0 : std::min(uint64_t(wide), most);
    }
    int64_t most =
        c.to.bytes == 8 ? INT64_MAX : (int64_t(1) << (8 * c.to.bytes - 1)) - 1;
    if (!isSigned)
      return std::min(uint64_t(wide), uint64_t(most));
    return uint64_t(std::min(std::max(wide, -most - 1), most));
  }
  double value =
      c.from.kind == Type::Kind::F64 ? bitCast<double>(bits)
      : c.from.kind == Type::Kind::F32
          ? double(c.flushes ? flushDenormal(bitCast<float>(uint32_t(bits)))
                             : bitCast<float>(uint32_t(bits)))
          : decodeFloat(*c.from.format, uint32_t(bits));
  if (!c.to.isFloat())
    return toInteger(roundToWhole(value, c.rounding), c.to);
  if (!c.isIntegral)
    return fromDouble(value, c);
  Conversion exact = c;
  exact.rounding = RoundTo::Nearest;
  return fromDouble(std::copysign(roundToWhole(value, c.rounding), value),
                    exact);
}

/// Packs the fields of a Conversion into an instruction's `immediate`.
int64_t packConversion(const Conversion &c) {
  auto type = [](const Type &t) {
    return int64_t(t.kind) << 4 | t.bytes |
           (t.format == &kHalf     ? 0x100
            : t.format == &kBfloat ? 0x200
            : t.format == &kTf32   ? 0x300
                                   : 0);
  };
  return type(c.to) << 32 | type(c.from) << 16 | int64_t(c.rounding) << 4 |
         c.isIntegral << 2 | c.saturates << 1 | c.flushes;
}

Type unpackType(int64_t packed) {
  Type type;
  type.bytes = unsigned(packed & 0xF);
  type.kind = Type::Kind(packed >> 4 & 0xF);
  switch (packed & 0x300) {
  case 0x100:
    type.format = &kHalf;
    break;
  case 0x200:
    type.format = &kBfloat;
    break;
  case 0x300:
    type.format = &kTf32;
    break;
  }
  return type;
}

Step convert(Warp &warp, const Instruction &instruction, LaneMask mask) {
  Conversion c;
  int64_t packed = instruction.immediate;
  c.to = unpackType(packed >> 32);
  c.from = unpackType(packed >> 16 & 0xFFFF);
  c.rounding = RoundTo(packed >> 4 & 0xF);
  c.isIntegral = packed & 4;
  c.saturates = packed & 2;
  c.flushes = packed & 1;
  unsigned toBytes = instruction.width, fromBytes = instruction.registerWidth;
  uint8_t *d = warp.lanes<uint8_t>(instruction.operands[0]);
  const uint8_t *a = warp.lanes<uint8_t>(instruction.operands[1]);
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (!(mask >> lane & 1))
      continue;
    uint64_t bits = 0;
    std::memcpy(&bits, a + lane * fromBytes, std::min(fromBytes, 8u));
    uint64_t result = convertOne(bits, c);
    // A wider register is sign- or zero-extended.
    if (!c.to.isFloat() && c.to.bytes < 8) {
      unsigned shift = 64 - 8 * c.to.bytes;
      result = c.to.kind == Type::Kind::Signed
                   ? uint64_t(int64_t(result << shift) >> shift)
                   : result << shift >> shift;
    }
    std::memcpy(d + lane * toBytes, &result, toBytes);
  }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Numbers of eight bits come in pairs
//===----------------------------------------------------------------------===//

template <const FloatFormat &Format>
struct ToByteFloats {
  static uint16_t apply(float high, float low) {
    return uint16_t(encodeNearest(Format, double(high), true) << 8 |
                    encodeNearest(Format, double(low), true));
  }
};
template <const FloatFormat &Format>
struct HalvesToByteFloats {
  static uint16_t apply(uint32_t pair) {
    return ToByteFloats<Format>::apply(halfToFloat(uint16_t(pair >> 16)),
                                       halfToFloat(uint16_t(pair)));
  }
};
template <const FloatFormat &Format>
struct ByteFloatsToHalves {
  static uint32_t apply(uint16_t pair) {
    return encodeNearest(kHalf, decodeFloat(Format, pair >> 8)) << 16 |
           encodeNearest(kHalf, decodeFloat(Format, pair & 0xFF));
  }
};

template <const FloatFormat &Format>
void decodeByteFloats(Decoder &d, const std::string &to,
                      const std::string &from) {
  d.take("rn");
  d.take("satfinite");
  if (from == "f32" && d.expectOperands(3, 3)) {
    d.result(0, 2);
    d.value(1, 4);
    d.value(2, 4);
    d.instruction.handler =
        binary<ToByteFloats<Format>, uint16_t, float, float>;
  } else if (from == "f16x2" && d.expectOperands(2, 2)) {
    d.result(0, 2);
    d.value(1, 4);
    d.instruction.handler =
        unary<HalvesToByteFloats<Format>, uint16_t, uint32_t>;
  } else if (to == "f16x2" && d.expectOperands(2, 2)) {
    d.result(0, 4);
    d.value(1, 2);
    d.instruction.handler =
        unary<ByteFloatsToHalves<Format>, uint32_t, uint16_t>;
  }
}

void decodePair(Decoder &d, const std::string &to, const std::string &from) {
  if (to == "e4m3x2" || from == "e4m3x2")
    return decodeByteFloats<kE4M3>(d, to, from);
  if (to == "e5m2x2" || from == "e5m2x2")
    return decodeByteFloats<kE5M2>(d, to, from);
  if (from != "f32" || !d.take("rn") || !d.expectOperands(3, 3))
    return;
  d.result(0, 4);
  d.value(1, 4);
  d.value(2, 4);
  d.instruction.handler =
      to == "bf16x2"  ? binary<ToBfloatPair, uint32_t, float, float>
      : to == "f16x2" ? binary<ToHalfPair, uint32_t, float, float>
                      : Handler(nullptr);
}

void decodeCvt(Decoder &d) {
  std::string from = d.takeType(), to = d.takeType();
  if (to.size() > 2 && (to.substr(to.size() - 2) == "x2" ||
                        from.substr(from.size() - 2) == "x2"))
    return decodePair(d, to, from);
  std::string rounding =
      d.takeOneOf({"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"});
  Conversion c;
  c.flushes = d.take("ftz");
  c.saturates = d.take("sat");
  c.to = Type::parse(to);
  c.from = Type::parse(from);
  if (!c.to.bytes || !c.from.bytes || !d.expectOperands(2, 2))
    return;
  c.toRegister = d.registerBytes(d.operand(0));
  c.fromRegister = d.registerBytes(d.operand(1));
  if (c.fromRegister == 0)
    c.fromRegister = std::max(c.from.bytes, 4u);
  if (c.toRegister < c.to.bytes || c.fromRegister < c.from.bytes ||
      c.toRegister > 8 || c.fromRegister > 8)
    return d.fail("a register is too small for its type");
  if (rounding.size() > 1)
    c.rounding = rounding[1] == 'n'   ? RoundTo::Nearest
                 : rounding[1] == 'z' ? RoundTo::Zero
                 : rounding[1] == 'm' ? RoundTo::Down
                                      : RoundTo::Up;
  c.isIntegral = rounding.size() == 3 && rounding[2] == 'i';
  d.result(0, c.toRegister);
  d.value(1, c.fromRegister);
  d.instruction.width = uint8_t(c.toRegister);
  d.instruction.registerWidth = uint8_t(c.fromRegister);
  d.instruction.immediate = packConversion(c);
  Handler quick =
      c.flushes || c.saturates
          ? Handler(nullptr)
          : pickQuick(to, from, c.toRegister, c.fromRegister, rounding);
  d.instruction.handler = quick ? quick : convert;
}

} // namespace

void moec::ptx::addConvertForms(FormTable &table) { table["cvt"] = decodeCvt; }
