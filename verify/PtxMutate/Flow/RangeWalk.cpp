//===- RangeWalk.cpp - paths that constants leave open ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Ranges.h"

using namespace moec::ptx;
using namespace moec::ptx::mutate;

std::vector<size_t> RangeWalk::successors(const State &state) const {
  const std::vector<size_t> &all = flow.successors(state.at);
  const RawInstruction &branch = flow.kernel.instructions[state.at];
  auto known = state.values.find(branch.guard);
  if (branch.parts[0] != "bra" || all.size() != 2 ||
      known == state.values.end() || !known->second.isOne())
    return all;
  // successors() lists the target before the fallthrough.
  bool isTaken = (known->second.low != 0) != branch.isGuardNegated;
  return {isTaken ? all[0] : all[1]};
}

/// Whether a register takes too many values here; it is then no longer
/// followed.
bool RangeWalk::isManifold(const State &state) {
  constexpr size_t kMost = 40;
  for (const auto &[name, value] : state.values) {
    std::set<Range> &all = seen[state.at][name];
    all.insert(value);
    if (all.size() > kMost) {
      live.drop(name);
      return true;
    }
  }
  return false;
}

bool RangeWalk::explore(const Meet &meet, const Choose &choose,
                        bool &hasDropped) {
  size_t count = flow.kernel.instructions.size();
  seen.assign(count, {});
  std::vector<std::set<std::pair<Values, unsigned>>> visited(count);
  std::vector<State> open(1);
  for (size_t steps = 0; !open.empty();) {
    State state = std::move(open.back());
    open.pop_back();
    while (true) {
      if (++steps > maxSteps)
        return false;
      // Only join points need to record visited states.
      if (flow.predecessors(state.at).size() != 1) {
        live.keep(state.at, state.values);
        if (!visited[state.at].insert({state.values, state.world}).second)
          break;
        if (isManifold(state)) {
          hasDropped = true;
          return true;
        }
      }
      if (!meet(state, open))
        break;
      std::vector<size_t> next = successors(state);
      choose(state, next);
      applyTo(flow.kernel.instructions[state.at], live, state.values);
      if (next.empty())
        break;
      for (size_t i = 1; i < next.size(); ++i) {
        State other = state;
        other.at = next[i];
        open.push_back(std::move(other));
      }
      state.at = next[0];
    }
  }
  return true;
}

bool RangeWalk::walk(const std::function<void()> &begin, const Meet &meet,
                     const Choose &choose) {
  constexpr unsigned kMaxTimes = 200;
  for (unsigned time = 0; time < kMaxTimes; ++time) {
    begin();
    bool hasDropped = false;
    if (!explore(meet, choose, hasDropped))
      return false;
    if (!hasDropped)
      return true;
  }
  return false;
}
