//===- MoveForms.cpp - moves, comparisons, selections -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Engine/Engine.h"
#include "../Numbers/Floats.h"
#include "Arithmetic.h"

using namespace moec::ptx;

namespace {

//===----------------------------------------------------------------------===//
// mov, cvta
//===----------------------------------------------------------------------===//

struct Identity {
  template <typename T>
  static T apply(T a) {
    return a;
  }
};

Handler pickMove(unsigned bytes) {
  return bytes == 8   ? unary<Identity, uint64_t, uint64_t>
         : bytes == 4 ? unary<Identity, uint32_t, uint32_t>
         : bytes == 2 ? unary<Identity, uint16_t, uint16_t>
                      : Handler(nullptr);
}

/// Loads one lane of a value of up to 64 bits.
uint64_t load(const Warp &warp, Slot slot, unsigned bytes, unsigned lane) {
  uint64_t value = 0;
  std::memcpy(&value, warp.lanes<uint8_t>(slot) + lane * bytes, bytes);
  return value;
}

void store(const Warp &warp, Slot slot, unsigned bytes, unsigned lane,
           uint64_t value) {
  std::memcpy(warp.lanes<uint8_t>(slot) + lane * bytes, &value, bytes);
}

/// Packs `count` parts into `width` bytes, or unpacks them.
template <bool Unpacks>
Step movePacked(Warp &warp, const Instruction &instruction, LaneMask mask) {
  unsigned whole = instruction.width, count = instruction.count;
  unsigned part = whole / count;
  const std::vector<Slot> &operands = instruction.operands;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    if (!(mask >> lane & 1))
      continue;
    if (Unpacks) {
      uint64_t value = load(warp, operands[count], whole, lane);
      for (unsigned i = 0; i < count; ++i)
        store(warp, operands[i], part, lane, value >> (8 * part * i));
    } else {
      uint64_t value = 0;
      for (unsigned i = 0; i < count; ++i)
        value |= load(warp, operands[1 + i], part, lane) << (8 * part * i);
      store(warp, operands[0], whole, lane, value);
    }
  }
  return Step::Next;
}

/// %clock and the like count instructions, and the time that was skipped while
/// no thread made progress.
Step moveTime(Warp &warp, const Instruction &instruction, LaneMask mask) {
  uint64_t now = warp.cta.launch.engine->readTime();
  for (unsigned lane = 0; lane < kWarpLanes; ++lane)
    if (mask >> lane & 1)
      store(warp, instruction.operands[0], instruction.width, lane, now);
  return Step::Next;
}

void decodeMov(Decoder &d) {
  std::string type = d.takeType();
  if (!d.expectOperands(2, 2))
    return;
  if (type == "pred")
    return decodePredicateMove(d);
  unsigned bytes = typeBytes(type);
  const RawOperand &to = d.operand(0), &from = d.operand(1);
  const RawOperand &parts = to.parts.empty() ? from : to;
  if (parts.kind == RawOperand::Kind::Vector) {
    bool unpacks = &parts == &to;
    size_t count = parts.parts.size();
    if (count == 0 || bytes % count != 0 || bytes > 8)
      return d.fail("the parts do not fill the register");
    d.instruction.width = uint8_t(bytes);
    d.instruction.count = uint8_t(count);
    if (!unpacks)
      d.result(to, bytes);
    for (const RawOperand &part : parts.parts)
      unpacks ? d.result(part, unsigned(bytes / count))
              : d.value(part, unsigned(bytes / count));
    if (unpacks)
      d.value(from, bytes);
    d.instruction.handler = unpacks ? movePacked<true> : movePacked<false>;
    return;
  }
  d.result(to, bytes);
  if (from.isWord() && (from.text == "%clock" || from.text == "%clock64" ||
                        from.text == "%globaltimer")) {
    d.instruction.width = uint8_t(bytes);
    d.instruction.handler = moveTime;
    return;
  }
  d.value(from, bytes);
  d.instruction.isMove = true;
  d.instruction.handler = pickMove(bytes);
}

