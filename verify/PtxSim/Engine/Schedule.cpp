//===- Schedule.cpp - choice of the next warp or operation ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Engine.h"
#include "Wgmma.h"

#include <algorithm>

using namespace moec::ptx;

/// Limit on warp instructions without an effect that others can see. Beyond it,
/// the warps loop for something that never comes.
static constexpr uint64_t kMaxIdleInstructions = 4'000'000;
/// An awaited CTA starts about once in so many scheduling steps.
static constexpr unsigned kTurnsPerStart = 8;

void Engine::queue(Warp &warp) {
  if (warp.isQueued)
    return;
  warp.isQueued = true;
  runnable.push_back(&warp);
}

void Engine::start(std::shared_ptr<AsyncOperation> operation) {
  // Many operations complete because a thread waited for them.
  if (operations.size() >= compactAt) {
    operations.erase(
        std::remove_if(operations.begin(), operations.end(),
                       [](const auto &started) { return started->isDone(); }),
        operations.end());
    compactAt = 2 * operations.size() + 64;
  }
  operations.push_back(std::move(operation));
}

bool Engine::finish(AsyncOperation &operation) {
  while (!operation.isDone())
    if (!operation.advance(*this))
      return false;
  return true;
}

void Engine::step() {
  ++turns;
  while (ctas.size() < options.residentCtas && admit())
    ;
  if (numAwaited > 0 && random.oneIn(kTurnsPerStart) && admitAwaited())
    noteProgress();
  if (!operations.empty() && random.oneIn(asyncDelay))
    advanceAsync();
  if (hasFailed())
    return;
  if (Warp *warp = choose())
    runWarp(*warp);
  else
    unblock();
  if (idleInstructions >
          std::min(kMaxIdleInstructions, options.maxWarpInstructions) &&
      !hasFailed() && !hurryCopies() && !passTime())
    reportDeadlock();
  if (statistics.warpInstructions > options.maxWarpInstructions)
    fail("more than " + std::to_string(options.maxWarpInstructions) +
         " instructions of warps");
}

Warp *Engine::choose() {
  if (runnable.empty())
    return nullptr;
  size_t index = 0;
  switch (style) {
  case Style::Fair:
    index = turns % runnable.size();
    break;
  case Style::Random:
    index = random.below(runnable.size());
    break;
  case Style::Priorities:
    for (size_t i = 1; i < runnable.size(); ++i)
      if (runnable[i]->priority > runnable[index]->priority)
        index = i;
    // Now and then the first warp gets a new priority, which is mostly low.
    if (random.oneIn(16))
      runnable[index]->priority = random.next() >> random.below(32);
    break;
  }
  return runnable[index];
}

/// Usually the ready group that is furthest behind; at times another one.
size_t Engine::chooseGroup(Warp &warp) {
  size_t best = warp.groups.size(), ready = 0;
  for (size_t i = 0; i < warp.groups.size(); ++i) {
    if (warp.groups[i].state != GroupState::Ready)
      continue;
    ++ready;
    if (best == warp.groups.size() || warp.groups[i].pc < warp.groups[best].pc)
      best = i;
  }
  if (ready < 2 || !random.oneIn(4))
    return best;
  size_t wanted = random.below(ready);
  for (size_t i = 0; i < warp.groups.size(); ++i)
    if (warp.groups[i].state == GroupState::Ready && wanted-- == 0)
      return i;
  return best;
}

/// Merges group `index` into another group at the same instruction.
bool Engine::mergeAt(Warp &warp, size_t index) {
  Group &group = warp.groups[index];
  for (size_t i = 0; i < warp.groups.size(); ++i) {
    Group &other = warp.groups[i];
    if (i == index || other.pc != group.pc ||
        (other.state != GroupState::Ready &&
         other.state != GroupState::Converge))
      continue;
    other.lanes |= group.lanes;
    other.state = GroupState::Ready;
    warp.groups.erase(warp.groups.begin() + long(index));
    return true;
  }
  return false;
}

