//===- WaitRule.cpp - MMAs that another wait ends ---------------*- C++ -*-===//
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

/// Number of groups that a wait leaves in flight; none for other instructions.
std::optional<uint64_t> getLeft(const RawInstruction &instruction) {
  if (!startsWith(instruction, "wgmma.wait_group") ||
      !instruction.guard.empty() || instruction.operands.size() != 1)
    return std::nullopt;
  return instruction.operands[0].bits;
}

/// Whether no other thread can learn from the instruction how far MMAs are.
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

/// Effects on MMAs if the wait at an instruction is removed. If a commit is
/// left out, its MMAs join the next group.
class Wait {
public:
  Wait(const Flow &flow, size_t index, std::optional<size_t> leftOut)
      : flow(flow), index(index), leftOut(leftOut), left(*getLeft(get(index))) {
    addInFlight();
  }

  /// Whether later waits replace this one: on every path, before any use of the
  /// MMAs, a wait leaves no more groups in flight than this one. If a commit is
  /// left out, another commit must precede that wait.
  bool isMadeUpFor() const {
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
      if (std::optional<uint64_t> others = getLeft(instruction)) {
        if (!isCommitted || *others > left)
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

  /// Adds MMAs of groups that earlier waits may have left in flight, and of
  /// later groups.
  void addInFlight() {
    constexpr uint64_t all = UINT64_MAX;
    std::set<std::pair<size_t, uint64_t>> met;
    std::vector<std::pair<size_t, uint64_t>> open;
    auto goOn = [&](size_t from, uint64_t groups) {
      for (size_t to : flow.predecessors(from))
        open.push_back({to, groups});
    };
    goOn(index, all);
    while (!open.empty()) {
      auto [at, groups] = open.back();
      open.pop_back();
      if (!met.insert({at, groups}).second)
        continue;
      const RawInstruction &instruction = get(at);
      if (isProduct(instruction))
        addProductRegisters(instruction, registers);
      if (isCommit(instruction) && at != leftOut) {
        if (groups == 0)
          continue;
        groups -= groups == all ? 0 : 1;
      }
      // The wait at `index` is assumed to end nothing.
      if (at != index)
        if (std::optional<uint64_t> others = getLeft(instruction))
          groups = std::min(groups, *others);
      goOn(at, groups);
    }
  }

  bool touches(const RawInstruction &instruction) const {
    // MMAs of one shape execute in order.
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
  std::optional<size_t> leftOut;
  uint64_t left;
  /// Registers of MMAs that may be in flight: accumulators, and A from
  /// registers.
  std::set<std::string> registers;
};

} // namespace

bool mutate::isWaitedForAgain(const Flow &flow, const Mutant &mutant) {
  const std::vector<RawInstruction> &instructions = flow.kernel.instructions;
  const RawInstruction &instruction = instructions[mutant.index];
  if (mutant.kind == "wgmma wait")
    return getLeft(instruction) &&
           Wait(flow, mutant.index, std::nullopt).isMadeUpFor();
  if (mutant.kind != "commit" || !isCommit(instruction))
    return false;
  // With one group fewer ahead of them, the next waits may end nothing: the
  // first one, and as many more as the groups that each leaves.
  std::set<size_t> waits;
  std::set<std::pair<size_t, uint64_t>> met;
  std::vector<std::pair<size_t, uint64_t>> open{{mutant.index, 0}};
  while (!open.empty()) {
    auto [from, passed] = open.back();
    open.pop_back();
    if (!met.insert({from, passed}).second)
      continue;
    auto stops = [&, passed = passed](size_t at) {
      std::optional<uint64_t> left = getLeft(instructions[at]);
      if (!left)
        return false;
      waits.insert(at);
      if (passed < *left)
        open.push_back({at, passed + 1});
      return true;
    };
    flow.walk(from, /*isForward=*/true, stops);
  }
  return !waits.empty() &&
         std::all_of(waits.begin(), waits.end(), [&](size_t wait) {
           return Wait(flow, wait, mutant.index).isMadeUpFor();
         });
}
