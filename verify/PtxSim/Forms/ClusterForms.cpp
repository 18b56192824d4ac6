//===- ClusterForms.cpp - barriers, stores of clusters ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ClusterForms.h"
#include "../Engine/Cluster.h"
#include "../Engine/Engine.h"
#include "MbarrierForms.h"
#include "MemoryForms.h"
#include "WarpForms.h"

#include <cstring>
#include <tuple>

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

//===----------------------------------------------------------------------===//
// st.async
//===----------------------------------------------------------------------===//

/// A store by one thread that an mbarrier beside the bytes counts.
class AsyncStore : public AsyncOperation {
public:
  AsyncStore(Warp &warp, const Instruction &source, unsigned lane)
      : warp(warp), source(source), lane(lane) {
    cta = &warp.cta;
    instruction = source.id;
  }

  bool advance(Engine &) override {
    auto found = to.owner->mbarriers.find(barrier);
    if (found == to.owner->mbarriers.end()) {
      warp.fail(source, lane,
                "the mbarrier on which it completes does not exist any more");
      return false;
    }
    std::memcpy(to.bytes, value, bytes);
    found->second.filledPhases = found->second.phase + 1;
    found->second.filler = {instruction, warp.index * kWarpLanes + lane};
    to.owner->completeTransaction(found->second, bytes, *cta, unit, tick);
    bytes = 0;
    return true;
  }
  bool isDone() const override { return bytes == 0; }
  bool usesShared(const Cta &owner) const override {
    return !isDone() && (to.owner == &owner || cta == &owner);
  }

  Warp &warp;
  const Instruction &source;
  const unsigned lane;
  Warp::Place to;
  uint64_t barrier = 0;
  unsigned bytes = 0, unit = 0;
  uint32_t tick = 0;
  uint8_t value[16] = {};
};

/// Operands: the parts of the value.
Step storeAsync(Warp &warp, const Instruction &instruction, LaneMask mask) {
  unsigned width = instruction.width, bytes = width * instruction.count;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    auto made = std::make_shared<AsyncStore>(warp, instruction, lane);
    made->to = warp.locate(instruction, lane, Space::Cluster,
                           addressOf(warp, instruction.addresses[0], lane),
                           bytes, bytes);
    if (!made->to.bytes)
      return Step::Failed;
    const Mbarrier *barrier = findMbarrier(warp, instruction, lane, 1);
    if (!barrier)
      return Step::Failed;
    if (barrier->cta != made->to.owner)
      return warp.fail(instruction, lane,
                       "the mbarrier is in another CTA than the bytes");
    made->barrier = addressOf(warp, instruction.addresses[1], lane) &
                    ((uint64_t(1) << kClusterRankShift) - 1);
    made->bytes = bytes;
    std::tie(made->unit, made->tick) = warp.cta.newStoreUnit();
    if (!warp.checkLateWrite(instruction, lane, made->unit, made->tick,
                             made->to, bytes))
      return Step::Failed;
    for (unsigned i = 0; i < instruction.count; ++i)
      std::memcpy(made->value + width * i,
                  warp.lanes<uint8_t>(instruction.operands[i]) + lane * width,
                  width);
    warp.cta.launch.engine->start(made);
  }
  return Step::Next;
}

} // namespace

void moec::ptx::decodeAsyncStore(Decoder &d) {
  d.take("weak");
  bool isOfCluster = d.take("shared::cluster");
  bool counts = d.take("mbarrier::complete_tx::bytes");
  std::string vector = d.takeOneOf({"v2", "v4"});
  unsigned bytes = typeBytes(d.takeType());
  unsigned count = vector.empty() ? 1 : unsigned(vector[1] - '0');
  if (!isOfCluster || !counts || bytes < 4 || bytes > 8 || bytes * count > 16 ||
      !d.expectOperands(3, 3))
    return;
  std::vector<RawOperand> parts = d.operand(1).parts;
  if (vector.empty())
    parts = {d.operand(1)};
  if (parts.size() != count)
    return d.fail("the vector has " + std::to_string(parts.size()) + " parts");
  d.address(size_t(0));
  for (const RawOperand &part : parts)
    d.value(part, bytes);
  d.address(2);
  d.instruction.space = Space::Cluster;
  d.instruction.width = uint8_t(bytes);
  d.instruction.count = uint8_t(count);
  d.instruction.handler = storeAsync;
}

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
