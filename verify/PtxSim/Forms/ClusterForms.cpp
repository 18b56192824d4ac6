//===- ClusterForms.cpp - barriers and addresses of clusters ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ClusterForms.h"
#include "../Engine/Cluster.h"
#include "../Engine/Engine.h"
#include "WarpForms.h"

using namespace moec::ptx;

namespace {

//===----------------------------------------------------------------------===//
// barrier.cluster
//===----------------------------------------------------------------------===//

constexpr uint32_t kAligned = 1, kRelaxed = 2;

Step arrive(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (instruction.flags & kAligned)
    if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
      return step;
  if (LaneMask again = mask & warp.clusterOpen)
    return warp.fail(instruction, unsigned(__builtin_ctz(again)),
                     "arrives at the cluster's barrier again without a "
                     "barrier.cluster.wait");
  if (!warp.checkTensorLoads(instruction, mask))
    return Step::Failed;
  Cluster &cluster = *warp.cta.cluster;
  warp.clusterOpen |= mask;
  warp.clusterArrived |= mask;
  // Behind a fence, a relaxed arrival orders what came before the fence.
  if (!(instruction.flags & kRelaxed))
    join(cluster.collecting, warp.release(mask));
  else
    for (LaneMask rest = mask; rest; rest &= rest - 1)
      join(cluster.collecting, warp.inCta[__builtin_ctz(rest)].fenced);
  warp.cta.launch.engine->noteProgress();
  cluster.finishPhaseIfComplete();
  return Step::Next;
}

Step wait(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (instruction.flags & kAligned)
    if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
      return step;
  if (LaneMask others = mask & ~warp.clusterOpen)
    return warp.fail(instruction, unsigned(__builtin_ctz(others)),
                     "waits at the cluster's barrier without a "
                     "barrier.cluster.arrive");
  if (mask & warp.clusterArrived) {
    warp.current().state = GroupState::Cluster;
    return Step::Blocked;
  }
  warp.clusterOpen &= ~mask;
  warp.acquire(mask, warp.cta.cluster->completed);
  warp.needsTensorFence |= mask;
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// mapa
//===----------------------------------------------------------------------===//

/// Operands: the result, a shared address of the thread's CTA, and a rank.
/// `immediate`: the window of such addresses.
template <typename T>
Step map(Warp &warp, const Instruction &instruction, LaneMask mask) {
  size_t ctas = warp.cta.cluster->ctas.size();
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    uint64_t window = uint64_t(instruction.immediate);
    uint64_t address = warp.lanes<T>(instruction.operands[1])[lane] - window;
    uint32_t rank = warp.lanes<uint32_t>(instruction.operands[2])[lane];
    if (rank >= ctas)
      return warp.fail(instruction, lane,
                       "there is no CTA " + std::to_string(rank) +
                           " in a cluster of " + std::to_string(ctas));
    if (address >> kClusterRankShift)
      return warp.fail(instruction, lane,
                       "maps an address that is not one of the thread's own "
                       "CTA");
    warp.lanes<T>(instruction.operands[0])[lane] =
        T(window + makeClusterAddress(address, rank));
  }
  return Step::Next;
}

void decodeMapa(Decoder &d) {
  bool isShared = d.take("shared::cluster");
  std::string type = d.takeType();
  bool isWide = type == "u64";
  if ((!isWide && (!isShared || type != "u32")) || !d.expectOperands(3, 3))
    return;
  d.result(0, isWide ? 8 : 4);
  d.value(1, isWide ? 8 : 4);
  d.value(2, 4);
  d.instruction.immediate = isShared ? 0 : int64_t(kSharedWindow);
  d.instruction.handler = isWide ? map<uint64_t> : map<uint32_t>;
}

} // namespace

void moec::ptx::decodeClusterBarrier(Decoder &d) {
  std::string mode = d.takeOneOf({"arrive", "wait"});
  bool arrives = mode == "arrive";
  std::string order = d.takeOneOf({"release", "relaxed", "acquire"});
  bool isAligned = d.take("aligned");
  if (mode.empty() || (arrives && order == "acquire") ||
      (!arrives && !order.empty() && order != "acquire") ||
      !d.expectOperands(0, 0))
    return;
  d.instruction.flags =
      (isAligned ? kAligned : 0) | (order == "relaxed" ? kRelaxed : 0);
  d.instruction.handler = arrives ? arrive : wait;
}

void moec::ptx::addClusterForms(FormTable &table) {
  table["mapa"] = decodeMapa;
}
