//===- IntegerForms.cpp - integer and bit instructions ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Numbers/Lanes.h"
#include "Arithmetic.h"

#include <algorithm>
#include <type_traits>

using namespace moec::ptx;

namespace {

template <typename T>
using Unsigned = std::make_unsigned_t<T>;

/// The type of twice the bits.
template <typename T>
struct WideOf;
template <>
struct WideOf<int16_t> {
  using type = int32_t;
};
template <>
struct WideOf<uint16_t> {
  using type = uint32_t;
};
template <>
struct WideOf<int32_t> {
  using type = int64_t;
};
template <>
struct WideOf<uint32_t> {
  using type = uint64_t;
};
template <>
struct WideOf<int64_t> {
  using type = __int128;
};
template <>
struct WideOf<uint64_t> {
  using type = unsigned __int128;
};
template <typename T>
using Wide = typename WideOf<T>::type;

//===----------------------------------------------------------------------===//
// Functions of lanes
//===----------------------------------------------------------------------===//

// Unsigned arithmetic, because overflow wraps.
template <typename T>
struct Add {
  static T apply(T a, T b) { return T(Unsigned<T>(a) + Unsigned<T>(b)); }
};
template <typename T>
struct Sub {
  static T apply(T a, T b) { return T(Unsigned<T>(a) - Unsigned<T>(b)); }
};
template <typename T>
struct MulLo {
  static T apply(T a, T b) { return T(uint64_t(a) * uint64_t(b)); }
};
template <typename T>
struct MulHi {
  static T apply(T a, T b) {
    return T((Wide<T>(a) * Wide<T>(b)) >> (8 * sizeof(T)));
  }
};
template <typename T>
struct MulWide {
  static Wide<T> apply(T a, T b) { return Wide<T>(a) * Wide<T>(b); }
};
template <typename T>
struct MadLo {
  static T apply(T a, T b, T c) {
    return T(uint64_t(a) * uint64_t(b) + uint64_t(c));
  }
};
template <typename T>
struct MadHi {
  static T apply(T a, T b, T c) {
    return Add<T>::apply(MulHi<T>::apply(a, b), c);
  }
};
template <typename T>
struct MadWide {
  static Wide<T> apply(T a, T b, Wide<T> c) {
    using U = Unsigned<Wide<T>>;
    return Wide<T>(U(Wide<T>(a) * Wide<T>(b)) + U(c));
  }
};
// PTX leaves division by zero undefined, but inactive lanes are computed too
// and must not trap.
template <typename T>
struct Div {
  static T apply(T a, T b) {
    if (b == 0)
      return T(-1);
    return std::is_signed_v<T> && b == T(-1) ? T(0 - Unsigned<T>(a)) : T(a / b);
  }
};
template <typename T>
struct Rem {
  static T apply(T a, T b) {
    if (b == 0)
      return a;
    return std::is_signed_v<T> && b == T(-1) ? T(0) : T(a % b);
  }
};
template <typename T>
struct Min {
  static T apply(T a, T b) { return a < b ? a : b; }
};
template <typename T>
struct Max {
  static T apply(T a, T b) { return a > b ? a : b; }
};
template <typename T>
struct Abs {
  static T apply(T a) { return a < 0 ? T(0 - Unsigned<T>(a)) : a; }
};
template <typename T>
struct Neg {
  static T apply(T a) { return T(0 - Unsigned<T>(a)); }
};
template <typename T>
struct And {
  static T apply(T a, T b) { return a & b; }
};
template <typename T>
struct Or {
  static T apply(T a, T b) { return a | b; }
};
template <typename T>
struct Xor {
  static T apply(T a, T b) { return a ^ b; }
};
template <typename T>
struct Not {
  static T apply(T a) { return T(~a); }
};
template <typename T>
struct Cnot {
  static T apply(T a) { return a == 0 ? 1 : 0; }
};
template <typename T>
struct Shl {
  static T apply(T a, uint32_t b) {
    return b < 8 * sizeof(T) ? T(Unsigned<T>(a) << b) : T(0);
  }
};
template <typename T>
struct Shr {
  static T apply(T a, uint32_t b) {
    constexpr uint32_t most = 8 * sizeof(T) - 1;
    if (std::is_signed_v<T>)
      return T(a >> (b < most ? b : most));
    return b <= most ? T(a >> b) : T(0);
  }
};
template <typename T>
struct Popc {
  static uint32_t apply(T a) { return uint32_t(__builtin_popcountll(a)); }
};
template <typename T>
struct Clz {
  static uint32_t apply(T a) {
    constexpr uint32_t bits = 8 * sizeof(T);
    return a == 0 ? bits : uint32_t(__builtin_clzll(a)) - (64 - bits);
  }
};
template <typename T>
struct Brev {
  static T apply(T a) {
    T result = 0;
    for (unsigned i = 0; i < 8 * sizeof(T); ++i)
      result |= T(a >> i & 1) << (8 * sizeof(T) - 1 - i);
    return result;
  }
};
template <typename T>
struct Bfe {
  static T apply(T a, uint32_t start, uint32_t length) {
    constexpr unsigned bits = 8 * sizeof(T);
    start &= 0xFF;
    length &= 0xFF;
    using U = Unsigned<T>;
    if (length == 0)
      return 0;
    U sign = std::is_signed_v<T>
                 ? U(a) >> std::min<uint32_t>(start + length - 1, bits - 1) & 1
                 : 0;
    U field = start < bits ? U(a) >> start : 0;
    // Bits beyond the value are copies of the sign.
    unsigned present = start < bits ? std::min(length, bits - start) : 0;
    if (present < bits) {
      U low = present ? (U(1) << present) - 1 : 0;
      field = (field & low) | (sign ? U(~low) : 0);
    }
    return T(field);
  }
};
template <typename T>
struct Shf {
  template <bool IsLeft, bool Wraps>
  struct Of {
    static T apply(T low, T high, uint32_t count) {
      count = Wraps ? count & 31 : std::min<uint32_t>(count, 32);
      uint64_t both = uint64_t(high) << 32 | low;
      return IsLeft ? T((both << count) >> 32) : T(both >> count);
    }
  };
};
struct Prmt {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t both = uint64_t(b) << 32 | a;
    uint32_t result = 0;
    for (unsigned i = 0; i < 4; ++i) {
      uint32_t pick = selector >> (4 * i) & 0xF;
      uint32_t byte = uint32_t(both >> (8 * (pick & 7))) & 0xFF;
      if (pick & 8)
        byte = byte & 0x80 ? 0xFF : 0;
      result |= byte << (8 * i);
    }
    return result;
  }
};