void Engine::runWarp(Warp &warp) {
  const Instruction *code = warp.cta.launch.kernel->code.data();
  unsigned budget =
      style == Style::Fair ? quantum : 1 + unsigned(random.below(2 * quantum));
  bool hasEnded = false, isAsleep = false;
  while (budget > 0 && !hasEnded && !hasFailed()) {
    size_t index = chooseGroup(warp);
    if (index == warp.groups.size())
      break;
    warp.running = index;
    bool goesOn = true;
    for (; budget > 0 && goesOn; --budget) {
      if (warp.groups.size() > 1 && mergeAt(warp, index))
        break;
      Group &group = warp.groups[index];
      const Instruction &instruction = code[group.pc];
      LaneMask mask = group.lanes;
      if (instruction.guard) {
        LaneMask guard = warp.predicate(instruction.guard);
        mask &= instruction.isGuardNegated ? ~guard : guard;
        if (mask == 0 && !instruction.isCollective) {
          ++group.pc;
          continue;
        }
      }
      if (instruction.touchesAccumulators &&
          !checkAccumulators(warp, instruction, mask))
        return;
      unsigned active = unsigned(__builtin_popcount(mask));
      switch (instruction.handler(warp, instruction, mask)) {
      case Step::Sleep:
        isAsleep = true;
        [[fallthrough]];
      case Step::Poll:
        active = 0;
        [[fallthrough]];
      case Step::Yield:
        budget = 1;
        ++warp.groups[index].pc;
        break;
      case Step::Next:
        ++warp.groups[index].pc;
        break;
      case Step::Jumped:
        goesOn = false;
        break;
      case Step::Blocked:
        goesOn = false;
        active = 0;
        break;
      case Step::Failed:
        return;
      }
      ++idleInstructions;
      statistics.threadInstructions += active;
      statistics.warpInstructions += active != 0;
      hasEnded = warp.live == 0;
    }
  }
  auto ready = std::count_if(
      warp.groups.begin(), warp.groups.end(),
      [](const Group &group) { return group.state == GroupState::Ready; });
  // Other lanes of the warp can run meanwhile.
  isAsleep &= ready == 1;
  if (isAsleep)
    sleepers.push_back(&warp);
  if (ready == 0 || isAsleep) {
    warp.isQueued = false;
    runnable.erase(std::find(runnable.begin(), runnable.end(), &warp));
  }
  if (hasEnded && --warp.cta.liveWarps == 0)
    retire(warp.cta);
}

void Engine::advanceAsync() {
  while (!operations.empty()) {
    size_t index = random.below(operations.size());
    bool isOver = operations[index]->isDone();
    // advance() never starts another operation.
    if (!isOver && !operations[index]->advance(*this))
      return;
    if (operations[index]->isDone()) {
      operations[index] = std::move(operations.back());
      operations.pop_back();
    }
    if (!isOver)
      return;
  }
}

/// No warp can run: deferred work is done.
void Engine::unblock() {
  if (!operations.empty()) {
    advanceAsync();
    return;
  }
  if (admitAwaited())
    return;
  // Resident launches may wait for a launch of another rank, which is queued
  // behind launches that are not yet resident.
  bool isAnyAwaited =
      std::any_of(active.begin(), active.end(),
                  [](const Launch *launch) { return launch->isResident; });
  if (isAnyAwaited && admit())
    return;
  if (failPolls() || hurryCopies() || passTime())
    return;
  reportDeadlock();
}

/// Advances the time and wakes polling loops; false if no thread reads the
/// time, or long waits have not helped.
bool Engine::passTime() {
  // The skipped time grows up to some seconds, so that waits need few rounds.
  constexpr unsigned kFirstBit = 10, kLastBit = 33, kSkips = 1000;
  if (!asksTime || numSkips >= kSkips)
    return false;
  skippedTime += uint64_t(1) << std::min(kFirstBit + numSkips, kLastBit);
  ++numSkips;
  idleInstructions = failedRounds = 0;
  wakeSleepers();
  return true;
}

/// Lets polling loops poll again; false if there are none.
bool Engine::wakeSleepers() {
  bool isAny = !sleepers.empty();
  for (Warp *warp : sleepers)
    queue(*warp);
  sleepers.clear();
  return isAny;
}

/// A location that loops poll was written. The loops see it at once at times,
/// else when no other warp can run.
void Engine::noteWrite() {
  constexpr unsigned kWritesPerWake = 8;
  if (!sleepers.empty() && random.oneIn(kWritesPerWake))
    wakeSleepers();
}

/// Lets waits that may time out fail; false if that has not helped.
bool Engine::failPolls() {
  constexpr unsigned kRounds = 3;
  if (progress != progressAtFail)
    failedRounds = 0;
  progressAtFail = progress;
  if (++failedRounds > kRounds)
    return false;
  bool isAny = wakeSleepers();
  for (const std::unique_ptr<Cta> &cta : ctas)
    for (const std::unique_ptr<Warp> &warp : cta->warps)
      for (Group &group : warp->groups)
        if (group.state == GroupState::Mbarrier) {
          group.state = GroupState::Ready;
          group.mustFail = true;
          queue(*warp);
          isAny = true;
        }
  return isAny;
}
