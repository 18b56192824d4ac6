//===- Warp.cpp - registers, memory and clocks of a warp --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Cluster.h"
#include "Engine.h"

#include <cstdio>
#include <cstring>

using namespace moec::ptx;

//===----------------------------------------------------------------------===//
// Registers
//===----------------------------------------------------------------------===//

static uint32_t specialValue(SpecialRegister which, const Cta &cta,
                             const Warp &warp, unsigned lane) {
  unsigned thread = warp.index * kWarpLanes + lane;
  switch (which) {
  case SpecialRegister::TidX:
    return thread;
  case SpecialRegister::NtidX:
    return cta.launch.threads;
  case SpecialRegister::CtaidX:
    return cta.index;
  case SpecialRegister::NctaidX:
    return cta.launch.gridCtas;
  case SpecialRegister::LaneId:
    return lane;
  case SpecialRegister::WarpId:
    return warp.index;
  case SpecialRegister::DynamicSharedSize:
    return uint32_t(cta.launch.sharedBytes);
  case SpecialRegister::NtidY:
  case SpecialRegister::NtidZ:
  case SpecialRegister::NctaidY:
  case SpecialRegister::NctaidZ:
    return 1;
  case SpecialRegister::TidY:
  case SpecialRegister::TidZ:
  case SpecialRegister::CtaidY:
  case SpecialRegister::CtaidZ:
    return 0;
  case SpecialRegister::ClusterNctaRank:
    return cta.launch.clusterCtas;
  case SpecialRegister::ClusterCtaRank:
    return cta.rank;
  case SpecialRegister::LanemaskLt:
    return (1u << lane) - 1;
  case SpecialRegister::LanemaskLe:
    return (2u << lane) - 1;
  case SpecialRegister::LanemaskEq:
    return 1u << lane;
  case SpecialRegister::LanemaskGt:
    return ~((2u << lane) - 1);
  case SpecialRegister::LanemaskGe:
    return ~((1u << lane) - 1);
  }
  return 0;
}

Warp::Warp(Cta &cta, unsigned index, LaneMask lanes)
    : cta(cta), index(index), live(lanes) {
  const Kernel &kernel = *cta.launch.kernel;
  registerFile.reset(new uint8_t[kernel.registerBytes + 64]);
  uintptr_t begin = reinterpret_cast<uintptr_t>(registerFile.get());
  bases[0] = registerFile.get() + (-begin & 63);
  bases[1] = const_cast<uint8_t *>(kernel.constants.data());
  // Values of unwritten registers differ from seed to seed.
  std::memset(bases[0], int(cta.launch.engine->random.below(256)),
              kernel.registerBytes);
  for (const SpecialSlot &special : kernel.specials)
    for (unsigned lane = 0; lane < kWarpLanes; ++lane)
      this->lanes<uint32_t>(special.slot)[lane] =
          specialValue(special.which, cta, *this, lane);
  local.assign(kernel.localBytes * kWarpLanes, 0xFF);
  Group all;
  all.lanes = lanes;
  groups.push_back(all);
}

