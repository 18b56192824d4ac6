//===- Leaks.cpp - unfinished work of a CTA at its end ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Forms/CopyForms.h"
#include "BulkCopy.h"
#include "Engine.h"
#include "TensorMemory.h"
#include "Wgmma.h"

#include <algorithm>

using namespace moec::ptx;

namespace {

/// Finds the first thing that a CTA leaves unfinished after all its threads
/// have ended. The result does not depend on how far copies have come.
class LeakFinder {
public:
  LeakFinder(const Engine &engine, const Cta &cta) : engine(engine), cta(cta) {}

  /// A description, or empty.
  std::string find() const;

private:
  std::string findInWarp(const Warp &warp) const;
  std::string findBarrier() const;
  std::string findMbarrier() const;
  std::string describe(const Visit &visit) const {
    return engine.describeInstruction(visit.instruction) + " of " +
           describeThread(visit.thread / kWarpLanes, visit.thread % kWarpLanes);
  }

  const Engine &engine;
  const Cta &cta;
};

std::string LeakFinder::findInWarp(const Warp &warp) const {
  constexpr const char *kWait = "; wait for it first";
  if (warp.clusterOpen)
    return "an arrival at the cluster's barrier without a wait, by warp " +
           std::to_string(warp.index) + kWait;
  if (warp.productsInFlight > 0) {
    const Warpgroup &group = *cta.warpgroups[warp.index / kWarpgroupWarps];
    const ProductGroup *products = group.open.get();
    if (!group.committed.empty())
      products = group.committed.front().get();
    return "a wgmma that warp " + std::to_string(warp.index) +
           " has not waited for: " +
           engine.describeInstruction(
               products->products.front().instruction->id) +
           kWait;
  }
  for (const std::shared_ptr<LaneCopies> &copies : warp.copies)
    if (copies->unsettled)
      return "a copy without a wait: " +
             describe({copies->instruction,
                       warp.index * kWarpLanes +
                           unsigned(__builtin_ctz(copies->unsettled))}) +
             kWait;
  for (unsigned lane = 0; lane < warp.bulk.size(); ++lane) {
    auto groups = warp.bulk[lane].committed;
    groups.push_back(warp.bulk[lane].open);
    for (const auto &group : groups)
      for (const std::shared_ptr<BulkCopy> &copy : group)
        if (!copy->isReadAwaited)
          return "a bulk copy without a wait, which may still read its shared "
                 "memory: " +
                 describe({copy->instruction, warp.index * kWarpLanes + lane}) +
                 kWait;
  }
  return "";
}

std::string LeakFinder::findBarrier() const {
  for (unsigned id = 0; id < 16; ++id) {
    const NamedBarrier &barrier = cta.barriers[id];
    if (barrier.arrived > 0)
      return "barrier " + std::to_string(id) +
             " half arrived: " + std::to_string(barrier.arrived) + " of " +
             std::to_string(barrier.expected) + " threads, the last by " +
             describe(barrier.last);
  }
  return "";
}

std::string LeakFinder::findMbarrier() const {
  std::vector<uint64_t> addresses;
  for (const auto &entry : cta.mbarriers)
    addresses.push_back(entry.first);
  std::sort(addresses.begin(), addresses.end());
  for (uint64_t address : addresses) {
    const Mbarrier &barrier = cta.mbarriers.at(address);
    std::string place =
        "the mbarrier at shared address " + std::to_string(address);
    if (barrier.transactions != 0 || barrier.pending != barrier.expected)
      return "a phase of " + place +
             " that is not complete: " + std::to_string(barrier.pending) +
             " of " + std::to_string(barrier.expected) + " arrivals and " +
             std::to_string(barrier.transactions) +
             " bytes are missing; last used by " + describe(barrier.last);
    if (barrier.filledPhases > barrier.seenPhases)
      return "bytes without a wait, of phase " +
             std::to_string(barrier.filledPhases - 1) + " of " + place + ": " +
             describe(barrier.filler);
  }
  return "";
}

std::string LeakFinder::find() const {
  for (const std::unique_ptr<Warp> &warp : cta.warps)
    if (std::string leak = findInWarp(*warp); !leak.empty())
      return leak;
  if (cta.tensor)
    return "tensor memory that was not deallocated: " +
           describe(cta.tensor->taker);
  std::string leak = findBarrier();
  return leak.empty() ? findMbarrier() : leak;
}

} // namespace

bool Engine::checkLeaks(Cta &cta) {
  std::string leak = LeakFinder(*this, cta).find();
  for (const std::shared_ptr<AsyncOperation> &operation : operations)
    if (leak.empty() && operation->usesShared(cta))
      leak = "a pending copy into its shared memory: " +
             describeInstruction(operation->instruction);
  if (const Access *late = leak.empty() ? cta.findLateOutsider() : nullptr)
    leak = "its shared memory in use by another CTA of the cluster: " +
           describeInstruction(late->id) +
           "; wait at the cluster's barrier ahead of the end";
  if (!leak.empty())
    fail("cta " + std::to_string(cta.index) + " of '" +
         cta.launch.kernel->name + "' has ended with " + leak);
  return leak.empty();
}
