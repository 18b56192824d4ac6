//===- MbarrierForms.cpp - mbarrier -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MbarrierForms.h"

#include "../Engine/Engine.h"
#include "MemoryForms.h"

using namespace moec::ptx;

namespace {

constexpr uint64_t kBytes = 8;

Warp::Place locate(Warp &warp, const Instruction &instruction, unsigned lane,
                   size_t index) {
  return warp.locate(instruction, lane, instruction.space,
                     addressOf(warp, instruction.addresses[index], lane),
                     kBytes, kBytes);
}

} // namespace

Mbarrier *moec::ptx::findMbarrier(Warp &warp, const Instruction &instruction,
                                  unsigned lane, size_t index) {
  Warp::Place place = locate(warp, instruction, lane, index);
  if (!place.bytes)
    return nullptr;
  std::unordered_map<uint64_t, Mbarrier> &mbarriers = place.owner->mbarriers;
  auto found = mbarriers.find(place.address);
  if (found == mbarriers.end()) {
    warp.fail(instruction, lane,
              "there is no mbarrier at shared address " +
                  std::to_string(place.address));
    return nullptr;
  }
  // The initialization of the mbarrier must be ordered before its use.
  if (!warp.checkKnown(instruction, lane, place, kBytes))
    return nullptr;
  return &found->second;
}

namespace {

//===----------------------------------------------------------------------===//
// init, inval
//===----------------------------------------------------------------------===//

Step init(Warp &warp, const Instruction &instruction, LaneMask mask) {
  constexpr uint32_t kMost = (1u << 20) - 1;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    Warp::Place place = locate(warp, instruction, lane, 0);
    if (!place.bytes ||
        !warp.checkWrite(instruction, lane, 1u << lane, place, kBytes))
      return Step::Failed;
    uint32_t count = warp.lanes<uint32_t>(instruction.operands[0])[lane];
    if (count == 0 || count > kMost)
      return warp.fail(instruction, lane,
                       "an mbarrier for " + std::to_string(count) +
                           " arrivals");
    Mbarrier barrier;
    barrier.expected = barrier.pending = count;
    barrier.cta = &warp.cta;
    barrier.initializer = warp.index * kWarpLanes + lane;
    barrier.last = {instruction.id, barrier.initializer};
    if (!warp.cta.mbarriers.emplace(place.address, barrier).second)
      return warp.fail(instruction, lane,
                       "there is an mbarrier already; invalidate it first");
  }
  return Step::Next;
}

Step invalidate(Warp &warp, const Instruction &instruction, LaneMask mask) {
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    Mbarrier *barrier = findMbarrier(warp, instruction, lane, 0);
    Warp::Place place = locate(warp, instruction, lane, 0);
    if (!barrier || !place.bytes ||
        !warp.checkWrite(instruction, lane, 1u << lane, place, kBytes))
      return Step::Failed;
    if (barrier->transactions != 0)
      return warp.fail(instruction, lane,
                       "bytes are still pending at this mbarrier");
    warp.cta.mbarriers.erase(place.address);
  }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// arrive, expect_tx
//===----------------------------------------------------------------------===//

constexpr uint32_t kExpects = 1, kArrives = 2, kHasCount = 4, kRelaxed = 8,
                   kCompletes = 16, kClusterScope = 32;

/// Operands: state, and the count or the bytes.
Step arrive(Warp &warp, const Instruction &instruction, LaneMask mask) {
  uint32_t flags = instruction.flags;
  if (!warp.checkTensorLoads(instruction, mask))
    return Step::Failed;
  ClockRef released;
  const Mbarrier *first = nullptr;
  uint64_t phase = 0;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    Mbarrier *barrier = findMbarrier(warp, instruction, lane, 0);
    if (!barrier)
      return Step::Failed;
    barrier->last = {instruction.id, warp.index * kWarpLanes + lane};
    warp.lanes<uint64_t>(instruction.operands[0])[lane] = barrier->phase;
    uint32_t number = 1;
    if (flags & (kExpects | kHasCount | kCompletes))
      number = warp.lanes<uint32_t>(instruction.operands[1])[lane];
    constexpr int64_t kMaxBytes = (1 << 20) - 1;
    if (flags & kExpects) {
      barrier->transactions += number;
      if (barrier->transactions > kMaxBytes)
        return warp.fail(instruction, lane,
                         "more than 2^20 - 1 bytes are expected");
    }
    if (flags & kCompletes) {
      barrier->transactions -= number;
      barrier->cta->finishPhaseIfComplete(*barrier);
    }
    if (!(flags & kArrives))
      continue;
    // PTX leaves open which lanes would arrive at the next phase.
    if (barrier == first && barrier->phase != phase)
      return warp.fail(
          instruction, lane,
          "lanes with more arrivals than the mbarrier still expects");
    first = barrier;
    phase = barrier->phase;
    // Arrivals at one phase may carry the joined clock of all lanes.
    unsigned lanes = unsigned(__builtin_popcount(rest));
    ClockRef clock;
    if (!(flags & kRelaxed)) {
      if (!released && barrier->pending >= lanes)
        released = warp.release(rest);
      clock = released ? released : warp.release(1u << lane);
    }
    uint32_t count = flags & kHasCount ? number : 1;
    if (!barrier->cta->arrive(*barrier, count, clock, warp.cta,
                              flags & kClusterScope))
      return warp.fail(instruction, lane,
                       "more arrivals than the " +
                           std::to_string(barrier->expected) +
                           " that the mbarrier expects");
  }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// test_wait, try_wait