template <typename T>
Step insertBits(Warp &warp, const Instruction &instruction, LaneMask mask) {
  T *d = warp.lanes<T>(instruction.operands[0]);
  const T *a = warp.lanes<T>(instruction.operands[1]);
  const T *b = warp.lanes<T>(instruction.operands[2]);
  const uint32_t *start = warp.lanes<uint32_t>(instruction.operands[3]);
  const uint32_t *length = warp.lanes<uint32_t>(instruction.operands[4]);
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (!(mask >> lane & 1))
      continue;
    T result = b[lane];
    for (uint32_t i = 0; i < (length[lane] & 0xFF); ++i) {
      uint32_t to = (start[lane] & 0xFF) + i;
      if (to >= 8 * sizeof(T) || i >= 8 * sizeof(T))
        break;
      result = (result & ~(T(1) << to)) | (a[lane] >> i & 1) << to;
    }
    d[lane] = result;
  }
  return Step::Next;
}

Step lookUpBits(Warp &warp, const Instruction &instruction, LaneMask mask) {
  uint32_t *d = warp.lanes<uint32_t>(instruction.operands[0]);
  const uint32_t *a = warp.lanes<uint32_t>(instruction.operands[1]);
  const uint32_t *b = warp.lanes<uint32_t>(instruction.operands[2]);
  const uint32_t *c = warp.lanes<uint32_t>(instruction.operands[3]);
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (!(mask >> lane & 1))
      continue;
    uint32_t result = 0;
    for (unsigned i = 0; i < 8; ++i)
      if (instruction.immediate >> i & 1)
        result |= (i & 4 ? a[lane] : ~a[lane]) & (i & 2 ? b[lane] : ~b[lane]) &
                  (i & 1 ? c[lane] : ~c[lane]);
    d[lane] = result;
  }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Predicates, which are masks
//===----------------------------------------------------------------------===//

enum class Logic : uint8_t { And, Or, Xor, Not, Move };

Step combinePredicates(Warp &warp, const Instruction &instruction,
                       LaneMask mask) {
  LaneMask &d = warp.predicate(instruction.operands[0]);
  LaneMask a = warp.predicate(instruction.operands[1]), result = a;
  switch (Logic(instruction.flags)) {
  case Logic::And:
    result = a & warp.predicate(instruction.operands[2]);
    break;
  case Logic::Or:
    result = a | warp.predicate(instruction.operands[2]);
    break;
  case Logic::Xor:
    result = a ^ warp.predicate(instruction.operands[2]);
    break;
  case Logic::Not:
    result = ~a;
    break;
  case Logic::Move:
    break;
  }
  d = (d & ~mask) | (result & mask);
  return Step::Next;
}