Step Warp::fail(const Instruction &instruction, unsigned lane,
                const std::string &text) {
  Engine &engine = *cta.launch.engine;
  engine.fail(engine.describe(*this, instruction, lane) + ": " + text);
  return Step::Failed;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static std::string hex(uint64_t value) {
  char text[24];
  snprintf(text, sizeof(text), "0x%llx",
           static_cast<unsigned long long>(value));
  return text;
}

static std::string describeRange(const Region &region, uint64_t address,
                                 uint64_t size) {
  return std::to_string(size) + " bytes at " + hex(address) + " (" +
         region.name + " + " + std::to_string(address - region.address) + ")";
}

Cta *Warp::findOwner(const Instruction &instruction, unsigned lane,
                     uint64_t &address) {
  uint64_t rank = address >> kClusterRankShift;
  if (rank == 0)
    return &cta;
  const std::vector<Cta *> &ctas = cta.cluster->ctas;
  Cta *owner = rank <= ctas.size() ? ctas[rank - 1] : nullptr;
  address &= (uint64_t(1) << kClusterRankShift) - 1;
  if (owner == &cta)
    return owner;
  if (!owner) {
    fail(instruction, lane,
         rank <= ctas.size()
             ? "accesses shared memory of CTA " + std::to_string(rank - 1) +
                   " of the cluster, which has ended; wait at the cluster's "
                   "barrier ahead of its end"
             : "the address " + hex(address) +
                   " is of no shared memory of the cluster");
    return nullptr;
  }
  owner->noteOutsider(accessor(instruction, lane, 1u << lane, /*isShared=*/true,
                               /*isStrong=*/false)
                          .access);
  return owner;
}

Warp::Place Warp::locate(const Instruction &instruction, unsigned lane,
                         Space space, uint64_t address, uint64_t size,
                         uint64_t alignment) {
  auto reject = [&](const std::string &text) {
    fail(instruction, lane, text);
    return Place();
  };
  if (space == Space::Generic) {
    uint64_t window = address & ~(kWindowBytes - 1);
    space = window == kSharedWindow  ? Space::Cluster
            : window == kLocalWindow ? Space::Local
            : window == kParamWindow ? Space::Param
                                     : Space::Global;
    if (space != Space::Global)
      address -= window;
  }
  if (address & (alignment - 1))
    return reject("the address " + hex(address) + " is not a multiple of " +
                  std::to_string(alignment));
  Region *region = nullptr;
  Cta *owner = nullptr;
  switch (space) {
  case Space::Local:
    if (address > local.size() / kWarpLanes ||
        local.size() / kWarpLanes - address < size)
      return reject("outside of local memory: " + hex(address));
    return {&local[lane * (local.size() / kWarpLanes) + address], nullptr,
            address};
  case Space::Param: {
    std::vector<uint8_t> &params = cta.launch.params;
    if (address > params.size() || params.size() - address < size)
      return reject("outside of the parameters: " + hex(address));
    return {&params[address], nullptr, address};
  }
  case Space::Shared:
    owner = &cta;
    break;
  case Space::Cluster:
    owner = findOwner(instruction, lane, address);
    if (!owner)
      return Place();
    break;
  case Space::Generic:
  case Space::Global:
    region = cta.launch.engine->memory.find(address, instruction.regionHint);
    if (!region)
      return reject("no memory was allocated at " + hex(address));
    break;
  }
  if (owner)
    region = &owner->shared;
  if (!region->contains(address, size))
    return reject("out of bounds: " + describeRange(*region, address, size) +
                  ", which has " + std::to_string(region->size) + " bytes");
  return {region->at(address), region, address, owner};
}

Accessor Warp::accessor(const Instruction &instruction, unsigned lane,
                        LaneMask lanes, bool isShared, bool isStrong) const {
  const Engine &engine = *cta.launch.engine;
  Accessor accessor;
  accessor.oracle = &engine;
  accessor.clock = clocks[lane].get();
  accessor.finished = finished[lane].get();
  accessor.horizon = isShared ? cta.cluster->firstSerial : engine.horizon;
  accessor.access.who = Access::pack(cta.serial, index, isStrong);
  accessor.access.tick = tick;
  accessor.access.lanes = lanes;
  accessor.access.id = instruction.id;
  accessor.own = accessor.access.who >> 1;
  accessor.ownLanes = lanes;
  return accessor;
}

bool Warp::checkRead(const Instruction &instruction, unsigned lane,
                     LaneMask lanes, const Place &place, uint64_t size,
                     bool isStrong) {
  Region *region = place.region;
  if (!region)
    return true;
  const SimulatorOptions &options = cta.launch.engine->options;
  if (options.checkRaces) {
    bool isShared = place.owner != nullptr;
    Conflict conflict = region->shadow.read(
        place.address - region->address, size,
        accessor(instruction, lane, lanes, isShared, isStrong));
    if (conflict) {
      reportConflict(instruction, lane, place, size, /*isWrite=*/false,
                     conflict);
      return false;
    }
  }
  if (options.checkInitialized && !region->isInitialized(place.address, size)) {
    fail(instruction, lane,
         "reads memory that was never written: " +
             describeRange(*region, place.address, size));
    return false;
  }
  return true;
}

bool Warp::checkWrite(const Instruction &instruction, unsigned lane,
                      LaneMask lanes, const Place &place, uint64_t size,
                      bool isStrong) {
  Region *region = place.region;
  if (!region)
    return true;
  cta.launch.engine->noteProgress();
  if (cta.launch.engine->options.checkRaces) {
    bool isShared = place.owner != nullptr;
    Conflict conflict = region->shadow.write(
        place.address - region->address, size,
        accessor(instruction, lane, lanes, isShared, isStrong));
    if (conflict) {
      reportConflict(instruction, lane, place, size, /*isWrite=*/true,
                     conflict);
      return false;
    }
  }
  region->markInitialized(place.address, size);
  return true;
}

bool Warp::checkLateWrite(const Instruction &instruction, unsigned lane,
                          unsigned unit, uint32_t at, const Place &place,
                          uint64_t size) {
  Region *region = place.region;
  if (cta.launch.engine->options.checkRaces) {
    bool isShared = place.owner != nullptr;
    Accessor late = accessor(instruction, lane, 1u << lane, isShared,
                             /*isStrong=*/false);
    late.access.who = Access::pack(cta.serial, unit, /*isStrong=*/false);
    late.access.tick = at;
    Conflict conflict =
        region->shadow.write(place.address - region->address, size, late);
    if (conflict) {
      reportConflict(instruction, lane, place, size, /*isWrite=*/true,
                     conflict);
      return false;
    }
  }
  region->markInitialized(place.address, size);
  return true;
}

bool Warp::checkKnown(const Instruction &instruction, unsigned lane,
                      const Place &place, uint64_t size) {
  if (!cta.launch.engine->options.checkRaces)
    return true;
  Region *region = place.region;
  Conflict conflict = region->shadow.checkWrite(
      place.address - region->address, size,
      accessor(instruction, lane, 1u << lane, place.owner != nullptr,
               /*isStrong=*/false));
  if (conflict)
    reportConflict(instruction, lane, place, size, /*isWrite=*/false, conflict);
  return !conflict;
}

void Warp::reportConflict(const Instruction &instruction, unsigned lane,
                          const Place &place, uint64_t size, bool isWrite,
                          const Conflict &conflict) {
  Engine &engine = *cta.launch.engine;
  fail(instruction, lane,
       engine.describeConflict(conflict, isWrite, /*isAsync=*/false) + ": " +
           describeRange(*place.region, place.address, size));
}

//===----------------------------------------------------------------------===//
// Order
//===----------------------------------------------------------------------===//

bool Warp::checkTensorLoads(const Instruction &instruction, LaneMask mask) {
  LaneMask open = openTensorLoads & mask;
  if (open == 0)
    return true;
  fail(instruction, unsigned(__builtin_ctz(open)),
       "the thread has loaded tensor memory without a later "
       "tcgen05.fence::before_thread_sync");
  return false;
}

ClockRef Warp::release(LaneMask mask) {
  ClockRef result;
  for (LaneMask rest = mask; rest; rest &= rest - 1)
    join(result, clocks[__builtin_ctz(rest)]);
  unshare(result).own.set(index, mask, tick);
  ++tick;
  return result;
}

void Warp::acquire(LaneMask mask, const ClockRef &clock) {
  if (!clock)
    return;
  ClockRef before, after;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    ClockRef &mine = clocks[__builtin_ctz(rest)];
    if (before && mine == before) {
      mine = after;
      continue;
    }
    before = mine;
    join(mine, clock);
    after = mine;
  }
}

