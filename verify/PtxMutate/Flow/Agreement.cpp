//===- Agreement.cpp - values common to a CTA -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Agreement.h"

#include "../Mutants/Edit.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

bool Agreement::isCommon(const RawOperand &operand) const {
  if (operand.isNumber())
    return true;
  if (!operand.isWord())
    return std::all_of(operand.parts.begin(), operand.parts.end(),
                       [&](const RawOperand &part) { return isCommon(part); });
  const std::string &name = operand.text;
  // Symbols are common, and so are the special registers of sizes and of the
  // CTA's index.
  if (name.empty() || name[0] != '%')
    return true;
  if (!written.count(name))
    return name.compare(0, 7, "%ctaid.") == 0 ||
           name.compare(0, 8, "%nctaid.") == 0 ||
           name.compare(0, 6, "%ntid.") == 0;
  return isCommon(name);
}

/// Whether equal operands give equal results.
bool Agreement::makesCommon(const RawInstruction &instruction) const {
  static const char *const pure[] = {
      "mov", "cvt", "cvta", "add", "sub",  "mul", "mad",  "div",  "rem",
      "neg", "min", "max",  "and", "or",   "xor", "not",  "shl",  "shr",
      "bfe", "bfi", "abs",  "clz", "popc", "fma", "selp", "setp", "prmt"};
  const std::string &first = instruction.parts.front();
  bool isPure =
      std::find(std::begin(pure), std::end(pure), first) != std::end(pure);
  // Loaded values must not change over time.
  bool isConstant =
      first == "ld" && (has(instruction, "param") || has(instruction, "nc"));
  if (!isPure && !isConstant)
    return false;
  if (!instruction.guard.empty() && !isCommon(instruction.guard))
    return false;
  return std::all_of(
      instruction.operands.begin() + 1, instruction.operands.end(),
      [&](const RawOperand &operand) { return isCommon(operand); });
}

void Agreement::findPostDominators() {
  size_t count = flow.kernel.instructions.size();
  behind.assign(count, std::vector<bool>(count, true));
  for (bool hasChanged = true; hasChanged;) {
    hasChanged = false;
    for (size_t i = count; i-- > 0;) {
      std::vector<bool> all(count, !flow.successors(i).empty());
      for (size_t next : flow.successors(i))
        for (size_t j = 0; j < count; ++j)
          all[j] = all[j] && behind[next][j];
      all[i] = true;
      if (all == behind[i])
        continue;
      behind[i] = std::move(all);
      hasChanged = true;
    }
  }
}

std::set<size_t> Agreement::regionOf(size_t branch) const {
  return flow.walk(branch, /*isForward=*/true, [&](size_t at) {
    return at != branch && behind[branch][at];
  });
}

Agreement::Agreement(const Flow &flow) : flow(flow) {
  findPostDominators();
  const std::vector<RawInstruction> &code = flow.kernel.instructions;
  for (const RawInstruction &instruction : code)
    for (const std::string &name : resultsOf(instruction))
      written.insert(name);
  // Branches at which threads diverge, and instructions that only some threads
  // execute.
  std::set<size_t> split, apart;
  for (bool hasChanged = true; hasChanged;) {
    hasChanged = false;
    for (size_t i = 0; i < code.size(); ++i) {
      bool isSplit = flow.successors(i).size() > 1 &&
                     !isCommon(code[i].guard) && split.insert(i).second;
      if (isSplit) {
        std::set<size_t> region = regionOf(i);
        apart.insert(region.begin(), region.end());
        hasChanged = true;
      }
      if (apart.count(i) || !makesCommon(code[i]))
        for (const std::string &name : resultsOf(code[i]))
          hasChanged |= varying.insert(name).second;
    }
  }
}
