//===- FloatForms.cpp - float arithmetic ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Results are rounded once to nearest. `.approx` forms are computed in double
// and rounded, which is within the error bounds of the PTX ISA.

#include "../Numbers/Floats.h"
#include "Arithmetic.h"

#include <type_traits>

using namespace moec::ptx;

namespace {

//===----------------------------------------------------------------------===//
// Functions of floats
//===----------------------------------------------------------------------===//

struct Add {
  template <typename T>
  static T of(T a, T b) {
    return a + b;
  }
};
struct Sub {
  template <typename T>
  static T of(T a, T b) {
    return a - b;
  }
};
struct Mul {
  template <typename T>
  static T of(T a, T b) {
    return a * b;
  }
};
struct Div {
  template <typename T>
  static T of(T a, T b) {
    return a / b;
  }
};
struct Fma {
  template <typename T>
  static T of(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};
/// A number wins over a NaN; -0 is less than 0.
template <bool IsMax>
struct Extremum {
  template <typename T>
  static T of(T a, T b) {
    if (a != a)
      return b;
    if (b != b)
      return a;
    if (a == b)
      return std::signbit(a) == IsMax ? b : a;
    return (a < b) != IsMax ? a : b;
  }
};
/// A NaN wins over a number.
template <bool IsMax>
struct StrictExtremum {
  template <typename T>
  static T of(T a, T b) {
    return a != a || b != b ? T(NAN) : Extremum<IsMax>::of(a, b);
  }
};
struct Rcp {
  template <typename T>
  static T of(T a) {
    return T(1) / a;
  }
};
struct Sqrt {
  template <typename T>
  static T of(T a) {
    return std::sqrt(a);
  }
};
struct Rsqrt {
  static float of(float a) { return float(1 / std::sqrt(double(a))); }
};
struct Ex2 {
  static float of(float a) { return float(std::exp2(double(a))); }
};
struct Lg2 {
  static float of(float a) { return float(std::log2(double(a))); }
};
struct Sin {
  static float of(float a) { return float(std::sin(double(a))); }
};
struct Cos {
  static float of(float a) { return float(std::cos(double(a))); }
};
struct Tanh {
  static float of(float a) { return float(std::tanh(double(a))); }
};

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

template <typename F, typename T>
struct Plain {
  static T apply(T a) { return canonical(F::of(a)); }
  static T apply(T a, T b) { return canonical(F::of(a, b)); }
  static T apply(T a, T b, T c) { return canonical(F::of(a, b, c)); }
};

/// `.ftz` forms: denormal operands and results become 0.
template <typename F>
struct Flushed {
  static float apply(float a) {
    return flushDenormal(canonical(F::of(flushDenormal(a))));
  }
  static float apply(float a, float b) {
    return flushDenormal(canonical(F::of(flushDenormal(a), flushDenormal(b))));
  }
  static float apply(float a, float b, float c) {
    return flushDenormal(
        canonical(F::of(flushDenormal(a), flushDenormal(b), flushDenormal(c))));
  }
};

/// 16-bit floats are computed in double, where products are exact and inexact
/// sums are rounded to odd.
struct ExactAdd {
  static double of(double a, double b) { return addToOdd(a, b); }
};
struct ExactSub {
  static double of(double a, double b) { return addToOdd(a, -b); }
};
struct ExactFma {
  static double of(double a, double b, double c) { return addToOdd(a * b, c); }
};

template <typename F, bool IsBfloat>
struct Small {
  static constexpr const FloatFormat &format = IsBfloat ? kBfloat : kHalf;
  static double in(uint16_t a) {
    return IsBfloat ? double(bfloatToFloat(a)) : double(halfToFloat(a));
  }
  static uint16_t out(double value) {
    return uint16_t(encodeNearest(format, value));
  }
  static uint16_t apply(uint16_t a) { return out(F::of(in(a))); }
  static uint16_t apply(uint16_t a, uint16_t b) {
    return out(F::of(in(a), in(b)));
  }
  static uint16_t apply(uint16_t a, uint16_t b, uint16_t c) {
    return out(F::of(in(a), in(b), in(c)));
  }
};

/// Two 16-bit floats in one register.
template <typename F>
struct Packed {
  static uint32_t join(uint16_t low, uint16_t high) {
    return uint32_t(high) << 16 | low;
  }
  static uint32_t apply(uint32_t a) {
    return join(F::apply(uint16_t(a)), F::apply(uint16_t(a >> 16)));
  }
  static uint32_t apply(uint32_t a, uint32_t b) {
    return join(F::apply(uint16_t(a), uint16_t(b)),
                F::apply(uint16_t(a >> 16), uint16_t(b >> 16)));
  }
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t c) {
    return join(
        F::apply(uint16_t(a), uint16_t(b), uint16_t(c)),
        F::apply(uint16_t(a >> 16), uint16_t(b >> 16), uint16_t(c >> 16)));
  }
};

/// Two 32-bit floats in one register.
template <typename F>
struct Pair {
  template <typename... T>
  static uint64_t apply(T... sources) {
    uint64_t low = bitCast<uint32_t>(
        Plain<F, float>::apply(bitCast<float>(uint32_t(sources))...));
    uint64_t high = bitCast<uint32_t>(
        Plain<F, float>::apply(bitCast<float>(uint32_t(sources >> 32))...));
    return high << 32 | low;
  }
};

/// 16-bit sources, with a last source and a result of 32 bits.
template <typename F, bool IsBfloat>
struct Mixed {
  static float in(uint16_t a) {
    return IsBfloat ? bfloatToFloat(a) : halfToFloat(a);
  }
  static float apply(uint16_t a, float c) { return canonical(F::of(in(a), c)); }
  static float apply(uint16_t a, uint16_t b, float c) {
    return canonical(F::of(in(a), in(b), c));
  }
};

template <typename F, typename T>
constexpr Handler bySources1 = unary<F, T, T>;
template <typename F, typename T>
constexpr Handler bySources2 = binary<F, T, T, T>;
template <typename F, typename T>
constexpr Handler bySources3 = ternary<F, T, T, T, T>;

#if defined(__x86_64__)
/// f32 fma on machines with an FMA instruction, whose bits equal those of the C
/// library.
template <bool Flushes>
__attribute__((target("avx2,fma"))) Step
fuseFloats(Warp &warp, const Instruction &instruction, LaneMask mask) {
  const float *sources[3];
  float *d = warp.lanes<float>(instruction.operands[0]);
  for (unsigned i = 0; i < 3; ++i)
    sources[i] = warp.lanes<float>(instruction.operands[i + 1]);
  PTXSIM_VECTORIZE
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    float a = sources[0][lane], b = sources[1][lane], c = sources[2][lane];
    if (Flushes)
      a = flushDenormal(a), b = flushDenormal(b), c = flushDenormal(c);
    float result = canonical(__builtin_fmaf(a, b, c));
    if (Flushes)
      result = flushDenormal(result);
    d[lane] = mask >> lane & 1 ? result : d[lane];
  }
  return Step::Next;
}
#endif

