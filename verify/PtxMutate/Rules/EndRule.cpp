//===- EndRule.cpp - work after which nothing is written --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Flow/Agreement.h"
#include "../Flow/Ranges.h"
#include "../Mutants/Edit.h"
#include "Rules.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

/// Key of this analysis in Flow::remember().
const char kAgreementIsKnown = 0;

/// Whether the instruction is visible outside of the CTA, or another thread may
/// wait for it other than at a barrier.
bool isVisible(const RawInstruction &instruction) {
  static const char *const inCta[] = {
      "bar",   "barrier",  "shfl", "vote",       "match",
      "redux", "ldmatrix", "mma",  "activemask", "stmatrix"};
  const std::string &first = instruction.parts.front();
  if (first == "st" || first == "atom" || first == "red")
    return !has(instruction, "shared") && !has(instruction, "local");
  if (first == "cp")
    return !startsWith(instruction, "cp.async.ca.shared") &&
           !startsWith(instruction, "cp.async.cg.shared") &&
           !startsWith(instruction, "cp.async.commit_group") &&
           !startsWith(instruction, "cp.async.wait_group") &&
           !startsWith(instruction, "cp.async.wait_all");
  return !isPrivate(instruction) &&
         std::find(std::begin(inCta), std::end(inCta), first) ==
             std::end(inCta);
}

/// Follows the kernel and the mutant from where they diverge.
class EndAnalysis {
public:
  EndAnalysis(const Flow &flow, const Mutant &mutant)
      : flow(flow), index(mutant.index), isBound(mutant.kind == "bound"),
        isNever(mutant.change == "never") {}

  bool proves();

private:
  /// No difference yet; afterwards, the kernel's path and the mutant's.
  enum World : unsigned { Same, Kernel, Other };
  using State = RangeWalk::State;

  const RawInstruction &changed() const {
    return flow.kernel.instructions[index];
  }
  bool meet(State &state, std::vector<State> &others);
  bool meetBound(State &state, std::vector<State> &others) const;
  bool meetBranch(State &state, std::vector<State> &others) const;
  /// Learns from the branch's guard what it implies about the operands of a
  /// comparison just before it.
  void learn(Values &values, bool guard) const;
  bool isAgreed() const;

  const Flow &flow;
  const size_t index;
  const bool isBound, isNever;
  bool isSeen = false, hasForked = false, needsOthers = false;
};

} // namespace

/// Narrows two operands such that `a how b`, and measures distances from b.
static void relate(Values &values, const RawOperand &a, const RawOperand &b,
                   const std::string &how, const std::string &type) {
  Range left = rangeOf(a, type, values), right = rangeOf(b, type, values);
  if (type[0] == 'u' && (left.low < 0 || right.low < 0) && how != "eq")
    return;
  bool isLess = how == "lt" || how == "le", isMore = how == "gt" || how == "ge";
  if (!isLess && !isMore && how != "eq")
    return;
  int64_t apart = how == "lt" || how == "gt";
  // The distance must fit 64 bits.
  constexpr int64_t kFar = int64_t(1) << 60;
  bool isNear = left.low >= -kFar && left.high <= kFar && right.low >= -kFar &&
                right.high <= kFar;
  int64_t least = 0, most = 0;
  if (isLess && isNear) {
    least = left.low - right.high;
    most = -apart;
  } else if (isMore && isNear) {
    least = apart;
    most = left.high - right.low;
  }
  if (!isLess) {
    left.low = std::max(left.low, right.low);
    right.high = std::min(right.high, left.high);
  }
  if (!isMore) {
    left.high = std::min(left.high, right.high);
    right.low = std::max(right.low, left.low);
  }
  if (!b.isWord() || !a.isWord())
    return;
  values[b.text] = right;
  setAnchor(values, b.text);
  if (isNear || how == "eq")
    left.hasDistance = true, left.least = least, left.most = most;
  values[a.text] = left;
}

static bool holdsAtEqual(const std::string &how) {
  return how == "le" || how == "ge" || how == "ls" || how == "hs";
}

bool EndAnalysis::meetBound(State &state, std::vector<State> &others) const {
  const RawInstruction &setp = changed();
  const std::string &type = setp.parts.back();
  Range a = rangeOf(setp.operands[1], type, state.values),
        b = rangeOf(setp.operands[2], type, state.values);
  std::optional<bool> isEqual = compare("eq", false, a, b);
  if (isEqual == std::optional<bool>(false) || state.world == Kernel)
    return true;
  bool original = holdsAtEqual(setp.parts[1]);
  auto go = [&](World world, bool holds) {
    State other = state;
    other.world = world;
    relate(other.values, setp.operands[1], setp.operands[2], "eq", type);
    other.values[setp.operands[0].text] = Range::of(holds, holds);
    other.at = index + 1;
    others.push_back(std::move(other));
  };
  if (state.world == Same)
    go(Kernel, original);
  go(Other, !original);
  return isEqual != std::optional<bool>(true);
}

