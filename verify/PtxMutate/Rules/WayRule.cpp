//===- WayRule.cpp - branches with one possible path ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Flow/Ranges.h"
#include "Rules.h"

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

/// Walks all paths to one comparison or branch. Distances are measured from the
/// comparison's right operand since it was last computed.
class WayAnalysis {
public:
  WayAnalysis(const Flow &flow, size_t index)
      : flow(flow), index(index),
        comparison(
            flow.definition(isBranch() ? at().guard : at().operands[0].text)) {
    if (!comparison)
      return;
    const RawInstruction &compare = flow.kernel.instructions[*comparison];
    if (compare.parts[0] == "setp" && compare.operands.size() == 3 &&
        compare.operands[2].isWord())
      anchor = compare.operands[2].text;
    anchored = flow.definition(anchor);
  }

  /// False if there are too many paths. Follows the sources of the comparison
  /// or branch, and branches that compare such registers with numbers; other
  /// branches may go either way.
  bool run();

  bool isBranch() const { return at().parts[0] == "bra"; }
  /// Possible successors of a branch.
  std::set<size_t> ways;
  /// Whether a comparison's operands may be equal.
  bool mayBeEqual = false;

private:
  const RawInstruction &at() const { return flow.kernel.instructions[index]; }
  void meet(RangeWalk::State &state);
  void addRelated(std::set<std::string> &guards) const;

  const Flow &flow;
  const size_t index;
  std::optional<size_t> comparison, anchored;
  std::string anchor;
};

} // namespace

void WayAnalysis::meet(RangeWalk::State &state) {
  const std::vector<size_t> &before = flow.predecessors(state.at);
  if (anchored && before.size() == 1 && before[0] == *anchored) {
    setAnchor(state.values, anchor);
  }
  if (state.at != index || isBranch())
    return;
  const std::string &type = at().parts.back();
  Range a = rangeOf(at().operands[1], type, state.values),
        b = rangeOf(at().operands[2], type, state.values);
  mayBeEqual |= compare("eq", /*isUnsigned=*/false, a, b).value_or(true);
}

void WayAnalysis::addRelated(std::set<std::string> &guards) const {
  Live live(flow, guards, index);
  for (const std::string &guard : guardsOfBranches(flow.kernel)) {
    std::optional<size_t> made = flow.definition(guard);
    if (!made)
      continue;
    const RawInstruction &compare = flow.kernel.instructions[*made];
    if (compare.parts[0] == "setp" && compare.operands.size() == 3 &&
        live.follows(compare.operands[1].text) &&
        compare.operands[2].isNumber())
      guards.insert(guard);
  }
}

bool WayAnalysis::run() {
  std::set<std::string> guards = {isBranch() ? at().guard
                                             : at().operands[0].text};
  addRelated(guards);
  constexpr size_t kMaxSteps = 100'000;
  return RangeWalk(flow, guards, index, kMaxSteps)
      .walk(
          [&] {
            ways.clear();
            mayBeEqual = false;
          },
          [&](RangeWalk::State &state, std::vector<RangeWalk::State> &) {
            meet(state);
            return true;
          },
          [&](const RangeWalk::State &state, std::vector<size_t> &next) {
            if (state.at == index)
              ways.insert(next.begin(), next.end());
          });
}

bool mutate::goesOneWay(const Flow &flow, const Mutant &mutant) {
  const RawInstruction &changed = flow.kernel.instructions[mutant.index];
  const std::vector<size_t> &next = flow.successors(mutant.index);
  bool isBound = mutant.kind == "bound" && changed.parts.size() == 3;
  bool isBranch =
      mutant.kind == "branch" && mutant.change != "negated" && next.size() == 2;
  if (!isBound && !isBranch)
    return false;
  WayAnalysis analysis(flow, mutant.index);
  // successors() lists the target before the fallthrough.
  return analysis.run() &&
         (isBound
              ? !analysis.mayBeEqual
              : !analysis.ways.count(next[mutant.change == "never" ? 0 : 1]));
}