void Warp::synchronize(LaneMask mask) {
  ClockRef shared = release(mask);
  for (LaneMask rest = mask; rest; rest &= rest - 1)
    clocks[__builtin_ctz(rest)] = shared;
}

void Warp::acquireUnit(LaneMask mask, unsigned unit, uint32_t at) {
  ClockRef before, after;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    ClockRef &mine = clocks[__builtin_ctz(rest)];
    if (before && mine == before) {
      mine = after;
      continue;
    }
    before = mine;
    unshare(mine).own.set(unit, 1, at);
    after = mine;
  }
}

//===----------------------------------------------------------------------===//
// Control
//===----------------------------------------------------------------------===//

bool Warp::converge(LaneMask lanes) {
  if ((current().lanes & lanes) == lanes)
    return true;
  current().state = GroupState::Converge;
  return false;
}

void Warp::exitLanes(LaneMask mask) {
  live &= ~mask;
  current().lanes &= ~mask;
  if (current().lanes == 0)
    groups.erase(groups.begin() + long(running));
  wake(GroupState::Converge);
  cta.cluster->finishPhaseIfComplete();
}

void Warp::branch(const Instruction &instruction, LaneMask taken) {
  Group &group = current();
  uint32_t target = uint32_t(instruction.immediate);
  if (taken == group.lanes) {
    group.pc = target;
    return;
  }
  Group other = group;
  ++group.pc;
  if (taken == 0)
    return;
  group.lanes &= ~taken;
  other.lanes = taken;
  other.pc = target;
  groups.push_back(other);
}

void Warp::wake(GroupState state) {
  bool isAnyReady = false;
  for (Group &group : groups) {
    if (group.state == state)
      group.state = GroupState::Ready;
    isAnyReady |= group.state == GroupState::Ready;
  }
  if (isAnyReady)
    cta.launch.engine->queue(*this);
}