void EndAnalysis::learn(Values &values, bool guard) const {
  values[changed().guard] = Range::of(guard, guard);
  std::optional<size_t> made = flow.definition(changed().guard);
  if (!made || *made >= index)
    return;
  const RawInstruction &setp = flow.kernel.instructions[*made];
  if (setp.parts[0] != "setp" || setp.parts.size() != 3 ||
      setp.operands.size() != 3 || !setp.operands[1].isWord() ||
      !setp.operands[2].isWord())
    return;
  for (size_t i = *made + 1; i <= index; ++i) {
    if (flow.predecessors(i) != std::vector<size_t>{i - 1})
      return;
    for (const std::string &name : resultsOf(flow.kernel.instructions[i]))
      if (name == setp.operands[1].text || name == setp.operands[2].text)
        return;
  }
  static const std::pair<const char *, const char *> opposites[] = {
      {"lt", "ge"}, {"ge", "lt"}, {"le", "gt"},
      {"gt", "le"}, {"ne", "eq"}, {"eq", "ne"}};
  for (const auto &[how, opposite] : opposites)
    if (setp.parts[1] == how)
      relate(values, setp.operands[1], setp.operands[2], guard ? how : opposite,
             setp.parts.back());
}

bool EndAnalysis::meetBranch(State &state, std::vector<State> &others) const {
  const std::vector<size_t> &next = flow.successors(index);
  // Value of the guard for which the mutant takes another path.
  bool guard = isNever != changed().isGuardNegated;
  Range known = rangeOf(makeWord(changed().guard), "pred", state.values);
  if (known == Range::of(!guard, !guard) || state.world == Kernel)
    return true;
  auto go = [&](World world, size_t at) {
    State other = state;
    other.world = world;
    learn(other.values, guard);
    other.at = at;
    others.push_back(std::move(other));
  };
  // successors() lists the target before the fallthrough.
  if (state.world == Same)
    go(Kernel, next[isNever ? 0 : 1]);
  go(Other, next[isNever ? 1 : 0]);
  state.values[changed().guard] = Range::of(!guard, !guard);
  return !known.isOne();
}

bool EndAnalysis::meet(State &state, std::vector<State> &others) {
  const RawInstruction &instruction = flow.kernel.instructions[state.at];
  if (state.world != Same) {
    hasForked = true;
    Range guard = Range::of(1, 1);
    if (!instruction.guard.empty()) {
      guard = rangeOf(makeWord(instruction.guard), "pred", state.values);
      if (instruction.isGuardNegated)
        guard = Range::of(1 - guard.high, 1 - guard.low);
    }
    bool isExecuted = guard.high != 0;
    isSeen |= isExecuted && isVisible(instruction);
    needsOthers |= isExecuted && !isPrivate(instruction);
    if (isSeen)
      return false;
  }
  if (state.at != index)
    return true;
  return isBound ? meetBound(state, others) : meetBranch(state, others);
}

/// Whether all threads of a CTA take the mutant's path, or none.
bool EndAnalysis::isAgreed() const {
  const auto &agreement = flow.remember<Agreement>(
      &kAgreementIsKnown, [&] { return Agreement(flow); });
  return isBound ? agreement.isCommon(changed().operands[1]) &&
                       agreement.isCommon(changed().operands[2])
                 : agreement.isCommon(changed().guard);
}

bool EndAnalysis::proves() {
  std::set<std::string> guards;
  for (const RawInstruction &instruction : flow.kernel.instructions)
    guards.insert(instruction.guard);
  guards.erase("");
  constexpr size_t kMaxSteps = 1'000'000;
  bool hasEnded = RangeWalk(flow, guards, index, kMaxSteps)
                      .walk([&] { isSeen = hasForked = needsOthers = false; },
                            [&](State &state, std::vector<State> &others) {
                              return meet(state, others);
                            },
                            [](const State &, std::vector<size_t> &) {});
  return hasEnded && hasForked && !isSeen && (!needsOthers || isAgreed());
}

bool mutate::writesNothingMore(const Flow &flow, const Mutant &mutant) {
  const RawInstruction &changed = flow.kernel.instructions[mutant.index];
  bool isBound = mutant.kind == "bound" && changed.parts.size() == 3 &&
                 changed.guard.empty();
  bool isBranch = mutant.kind == "branch" && mutant.change != "negated" &&
                  flow.successors(mutant.index).size() == 2;
  return (isBound || isBranch) && EndAnalysis(flow, mutant).proves();
}