//===----------------------------------------------------------------------===//

constexpr uint32_t kParity = 1, kMayWait = 2;

/// Operands: predicate, and a state or a parity.
Step wait(Warp &warp, const Instruction &instruction, LaneMask mask) {
  uint32_t flags = instruction.flags;
  LaneMask done = 0;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    Mbarrier *barrier = findMbarrier(warp, instruction, lane, 0);
    if (!barrier)
      return Step::Failed;
    bool isOver =
        flags & kParity
            ? (barrier->phase & 1) !=
                  (warp.lanes<uint32_t>(instruction.operands[1])[lane] & 1)
            : barrier->phase !=
                  warp.lanes<uint64_t>(instruction.operands[1])[lane];
    if (!isOver)
      continue;
    done |= 1u << lane;
    barrier->seenPhases = barrier->phase;
    if (flags & kRelaxed)
      continue;
    warp.acquire(1u << lane, barrier->completed);
    if (flags & kClusterScope)
      warp.acquire(1u << lane, barrier->completedOutside);
    join(warp.finished[lane], barrier->completedFinished);
  }
  warp.needsTensorFence |= done;
  Engine &engine = *warp.cta.launch.engine;
  Group &group = warp.current();
  bool mustFail = group.mustFail;
  group.mustFail = false;
  // Waits may time out at any moment.
  if (done != mask && flags & kMayWait && !mustFail && engine.random.oneIn(2)) {
    group.state = GroupState::Mbarrier;
    return Step::Blocked;
  }
  LaneMask &p = warp.predicate(instruction.operands[0]);
  p = (p & ~mask) | done;
  return done == mask ? Step::Next : Step::Poll;
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

/// Takes semantics, scope, space and type; false for other words. An mbarrier
/// of another CTA `mayBeOutside` for arrivals only.
bool takeQualifiers(Decoder &d, bool mayBeOutside = false) {
  if (d.takeOneOf({"release", "acquire", "relaxed"}) == "relaxed")
    d.instruction.flags |= kRelaxed;
  if (d.takeOneOf({"cta", "cluster"}) == "cluster")
    d.instruction.flags |= kClusterScope;
  d.instruction.space = takeSpace(d);
  bool isThere = d.instruction.space == Space::Shared ||
                 d.instruction.space == Space::Generic ||
                 (mayBeOutside && d.instruction.space == Space::Cluster);
  return d.takeType() == "b64" && isThere;
}

void decodeInit(Decoder &d) {
  if (!takeQualifiers(d) || !d.expectOperands(2, 2))
    return;
  d.address(size_t(0));
  d.value(1, 4);
  d.instruction.handler = init;
}

void decodeArrive(Decoder &d) {
  bool expects = d.take("expect_tx");
  if (!takeQualifiers(d, /*mayBeOutside=*/true) ||
      !d.expectOperands(expects ? 3 : 2, 3))
    return;
  d.result(0, 8);
  d.address(1);
  if (d.numOperands() == 3)
    d.value(2, 4);
  d.instruction.flags |= kArrives | (expects ? kExpects : 0) |
                         (!expects && d.numOperands() == 3 ? kHasCount : 0);
  d.instruction.handler = arrive;
}

void decodeTransaction(Decoder &d, uint32_t flags) {
  if (!takeQualifiers(d, /*mayBeOutside=*/true) || !d.expectOperands(2, 2))
    return;
  RawOperand none;
  none.text = "_";
  d.result(none, 8);
  d.address(size_t(0));
  d.value(1, 4);
  d.instruction.flags = flags | kRelaxed;
  d.instruction.handler = arrive;
}

void decodeWait(Decoder &d, bool mayWait) {
  bool isParity = d.take("parity");
  if (!takeQualifiers(d) || !d.expectOperands(3, mayWait ? 4 : 3))
    return;
  d.predicateResult(d.operand(0));
  d.address(1);
  d.value(2, isParity ? 4 : 8);
  if (d.numOperands() == 4)
    d.value(3, 4);
  d.instruction.flags |= (isParity ? kParity : 0) | (mayWait ? kMayWait : 0);
  d.instruction.handler = wait;
}

void decodeMbarrier(Decoder &d) {
  std::string what = d.takeNext();
  if (what == "init")
    return decodeInit(d);
  if (what == "inval") {
    if (takeQualifiers(d) && d.expectOperands(1, 1)) {
      d.address(size_t(0));
      d.instruction.handler = invalidate;
    }
    return;
  }
  if (what == "arrive")
    return decodeArrive(d);
  if (what == "expect_tx")
    return decodeTransaction(d, kExpects);
  if (what == "complete_tx")
    return decodeTransaction(d, kCompletes);
  if (what == "test_wait" || what == "try_wait")
    return decodeWait(d, what == "try_wait");
}

} // namespace

void moec::ptx::addMbarrierForms(FormTable &table) {
  table["mbarrier"] = decodeMbarrier;
}