struct AddWindow {
  static uint64_t apply(uint64_t a, uint64_t window) { return a + window; }
};
struct SubtractWindow {
  static uint64_t apply(uint64_t a, uint64_t window) { return a - window; }
};

/// Converts addresses of a space to generic ones, or with `.to` the reverse.
void decodeCvta(Decoder &d) {
  bool isTo = d.take("to");
  std::string space =
      d.takeOneOf({"global", "const", "local", "param", "param::entry",
                   "shared", "shared::cta", "shared::cluster"});
  std::string type = d.takeType();
  if (space.empty() || type != "u64" || !d.expectOperands(2, 2))
    return;
  uint64_t window = space == "global" || space == "const" ? 0
                    : space == "local"                    ? kLocalWindow
                    : space[0] == 'p'                     ? kParamWindow
                                                          : kSharedWindow;
  d.result(0, 8);
  d.value(1, 8);
  d.instruction.operands.push_back(d.constantSlot(window, 8));
  d.instruction.handler =
      isTo ? binary<SubtractWindow, uint64_t, uint64_t, uint64_t>
           : binary<AddWindow, uint64_t, uint64_t, uint64_t>;
}

//===----------------------------------------------------------------------===//
// setp, selp
//===----------------------------------------------------------------------===//

enum class Compare : uint8_t { Eq, Ne, Lt, Le, Gt, Ge, Num, Nan };

template <Compare C, bool Unordered, typename T>
bool compares(T a, T b) {
  if (a != a || b != b)
    return C == Compare::Nan || (C != Compare::Num && Unordered);
  switch (C) {
  case Compare::Eq:
    return a == b;
  case Compare::Ne:
    return a != b;
  case Compare::Lt:
    return a < b;
  case Compare::Le:
    return a <= b;
  case Compare::Gt:
    return a > b;
  case Compare::Ge:
    return a >= b;
  case Compare::Num:
    return true;
  case Compare::Nan:
    return false;
  }
  return false;
}

struct HalfValue {
  using Storage = uint16_t;
  static float get(uint16_t bits) { return halfToFloat(bits); }
};
struct BfloatValue {
  using Storage = uint16_t;
  static float get(uint16_t bits) { return bfloatToFloat(bits); }
};
struct FlushedValue {
  using Storage = float;
  static float get(float value) { return flushDenormal(value); }
};
template <typename T>
struct PlainValue {
  using Storage = T;
  static T get(T value) { return value; }
};

/// The operation that combines the result with a third, predicate source.
enum class Combine : uint8_t { None, And, Or, Xor };

template <Compare C, bool Unordered, typename V>
Step setPredicate(Warp &warp, const Instruction &instruction, LaneMask mask) {
  using T = typename V::Storage;
  const T *a = warp.lanes<T>(instruction.operands[2]);
  const T *b = warp.lanes<T>(instruction.operands[3]);
  LaneMask holds = 0;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane)
    holds |= LaneMask(compares<C, Unordered>(V::get(a[lane]), V::get(b[lane])))
             << lane;
  LaneMask other = ~holds;
  if (Combine(instruction.flags) != Combine::None) {
    LaneMask c = warp.predicate(instruction.operands[4]);
    if (instruction.immediate)
      c = ~c;
    auto combine = [&](LaneMask x) {
      return Combine(instruction.flags) == Combine::And  ? x & c
             : Combine(instruction.flags) == Combine::Or ? x | c
                                                         : x ^ c;
    };
    holds = combine(holds);
    other = combine(other);
  }
  LaneMask &p = warp.predicate(instruction.operands[0]);
  LaneMask &q = warp.predicate(instruction.operands[1]);
  q = (q & ~mask) | (other & mask);
  p = (p & ~mask) | (holds & mask);
  return Step::Next;
}

