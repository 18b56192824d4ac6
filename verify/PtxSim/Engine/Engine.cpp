//===- Engine.cpp - launches and their CTAs ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Engine.h"
#include "Cluster.h"
#include "Wgmma.h"

#include <algorithm>
#include <chrono>
#include <cstring>

using namespace moec::ptx;

Engine::Engine(const SimulatorOptions &options)
    : options(options), random(options.seed) {}

Engine::~Engine() = default;

void Engine::fail(const std::string &text) {
  if (failure.empty())
    failure = text;
}

/// Seed 0 is a plain schedule; other seeds alternate between styles.
void Engine::chooseStyle() {
  constexpr unsigned quanta[] = {1, 4, 16, 64, 256};
  constexpr unsigned delays[] = {1, 2, 8, 64, 1024};
  if (options.seed == 0)
    return;
  style = options.seed % 2 ? Style::Random : Style::Priorities;
  quantum = quanta[random.below(5)];
  asyncDelay = delays[random.below(5)];
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

bool Engine::run(Batch &launches) {
  auto begin = std::chrono::steady_clock::now();
  batch = &launches;
  failure.clear();
  if (nextSerial > kMaxSerial / 2) {
    fail("this simulator has run its maximum number of CTAs; create another "
         "one");
    return false;
  }
  horizon = nextSerial;
  asksTime = false;
  numSkips = 0;
  chooseStyle();
  while (!hasFailed() && startReady())
    step();
  reset();
  auto end = std::chrono::steady_clock::now();
  statistics.seconds += std::chrono::duration<double>(end - begin).count();
  return !hasFailed();
}

bool Engine::isReady(const Launch &launch) const {
  if (launch.isDependent) {
    const Launch &before = *(*batch)[launch.after.front()];
    return before.numLetting == before.gridCtas;
  }
  return std::all_of(launch.after.begin(), launch.after.end(),
                     [&](size_t index) {
                       return (*batch)[index]->state == Launch::State::Done;
                     });
}

/// Adds an ended launch, and all launches that had ended by then, to `set`.
void Engine::addAllOver(std::vector<bool> &set, const Launch &launch) const {
  set[launch.id] = true;
  for (size_t i = 0; i < set.size(); ++i)
    if (launch.isOver[i])
      set[i] = true;
}

void Engine::begin(Launch &launch) {
  launch.engine = this;
  launch.state = Launch::State::Running;
  launch.isAfter.assign(batch->size(), false);
  launch.isOver.assign(batch->size(), false);
  // An early start of the CTAs makes no writes visible to them, unless all CTAs
  // of the launch before have waited: what had ended by then is over.
  if (launch.isDependent) {
    const Launch &before = *(*batch)[launch.after.front()];
    launch.isBehind = before.isBehind;
    if (before.isDependent || !before.hasLetEarly) {
      launch.isAfter = before.isAfter;
      launch.toldBefore.join(before.toldBefore);
    }
    if (before.isDependent && !before.hasLetEarly) {
      const Launch &ended = *(*batch)[before.after.front()];
      addAllOver(launch.isAfter, ended);
      launch.toldBefore.join(ended.told);
    }
    dropOver(launch.toldBefore, launch.isAfter);
    for (size_t i = 0; i < launch.isAfter.size(); ++i)
      if (launch.isAfter[i])
        launch.isBehind[i] = true;
    return;
  }
  for (size_t earlier : launch.after) {
    addAllOver(launch.isAfter, *(*batch)[earlier]);
    launch.toldBefore.join((*batch)[earlier]->told);
  }
  dropOver(launch.toldBefore, launch.isAfter);
  launch.isBehind = launch.isAfter;
}

/// Drops knowledge of ended launches, which is implied.
void Engine::dropOver(Clock &told, const std::vector<bool> &over) const {
  auto isOver = [&](const auto &known) {
    return known.first < horizon ||
           over[launchOfSerial[known.first - horizon]->id];
  };
  told.foreign.erase(
      std::remove_if(told.foreign.begin(), told.foreign.end(), isOver),
      told.foreign.end());
}

void Engine::end(Launch &launch) {
  launch.state = Launch::State::Done;
  for (size_t i = 0; i < launch.isAfter.size(); ++i)
    if (launch.isAfter[i])
      launch.isOver[i] = true;
  // A dependent launch ends after the one before it only if it waited for it.
  launch.told.join(launch.toldBefore);
  if (launch.hasWaited) {
    addAllOver(launch.isOver, *(*batch)[launch.after.front()]);
    launch.told.join((*batch)[launch.after.front()]->told);
  }
  dropOver(launch.told, launch.isOver);
  for (const std::unique_ptr<Cta> &cta : ctas)
    if (cta->launch.isDependent && cta->launch.after.front() == launch.id)
      cta->wakeAll(GroupState::Launch);
}

/// Whether a dependent launch has yet to start although the launch before it
/// has ended, whose writes it may not know.
bool Engine::isAwaited() const {
  return std::any_of(batch->begin(), batch->end(), [&](const auto &launch) {
    return launch->isDependent && launch->state == Launch::State::Waiting &&
           (*batch)[launch->after.front()]->state == Launch::State::Done;
  });
}

/// Whether to delay a copy that is ready: it may take longer than kernels that
/// start with it.
bool Engine::isLate(Launch &copy) {
  constexpr unsigned kMaxDelayBits = 18;
  if (style == Style::Fair)
    return false;
  if (!copy.delay)
    copy.delay = random.below(1U << random.below(kMaxDelayBits + 1));
  if (*copy.delay == 0)
    return false;
  --*copy.delay;
  return true;
}

bool Engine::hurryCopies() {
  bool isAny = false;
  for (std::unique_ptr<Launch> &launch : *batch)
    if (launch->state == Launch::State::Waiting &&
        launch->delay.value_or(0) > 0) {
      launch->delay = 0;
      isAny = true;
    }
  return isAny;
}

/// Checks that a copy is ordered after the writes to its source, and after the
/// reads and writes of its destination.
bool Engine::checkCopy(Launch &launch, Region &from, Region &to) {
  if (!options.checkRaces)
    return true;
  Accessor now;
  now.oracle = this;
  now.horizon = horizon;
  uint32_t serial = addSerial(launch, /*index=*/0);
  ClockRef clock(new Clock(serial, /*numWarps=*/1));
  now.clock = clock.get();
  now.access.who = Access::pack(serial, /*unit=*/0, /*isStrong=*/false);
  now.access.tick = now.access.lanes = 1;
  now.access.id = kCopyInstruction;
  auto isFine = [&](Region &region, uint64_t address, bool isWrite) {
    uint64_t offset = address - region.address, bytes = launch.fillBytes;
    Conflict conflict = isWrite ? region.shadow.write(offset, bytes, now)
                                : region.shadow.read(offset, bytes, now);
    if (conflict)
      fail("a copy between kernels: " +
           describeConflict(conflict, isWrite, /*isAsync=*/false) + ": " +
           std::to_string(bytes) + " bytes of " + region.name + " at offset " +
           std::to_string(offset));
    return !conflict;
  };
  return isFine(from, launch.copiedAddress, /*isWrite=*/false) &&
         isFine(to, launch.fillAddress, /*isWrite=*/true);
}

/// Does a fill or a copy.
void Engine::write(Launch &launch) {
  uint64_t to = launch.fillAddress, bytes = launch.fillBytes;
  Region *region = memory.find(to);
  if (launch.copiedAddress) {
    Region *from = memory.find(launch.copiedAddress);
    std::memmove(region->at(to), from->at(launch.copiedAddress), bytes);
    if (!checkCopy(launch, *from, *region))
      return;
  } else {
    std::memset(region->at(to), launch.fillValue, bytes);
    region->shadow.clear(to - region->address, bytes);
  }
  region->markInitialized(to, bytes);
}

/// Starts all launches that are ready; false if all are done.
bool Engine::startReady() {
  bool isAllDone = true, hasDone = true;
  while (hasDone && !hasFailed()) {
    hasDone = false;
    isAllDone = true;
    for (std::unique_ptr<Launch> &launch : *batch) {
      isAllDone &= launch->state == Launch::State::Done;
      if (launch->state != Launch::State::Waiting || !isReady(*launch))
        continue;
      if (launch->copiedAddress && isLate(*launch))
        continue;
      begin(*launch);
      if (!launch->kernel) {
        write(*launch);
        end(*launch);
        noteProgress();
        hasDone = true;
        continue;
      }
      ++statistics.launches;
      uint32_t clusters = launch->gridCtas / launch->clusterCtas;
      launch->order.resize(clusters);
      for (uint32_t i = 0; i < clusters; ++i)
        launch->order[i] = i;
      // Hardware starts CTAs roughly in order.
      constexpr uint32_t kWindow = 16;
      if (style != Style::Fair)
        for (uint32_t i = 0; i + 1 < clusters; ++i)
          std::swap(
              launch->order[i],
              launch->order[i + random.below(std::min(kWindow, clusters - i))]);
      active.push_back(launch.get());
      if (launch->isResident)
        numAwaited += launch->gridCtas;
    }
    // With nothing running, delayed copies have nothing to be later than.
    hasDone |= active.empty() && hurryCopies();
  }
  return !isAllDone;
}

/// Makes one more CTA, with its cluster, resident; false if none is left.
bool Engine::admit() {
  size_t first = random.below(active.size());
  for (size_t i = 0; i < active.size(); ++i) {
    Launch &launch = *active[(first + i) % active.size()];
    if (launch.started == launch.gridCtas)
      continue;
    addCluster(launch);
    return true;
  }
  return false;
}

/// Makes a CTA of a launch whose CTAs wait for each other resident, however
/// many CTAs are resident already.
bool Engine::admitAwaited() {
  for (Launch *launch : active)
    if (launch->isResident && launch->started < launch->gridCtas) {
      addCluster(*launch);
      return true;
    }
  return false;
}

uint32_t Engine::addSerial(Launch &launch, uint32_t index) {
  launchOfSerial.resize(nextSerial - horizon + 1);
  launchOfSerial.back() = &launch;
  indexOfSerial.resize(launchOfSerial.size());
  indexOfSerial.back() = index;
  return nextSerial++;
}

void Engine::addCluster(Launch &launch) {
  auto cluster = std::make_shared<Cluster>(nextSerial);
  for (uint32_t i = 0; i < launch.clusterCtas; ++i)
    addCta(launch, cluster);
}

void Engine::addCta(Launch &launch, const std::shared_ptr<Cluster> &cluster) {
  if (launch.isResident)
    --numAwaited;
  ++statistics.ctas;
  auto rank = uint32_t(cluster->ctas.size());
  uint32_t index =
      launch.order[launch.started++ / launch.clusterCtas] * launch.clusterCtas +
      rank;
  ctas.push_back(
      std::make_unique<Cta>(launch, index, addSerial(launch, index), cluster));
  cluster->ctas.push_back(ctas.back().get());
  for (const std::unique_ptr<Warp> &warp : ctas.back()->warps) {
    warp->priority = random.next();
    queue(*warp);
  }
}

/// Knowledge that threads of a CTA acquired from other launches passes on to
/// the launches that come after the CTA's own.
void Engine::keepTold(const Cta &cta) {
  Launch &launch = cta.launch;
  for (const std::unique_ptr<Warp> &warp : cta.warps)
    for (const ClockRef &clock : warp->clocks)
      if (clock)
        for (const auto &[foreign, known] : clock->foreign) {
          if (foreign < horizon)
            continue;
          const Launch &teller = *launchOfSerial[foreign - horizon];
          if (&teller == &launch)
            continue;
          launch.told.joinForeign(foreign, known);
          launch.told.join(teller.toldBefore);
          for (size_t i = 0; i < teller.isAfter.size(); ++i)
            if (teller.isAfter[i])
              launch.isOver[i] = true;
        }
}

void Engine::retire(Cta &cta) {
  if (!checkLeaks(cta))
    return;
  keepTold(cta);
  for (size_t i = 0; i < operations.size(); ++i) {
    std::shared_ptr<AsyncOperation> operation = operations[i];
    if (operation->cta == &cta && !finish(*operation))
      return;
  }
  operations.erase(std::remove_if(operations.begin(), operations.end(),
                                  [&](const auto &operation) {
                                    return operation->cta == &cta;
                                  }),
                   operations.end());
  runnable.erase(std::remove_if(runnable.begin(), runnable.end(),
                                [&](Warp *warp) { return &warp->cta == &cta; }),
                 runnable.end());
  sleepers.erase(std::remove_if(sleepers.begin(), sleepers.end(),
                                [&](Warp *warp) { return &warp->cta == &cta; }),
                 sleepers.end());
  Launch &launch = cta.launch;
  cta.cluster->ctas[cta.rank] = nullptr;
  letDependentsBegin(cta);
  noteProgress();
  ctas.erase(std::find_if(ctas.begin(), ctas.end(), [&](const auto &entry) {
    return entry.get() == &cta;
  }));
  if (++launch.ended < launch.gridCtas)
    return;
  end(launch);
  active.erase(std::find(active.begin(), active.end(), &launch));
  if (!active.empty() || isAwaited())
    return;
  // All work so far is ordered before all later work.
  horizon = nextSerial;
  launchOfSerial.clear();
  fenceLogs.clear();
  globalSync.clear();
  sharedSync.clear();
}

void Engine::reset() {
  operations.clear();
  runnable.clear();
  sleepers.clear();
  ctas.clear();
  active.clear();
  launchOfSerial.clear();
  fenceLogs.clear();
  globalSync.clear();
  sharedSync.clear();
  idleInstructions = failedRounds = numAwaited = 0;
}

//===----------------------------------------------------------------------===//
// Order between CTAs
//===----------------------------------------------------------------------===//

bool Engine::isBefore(const Access &earlier, const Clock &reader) const {
  return isOver(earlier.serial(), reader) || isTold(earlier, reader);
}

bool Engine::isBehind(uint32_t earlier, uint32_t later) const {
  return earlier < horizon ||
         launchOfSerial[later - horizon]
             ->isBehind[launchOfSerial[earlier - horizon]->id];
}

bool Engine::isTold(const Access &earlier, const Clock &reader) const {
  auto knows = [&](const Clock &told) {
    const CtaKnowledge *known = told.findForeign(earlier.serial());
    return known &&
           known->knowsLanes(earlier.unit(), earlier.lanes, earlier.tick);
  };
  return knows(launchOfSerial[reader.serial - horizon]->toldBefore) ||
         std::any_of(
             reader.launches.begin(), reader.launches.end(),
             [&](uint64_t over) { return knows((*batch)[over]->told); }) ||
         std::any_of(
             reader.foreign.begin(), reader.foreign.end(),
             [&](const auto &teller) {
               return teller.first >= horizon &&
                      knows(launchOfSerial[teller.first - horizon]->toldBefore);
             });
}

bool Engine::isOver(uint32_t serial, const Clock &reader) const {
  if (serial < horizon)
    return true;
  uint64_t first = launchOfSerial[serial - horizon]->id;
  if (launchOfSerial[reader.serial - horizon]->isAfter[first])
    return true;
  // A thread of another launch also passes on what was ordered before it.
  for (const auto &[foreign, known] : reader.foreign)
    if (foreign >= horizon && launchOfSerial[foreign - horizon]->isAfter[first])
      return true;
  return std::any_of(reader.launches.begin(), reader.launches.end(),
                     [&](uint64_t known) {
                       return known == first || (*batch)[known]->isOver[first];
                     });
}

void Engine::letDependentsBegin(Cta &cta) {
  if (cta.letsDependentsBegin)
    return;
  cta.letsDependentsBegin = true;
  cta.launch.hasLetEarly |= !cta.hasWaited;
  ++cta.launch.numLetting;
  noteProgress();
}

bool Engine::waitForLaunchBefore(Warp &warp, LaneMask mask) {
  Launch &launch = warp.cta.launch;
  if (!launch.isDependent) {
    warp.cta.hasWaited = true;
    return true;
  }
  const Launch &before = *(*batch)[launch.after.front()];
  if (before.state != Launch::State::Done) {
    warp.current().state = GroupState::Launch;
    return false;
  }
  launch.hasWaited = true;
  warp.cta.hasWaited = true;
  ClockRef end(new Clock(warp.cta.serial, unsigned(warp.cta.warps.size())));
  end->launches = {before.id};
  warp.acquire(mask, end);
  noteProgress();
  return true;
}

FenceLog &Engine::fenceLog(const Cta &cta) {
  FenceLog &log = fenceLogs[cta.serial];
  if (log.shared.empty()) {
    log.shared.resize(cta.warps.size() * kWarpLanes);
    log.global.resize(cta.warps.size() * kWarpLanes);
  }
  return log;
}

bool Engine::isFenced(const Access &write, bool isShared,
                      const Clock &reader) const {
  if (write.serial() != reader.serial && isBefore(write, reader))
    return true;
  auto log = fenceLogs.find(write.serial());
  if (log == fenceLogs.end() || !isWarpUnit(write.unit()))
    return false;
  const CtaKnowledge *known = write.serial() == reader.serial
                                  ? &reader.own
                                  : reader.findForeign(write.serial());
  if (!known)
    return false;
  for (LaneMask rest = write.lanes; rest; rest &= rest - 1) {
    size_t thread = write.unit() * kWarpLanes + unsigned(__builtin_ctz(rest));
    const std::vector<uint32_t> &fences =
        (isShared ? log->second.shared : log->second.global)[thread];
    // The reader must know of the first fence after the write.
    auto fence = std::lower_bound(fences.begin(), fences.end(), write.tick);
    if (fence == fences.end() || *fence >= known->lanes[thread])
      return false;
  }
  return true;
}

SyncVariable &Engine::syncVariable(const Cta *owner, uint64_t address) {
  return owner ? sharedSync[uint64_t(owner->serial) << 32 | address]
               : globalSync[address];
}
