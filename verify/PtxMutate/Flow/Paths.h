//===- Paths.h - facts at an instruction, over all paths --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_FLOW_PATHS_H
#define MOEC_VERIFY_PTXMUTATE_FLOW_PATHS_H

#include "Constants.h"

namespace moec::ptx::mutate {

/// Data-flow analysis of the facts that hold for one thread before each
/// instruction, over paths that constants in the text do not rule out. A Fact
/// has join(), which merges facts of two paths, and operator<; its initial
/// state is false throughout.
template <typename Fact>
class Paths {
public:
  /// Transfer function of an instruction.
  using Transfer = std::function<Fact(size_t index, Fact)>;

  Paths(const Flow &flow, Transfer transfer)
      : flow(flow), transfer(std::move(transfer)), constants(flow) {}

  std::vector<Fact> solve() {
    while (!explore())
      ;
    return before;
  }

private:
  struct State {
    size_t at = 0;
    Constants::Values values;
    Fact fact;
  };

  bool explore();
  bool isManifold(size_t at, const Constants::Values &values);

  const Flow &flow;
  const Transfer transfer;
  Constants constants;
  std::vector<Fact> before;
  /// Per instruction and register, the values that it had there.
  std::vector<std::map<std::string, std::set<int64_t>>> seen;
};

/// Whether a register takes too many values here; it is then no longer
/// followed.
template <typename Fact>
bool Paths<Fact>::isManifold(size_t at, const Constants::Values &values) {
  constexpr size_t kMost = 40;
  for (const auto &[name, value] : values) {
    std::set<int64_t> &all = seen[at][name];
    all.insert(value);
    if (all.size() > kMost) {
      constants.drop(name);
      return true;
    }
  }
  return false;
}

/// False if the walk must restart with fewer registers.
template <typename Fact>
bool Paths<Fact>::explore() {
  size_t count = flow.kernel.instructions.size();
  before.assign(count, Fact());
  seen.assign(count, {});
  std::vector<std::set<std::pair<Constants::Values, Fact>>> visited(count);
  std::vector<State> open(1);
  while (!open.empty()) {
    State state = std::move(open.back());
    open.pop_back();
    for (bool goesOn = true; goesOn;) {
      size_t at = state.at;
      // Only join points need to record visited states.
      if (flow.predecessors(at).size() != 1) {
        constants.keepLive(at, state.values);
        if (!visited[at].insert({state.values, state.fact}).second)
          break;
        if (isManifold(at, state.values))
          return false;
      }
      before[at].join(state.fact);
      state.fact = transfer(at, state.fact);
      std::vector<size_t> next = constants.successors(at, state.values);
      constants.apply(at, state.values);
      goesOn = !next.empty();
      for (size_t i = 1; i < next.size(); ++i) {
        State other = state;
        other.at = next[i];
        open.push_back(std::move(other));
      }
      if (goesOn)
        state.at = next[0];
    }
  }
  return true;
}

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_FLOW_PATHS_H