Handler pickFma(bool flushes) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    return flushes ? fuseFloats<true> : fuseFloats<false>;
#endif
  return flushes ? bySources3<Flushed<Fma>, float>
                 : bySources3<Plain<Fma, float>, float>;
}

// The handler of a function for a type; null for other than float types. `E` is
// the function on exact doubles.
#define PICK_WIDE(type, F, flushes, kind)                                      \
  ((type) == "f32"                                                             \
       ? ((flushes) ? kind<Flushed<F>, float> : kind<Plain<F, float>, float>)  \
   : (type) == "f64" ? kind<Plain<F, double>, double>                          \
                     : nullptr)
#define PICK_SMALL(type, E, kind)                                              \
  ((type) == "f16"      ? kind<Small<E, false>, uint16_t>                      \
   : (type) == "bf16"   ? kind<Small<E, true>, uint16_t>                       \
   : (type) == "f16x2"  ? kind<Packed<Small<E, false>>, uint32_t>              \
   : (type) == "bf16x2" ? kind<Packed<Small<E, true>>, uint32_t>               \
                        : nullptr)

bool isFloatType(const std::string &type) {
  return type[0] == 'f' || type[0] == 'b';
}

bool isWideFloat(const std::string &type) {
  return type == "f32" || type == "f64";
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

/// A sum in f32 whose other sources are of `type`, f16 or bf16.
template <typename F>
void decodeMixed(Decoder &d, const std::string &type, size_t others) {
  if ((type != "f16" && type != "bf16") ||
      !d.expectOperands(others + 2, others + 2))
    return;
  bool isBfloat = type == "bf16";
  d.result(0, 4);
  for (size_t i = 1; i <= others; ++i)
    d.value(i, 2);
  d.value(others + 1, 4);
  if constexpr (std::is_same_v<F, Fma>)
    d.instruction.handler =
        isBfloat
            ? Handler(ternary<Mixed<F, true>, float, uint16_t, uint16_t, float>)
            : ternary<Mixed<F, false>, float, uint16_t, uint16_t, float>;
  else
    d.instruction.handler =
        isBfloat ? Handler(binary<Mixed<F, true>, float, uint16_t, float>)
                 : binary<Mixed<F, false>, float, uint16_t, float>;
}

void decodeSum(Decoder &d, bool subtracts) {
  std::string type = d.takeType();
  if (!isFloatType(type))
    return decodeSame(d, type, 2, pickIntegerSum(type, subtracts));
  d.take("rn");
  if (!isWideFloat(type) && d.take("f32"))
    return subtracts ? decodeMixed<Sub>(d, type, 1)
                     : decodeMixed<Add>(d, type, 1);
  if (type == "f32x2")
    return decodeSame(d, type, 2,
                      subtracts ? bySources2<Pair<Sub>, uint64_t>
                                : bySources2<Pair<Add>, uint64_t>);
  bool flushes = isWideFloat(type) && d.take("ftz");
  Handler handler =
      isWideFloat(type)
          ? (subtracts ? PICK_WIDE(type, Sub, flushes, bySources2)
                       : PICK_WIDE(type, Add, flushes, bySources2))
          : (subtracts ? PICK_SMALL(type, ExactSub, bySources2)
                       : PICK_SMALL(type, ExactAdd, bySources2));
  decodeSame(d, type, 2, handler);
}

void decodeMul(Decoder &d) {
  std::string type = d.lastType();
  if (!isFloatType(type))
    return decodeIntegerMul(d, false);
  d.takeType();
  d.take("rn");
  if (type == "f32x2")
    return decodeSame(d, type, 2, bySources2<Pair<Mul>, uint64_t>);
  bool flushes = isWideFloat(type) && d.take("ftz");
  decodeSame(d, type, 2,
             isWideFloat(type) ? PICK_WIDE(type, Mul, flushes, bySources2)
                               : PICK_SMALL(type, Mul, bySources2));
}

void decodeFma(Decoder &d) {
  std::string type = d.lastType();
  if (!isFloatType(type))
    return decodeIntegerMul(d, true);
  d.takeType();
  d.take("rn");
  if (!isWideFloat(type) && d.take("f32"))
    return decodeMixed<Fma>(d, type, 2);
  if (type == "f32x2")
    return decodeSame(d, type, 3, bySources3<Pair<Fma>, uint64_t>);
  bool flushes = isWideFloat(type) && d.take("ftz");
  decodeSame(d, type, 3,
             type == "f32"   ? pickFma(flushes)
             : type == "f64" ? bySources3<Plain<Fma, double>, double>
                             : PICK_SMALL(type, ExactFma, bySources3));
}

void decodeDiv(Decoder &d) {
  std::string type = d.takeType();
  if (!isFloatType(type))
    return decodeSame(d, type, 2, pickIntegerDivision(type));
  d.takeOneOf({"rn", "full", "approx"});
  bool flushes = d.take("ftz");
  decodeSame(d, type, 2, PICK_WIDE(type, Div, flushes, bySources2));
}

template <bool IsMax>
void decodeExtremum(Decoder &d) {
  std::string type = d.takeType();
  if (!isFloatType(type))
    return decodeSame(d, type, 2, pickIntegerExtremum(type, IsMax));
  bool flushes = isWideFloat(type) && d.take("ftz");
  bool isStrict = d.take("NaN");
  using F = Extremum<IsMax>;
  using G = StrictExtremum<IsMax>;
  Handler handler = isWideFloat(type)
                        ? (isStrict ? PICK_WIDE(type, G, flushes, bySources2)
                                    : PICK_WIDE(type, F, flushes, bySources2))
                        : (isStrict ? PICK_SMALL(type, G, bySources2)
                                    : PICK_SMALL(type, F, bySources2));
  decodeSame(d, type, 2, handler);
}

/// abs, neg and copysign work on bits, so that NaNs keep their payload.
template <typename T>
struct AbsBits {
  static T apply(T a) { return a & T(~sign()); }
  static constexpr T sign() {
    return sizeof(T) == 8 ? T(1ull << 63) : T(1ull << (8 * sizeof(T) - 1));
  }
};
template <typename T>
struct NegBits {
  static T apply(T a) { return a ^ AbsBits<T>::sign(); }
};
struct AbsPair {
  static uint32_t apply(uint32_t a) { return a & 0x7FFF7FFF; }
};
struct NegPair {
  static uint32_t apply(uint32_t a) { return a ^ 0x80008000; }
};
struct AbsFlushed {
  static float apply(float a) { return std::fabs(flushDenormal(a)); }
};
struct NegFlushed {
  static float apply(float a) { return -flushDenormal(a); }
};
struct CopySign {
  static uint32_t apply(uint32_t sign, uint32_t a) {
    return (a & 0x7FFFFFFF) | (sign & 0x80000000);
  }
};

template <bool IsAbs>
void decodeSign(Decoder &d) {
  std::string type = d.takeType();
  if (!isFloatType(type))
    return decodeSame(d, type, 1, pickIntegerSign(type, IsAbs));
  bool flushes = d.take("ftz");
#define SIGN(T) (IsAbs ? unary<AbsBits<T>, T, T> : unary<NegBits<T>, T, T>)
  Handler handler = type == "f32" && flushes
                        ? (IsAbs ? unary<AbsFlushed, float, float>
                                 : unary<NegFlushed, float, float>)
                    : type == "f32"                   ? SIGN(uint32_t)
                    : type == "f64"                   ? SIGN(uint64_t)
                    : type == "f16" || type == "bf16" ? SIGN(uint16_t)
                    : type == "f16x2" || type == "bf16x2"
                        ? (IsAbs ? unary<AbsPair, uint32_t, uint32_t>
                                 : unary<NegPair, uint32_t, uint32_t>)
                        : nullptr;
#undef SIGN
  decodeSame(d, type, 1, handler);
}

/// Forms with `.approx` and optionally `.rn`.
template <typename F>
void decodeSpecial(Decoder &d) {
  d.takeOneOf({"approx", "rn"});
  bool flushes = d.take("ftz");
  std::string type = d.takeType();
  decodeSame(d, type, 1,
             type == "f32" ? (flushes ? bySources1<Flushed<F>, float>
                                      : bySources1<Plain<F, float>, float>)
                           : nullptr);
}

void decodeCopySign(Decoder &d) {
  std::string type = d.takeType();
  decodeSame(d, type, 2,
             type == "f32" ? bySources2<CopySign, uint32_t> : Handler(nullptr));
}

} // namespace

void moec::ptx::addFloatForms(FormTable &table) {
  table["add"] = [](Decoder &d) { decodeSum(d, false); };
  table["sub"] = [](Decoder &d) { decodeSum(d, true); };
  table["mul"] = decodeMul;
  table["mad"] = table["fma"] = decodeFma;
  table["div"] = decodeDiv;
  table["min"] = decodeExtremum<false>;
  table["max"] = decodeExtremum<true>;
  table["abs"] = decodeSign<true>;
  table["neg"] = decodeSign<false>;
  table["copysign"] = decodeCopySign;
  table["rcp"] = decodeSpecial<Rcp>;
  table["sqrt"] = decodeSpecial<Sqrt>;
  table["rsqrt"] = decodeSpecial<Rsqrt>;
  table["ex2"] = decodeSpecial<Ex2>;
  table["lg2"] = decodeSpecial<Lg2>;
  table["sin"] = decodeSpecial<Sin>;
  table["cos"] = decodeSpecial<Cos>;
  table["tanh"] = decodeSpecial<Tanh>;
}
