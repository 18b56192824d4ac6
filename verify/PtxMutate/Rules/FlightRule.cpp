//===- FlightRule.cpp - commit groups that are empty ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Flow/Paths.h"
#include "../Mutants/Edit.h"
#include "Rules.h"

#include <algorithm>
#include <array>
#include <tuple>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

/// One family of asynchronous operations with commit groups.
struct Family {
  const char *commit, *wait;
  bool (*begins)(const RawInstruction &instruction);
};

bool isCopy(const RawInstruction &instruction) {
  return startsWith(instruction, "cp.async.ca") ||
         startsWith(instruction, "cp.async.cg");
}
bool isBulk(const RawInstruction &instruction) {
  return has(instruction, "bulk_group") &&
         !startsWith(instruction, "cp.async.bulk.commit_group");
}
const Family kFamilies[] = {
    {"cp.async.commit_group", "cp.async.wait_group", isCopy},
    {"cp.async.bulk.commit_group", "cp.async.bulk.wait_group", isBulk},
    {"wgmma.commit_group", "wgmma.wait_group", isProduct},
};

/// Commit groups of a thread that may hold an operation it has not waited for.
struct Flight {
  static constexpr size_t kMost = 9;

  bool isOpen = false;
  /// Newest first; the last entry stands for all older groups.
  std::array<bool, kMost> groups = {};

  void join(const Flight &other) {
    isOpen |= other.isOpen;
    for (size_t i = 0; i < kMost; ++i)
      groups[i] |= other.groups[i];
  }
  bool operator<(const Flight &other) const {
    return std::tie(isOpen, groups) < std::tie(other.isOpen, other.groups);
  }
  void commit() {
    bool oldest = groups[kMost - 1];
    std::rotate(groups.begin(), groups.end() - 1, groups.end());
    groups[kMost - 1] |= oldest;
    groups[0] = isOpen;
    isOpen = false;
  }
  bool hasFrom(size_t first) const {
    return std::any_of(groups.begin() + long(std::min(first, kMost)),
                       groups.end(), [](bool isFull) { return isFull; });
  }
};

size_t groupsLeft(const RawInstruction &wait) {
  return wait.operands.empty()
             ? 0
             : size_t(std::min<uint64_t>(wait.operands[0].bits, Flight::kMost));
}

Flight transfer(const Family &family, const RawInstruction &instruction,
                Flight flight) {
  Flight before = flight;
  if (family.begins(instruction)) {
    flight.isOpen = true;
  } else if (startsWith(instruction, family.commit)) {
    flight.commit();
  } else if (startsWith(instruction, family.wait) &&
             !has(instruction, "read")) {
    for (size_t i = groupsLeft(instruction); i < Flight::kMost; ++i)
      flight.groups[i] = false;
  }
  if (!instruction.guard.empty())
    flight.join(before);
  return flight;
}

/// Possible operations in flight before each instruction.
const std::vector<Flight> &solve(const Flow &flow, const Family &family) {
  return flow.remember<std::vector<Flight>>(&family, [&] {
    auto step = [&](size_t index, Flight flight) {
      return transfer(family, flow.kernel.instructions[index], flight);
    };
    return Paths<Flight>(flow, step).solve();
  });
}

/// Without the empty group, a wait that leaves newer groups pending leaves one
/// more older group. Counts the newer groups.
bool isCommitIdle(const Flow &flow, const Family &family, size_t index,
                  const std::vector<Flight> &before) {
  if (before[index].isOpen)
    return false;
  std::set<std::pair<size_t, size_t>> met;
  std::vector<std::pair<size_t, size_t>> open;
  for (size_t to : flow.successors(index))
    open.push_back({to, 0});
  while (!open.empty()) {
    auto [at, newer] = open.back();
    open.pop_back();
    if (!met.insert({at, newer}).second)
      continue;
    const RawInstruction &instruction = flow.kernel.instructions[at];
    if (startsWith(instruction, family.wait)) {
      size_t left = groupsLeft(instruction);
      bool isWhole = instruction.guard.empty() && !has(instruction, "read");
      if (left > newer && (left >= Flight::kMost || before[at].groups[left]))
        return false;
      // No difference from here on.
      if (left <= newer && isWhole)
        continue;
    }
    newer =
        std::min(newer + startsWith(instruction, family.commit), Flight::kMost);
    for (size_t to : flow.successors(at))
      open.push_back({to, newer});
  }
  return true;
}

} // namespace

bool mutate::hasNothingInFlight(const Flow &flow, const Mutant &mutant) {
  const RawInstruction &instruction = flow.kernel.instructions[mutant.index];
  for (const Family &family : kFamilies) {
    bool isWait = mutant.kind.find("wait") != std::string::npos &&
                  startsWith(instruction, family.wait);
    if (!isWait &&
        (mutant.kind != "commit" || !startsWith(instruction, family.commit)))
      continue;
    const std::vector<Flight> &before = solve(flow, family);
    const Flight &here = before[mutant.index];
    if (!isWait)
      return isCommitIdle(flow, family, mutant.index, before);
    size_t left = groupsLeft(instruction);
    if (mutant.change == "deleted" || mutant.change == "for reads alone")
      return !here.hasFrom(left);
    return mutant.change == "one group more" && left < Flight::kMost - 1 &&
           !here.groups[left];
  }
  return false;
}
