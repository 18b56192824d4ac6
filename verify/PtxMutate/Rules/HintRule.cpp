//===- HintRule.cpp - branches around hints ---------------------*- C++ -*-===//
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

/// Whether an instruction reads the register.
static bool reads(const RawInstruction &instruction, const std::string &name) {
  std::function<bool(const RawOperand &)> names =
      [&](const RawOperand &operand) {
        return operand.text == name || operand.second == name ||
               std::any_of(operand.parts.begin(), operand.parts.end(), names);
      };
  bool isResult = false;
  for (const std::string &result : resultsOf(instruction))
    isResult |= result == name;
  return instruction.guard == name ||
         std::any_of(instruction.operands.begin() + isResult,
                     instruction.operands.end(), names);
}

/// Whether it is prefetch or cp.async.bulk.prefetch.
static bool isPrefetch(const RawInstruction &instruction) {
  const auto &parts = instruction.parts;
  return parts.front() == "prefetch" ||
         (parts.front() == "cp" &&
          std::find(parts.begin(), parts.end(), "prefetch") != parts.end());
}

bool mutate::guardsOnlyHints(const Flow &flow, const Mutant &mutant) {
  const std::vector<RawInstruction> &code = flow.kernel.instructions;
  const std::vector<size_t> &next = flow.successors(mutant.index);
  if (mutant.kind != "branch" || next.size() != 2)
    return false;
  size_t begin = mutant.index + 1,
         end = *std::max_element(next.begin(), next.end());
  for (size_t i = begin; i < end; ++i) {
    const std::string &first = code[i].parts.front();
    if (isPrefetch(code[i]))
      continue;
    if (first != "mov" && first != "add" && first != "cvt" && first != "cvta")
      return false;
    for (const std::string &result : resultsOf(code[i]))
      for (size_t j = 0; j < code.size(); ++j)
        if ((j < begin || j >= end) && reads(code[j], result))
          return false;
  }
  return end > begin;
}
