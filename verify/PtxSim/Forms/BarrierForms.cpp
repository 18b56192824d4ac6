//===- BarrierForms.cpp - barriers of warps and CTAs ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Engine/Engine.h"
#include "ClusterForms.h"
#include "MbarrierForms.h"
#include "WarpForms.h"

using namespace moec::ptx;

namespace {

//===----------------------------------------------------------------------===//
// bar.warp.sync
//===----------------------------------------------------------------------===//

Step syncWarp(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step =
          gatherMembers(warp, instruction, mask, instruction.operands[0]);
      step != Step::Next)
    return step;
  warp.synchronize(mask);
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// bar.sync, bar.arrive
//===----------------------------------------------------------------------===//

constexpr uint32_t kAligned = 1, kHasCount = 2, kOnlyArrives = 4;

/// All threads have arrived: they continue, and acquire each other's clocks.
void complete(NamedBarrier &barrier) {
  for (auto &[warp, lanes] : barrier.waiters) {
    for (LaneMask rest = lanes; rest; rest &= rest - 1)
      warp->clocks[__builtin_ctz(rest)] = barrier.clock;
    warp->needsTensorFence |= lanes;
    for (Group &group : warp->groups)
      if (group.state == GroupState::Barrier && group.lanes == lanes)
        ++group.pc;
    warp->wake(GroupState::Barrier);
  }
  barrier = NamedBarrier();
}

Step meet(Warp &warp, const Instruction &instruction, LaneMask mask) {
  bool isAligned = instruction.flags & kAligned;
  if (isAligned)
    if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
      return step;
  Cta &cta = warp.cta;
  unsigned lane = unsigned(__builtin_ctz(mask));
  uint32_t id = warp.lanes<uint32_t>(instruction.operands[0])[lane];
  unsigned expected = unsigned(cta.warps.size()) * kWarpLanes;
  if (instruction.flags & kHasCount)
    expected = warp.lanes<uint32_t>(instruction.operands[1])[lane];
  if (id >= 16)
    return warp.fail(instruction, lane,
                     "there is no barrier " + std::to_string(id));
  if (expected == 0 || expected % kWarpLanes != 0)
    return warp.fail(instruction, lane,
                     "a barrier of " + std::to_string(expected) +
                         " threads; the number must be a multiple of 32");
  NamedBarrier &barrier = cta.barriers[id];
  if (barrier.arrived == 0)
    barrier.expected = expected;
  if (barrier.expected != expected)
    return warp.fail(instruction, lane,
                     "expects " + std::to_string(expected) +
                         " threads at barrier " + std::to_string(id) +
                         ", others expect " + std::to_string(barrier.expected));
  if (!warp.checkTensorLoads(instruction, mask))
    return Step::Failed;
  barrier.last = {instruction.id, warp.index * kWarpLanes + lane};
  // An aligned barrier counts whole warps.
  barrier.arrived +=
      isAligned ? kWarpLanes : unsigned(__builtin_popcount(mask));
  if (barrier.arrived > expected)
    return warp.fail(instruction, lane,
                     "more threads than expected arrive at barrier " +
                         std::to_string(id));
  join(barrier.clock, warp.release(mask));
  cta.launch.engine->noteProgress();
  bool onlyArrives = instruction.flags & kOnlyArrives;
  if (!onlyArrives) {
    warp.current().state = GroupState::Barrier;
    barrier.waiters.push_back({&warp, warp.current().lanes});
  }
  if (barrier.arrived == expected)
    complete(barrier);
  // complete() has already advanced the waiting groups.
  return onlyArrives ? Step::Next : Step::Jumped;
}

void decodeBarrier(Decoder &d) {
  bool isShort = d.firstWord() == "bar";
  if (isShort && d.take("warp")) {
    if (!d.take("sync") || !d.expectOperands(1, 1))
      return;
    d.value(0, 4);
    d.instruction.handler = syncWarp;
    return;
  }
  if (!isShort && d.take("cluster"))
    return decodeClusterBarrier(d);
  d.take("cta");
  std::string mode = d.takeOneOf({"sync", "arrive"});
  bool isAligned = d.take("aligned") || isShort;
  if (mode.empty() || !d.expectOperands(mode == "arrive" ? 2 : 1, 2))
    return;
  d.value(0, 4);
  if (d.numOperands() == 2)
    d.value(1, 4);
  d.instruction.flags = (isAligned ? kAligned : 0) |
                        (d.numOperands() == 2 ? kHasCount : 0) |
                        (mode == "arrive" ? kOnlyArrives : 0);
  d.instruction.handler = meet;
}

//===----------------------------------------------------------------------===//
// setmaxnreg
//===----------------------------------------------------------------------===//

Step setRegisters(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  Cta &cta = warp.cta;
  int64_t wanted = instruction.immediate;
  int64_t change = (wanted - int64_t(warp.registers)) * kWarpLanes;
  bool increases = instruction.flags;
  if (increases != (change > 0) && change != 0)
    return warp.fail(instruction, 0,
                     "the warp has " + std::to_string(warp.registers) +
                         " registers per thread already");
  if (change > cta.freeRegisters) {
    warp.current().state = GroupState::Registers;
    return Step::Blocked;
  }
  cta.freeRegisters -= change;
  warp.registers = unsigned(wanted);
  cta.launch.engine->noteProgress();
  if (change < 0)
    cta.wakeAll(GroupState::Registers);
  return Step::Next;
}

void decodeSetmaxnreg(Decoder &d) {
  std::string mode = d.takeOneOf({"inc", "dec"});
  if (mode.empty() || !d.take("sync") || !d.take("aligned") ||
      d.takeType() != "u32" || !d.expectOperands(1, 1))
    return;
  int64_t count = d.constant(0);
  if (count < 24 || count > 256 || count % 8 != 0)
    return d.fail(
        "the number of registers must be a multiple of 8 from 24 to 256");
  d.instruction.immediate = count;
  d.instruction.flags = mode == "inc";
  d.instruction.handler = setRegisters;
}

} // namespace

void moec::ptx::addBarrierForms(FormTable &table) {
  table["bar"] = table["barrier"] = decodeBarrier;
  table["setmaxnreg"] = decodeSetmaxnreg;
  addMbarrierForms(table);
}
