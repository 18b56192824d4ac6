//===- TestRule.cpp - tests of phases that are waited for -------*- C++ -*-===//
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

static bool isTest(const RawInstruction &instruction) {
  return startsWith(instruction, "mbarrier.test_wait");
}

static bool isWait(const RawInstruction &instruction) {
  return startsWith(instruction, "mbarrier.try_wait");
}

/// The mbarrier test that decides the branch, through votes and comparisons.
static std::optional<size_t> findTest(const Flow &flow, size_t branch) {
  constexpr unsigned kMaxSteps = 4;
  std::string name = flow.kernel.instructions[branch].guard;
  for (unsigned step = 0; step < kMaxSteps && !name.empty(); ++step) {
    std::optional<size_t> made = flow.definition(name);
    if (!made)
      return std::nullopt;
    const RawInstruction &instruction = flow.kernel.instructions[*made];
    if (isTest(instruction))
      return made;
    const std::string &first = instruction.parts.front();
    if (first != "setp" && first != "vote" && first != "not")
      return std::nullopt;
    name = instruction.operands[1].text;
  }
  return std::nullopt;
}

/// Whether the instruction may be between a test and the wait: it accesses no
/// memory but mbarriers.
static bool isHarmless(const RawInstruction &instruction) {
  static const char *const families[] = {"ld",  "st",       "atom", "red",
                                         "ret", "ldmatrix", "exit", "stmatrix"};
  const std::string &first = instruction.parts.front();
  if (startsWith(instruction, "cp.async"))
    return startsWith(instruction, "cp.async.wait_group");
  return first != "wgmma" && std::find(std::begin(families), std::end(families),
                                       first) == std::end(families);
}

bool mutate::asksBeforeItWaits(const Flow &flow, const Mutant &mutant) {
  const std::vector<RawInstruction> &code = flow.kernel.instructions;
  size_t test = mutant.index;
  if (mutant.kind == "branch") {
    std::optional<size_t> found = findTest(flow, mutant.index);
    if (!found)
      return false;
    test = *found;
  }
  if (!isTest(code[test]))
    return false;
  auto isSamePhase = [&](const RawInstruction &wait) {
    return wait.operands[1].parts[0].text ==
               code[test].operands[1].parts[0].text &&
           wait.operands[1].offset == code[test].operands[1].offset &&
           wait.operands[2].text == code[test].operands[2].text;
  };
  std::set<size_t> between =
      flow.walk(test, /*isForward=*/true,
                [&](size_t index) { return isWait(code[index]); });
  between.insert(test);
  bool isWaitedFor = false;
  for (size_t index : between) {
    if (!isHarmless(code[index]) || flow.successors(index).empty())
      return false;
    for (size_t next : flow.successors(index)) {
      if (!isWait(code[next]))
        continue;
      if (!isSamePhase(code[next]))
        return false;
      isWaitedFor = true;
    }
  }
  return isWaitedFor;
}
