//===- Places.cpp - offset of an address in its variable --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Places.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

/// Whether the operand and all its sources are known; its value is then in
/// `values`.
bool Places::isKnown(const RawOperand &operand, unsigned depth) {
  if (operand.isNumber())
    return operand.floatBits == 0;
  if (!operand.isWord() || operand.isNegated || depth == 0)
    return false;
  const std::string &name = operand.text;
  if (values.count(name))
    return true;
  if (!name.empty() && name[0] != '%') {
    values[name] = Range::of(0, 0);
    return true;
  }
  std::optional<size_t> at = flow.definition(name);
  if (!at)
    return false;
  const RawInstruction &made = flow.kernel.instructions[*at];
  size_t named = 0;
  for (size_t i = 1; i < made.operands.size(); ++i) {
    if (!isKnown(made.operands[i], depth - 1))
      return false;
    named += !flow.variable(made.operands[i]).empty();
  }
  // Addresses may be moved and added to; other arithmetic on them is unknown.
  const std::string &first = made.parts[0];
  bool isSum = first == "mov" || (first == "add" && made.operands.size() == 3);
  if (named > (isSum ? 1 : 0))
    return false;
  std::optional<Range> value = compute(made, values);
  if (!value || !value->isOne())
    return false;
  values[name] = *value;
  return true;
}

std::optional<int64_t> Places::find(const RawOperand &operand) {
  constexpr unsigned kDepth = 32;
  if (!isKnown(operand, kDepth))
    return std::nullopt;
  return operand.isNumber() ? int64_t(operand.bits) : values[operand.text].low;
}