template <Compare C, bool Unordered>
Handler pickCompareType(const std::string &type, bool flushes) {
#define TYPE(name, V)                                                          \
  if (type == name)                                                            \
    return setPredicate<C, Unordered, V>;
  if (type == "f32" && flushes)
    return setPredicate<C, Unordered, FlushedValue>;
  TYPE("s32", PlainValue<int32_t>)
  TYPE("u32", PlainValue<uint32_t>)
  TYPE("b32", PlainValue<uint32_t>)
  TYPE("s64", PlainValue<int64_t>)
  TYPE("u64", PlainValue<uint64_t>)
  TYPE("b64", PlainValue<uint64_t>)
  TYPE("s16", PlainValue<int16_t>)
  TYPE("u16", PlainValue<uint16_t>)
  TYPE("b16", PlainValue<uint16_t>)
  TYPE("f32", PlainValue<float>)
  TYPE("f64", PlainValue<double>)
  TYPE("f16", HalfValue)
  TYPE("bf16", BfloatValue)
#undef TYPE
  return nullptr;
}

Handler pickCompare(const std::string &name, const std::string &type,
                    bool flushes) {
#define COMPARE(text, C, Unordered)                                            \
  if (name == text)                                                            \
    return pickCompareType<Compare::C, Unordered>(type, flushes);
  COMPARE("eq", Eq, false)
  COMPARE("ne", Ne, false)
  COMPARE("lt", Lt, false)
  COMPARE("le", Le, false)
  COMPARE("gt", Gt, false)
  COMPARE("ge", Ge, false)
  COMPARE("lo", Lt, false)
  COMPARE("ls", Le, false)
  COMPARE("hi", Gt, false)
  COMPARE("hs", Ge, false)
  COMPARE("equ", Eq, true)
  COMPARE("neu", Ne, true)
  COMPARE("ltu", Lt, true)
  COMPARE("leu", Le, true)
  COMPARE("gtu", Gt, true)
  COMPARE("geu", Ge, true)
  COMPARE("num", Num, false)
  COMPARE("nan", Nan, false)
#undef COMPARE
  return nullptr;
}

void decodeSetp(Decoder &d) {
  std::string compare = d.takeNext();
  std::string combine = d.takeOneOf({"and", "or", "xor"});
  bool flushes = d.take("ftz");
  std::string type = d.takeType();
  size_t expected = combine.empty() ? 3 : 4;
  if (!d.expectOperands(expected, expected))
    return;
  RawOperand second;
  second.text = d.operand(0).second.empty() ? "_" : d.operand(0).second;
  d.predicateResult(d.operand(0));
  d.predicateResult(second);
  d.value(1, typeBytes(type));
  d.value(2, typeBytes(type));
  d.instruction.flags = uint32_t(combine.empty()    ? Combine::None
                                 : combine == "and" ? Combine::And
                                 : combine == "or"  ? Combine::Or
                                                    : Combine::Xor);
  if (!combine.empty()) {
    d.predicate(d.operand(3));
    d.instruction.immediate = d.operand(3).isNegated;
  }
  d.instruction.handler = pickCompare(compare, type, flushes);
}

template <typename T>
Step selectByPredicate(Warp &warp, const Instruction &instruction,
                       LaneMask mask) {
  T *d = warp.lanes<T>(instruction.operands[0]);
  const T *a = warp.lanes<T>(instruction.operands[1]);
  const T *b = warp.lanes<T>(instruction.operands[2]);
  LaneMask chosen = warp.predicate(instruction.operands[3]);
  PTXSIM_VECTORIZE
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    T result = chosen >> lane & 1 ? a[lane] : b[lane];
    d[lane] = mask >> lane & 1 ? result : d[lane];
  }
  return Step::Next;
}

void decodeSelp(Decoder &d) {
  unsigned bytes = typeBytes(d.takeType());
  if (!d.expectOperands(4, 4))
    return;
  d.result(0, bytes);
  d.value(1, bytes);
  d.value(2, bytes);
  d.predicate(d.operand(3));
  d.instruction.handler = bytes == 8   ? selectByPredicate<uint64_t>
                          : bytes == 4 ? selectByPredicate<uint32_t>
                          : bytes == 2 ? selectByPredicate<uint16_t>
                                       : Handler(nullptr);
}

} // namespace

void moec::ptx::addMoveForms(FormTable &table) {
  table["mov"] = decodeMov;
  table["cvta"] = decodeCvta;
  table["setp"] = decodeSetp;
  table["selp"] = decodeSelp;
}