void decodePredicates(Decoder &d, Logic logic) {
  size_t sources = logic == Logic::Not || logic == Logic::Move ? 1 : 2;
  if (!d.expectOperands(sources + 1, sources + 1))
    return;
  d.predicateResult(d.operand(0));
  for (size_t i = 1; i <= sources; ++i)
    d.predicate(d.operand(i));
  d.instruction.flags = uint32_t(logic);
  d.instruction.handler = combinePredicates;
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

// Picks the handler for a type; null for any other type.
#define PICK_TYPE(type, F, kind)                                               \
  ((type) == "s32"   ? kind<F<int32_t>, int32_t>                               \
   : (type) == "u32" ? kind<F<uint32_t>, uint32_t>                             \
   : (type) == "s64" ? kind<F<int64_t>, int64_t>                               \
   : (type) == "u64" ? kind<F<uint64_t>, uint64_t>                             \
   : (type) == "s16" ? kind<F<int16_t>, int16_t>                               \
   : (type) == "u16" ? kind<F<uint16_t>, uint16_t>                             \
                     : nullptr)
#define PICK_BITS(type, F, kind)                                               \
  ((type) == "b32"   ? kind<F<uint32_t>, uint32_t>                             \
   : (type) == "b64" ? kind<F<uint64_t>, uint64_t>                             \
   : (type) == "b16" ? kind<F<uint16_t>, uint16_t>                             \
                     : nullptr)

template <typename F, typename T>
constexpr Handler same1 = unary<F, T, T>;
template <typename F, typename T>
constexpr Handler same2 = binary<F, T, T, T>;
template <typename F, typename T>
constexpr Handler same3 = ternary<F, T, T, T, T>;
template <typename F, typename T>
constexpr Handler shift2 = binary<F, T, T, uint32_t>;
template <typename F, typename T>
constexpr Handler field3 = ternary<F, T, T, uint32_t, uint32_t>;
template <typename F, typename T>
constexpr Handler count1 = unary<F, uint32_t, T>;

void decodeMul(Decoder &d, bool adds) {
  std::string mode = d.takeOneOf({"lo", "hi", "wide"}), type = d.takeType();
  size_t sources = adds ? 3 : 2;
  if (mode == "lo")
    return decodeSame(d, type, sources,
                      adds ? PICK_TYPE(type, MadLo, same3)
                           : PICK_TYPE(type, MulLo, same2));
  if (mode == "hi")
    return decodeSame(d, type, sources,
                      adds ? PICK_TYPE(type, MadHi, same3)
                           : PICK_TYPE(type, MulHi, same2));
  if (mode != "wide" || !d.expectOperands(sources + 1, sources + 1))
    return;
  unsigned bytes = typeBytes(type);
  d.result(0, 2 * bytes);
  d.value(1, bytes);
  d.value(2, bytes);
  if (adds)
    d.value(3, 2 * bytes);
#define WIDE(T)                                                                \
  (adds ? Handler(ternary<MadWide<T>, Wide<T>, T, T, Wide<T>>)                 \
        : Handler(binary<MulWide<T>, Wide<T>, T, T>))
  d.instruction.handler = type == "s32"   ? WIDE(int32_t)
                          : type == "u32" ? WIDE(uint32_t)
                          : type == "s16" ? WIDE(int16_t)
                          : type == "u16" ? WIDE(uint16_t)
                                          : nullptr;
#undef WIDE
}

void decodeShift(Decoder &d, Handler (*pick)(const std::string &type)) {
  std::string type = d.takeType();
  Handler handler = pick(type);
  if (!handler || !d.expectOperands(3, 3))
    return;
  d.result(0, typeBytes(type));
  d.value(1, typeBytes(type));
  d.value(2, 4);
  d.instruction.handler = handler;
}

Handler pickShl(const std::string &type) {
  return PICK_BITS(type, Shl, shift2);
}

Handler pickShr(const std::string &type) {
  Handler handler = PICK_TYPE(type, Shr, shift2);
  return handler ? handler : PICK_BITS(type, Shr, shift2);
}

template <template <typename> class F>
void decodeLogic(Decoder &d, Logic logic) {
  std::string type = d.takeType();
  if (type == "pred")
    return decodePredicates(d, logic);
  decodeSame(d, type, 2, PICK_BITS(type, F, same2));
}

void decodeNot(Decoder &d) {
  std::string type = d.takeType();
  if (type == "pred")
    return decodePredicates(d, Logic::Not);
  decodeSame(d, type, 1, PICK_BITS(type, Not, same1));
}

template <template <typename> class F>
void decodeCount(Decoder &d) {
  std::string type = d.takeType();
  if (!d.expectOperands(2, 2))
    return;
  d.result(0, 4);
  d.value(1, typeBytes(type));
  d.instruction.handler = PICK_BITS(type, F, count1);
}

void decodeBfe(Decoder &d) {
  std::string type = d.takeType();
  if (!d.expectOperands(4, 4))
    return;
  d.result(0, typeBytes(type));
  d.value(1, typeBytes(type));
  d.value(2, 4);
  d.value(3, 4);
  d.instruction.handler =
      type.back() == '6' ? nullptr : PICK_TYPE(type, Bfe, field3);
}

void decodeBfi(Decoder &d) {
  std::string type = d.takeType();
  if (!d.expectOperands(5, 5))
    return;
  d.result(0, typeBytes(type));
  d.value(1, typeBytes(type));
  d.value(2, typeBytes(type));
  d.value(3, 4);
  d.value(4, 4);
  d.instruction.handler = type == "b32"   ? insertBits<uint32_t>
                          : type == "b64" ? insertBits<uint64_t>
                                          : nullptr;
}

void decodeShf(Decoder &d) {
  bool isLeft = d.takeOneOf({"l", "r"}) == "l";
  bool wraps = d.takeOneOf({"wrap", "clamp"}) == "wrap";
  using F = Shf<uint32_t>;
  using T = uint32_t;
  Handler handler =
      isLeft
          ? (wraps ? same3<F::Of<true, true>, T> : same3<F::Of<true, false>, T>)
          : (wraps ? same3<F::Of<false, true>, T>
                   : same3<F::Of<false, false>, T>);
  std::string type = d.takeType();
  decodeSame(d, type, 3, type == "b32" ? handler : nullptr);
}

void decodeLop3(Decoder &d) {
  std::string type = d.takeType();
  if (type != "b32" || !d.expectOperands(5, 5))
    return;
  d.result(0, 4);
  for (size_t i = 1; i < 4; ++i)
    d.value(i, 4);
  d.instruction.immediate = d.constant(4);
  d.instruction.handler = lookUpBits;
}

} // namespace

