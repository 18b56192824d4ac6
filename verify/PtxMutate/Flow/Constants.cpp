//===- Constants.cpp - constant propagation ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Constants.h"

#include "../Mutants/Edit.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

Constants::Constants(const Flow &flow)
    : flow(flow), live(flow, guardsOfBranches(flow.kernel)) {}

std::optional<int64_t> Constants::value(const RawOperand &operand,
                                        const Values &values) const {
  if (operand.isNumber())
    return int64_t(operand.bits);
  auto found = values.find(operand.text);
  if (!operand.isWord() || found == values.end())
    return std::nullopt;
  return operand.isNegated ? !found->second : found->second;
}

/// Wraps a number to a 32-bit type.
static int64_t narrow(int64_t value, const std::string &type) {
  if (type == "u32" || type == "b32")
    return int64_t(uint32_t(value));
  return type == "s32" ? int64_t(int32_t(value)) : value;
}

static std::optional<int64_t> compare(const std::string &how, int64_t a,
                                      int64_t b, bool isUnsigned) {
  bool isLess = isUnsigned ? uint64_t(a) < uint64_t(b) : a < b;
  if (how == "eq")
    return a == b;
  if (how == "ne")
    return a != b;
  if (how == "lt")
    return isLess;
  if (how == "le")
    return isLess || a == b;
  if (how == "gt")
    return !isLess && a != b;
  if (how == "ge")
    return !isLess;
  return std::nullopt;
}

std::optional<int64_t> Constants::compute(const RawInstruction &instruction,
                                          const Values &values) const {
  const std::vector<std::string> &parts = instruction.parts;
  const std::string &type = parts.back();
  static const char *const types[] = {"s32", "u32", "b32", "s64",
                                      "u64", "b64", "pred"};
  if (std::find(std::begin(types), std::end(types), type) == std::end(types) ||
      instruction.operands.size() < 2)
    return std::nullopt;
  if (parts[0] == "selp" && instruction.operands.size() == 4) {
    std::optional<int64_t> which = value(instruction.operands[3], values);
    return which ? value(instruction.operands[*which ? 1 : 2], values)
                 : std::nullopt;
  }
  std::optional<int64_t> a = value(instruction.operands[1], values);
  if (!a)
    return std::nullopt;
  if (instruction.operands.size() == 2) {
    if (parts[0] == "mov")
      return narrow(*a, type);
    return parts[0] == "not" && type == "pred" ? std::optional<int64_t>(!*a)
                                               : std::nullopt;
  }
  std::optional<int64_t> b = value(instruction.operands[2], values);
  if (!b || instruction.operands.size() != 3 ||
      (parts.size() != 2 && parts[0] != "setp"))
    return std::nullopt;
  if (parts[0] == "setp" && parts.size() == 3)
    return compare(parts[1], narrow(*a, type), narrow(*b, type),
                   type[0] == 'u');
  if (parts[0] == "add")
    return narrow(*a + *b, type);
  if (parts[0] == "sub")
    return narrow(*a - *b, type);
  if (parts[0] == "and")
    return *a & *b;
  if (parts[0] == "or")
    return *a | *b;
  if (parts[0] == "xor")
    return *a ^ *b;
  return std::nullopt;
}

void Constants::apply(size_t index, Values &values) const {
  const RawInstruction &instruction = flow.kernel.instructions[index];
  for (const std::string &name : resultsOf(instruction)) {
    if (!live.follows(name))
      continue;
    std::optional<int64_t> result;
    if (instruction.guard.empty())
      result = compute(instruction, values);
    if (result)
      values[name] = *result;
    else
      values.erase(name);
  }
}

std::vector<size_t> Constants::successors(size_t index,
                                          const Values &values) const {
  const std::vector<size_t> &all = flow.successors(index);
  const RawInstruction &branch = flow.kernel.instructions[index];
  auto known = values.find(branch.guard);
  if (all.size() != 2 || known == values.end())
    return all;
  // successors() lists the target before the fallthrough.
  bool isTaken = (known->second != 0) != branch.isGuardNegated;
  if (branch.parts[0] != "bra")
    return all;
  return {isTaken ? all[0] : all[1]};
}
