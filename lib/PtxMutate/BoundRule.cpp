//===- BoundRule.cpp - comparisons of what is never equal -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Edit.h"
#include "Rules.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

/// The lowest bits of a register, as far as all its values have them in common.
struct Low {
  /// 64 and more than the type has: not computed yet.
  unsigned count = kAll;
  uint64_t bits = 0;

  static constexpr unsigned kAll = 64;

  static Low of(unsigned count, uint64_t bits) {
    Low low;
    low.count = std::min(count, kAll);
    low.bits =
        low.count == kAll ? bits : bits & ((uint64_t(1) << low.count) - 1);
    return low;
  }
};

/// The key of this analysis.
const char kBitsAreKnown = 0;

/// What is known of every register of a kernel; registers begin as unknown to
/// the computation, and lose bits until nothing changes.
class LowBits {
public:
  explicit LowBits(const RawKernel &kernel);

  /// None if it is not computed.
  std::optional<Low> find(const RawOperand &operand) const;

private:
  std::optional<Low> compute(const RawInstruction &instruction) const;
  bool meet(const std::string &name, Low low);

  std::map<std::string, Low> values;
};

std::optional<Low> LowBits::find(const RawOperand &operand) const {
  if (operand.isNumber())
    return Low::of(Low::kAll, operand.bits);
  auto found = values.find(operand.text);
  return found == values.end() ? std::nullopt
                               : std::optional<Low>(found->second);
}

/// None where a source is not computed yet.
std::optional<Low> LowBits::compute(const RawInstruction &instruction) const {
  const std::string &first = instruction.parts.front();
  static const char *const known[] = {"mov", "cvt",  "add", "sub",
                                      "mul", "and",  "or",  "xor",
                                      "shl", "selp", "min", "max"};
  const std::string &type = instruction.parts.back();
  bool isInteger = type[0] == 's' || type[0] == 'u' || type[0] == 'b';
  if (std::find(std::begin(known), std::end(known), first) == std::end(known) ||
      !isInteger || instruction.operands.size() < 2 ||
      (first == "mul" && has(instruction, "hi")))
    return Low::of(0, 0);
  std::vector<Low> sources;
  for (size_t i = 1; i < instruction.operands.size(); ++i) {
    const RawOperand &operand = instruction.operands[i];
    bool isSpecial =
        operand.isWord() &&
        (operand.text[0] != '%' || operand.text.find('.') != std::string::npos);
    bool isSelector = first == "selp" && i == 3;
    if (isSpecial || operand.kind == RawOperand::Kind::Vector) {
      sources.push_back(Low::of(0, 0));
      continue;
    }
    std::optional<Low> source = find(operand);
    if (!source && !isSelector)
      return std::nullopt;
    sources.push_back(source.value_or(Low::of(0, 0)));
  }
  const Low &a = sources[0];
  if (sources.size() == 1)
    // What is converted has no more bits than its type.
    return first == "mov" || first == "cvt"
               ? Low::of(std::min(a.count, 8 * typeBytes(type)), a.bits)
               : Low::of(0, 0);
  const Low &b = sources[1];
  unsigned both = std::min(a.count, b.count);
  if (first == "add")
    return Low::of(both, a.bits + b.bits);
  if (first == "sub")
    return Low::of(both, a.bits - b.bits);
  if (first == "xor")
    return Low::of(both, a.bits ^ b.bits);
  if (first == "mul" || (first == "shl" && b.count == Low::kAll)) {
    if (b.count != Low::kAll)
      return Low::of(both, a.bits * b.bits);
    uint64_t factor = first == "mul" ? b.bits : uint64_t(1) << (b.bits & 63);
    unsigned zeros =
        factor == 0 ? Low::kAll : unsigned(__builtin_ctzll(factor));
    return Low::of(a.count + zeros, a.bits * factor);
  }
  if (first == "and" || first == "or") {
    // A bit that decides needs no other.
    uint64_t decides = first == "and" ? ~b.bits : b.bits;
    unsigned count = both;
    if (b.count == Low::kAll)
      while (count < Low::kAll && (count < a.count || (decides >> count & 1)))
        ++count;
    return Low::of(count, first == "and" ? a.bits & b.bits : a.bits | b.bits);
  }
  // One of the two.
  if (first != "selp" && first != "min" && first != "max")
    return Low::of(0, 0);
  unsigned same = both;
  while (same > 0 && Low::of(same, a.bits).bits != Low::of(same, b.bits).bits)
    --same;
  return Low::of(same, a.bits);
}

bool LowBits::meet(const std::string &name, Low low) {
  auto [known, isNew] = values.emplace(name, low);
  if (isNew)
    return true;
  unsigned same = std::min(known->second.count, low.count);
  while (same > 0 &&
         Low::of(same, known->second.bits).bits != Low::of(same, low.bits).bits)
    --same;
  bool isLess = same < known->second.count;
  known->second = Low::of(same, known->second.bits);
  return isLess;
}

LowBits::LowBits(const RawKernel &kernel) {
  for (bool hasChanged = true; hasChanged;) {
    hasChanged = false;
    for (const RawInstruction &instruction : kernel.instructions) {
      std::vector<std::string> results = resultsOf(instruction);
      std::optional<Low> low =
          results.size() == 1 ? compute(instruction) : Low::of(0, 0);
      for (const std::string &name : results)
        if (low && meet(name, *low))
          hasChanged = true;
    }
  }
}

} // namespace

bool mutate::isNeverEqual(const Flow &flow, const Mutant &mutant) {
  if (mutant.kind != "bound")
    return false;
  const RawInstruction &compare = flow.kernel.instructions[mutant.index];
  const auto &known = flow.remember<LowBits>(
      &kBitsAreKnown, [&] { return LowBits(flow.kernel); });
  std::optional<Low> a = known.find(compare.operands[1]),
                     b = known.find(compare.operands[2]);
  if (!a || !b)
    return false;
  constexpr unsigned kWord = 32;
  unsigned both = std::min({a->count, b->count, kWord});
  return Low::of(both, a->bits).bits != Low::of(both, b->bits).bits;
}
