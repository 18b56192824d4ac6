//===- WaitRule.cpp - products that are waited for again --------*- C++ -*-===//
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

bool isCommit(const RawInstruction &instruction) {
  return startsWith(instruction, "wgmma.commit_group");
}

/// A wait that leaves no group.
bool isWholeWait(const RawInstruction &instruction) {
  return startsWith(instruction, "wgmma.wait_group") &&
         instruction.guard.empty() && instruction.operands.size() == 1 &&
         instruction.operands[0].bits == 0;
}

/// Whether nobody learns from it how far products are.
bool tellsNobody(const RawInstruction &instruction) {
  const std::string &first = instruction.parts.front();
  if (first == "ret" || first == "exit")
    return false;
  if (first == "wgmma" || isPrivate(instruction))
    return true;
  return startsWith(instruction, "bar.warp.sync") ||
         (first == "mbarrier" &&
          (has(instruction, "try_wait") || has(instruction, "test_wait")));
}

/// What becomes of products where a wait for all of them is none.
class Wait {
public:
  Wait(const Flow &flow, size_t index) : flow(flow), index(index) {
    auto stops = [&](size_t at) { return isWholeWait(get(at)); };
    for (size_t at : flow.walk(index, /*isForward=*/false, stops))
      if (isProduct(get(at)))
        addProductRegisters(get(at), registers);
  }

  /// With a commit that is left out, another one has to come ahead of the wait.
  bool isMadeUpFor(std::optional<size_t> leftOut) const {
    std::set<std::pair<size_t, bool>> met;
    std::vector<std::pair<size_t, bool>> open;
    for (size_t to : flow.successors(index))
      open.push_back({to, !leftOut.has_value()});
    while (!open.empty()) {
      auto [at, isCommitted] = open.back();
      open.pop_back();
      if (!met.insert({at, isCommitted}).second)
        continue;
      const RawInstruction &instruction = get(at);
      if (isWholeWait(instruction)) {
        if (!isCommitted)
          return false;
        continue;
      }
      if (!tellsNobody(instruction) || touches(instruction))
        return false;
      bool commits = isCommit(instruction) && at != leftOut;
      for (size_t to : flow.successors(at))
        open.push_back({to, isCommitted || commits});
    }
    return true;
  }

private:
  const RawInstruction &get(size_t at) const {
    return flow.kernel.instructions[at];
  }

  bool touches(const RawInstruction &instruction) const {
    // Products of one shape follow each other in order.
    if (isProduct(instruction))
      return false;
    std::set<std::string> names;
    for (const RawOperand &operand : instruction.operands)
      addNames(operand, names);
    return std::any_of(
        names.begin(), names.end(),
        [&](const std::string &name) { return registers.count(name) > 0; });
  }

  const Flow &flow;
  size_t index;
  /// Of products that may be in flight: sums, and matrices from registers.
  std::set<std::string> registers;
};

} // namespace

bool mutate::isWaitedForAgain(const Flow &flow, const Mutant &mutant) {
  const std::vector<RawInstruction> &instructions = flow.kernel.instructions;
  const RawInstruction &instruction = instructions[mutant.index];
  if (mutant.kind == "wgmma wait")
    return isWholeWait(instruction) &&
           Wait(flow, mutant.index).isMadeUpFor(std::nullopt);
  if (mutant.kind != "commit" || !isCommit(instruction))
    return false;
  // The waits that come next have nothing of it.
  std::set<size_t> waits;
  auto stops = [&](size_t at) {
    if (!isWholeWait(instructions[at]))
      return false;
    waits.insert(at);
    return true;
  };
  flow.walk(mutant.index, /*isForward=*/true, stops);
  return !waits.empty() &&
         std::all_of(waits.begin(), waits.end(), [&](size_t wait) {
           return Wait(flow, wait).isMadeUpFor(mutant.index);
         });
}
