//===- Cta.cpp - shared memory and barriers of a CTA ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cluster.h"
#include "Engine.h"
#include "TensorMemory.h"
#include "Wgmma.h"

#include <algorithm>

using namespace moec::ptx;

AsyncOperation::~AsyncOperation() = default;

/// Registers per thread: what the register file of a multiprocessor allows, at
/// most `.maxnreg`.
static unsigned registersPerThread(const Launch &launch) {
  constexpr unsigned registers = SimulatedLimits::kRegistersPerMultiprocessor,
                     step = 8,
                     maxPerThread = SimulatedLimits::kRegistersPerThread;
  unsigned most = registers / launch.threads / step * step;
  if (unsigned asked = launch.kernel->maxRegisters)
    most = std::min(most, asked);
  return std::min(most, maxPerThread);
}

static std::unique_ptr<Region> takeShared(Launch &launch) {
  if (launch.spareShared.empty())
    return std::make_unique<Region>("shared memory", kFirstSharedAddress,
                                    launch.kernel->staticShared +
                                        launch.sharedBytes,
                                    /*isShared=*/true);
  std::unique_ptr<Region> region = std::move(launch.spareShared.back());
  launch.spareShared.pop_back();
  return region;
}

Cta::Cta(Launch &launch, uint32_t index, uint32_t serial,
         std::shared_ptr<Cluster> cluster)
    : launch(launch), index(index), serial(serial), cluster(cluster),
      rank(uint32_t(cluster->ctas.size())), sharedMemory(takeShared(launch)),
      shared(*sharedMemory) {
  unsigned numWarps = (launch.threads + kWarpLanes - 1) / kWarpLanes;
  ClockRef start(new Clock(serial, numWarps));
  for (unsigned i = 0; i < numWarps; ++i) {
    unsigned lanes = std::min(launch.threads - i * kWarpLanes, kWarpLanes);
    LaneMask mask = lanes == kWarpLanes ? kAllLanes : (1u << lanes) - 1;
    warps.push_back(std::make_unique<Warp>(*this, i, mask));
    for (ClockRef &clock : warps.back()->clocks)
      clock = start;
    warps.back()->registers = registersPerThread(launch);
  }
  liveWarps = numWarps;
  for (unsigned i = 0; i < numWarps; i += 4)
    warpgroups.push_back(std::make_unique<Warpgroup>());
  nextAsyncUnit = unsigned(launch.engine->random.next());
}

Cta::~Cta() {
  shared.renew();
  launch.spareShared.push_back(std::move(sharedMemory));
}

std::pair<unsigned, uint32_t> Cta::newAsyncUnit() {
  unsigned unit = kAsyncUnit + nextAsyncUnit++ % (kStoreUnit - kAsyncUnit);
  return {unit, ++asyncTick};
}

std::pair<unsigned, uint32_t> Cta::newStoreUnit() {
  unsigned unit = kStoreUnit + nextStoreUnit++ % (kNumUnits - kStoreUnit);
  return {unit, ++asyncTick};
}

void Cta::wakeAll(GroupState state) {
  for (const std::unique_ptr<Warp> &warp : warps)
    if (warp->live)
      warp->wake(state);
}

bool Cta::arrive(Mbarrier &barrier, uint32_t count, const ClockRef &clock,
                 const Cta &from, bool isOfCluster) {
  if (count > barrier.pending)
    return false;
  barrier.pending -= count;
  if (&from == this) {
    join(barrier.collecting, clock);
  } else {
    join(barrier.collectingFinished, clock);
    if (isOfCluster)
      join(barrier.collectingOutside, clock);
  }
  launch.engine->noteProgress();
  finishPhaseIfComplete(barrier);
  return true;
}

void Cta::completeTransaction(Mbarrier &barrier, int64_t bytes, const Cta &from,
                              unsigned unit, uint32_t tick) {
  barrier.transactions -= bytes;
  // The mbarrier is in the memory that has the bytes, so scope cta suffices
  // wherever they come from.
  ClockRef &collecting = barrier.collecting;
  auto makeClock = [&] {
    return ClockRef(new Clock(from.serial, unsigned(from.warps.size())));
  };
  if (!collecting)
    collecting = makeClock();
  if (collecting->serial == from.serial) {
    unshare(collecting).own.set(unit, 1, tick);
  } else {
    ClockRef clock = makeClock();
    clock->own.set(unit, 1, tick);
    join(collecting, clock);
  }
  launch.engine->noteProgress();
  finishPhaseIfComplete(barrier);
}

void Cta::finishPhaseIfComplete(Mbarrier &barrier) {
  if (barrier.pending != 0 || barrier.transactions != 0)
    return;
  ++barrier.phase;
  barrier.pending = barrier.expected;
  join(barrier.completed, barrier.collecting);
  join(barrier.completedOutside, barrier.collectingOutside);
  join(barrier.completedFinished, barrier.collectingFinished);
  barrier.collecting = barrier.collectingOutside = barrier.collectingFinished =
      ClockRef();
  wakeAll(GroupState::Mbarrier);
}
