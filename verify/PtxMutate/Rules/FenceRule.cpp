//===- FenceRule.cpp - proxy fences after no write --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Flow/Paths.h"
#include "../Mutants/Edit.h"
#include "Rules.h"

#include <tuple>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

/// Possible writes of a thread since its last fence of the async proxy.
struct Writes {
  /// The thread has written, or acquired what others wrote.
  bool isAny = false;
  /// The thread has initialized mbarriers.
  bool isInit = false;
  /// Copies are in flight, which become writes when they end; and some of them
  /// are in no commit group yet.
  bool isCopy = false, isOpen = false;

  void join(const Writes &other) {
    isAny |= other.isAny;
    isInit |= other.isInit;
    isCopy |= other.isCopy;
    isOpen |= other.isOpen;
  }
  bool operator<(const Writes &other) const {
    return std::tie(isAny, isInit, isCopy, isOpen) <
           std::tie(other.isAny, other.isInit, other.isCopy, other.isOpen);
  }
  void copy() { isCopy = isOpen = true; }
  /// Tracks commits of copies and waits for them.
  void followCopies(const RawInstruction &instruction);
};

void Writes::followCopies(const RawInstruction &instruction) {
  if (startsWith(instruction, "cp.async.commit_group")) {
    isOpen = false;
  } else if (startsWith(instruction, "cp.async.wait_all")) {
    isAny |= isCopy;
    isCopy = isOpen = false;
  } else if (startsWith(instruction, "cp.async.wait_group")) {
    const RawOperand &left = instruction.operands[0];
    isAny |= isCopy;
    // A wait does not cover copies that are in no group.
    if (left.isNumber() && left.bits == 0)
      isCopy = isOpen;
  }
}

/// Keys of these analyses in Flow::remember().
const char kWritesAreKnown = 0, kOwnWritesAreKnown = 0;

/// Transfer function for the thread's own writes only, without scalar stores
/// and copies of 4 bytes.
Writes transferOwn(const RawInstruction &instruction, Writes writes) {
  Writes before = writes;
  writes.followCopies(instruction);
  const std::string &first = instruction.parts.front();
  bool isCopy = startsWith(instruction, "cp.async.ca") ||
                startsWith(instruction, "cp.async.cg");
  bool isBarrier = (startsWith(instruction, "bar.sync") ||
                    startsWith(instruction, "barrier.sync")) &&
                   instruction.operands.size() == 1;
  if (startsWith(instruction, "fence.proxy.async"))
    writes.isAny = writes.isInit = false;
  else if (isBarrier)
    writes.isAny = false;
  else if (has(instruction, "mbarrier_init"))
    writes.isInit = false;
  else if (startsWith(instruction, "mbarrier.init"))
    writes.isInit = true;
  else if (isCopy && (!instruction.operands[2].isNumber() ||
                      instruction.operands[2].bits != 4))
    writes.copy();
  else if (first == "stmatrix" || (first == "st" && (has(instruction, "v2") ||
                                                     has(instruction, "v4"))))
    writes.isAny |= !has(instruction, "global") && !has(instruction, "local");
  if (!instruction.guard.empty())
    writes.join(before);
  return writes;
}

Writes transfer(const RawInstruction &instruction, Writes writes) {
  Writes before = writes;
  writes.followCopies(instruction);
  const std::string &first = instruction.parts.front();
  if (startsWith(instruction, "fence.proxy.async")) {
    writes.isAny = writes.isInit = false;
  } else if (has(instruction, "mbarrier_init")) {
    writes.isInit = false;
  } else if (startsWith(instruction, "mbarrier.init")) {
    writes.isInit = true;
  } else if (startsWith(instruction, "cp.async.ca") ||
             startsWith(instruction, "cp.async.cg")) {
    writes.copy();
  } else if (first == "bar" || first == "barrier" || first == "atom" ||
             first == "red" || first == "fence" || first == "membar" ||
             startsWith(instruction, "mbarrier.try_wait") ||
             startsWith(instruction, "mbarrier.test_wait") ||
             (first == "ld" &&
              (has(instruction, "acquire") || has(instruction, "relaxed") ||
               has(instruction, "volatile")))) {
    writes.isAny = true;
  } else if (first == "stmatrix" || first == "st") {
    writes.isAny |= !has(instruction, "global") && !has(instruction, "local");
  }
  if (!instruction.guard.empty())
    writes.join(before);
  return writes;
}

} // namespace

/// Whether the thread of the mutant's fence has no writes that `step` counts.
static bool isIdle(const Flow &flow, const Mutant &mutant, const char *key,
                   Writes (*step)(const RawInstruction &, Writes)) {
  const RawInstruction &fence = flow.kernel.instructions[mutant.index];
  // These rules do not cover fences of global memory.
  if (mutant.kind != "proxy fence" || mutant.change != "deleted" ||
      opcodeOf(fence) != "fence.proxy.async.shared::cta")
    return false;
  const auto &before = flow.remember<std::vector<Writes>>(key, [&] {
    auto transfer = [&](size_t index, Writes writes) {
      return step(flow.kernel.instructions[index], writes);
    };
    return Paths<Writes>(flow, transfer).solve();
  });
  return !before[mutant.index].isAny && !before[mutant.index].isInit;
}

bool mutate::hasNothingToFence(const Flow &flow, const Mutant &mutant) {
  return isIdle(flow, mutant, &kWritesAreKnown, transfer);
}

bool mutate::fencesSingleWords(const Flow &flow, const Mutant &mutant) {
  return isIdle(flow, mutant, &kOwnWritesAreKnown, transferOwn);
}
