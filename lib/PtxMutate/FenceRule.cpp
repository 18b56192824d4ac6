//===- FenceRule.cpp - proxy fences behind which nothing was written *- C++
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Edit.h"
#include "Paths.h"
#include "Rules.h"

#include <tuple>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

/// What a thread may have done since its last fence of the async proxy.
struct Writes {
  /// It has written, or learned of what others wrote.
  bool isAny = false;
  /// It has initialized mbarriers.
  bool isInit = false;
  /// It has copies in flight, which are writes when they end.
  bool isCopy = false;

  void join(const Writes &other) {
    isAny |= other.isAny;
    isInit |= other.isInit;
    isCopy |= other.isCopy;
  }
  bool operator<(const Writes &other) const {
    return std::tie(isAny, isInit, isCopy) <
           std::tie(other.isAny, other.isInit, other.isCopy);
  }
};

/// The key of this analysis.
const char kWritesAreKnown = 0;

Writes transfer(const RawInstruction &instruction, Writes writes) {
  Writes before = writes;
  const std::string &first = instruction.parts.front();
  if (startsWith(instruction, "fence.proxy.async")) {
    writes.isAny = writes.isInit = false;
  } else if (has(instruction, "mbarrier_init")) {
    writes.isInit = false;
  } else if (startsWith(instruction, "mbarrier.init")) {
    writes.isInit = true;
  } else if (startsWith(instruction, "cp.async.ca") ||
             startsWith(instruction, "cp.async.cg")) {
    writes.isCopy = true;
  } else if (startsWith(instruction, "cp.async.wait_group") ||
             startsWith(instruction, "cp.async.wait_all")) {
    writes.isAny |= writes.isCopy;
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

bool mutate::hasNothingToFence(const Flow &flow, const Mutant &mutant) {
  const RawInstruction &fence = flow.kernel.instructions[mutant.index];
  // Fences of global memory are none of this rule's business.
  if (mutant.kind != "proxy fence" || mutant.change != "deleted" ||
      opcodeOf(fence) != "fence.proxy.async.shared::cta")
    return false;
  const auto &before =
      flow.remember<std::vector<Writes>>(&kWritesAreKnown, [&] {
        auto step = [&](size_t index, Writes writes) {
          return transfer(flow.kernel.instructions[index], writes);
        };
        return Paths<Writes>(flow, step).solve();
      });
  return !before[mutant.index].isAny && !before[mutant.index].isInit;
}
