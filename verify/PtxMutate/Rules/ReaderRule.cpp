//===- ReaderRule.cpp - changed values that are never read ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Flow/Ranges.h"
#include "../Mutants/Edit.h"
#include "Rules.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

/// Registers whose values may differ between mutant and kernel.
using Others = std::set<std::string>;

bool names(const RawOperand &operand, const Others &others) {
  return others.count(operand.text) || others.count(operand.second) ||
         std::any_of(
             operand.parts.begin(), operand.parts.end(),
             [&](const RawOperand &part) { return names(part, others); });
}

/// Whether the instruction waits for all lanes of the warp, and writes only
/// registers.
bool isOfAllLanes(const RawInstruction &instruction) {
  constexpr uint32_t kAll = ~uint32_t(0);
  const std::string &first = instruction.parts[0];
  return (first == "vote" || first == "shfl") && instruction.guard.empty() &&
         instruction.operands.back().isNumber() &&
         uint32_t(instruction.operands.back().bits) == kAll;
}

/// Follows differing registers from where they begin to differ until they are
/// overwritten. Branches take the same path in both worlds.
class ReaderAnalysis {
public:
  ReaderAnalysis(const Flow &flow, const Mutant &mutant)
      : flow(flow), index(mutant.index), isBranch(mutant.kind == "branch"),
        isNever(mutant.change == "never") {}

  bool proves();

private:
  using State = RangeWalk::State;

  const RawInstruction &changed() const {
    return flow.kernel.instructions[index];
  }
  bool begins();
  std::optional<std::set<size_t>> regionTo(size_t place) const;
  bool findMeeting();
  bool isHarmless(const std::set<size_t> &region) const;
  unsigned worldOf(const Others &others);
  void differ(State &state, std::vector<State> &open);
  bool meet(State &state, std::vector<State> &open);

  const Flow &flow;
  const size_t index;
  const bool isBranch, isNever;
  /// The point where the branch's paths meet again, or the next instruction.
  size_t meeting = 0;
  /// Registers that differ there.
  Others written;
  /// Differing registers of each world; none in the first one.
  std::vector<Others> worlds;
  bool isRead = false;
};

} // namespace

/// Whether only registers differ between the branch and where its paths meet.
/// If all lanes of a warp wait for each other there, all of them take the same
/// path, or the kernel would hang.
bool ReaderAnalysis::isHarmless(const std::set<size_t> &region) const {
  return std::all_of(region.begin(), region.end(), [&](size_t at) {
    const RawInstruction &instruction = flow.kernel.instructions[at];
    return at != index && !flow.successors(at).empty() &&
           (isPrivate(instruction) || isOfAllLanes(instruction));
  });
}

/// Instructions on all paths from the branch up to `place`; none if they are
/// too many to examine.
std::optional<std::set<size_t>> ReaderAnalysis::regionTo(size_t place) const {
  constexpr size_t kMost = 64;
  std::set<size_t> region;
  std::vector<size_t> open = flow.successors(index);
  while (!open.empty()) {
    size_t at = open.back();
    open.pop_back();
    if (at == place || !region.insert(at).second)
      continue;
    if (region.size() > kMost)
      return std::nullopt;
    const std::vector<size_t> &next = flow.successors(at);
    open.insert(open.end(), next.begin(), next.end());
  }
  return region;
}

/// Finds the first instruction that all paths from the branch reach.
bool ReaderAnalysis::findMeeting() {
  std::set<size_t> best;
  for (size_t place = 0; place < flow.kernel.instructions.size(); ++place) {
    std::optional<std::set<size_t>> region = regionTo(place);
    if (place != index && region && !region->empty() && isHarmless(*region) &&
        (best.empty() || region->size() < best.size())) {
      best = *region;
      meeting = place;
    }
  }
  for (size_t at : best)
    for (const std::string &name : resultsOf(flow.kernel.instructions[at]))
      written.insert(name);
  return !best.empty();
}

/// Finds the registers that the mutant makes differ.
bool ReaderAnalysis::begins() {
  if (isBranch)
    return findMeeting();
  if (flow.successors(index).size() != 1)
    return false;
  meeting = flow.successors(index)[0];
  for (const std::string &name : resultsOf(changed()))
    written.insert(name);
  return !written.empty();
}

unsigned ReaderAnalysis::worldOf(const Others &others) {
  auto found = std::find(worlds.begin(), worlds.end(), others);
  if (found == worlds.end())
    found = worlds.insert(worlds.end(), others);
  return unsigned(found - worlds.begin());
}

/// The mutant starts to differ here, perhaps again.
void ReaderAnalysis::differ(State &state, std::vector<State> &open) {
  State other = state;
  if (isBranch) {
    bool guard = isNever != changed().isGuardNegated;
    Range known = rangeOf(makeWord(changed().guard), "pred", state.values);
    if (known == Range::of(!guard, !guard))
      return;
    other.values[changed().guard] = Range::of(guard, guard);
  }
  Others others = worlds[state.world];
  others.insert(written.begin(), written.end());
  other.world = worldOf(others);
  for (const std::string &name : others)
    other.values.erase(name);
  other.at = meeting;
  open.push_back(std::move(other));
}

bool ReaderAnalysis::meet(State &state, std::vector<State> &open) {
  const RawInstruction &instruction = flow.kernel.instructions[state.at];
  if (state.world != 0) {
    Others others = worlds[state.world];
    bool isOwn = isPrivate(instruction);
    bool reads = others.count(instruction.guard);
    for (size_t i = isOwn ? 1 : 0; i < instruction.operands.size(); ++i)
      reads |= names(instruction.operands[i], others);
    const std::string &first = instruction.parts[0];
    bool isJump = first == "bra" || first == "ret" || first == "exit";
    if (reads && (!isOwn || isJump)) {
      isRead = true;
      return false;
    }
    if (isOwn && state.at != index)
      for (const std::string &name : resultsOf(instruction)) {
        if (reads)
          others.insert(name);
        else if (instruction.guard.empty())
          others.erase(name);
      }
    state.world = worldOf(others);
    for (const std::string &name : others)
      state.values.erase(name);
    if (others.empty())
      return false;
  }
  if (state.at == index)
    differ(state, open);
  return true;
}

bool ReaderAnalysis::proves() {
  if (!begins())
    return false;
  std::set<std::string> guards;
  for (const RawInstruction &instruction : flow.kernel.instructions)
    guards.insert(instruction.guard);
  guards.erase("");
  constexpr size_t kMaxSteps = 1'000'000;
  bool hasEnded = RangeWalk(flow, guards, index, kMaxSteps)
                      .walk(
                          [&] {
                            isRead = false;
                            worlds.assign(1, Others());
                          },
                          [&](State &state, std::vector<State> &open) {
                            return !isRead && meet(state, open);
                          },
                          [](const State &, std::vector<size_t> &) {});
  return hasEnded && worlds.size() > 1 && !isRead;
}

bool mutate::isReadByNobody(const Flow &flow, const Mutant &mutant) {
  const RawInstruction &changed = flow.kernel.instructions[mutant.index];
  const std::string &first = changed.parts[0];
  bool isBranch = mutant.kind == "branch" && mutant.change != "negated" &&
                  flow.successors(mutant.index).size() == 2;
  bool isValue = (mutant.kind == "lane" && first == "shfl") ||
                 (mutant.kind == "select" && first == "selp") ||
                 (mutant.kind == "address" && first == "ld");
  return (isBranch || isValue) && ReaderAnalysis(flow, mutant).proves();
}
