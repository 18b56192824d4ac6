//===- BoundRule.cpp - comparisons of values that never match ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Mutants/Edit.h"
#include "Rules.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

/// Bits that are the same in all values of a register.
struct Bits {
  uint64_t zeros = 0, ones = 0;

  static Bits of(uint64_t value) { return {~value, value}; }
  uint64_t known() const { return zeros | ones; }
  bool isNumber() const { return ~known() == 0; }
  /// Keeps the bits that both have in common.
  Bits meet(const Bits &other) const {
    return {zeros & other.zeros, ones & other.ones};
  }
  /// Keeps only the bits in `mask`.
  Bits only(uint64_t mask) const { return {zeros & mask, ones & mask}; }
  bool operator==(const Bits &other) const {
    return zeros == other.zeros && ones == other.ones;
  }
};

/// A sum's known bits: those of both operands where the carry is known, from
/// the least and the greatest possible sum.
Bits add(const Bits &a, const Bits &b, bool carry) {
  uint64_t most = ~a.zeros + ~b.zeros + carry, least = a.ones + b.ones + carry;
  uint64_t noCarry = ~(most ^ a.zeros ^ b.zeros),
           isCarry = least ^ a.ones ^ b.ones;
  uint64_t known = a.known() & b.known() & (noCarry | isCarry);
  return {~most & known, least & known};
}

Bits shift(const Bits &a, unsigned by) {
  return {(a.zeros << by) | ((uint64_t(1) << by) - 1), a.ones << by};
}

/// Key of this analysis in Flow::remember().
const char kBitsAreKnown = 0;

/// Known bits of every register of a kernel. Registers start as not computed,
/// and lose known bits until a fixed point is reached.
class KnownBits {
public:
  explicit KnownBits(const RawKernel &kernel);

  /// None if not computed yet.
  std::optional<Bits> find(const RawOperand &operand) const;

private:
  std::optional<Bits> compute(const RawInstruction &instruction) const;
  bool meet(const std::string &name, const Bits &bits);

  std::map<std::string, Bits> values;
  std::set<std::string> written;
};

/// Known bits of registers that the kernel does not write, of symbols and of
/// vectors.
Bits special(const RawOperand &operand) {
  constexpr uint64_t kThread = 1023, kLane = 31;
  if (operand.text == "%tid.x")
    return Bits{~kThread, 0};
  return operand.text == "%laneid" ? Bits{~kLane, 0} : Bits();
}

std::optional<Bits> KnownBits::find(const RawOperand &operand) const {
  if (operand.isNumber())
    return Bits::of(operand.bits);
  if (!operand.isWord() || !written.count(operand.text))
    return special(operand);
  auto found = values.find(operand.text);
  return found == values.end() ? std::nullopt
                               : std::optional<Bits>(found->second);
}

/// The product's lowest bits, as far as those of both factors are known.
Bits multiply(const Bits &a, const Bits &b) {
  if (b.isNumber() && b.ones != 0 && (b.ones & (b.ones - 1)) == 0)
    return shift(a, unsigned(__builtin_ctzll(b.ones)));
  auto lowest = [](const Bits &bits) {
    return bits.isNumber() ? 64u : unsigned(__builtin_ctzll(~bits.known()));
  };
  unsigned count = std::min(lowest(a), lowest(b));
  if (b.isNumber())
    count = b.ones == 0
                ? 64
                : std::min(64u, lowest(a) + unsigned(__builtin_ctzll(b.ones)));
  return Bits::of(a.ones * b.ones)
      .only(count >= 64 ? ~uint64_t(0) : (uint64_t(1) << count) - 1);
}

