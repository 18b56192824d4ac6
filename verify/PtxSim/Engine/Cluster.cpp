//===- Cluster.cpp - CTAs that share their memory ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cluster.h"

#include "Engine.h"

using namespace moec::ptx;

void Cluster::finishPhaseIfComplete() {
  bool isAny = false;
  for (Cta *cta : ctas)
    if (cta)
      for (const std::unique_ptr<Warp> &warp : cta->warps) {
        if (warp->live & ~warp->clusterArrived)
          return;
        isAny |= warp->clusterArrived != 0;
      }
  if (!isAny)
    return;
  completed = std::move(collecting);
  collecting = ClockRef();
  for (Cta *cta : ctas)
    if (cta) {
      for (const std::unique_ptr<Warp> &warp : cta->warps)
        warp->clusterArrived = 0;
      cta->wakeAll(GroupState::Cluster);
      cta->launch.engine->noteProgress();
    }
}

void Cta::noteOutsider(const Access &access) {
  for (LaneMask rest = access.lanes; rest; rest &= rest - 1) {
    Access one = access;
    one.lanes = rest & -rest;
    auto lane = uint64_t(__builtin_ctz(rest));
    outsiders[uint64_t(access.who >> 1) << 5 | lane] = one;
  }
}

const Access *Cta::findLateOutsider() const {
  ClockRef known;
  for (const std::unique_ptr<Warp> &warp : warps)
    for (const ClockRef &clock : warp->clocks)
      join(known, clock);
  for (const auto &[thread, access] : outsiders) {
    const CtaKnowledge *told = known->findForeign(access.serial());
    if (!told || !told->knowsLanes(access.unit(), access.lanes, access.tick))
      return &access;
  }
  return nullptr;
}