void moec::ptx::decodePredicateMove(Decoder &d) {
  decodePredicates(d, Logic::Move);
}

void moec::ptx::decodeSame(Decoder &d, const std::string &type, size_t sources,
                           Handler handler) {
  unsigned bytes = typeBytes(type);
  if (!handler || !d.expectOperands(sources + 1, sources + 1))
    return;
  d.result(0, bytes);
  for (size_t i = 1; i <= sources; ++i)
    d.value(i, bytes);
  d.instruction.handler = handler;
}

Handler moec::ptx::pickIntegerSum(const std::string &type, bool subtracts) {
  return subtracts ? PICK_TYPE(type, Sub, same2) : PICK_TYPE(type, Add, same2);
}

Handler moec::ptx::pickIntegerExtremum(const std::string &type, bool isMax) {
  return isMax ? PICK_TYPE(type, Max, same2) : PICK_TYPE(type, Min, same2);
}

Handler moec::ptx::pickIntegerSign(const std::string &type, bool isAbs) {
  if (type[0] != 's')
    return nullptr;
  return isAbs ? PICK_TYPE(type, Abs, same1) : PICK_TYPE(type, Neg, same1);
}

Handler moec::ptx::pickIntegerDivision(const std::string &type) {
  return PICK_TYPE(type, Div, same2);
}

void moec::ptx::decodeIntegerMul(Decoder &d, bool adds) { decodeMul(d, adds); }

void moec::ptx::addIntegerForms(FormTable &table) {
  table["rem"] = [](Decoder &d) {
    std::string type = d.takeType();
    decodeSame(d, type, 2, PICK_TYPE(type, Rem, same2));
  };
  table["and"] = [](Decoder &d) { decodeLogic<And>(d, Logic::And); };
  table["or"] = [](Decoder &d) { decodeLogic<Or>(d, Logic::Or); };
  table["xor"] = [](Decoder &d) { decodeLogic<Xor>(d, Logic::Xor); };
  table["not"] = decodeNot;
  table["cnot"] = [](Decoder &d) {
    std::string type = d.takeType();
    decodeSame(d, type, 1, PICK_BITS(type, Cnot, same1));
  };
  table["shl"] = [](Decoder &d) { decodeShift(d, pickShl); };
  table["shr"] = [](Decoder &d) { decodeShift(d, pickShr); };
  table["popc"] = decodeCount<Popc>;
  table["clz"] = decodeCount<Clz>;
  table["brev"] = [](Decoder &d) {
    std::string type = d.takeType();
    decodeSame(d, type, 1, PICK_BITS(type, Brev, same1));
  };
  table["bfe"] = decodeBfe;
  table["bfi"] = decodeBfi;
  table["shf"] = decodeShf;
  table["lop3"] = decodeLop3;
  table["prmt"] = [](Decoder &d) {
    std::string type = d.takeType();
    decodeSame(d, type, 3,
               type == "b32" ? same3<Prmt, uint32_t> : Handler(nullptr));
  };
}
