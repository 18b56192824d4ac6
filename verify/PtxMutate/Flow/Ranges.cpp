//===- Ranges.cpp - value ranges of registers -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Ranges.h"

#include "../Mutants/Edit.h"

#include <algorithm>
#include <tuple>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

using Wide = __int128;

bool Range::operator<(const Range &other) const {
  return std::tie(low, high, hasDistance, least, most) <
         std::tie(other.low, other.high, other.hasDistance, other.least,
                  other.most);
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

static unsigned bitsOf(const std::string &type) {
  return type == "pred" ? 1 : 8 * typeBytes(type);
}

/// All values of a type, as signed numbers.
static Range allOf(const std::string &type) {
  unsigned bits = bitsOf(type);
  if (bits == 1)
    return Range::of(0, 1);
  if (bits == 0 || bits >= 64)
    return Range();
  return Range::of(-(int64_t(1) << (bits - 1)), (int64_t(1) << (bits - 1)) - 1);
}

/// None if a number between the two may not fit the type.
static std::optional<Range> fit(Wide low, Wide high, const std::string &type) {
  Range all = allOf(type);
  if (low < all.low || high > all.high || low > high)
    return std::nullopt;
  return Range::of(int64_t(low), int64_t(high));
}

/// Distances must stay far from overflow.
static void setDistance(Range &range, Wide least, Wide most) {
  constexpr int64_t kFar = int64_t(1) << 60;
  range.hasDistance = least >= -kFar && most <= kFar;
  range.least = range.hasDistance ? int64_t(least) : 0;
  range.most = range.hasDistance ? int64_t(most) : 0;
}

static bool isInteger(const std::string &type) {
  return type == "pred" ||
         ((type[0] == 's' || type[0] == 'u' || type[0] == 'b') &&
          bitsOf(type) >= 32);
}

//===----------------------------------------------------------------------===//
// Arithmetic
//===----------------------------------------------------------------------===//

static std::optional<Range> add(const Range &a, const Range &b,
                                const std::string &type) {
  std::optional<Range> sum =
      fit(Wide(a.low) + b.low, Wide(a.high) + b.high, type);
  if (sum && a.hasDistance != b.hasDistance) {
    const Range &far = a.hasDistance ? a : b, &near = a.hasDistance ? b : a;
    setDistance(*sum, Wide(far.least) + near.low, Wide(far.most) + near.high);
  }
  return sum;
}

static std::optional<Range> subtract(const Range &a, const Range &b,
                                     const std::string &type) {
  Wide low = Wide(a.low) - b.high, high = Wide(a.high) - b.low;
  if (a.hasDistance && b.hasDistance) {
    low = std::max(low, Wide(a.least) - b.most);
    high = std::min(high, Wide(a.most) - b.least);
  }
  std::optional<Range> difference = fit(low, high, type);
  if (difference && a.hasDistance && !b.hasDistance)
    setDistance(*difference, Wide(a.least) - b.high, Wide(a.most) - b.low);
  return difference;
}

static std::optional<Range> multiply(const Range &a, const Range &b,
                                     const std::string &type) {
  constexpr int64_t kFar = int64_t(1) << 62;
  for (const Range *side : {&a, &b})
    if (side->low < -kFar || side->high > kFar)
      return std::nullopt;
  Wide products[] = {Wide(a.low) * b.low, Wide(a.low) * b.high,
                     Wide(a.high) * b.low, Wide(a.high) * b.high};
  return fit(*std::min_element(std::begin(products), std::end(products)),
             *std::max_element(std::begin(products), std::end(products)), type);
}

/// The range of min or max. Unsigned numbers must not be negative here.
static std::optional<Range> extreme(bool isMin, const Range &a,
                                    const Range &b) {
  auto choose = [&](int64_t x, int64_t y) {
    return isMin ? std::min(x, y) : std::max(x, y);
  };
  Range result = Range::of(choose(a.low, b.low), choose(a.high, b.high));
  if (a.hasDistance && b.hasDistance)
    setDistance(result, choose(a.least, b.least), choose(a.most, b.most));
  return result;
}

static std::optional<Range> bitAnd(const Range &a, const Range &b) {
  if (a.isOne() && b.isOne())
    return Range::of(a.low & b.low, a.low & b.low);
  bool isMask = b.isOne() && b.low < 0 && b.low != INT64_MIN;
  if (isMask && (-b.low & (-b.low - 1)) == 0) {
    // Rounds down to a multiple of a power of two.
    int64_t rest = -b.low - 1;
    Range result = Range::of(a.low & b.low, a.high & b.low);
    if (a.hasDistance)
      setDistance(result, Wide(a.least) - rest, a.most);
    return result;
  }
  if (a.low < 0 && b.low < 0)
    return std::nullopt;
  // The mask keeps all bits that can be set.
  if (a.low >= 0 && b.isOne() && b.low >= a.high && (b.low & (b.low + 1)) == 0)
    return a;
  int64_t high = INT64_MAX;
  for (const Range *side : {&a, &b})
    if (side->low >= 0)
      high = std::min(high, side->high);
  return Range::of(0, high);
}

static std::optional<Range> bitOr(const Range &a, const Range &b,
                                  const std::string &type) {
  if (a.isOne() && b.isOne())
    return Range::of(a.low | b.low, a.low | b.low);
  if (a.low < 0 || b.low < 0)
    return std::nullopt;
  // At least either operand, at most their sum.
  std::optional<Range> result =
      fit(std::max(a.low, b.low), Wide(a.high) + b.high, type);
  const Range &far = a.hasDistance ? a : b, &near = a.hasDistance ? b : a;
  if (result && far.hasDistance)
    setDistance(*result, far.least, Wide(far.most) + near.high);
  return result;
}

static std::optional<Range> shiftRight(const Range &a, unsigned by,
                                       const std::string &type) {
  if (by >= bitsOf(type))
    return std::nullopt;
  if (type[0] == 's' || a.low >= 0)
    return Range::of(a.low >> by, a.high >> by);
  if (by == 0)
    return a;
  return Range::of(0, int64_t(~uint64_t(0) >> (64 - bitsOf(type) + by)));
}

/// Converts a value of type `from` to type `to`.
static std::optional<Range> convert(const Range &a, const std::string &from,
                                    const std::string &to) {
  Range value = a;
  if (from[0] == 'u' && a.low < 0) {
    if (bitsOf(from) != 32)
      return std::nullopt;
    value = Range::of(0, int64_t(UINT32_MAX));
  }
  Range all = allOf(to);
  return value.low >= all.low && value.high <= all.high
             ? std::optional<Range>(value)
             : std::nullopt;
}

static std::optional<Range> truth(const std::string &name, const Range &a,
                                  const Range &b) {
  if (name == "xor")
    return a.isOne() && b.isOne()
               ? std::optional<Range>(Range::of(a.low ^ b.low, a.low ^ b.low))
               : std::nullopt;
  auto choose = [&](int64_t x, int64_t y) {
    return name == "and" ? std::min(x, y) : std::max(x, y);
  };
  return Range::of(choose(a.low, b.low), choose(a.high, b.high));
}

std::optional<bool> mutate::compare(const std::string &how, bool isUnsigned,
                                    const Range &a, const Range &b) {
  bool isEquality = how == "eq" || how == "ne";
  if (isUnsigned && !isEquality && (a.low < 0 || b.low < 0))
    return std::nullopt;
  // Possible signs of a - b.
  bool mayBeLess = a.low<b.high, mayBeMore = a.high> b.low,
       mayBeEqual = a.low <= b.high && a.high >= b.low;
  if (a.hasDistance && b.hasDistance) {
    mayBeLess &= a.least < b.most;
    mayBeMore &= a.most > b.least;
    mayBeEqual &= a.least <= b.most && a.most >= b.least;
  }
  auto decide = [](bool mayHold, bool mayFail) {
    return mayHold == mayFail ? std::nullopt : std::optional<bool>(mayHold);
  };
  bool mayDiffer = mayBeLess || mayBeMore;
  if (how == "eq")
    return decide(mayBeEqual, mayDiffer);
  if (how == "ne")
    return decide(mayDiffer, mayBeEqual);
  if (how == "lt" || how == "lo")
    return decide(mayBeLess, mayBeEqual || mayBeMore);
  if (how == "le" || how == "ls")
    return decide(mayBeLess || mayBeEqual, mayBeMore);
  if (how == "gt" || how == "hi")
    return decide(mayBeMore, mayBeEqual || mayBeLess);
  if (how == "ge" || how == "hs")
    return decide(mayBeMore || mayBeEqual, mayBeLess);
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Instructions
//===----------------------------------------------------------------------===//

static std::optional<Range> special(const std::string &name) {
  constexpr int64_t kMaxThreads = 1024, kWarp = 32;
  if (name == "%tid.x")
    return Range::of(0, kMaxThreads - 1);
  if (name == "%ntid.x")
    return Range::of(1, kMaxThreads);
  if (name == "%laneid")
    return Range::of(0, kWarp - 1);
  if (name == "%ctaid.x" || name == "%nctaid.x")
    return Range::of(0, INT32_MAX);
  return std::nullopt;
}

Range mutate::rangeOf(const RawOperand &operand, const std::string &type,
                      const Values &values) {
  Range all = allOf(type);
  if (operand.isNumber() && operand.floatBits == 0) {
    uint64_t bits = operand.bits;
    int64_t number =
        bitsOf(type) == 32 ? int64_t(int32_t(bits)) : int64_t(bits);
    return Range::of(number, number);
  }
  if (!operand.isWord())
    return all;
  auto found = values.find(operand.text);
  if (found == values.end())
    return special(operand.text).value_or(all);
  if (!operand.isNegated)
    return found->second;
  return Range::of(1 - found->second.high, 1 - found->second.low);
}

std::optional<Range> mutate::compute(const RawInstruction &instruction,
                                     const Values &values) {
  const std::vector<std::string> &parts = instruction.parts;
  const std::string &first = parts[0], &type = parts.back();
  size_t count = instruction.operands.size();
  if (!isInteger(type) || count < 2)
    return std::nullopt;
  auto operand = [&](size_t i) {
    return rangeOf(instruction.operands[i], type, values);
  };
  if (first == "ld") {
    constexpr int64_t kMaxBytes = int64_t(1) << 48;
    return has(instruction, "param") && bitsOf(type) == 64
               ? std::optional<Range>(Range::of(0, kMaxBytes))
               : std::nullopt;
  }
  if (first == "mov" && count == 2)
    return operand(1);
  if (first == "cvt" && parts.size() == 3 && isInteger(parts[1]))
    return convert(operand(1), type, parts[1]);
  if (first == "not" && type == "pred")
    return Range::of(1 - operand(1).high, 1 - operand(1).low);
  if (count < 3)
    return std::nullopt;
  Range a = operand(1), b = operand(2);
  if (first == "setp" && parts.size() == 3 && count == 3) {
    std::optional<bool> holds = compare(parts[1], type[0] == 'u', a, b);
    return holds ? std::optional<Range>(Range::of(*holds, *holds))
                 : std::nullopt;
  }
  if (first == "selp" && count == 4) {
    Range which = rangeOf(instruction.operands[3], "pred", values);
    if (which.isOne())
      return which.low ? a : b;
    Range either = Range::of(std::min(a.low, b.low), std::max(a.high, b.high));
    if (a.hasDistance && b.hasDistance)
      setDistance(either, std::min(a.least, b.least), std::max(a.most, b.most));
    return either;
  }
  if (type == "pred")
    return count == 3 && (first == "and" || first == "or" || first == "xor")
               ? truth(first, a, b)
               : std::nullopt;
  bool isSigned = type[0] == 's';
  if (first == "mul" || first == "mad") {
    bool isWide = has(instruction, "wide");
    if (has(instruction, "hi") ||
        (isWide && !isSigned && (a.low < 0 || b.low < 0)))
      return std::nullopt;
    std::string result = isWide ? "s64" : type;
    std::optional<Range> product = multiply(a, b, result);
    if (first == "mul" || !product)
      return product;
    return add(*product, rangeOf(instruction.operands[3], result, values),
               result);
  }
  if (count != 3 || parts.size() != 2)
    return std::nullopt;
  if (first == "add")
    return add(a, b, type);
  if (first == "sub")
    return subtract(a, b, type);
  if (first == "min" || first == "max")
    return isSigned || (a.low >= 0 && b.low >= 0)
               ? extreme(first == "min", a, b)
               : std::nullopt;
  if (first == "and")
    return bitAnd(a, b);
  if (first == "or")
    return bitOr(a, b, type);
  if (!b.isOne() || b.low < 0 || b.low >= int64_t(bitsOf(type)))
    return std::nullopt;
  if (first == "shl")
    return b.low < 62
               ? multiply(a,
                          Range::of(int64_t(1) << b.low, int64_t(1) << b.low),
                          type)
               : std::nullopt;
  return first == "shr" ? shiftRight(a, unsigned(b.low), type) : std::nullopt;
}

void mutate::setAnchor(Values &values, const std::string &anchor) {
  for (auto &entry : values)
    entry.second = Range::of(entry.second.low, entry.second.high);
  setDistance(values[anchor], 0, 0);
}

void mutate::applyTo(const RawInstruction &instruction, const Live &live,
                     Values &values) {
  std::vector<std::string> results = resultsOf(instruction);
  if (std::none_of(results.begin(), results.end(),
                   [&](const std::string &name) { return live.follows(name); }))
    return;
  std::optional<Range> result;
  if (instruction.guard.empty() && results.size() == 1)
    result = compute(instruction, values);
  for (const std::string &name : results) {
    values.erase(name);
    if (result && live.follows(name))
      values[name] = *result;
  }
}