/// None while a source is not computed. The upper half of a 32-bit register is
/// meaningless here.
std::optional<Bits>
KnownBits::compute(const RawInstruction &instruction) const {
  const std::string &first = instruction.parts.front();
  static const char *const known[] = {"mov", "cvt", "add", "sub", "mul",
                                      "mad", "and", "or",  "xor", "shl",
                                      "shr", "min", "max", "selp"};
  const std::string &type = instruction.parts.back();
  bool isInteger = type[0] == 's' || type[0] == 'u' || type[0] == 'b';
  size_t count = instruction.operands.size();
  if (std::find(std::begin(known), std::end(known), first) == std::end(known) ||
      !isInteger || typeBytes(type) < 4 || count < 2 ||
      has(instruction, "hi") ||
      (first == "cvt" && instruction.parts.size() != 3))
    return Bits();
  constexpr uint64_t kWord = UINT32_MAX;
  bool isWord = typeBytes(type) == 4, isWide = has(instruction, "wide");
  // The third source of selp only selects.
  std::vector<Bits> sources;
  for (size_t i = 1; i < count && (first != "selp" || i < 3); ++i) {
    std::optional<Bits> source = find(instruction.operands[i]);
    if (!source)
      return std::nullopt;
    sources.push_back(*source);
    bool isExtended = isWide || first == "cvt";
    if (isWord && isExtended && i < 3)
      sources.back() = type[0] == 'u'
                           ? Bits{source->zeros | ~kWord, source->ones & kWord}
                           : source->only(kWord);
  }
  const Bits &a = sources[0];
  if (sources.size() == 1)
    return first == "mov" || first == "cvt" ? a : Bits();
  const Bits &b = sources[1];
  if (first == "add")
    return add(a, b, false);
  if (first == "sub")
    return add(a, {b.ones, b.zeros}, true);
  if (first == "and")
    return Bits{a.zeros | b.zeros, a.ones & b.ones};
  if (first == "or")
    return Bits{a.zeros & b.zeros, a.ones | b.ones};
  if (first == "xor")
    return Bits{(a.zeros & b.zeros) | (a.ones & b.ones),
                (a.zeros & b.ones) | (a.ones & b.zeros)};
  if (first == "mul")
    return multiply(a, b);
  if (first == "mad")
    return add(multiply(a, b), sources[2], false);
  if (first == "selp" || first == "min" || first == "max")
    return a.meet(b);
  // Shifts by a number.
  const RawOperand &by = instruction.operands[2];
  if (!by.isNumber() || by.bits >= 8 * typeBytes(type))
    return Bits();
  if (first == "shl")
    return shift(a, unsigned(by.bits));
  if (type[0] == 's')
    return Bits();
  uint64_t all = isWord ? kWord : ~uint64_t(0);
  return Bits{(a.zeros & all) >> by.bits | ~(all >> by.bits),
              (a.ones & all) >> by.bits};
}

bool KnownBits::meet(const std::string &name, const Bits &bits) {
  auto [known, isNew] = values.emplace(name, bits);
  if (isNew)
    return true;
  Bits both = known->second.meet(bits);
  bool isLess = !(both == known->second);
  known->second = both;
  return isLess;
}

KnownBits::KnownBits(const RawKernel &kernel) {
  for (const RawInstruction &instruction : kernel.instructions)
    for (const std::string &name : resultsOf(instruction))
      written.insert(name);
  for (bool hasChanged = true; hasChanged;) {
    hasChanged = false;
    for (const RawInstruction &instruction : kernel.instructions) {
      std::vector<std::string> results = resultsOf(instruction);
      std::optional<Bits> bits =
          results.size() == 1 ? compute(instruction) : Bits();
      for (const std::string &name : results)
        if (bits && meet(name, *bits))
          hasChanged = true;
    }
  }
}

} // namespace

bool mutate::isNeverEqual(const Flow &flow, const Mutant &mutant) {
  if (mutant.kind != "bound")
    return false;
  const RawInstruction &compare = flow.kernel.instructions[mutant.index];
  const auto &known = flow.remember<KnownBits>(
      &kBitsAreKnown, [&] { return KnownBits(flow.kernel); });
  std::optional<Bits> a = known.find(compare.operands[1]),
                      b = known.find(compare.operands[2]);
  constexpr uint64_t kWord = UINT32_MAX;
  return a && b && (((a->zeros & b->ones) | (a->ones & b->zeros)) & kWord) != 0;
}
