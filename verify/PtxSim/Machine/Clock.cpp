//===- Clock.cpp - vector clocks --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Clock.h"

#include <algorithm>
#include <iterator>

using namespace moec::ptx;

namespace {

/// Free lists by size in steps of kStep bytes, up to the clock of a whole CTA.
class FreeMemory {
public:
  static constexpr size_t kStep = 128, kSizes = 34;

  ~FreeMemory() {
    for (std::vector<void *> &blocks : free)
      for (void *block : blocks)
        ::operator delete(block);
    isGone = true;
  }

  std::vector<void *> free[kSizes];
  /// After the thread's end, memory is returned to the system.
  static thread_local bool isGone;
};

thread_local bool FreeMemory::isGone = false;
thread_local FreeMemory freeMemory;

} // namespace

void *moec::ptx::takeMemory(size_t bytes) {
  size_t size = (bytes + FreeMemory::kStep - 1) / FreeMemory::kStep;
  if (size >= FreeMemory::kSizes || FreeMemory::isGone)
    return ::operator new(bytes);
  std::vector<void *> &blocks = freeMemory.free[size];
  if (blocks.empty())
    return ::operator new(size * FreeMemory::kStep);
  void *block = blocks.back();
  blocks.pop_back();
  return block;
}

void moec::ptx::giveBack(void *memory, size_t bytes) {
  size_t size = (bytes + FreeMemory::kStep - 1) / FreeMemory::kStep;
  if (size >= FreeMemory::kSizes || FreeMemory::isGone)
    ::operator delete(memory);
  else
    freeMemory.free[size].push_back(memory);
}

bool CtaKnowledge::knowsLanes(unsigned unit, LaneMask mask,
                              uint32_t tick) const {
  if (tick <= units[unit])
    return true;
  if (!isWarpUnit(unit))
    return false;
  for (LaneMask rest = mask; rest; rest &= rest - 1)
    if (lanes[unit * kWarpLanes + __builtin_ctz(rest)] < tick)
      return false;
  return true;
}

static uint32_t leastOf(const uint32_t *lanes) {
  uint32_t least = lanes[0];
  for (unsigned lane = 1; lane < kWarpLanes; ++lane)
    least = std::min(least, lanes[lane]);
  return least;
}

void CtaKnowledge::join(const CtaKnowledge &other) {
  for (unsigned unit = 0; unit < kNumUnits; ++unit)
    units[unit] = std::max(units[unit], other.units[unit]);
  uint32_t *mine = lanes.data();
  const uint32_t *theirs = other.lanes.data();
  size_t count = lanes.size();
  for (size_t i = 0; i < count; ++i)
    mine[i] = std::max(mine[i], theirs[i]);
  for (size_t unit = 0; unit * kWarpLanes < count; ++unit)
    units[unit] = leastOf(mine + unit * kWarpLanes);
}

void CtaKnowledge::meet(const CtaKnowledge &other) {
  for (unsigned unit = 0; unit < kNumUnits; ++unit)
    units[unit] = std::min(units[unit], other.units[unit]);
  for (size_t i = 0; i < lanes.size(); ++i)
    lanes[i] = std::min(lanes[i], other.lanes[i]);
}

void CtaKnowledge::set(unsigned unit, LaneMask mask, uint32_t tick) {
  if (!isWarpUnit(unit)) {
    units[unit] = std::max(units[unit], tick);
    return;
  }
  uint32_t *begin = &lanes[unit * kWarpLanes];
  for (unsigned lane = 0; lane < kWarpLanes; ++lane)
    if (mask >> lane & 1)
      begin[lane] = std::max(begin[lane], tick);
  units[unit] = leastOf(begin);
}

const CtaKnowledge *Clock::findForeign(uint32_t wanted) const {
  auto found = std::lower_bound(
      foreign.begin(), foreign.end(), wanted,
      [](const auto &entry, uint32_t key) { return entry.first < key; });
  return found != foreign.end() && found->first == wanted ? found->second.get()
                                                          : nullptr;
}

void Clock::joinForeign(uint32_t other, const Ref<CtaKnowledge> &knowledge) {
  if (other == serial) {
    own.join(*knowledge);
    return;
  }
  auto found = std::lower_bound(
      foreign.begin(), foreign.end(), other,
      [](const auto &entry, uint32_t key) { return entry.first < key; });
  if (found == foreign.end() || found->first != other) {
    foreign.insert(found, {other, knowledge});
    return;
  }
  if (found->second == knowledge)
    return;
  Ref<CtaKnowledge> joined(new CtaKnowledge(*found->second));
  joined->join(*knowledge);
  found->second = std::move(joined);
}

void Clock::join(const Clock &other) {
  if (other.serial == serial) {
    own.join(other.own);
  } else {
    Ref<CtaKnowledge> copy(new CtaKnowledge(other.own));
    joinForeign(other.serial, copy);
  }
  for (const auto &[cta, knowledge] : other.foreign)
    joinForeign(cta, knowledge);
  if (other.launches.empty() || launches == other.launches)
    return;
  std::vector<uint64_t> both;
  std::set_union(launches.begin(), launches.end(), other.launches.begin(),
                 other.launches.end(), std::back_inserter(both));
  launches = std::move(both);
}

void Clock::meet(const Clock &other) {
  own.meet(other.own);
  for (auto &[cta, knowledge] : foreign) {
    Ref<CtaKnowledge> common(new CtaKnowledge(*knowledge));
    if (const CtaKnowledge *known = other.findForeign(cta))
      common->meet(*known);
    else
      common = Ref<CtaKnowledge>(
          new CtaKnowledge(unsigned(common->lanes.size() / kWarpLanes)));
    knowledge = common;
  }
  std::vector<uint64_t> common;
  std::set_intersection(launches.begin(), launches.end(),
                        other.launches.begin(), other.launches.end(),
                        std::back_inserter(common));
  launches = std::move(common);
}

Clock &moec::ptx::unshare(ClockRef &clock) {
  if (clock->references.count > 1)
    clock = ClockRef(new Clock(*clock));
  return *clock;
}

void moec::ptx::join(ClockRef &into, const ClockRef &from) {
  if (!from || into == from)
    return;
  if (!into) {
    into = from;
    return;
  }
  unshare(into).join(*from);
}
