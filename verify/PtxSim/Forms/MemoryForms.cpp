//===- MemoryForms.cpp - loads and stores -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MemoryForms.h"

#include "../Engine/Engine.h"
#include "ClusterForms.h"

#include <cstring>

using namespace moec::ptx;

//===----------------------------------------------------------------------===//
// Semantics of accesses
//===----------------------------------------------------------------------===//

Semantics moec::ptx::takeSemantics(Decoder &d) {
  std::string order = d.takeOneOf(
      {"weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "sc"});
  Semantics semantics;
  semantics.isStrong = !order.empty() && order != "weak";
  semantics.acquires =
      order == "acquire" || order == "acq_rel" || order == "sc";
  semantics.releases =
      order == "release" || order == "acq_rel" || order == "sc";
  std::string scope = d.takeOneOf({"cta", "cluster", "gpu", "sys"});
  semantics.isCtaScope = scope == "cta" || scope == "cluster";
  return semantics;
}

uint32_t Semantics::pack() const {
  return uint32_t(isStrong) | acquires << 1 | releases << 2 | isCtaScope << 3;
}

Semantics Semantics::unpack(uint32_t flags) {
  Semantics semantics;
  semantics.isStrong = flags & 1;
  semantics.acquires = flags & 2;
  semantics.releases = flags & 4;
  semantics.isCtaScope = flags & 8;
  return semantics;
}

bool Semantics::isStrongAt(bool isShared) const {
  return isStrong && (isShared || !isCtaScope);
}

static SyncVariable &variableAt(Warp &warp, const Warp::Place &place) {
  return warp.cta.launch.engine->syncVariable(place.owner, place.address);
}

void moec::ptx::learnFrom(Warp &warp, unsigned lane, const Warp::Place &place,
                          const Semantics &semantics, bool isStale) {
  if (!place.region)
    return;
  SyncVariable &variable = variableAt(warp, place);
  LaneMask self = 1u << lane;
  auto learn = [&](const ClockRef &clock, ClockRef &seen) {
    if (semantics.acquires)
      warp.acquire(self, clock);
    else
      join(seen, clock);
  };
  const ClockRef &inCta = isStale ? variable.previousCta : variable.cta;
  if (inCta && inCta->serial == warp.cta.serial)
    learn(inCta, warp.inCta[lane].seen);
  if (!semantics.isCtaScope || place.owner != nullptr)
    learn(isStale ? variable.previousDevice : variable.device,
          warp.onDevice[lane].seen);
}

void moec::ptx::publishTo(Warp &warp, unsigned lane, const Warp::Place &place,
                          const Semantics &semantics, bool keepsEarlier) {
  if (!place.region)
    return;
  SyncVariable &variable = variableAt(warp, place);
  if (!keepsEarlier)
    variable.cta = variable.device = ClockRef();
  ClockRef released;
  if (semantics.releases)
    released = warp.release(1u << lane);
  join(variable.cta, released ? released : warp.inCta[lane].fenced);
  if (!semantics.isCtaScope)
    join(variable.device, released ? released : warp.onDevice[lane].fenced);
}

/// Whether a write is ordered before the thread's next accesses.
static bool isKnown(const Access &write, const Warp &warp, unsigned lane) {
  const Clock &clock = *warp.clocks[lane];
  if (write.serial() != warp.cta.serial) {
    const CtaKnowledge *known = clock.findForeign(write.serial());
    return (known &&
            known->knowsLanes(write.unit(), write.lanes, write.tick)) ||
           warp.cta.launch.engine->isBefore(write, clock);
  }
  return (write.unit() == warp.index && write.lanes == 1u << lane) ||
         clock.own.knowsLanes(write.unit(), write.lanes, write.tick);
}

void moec::ptx::noteStrongWrite(Warp &warp, const Instruction &instruction,
                                unsigned lane, const Warp::Place &place,
                                unsigned bytes) {
  if (!place.region || bytes > sizeof(uint64_t))
    return;
  SyncVariable &variable = variableAt(warp, place);
  variable.writer =
      warp.accessor(instruction, lane, 1u << lane, place.owner != nullptr,
                    /*isStrong=*/true)
          .access;
  std::memcpy(&variable.previous, place.bytes, bytes);
  variable.bytes = bytes;
  variable.previousCta = variable.cta;
  variable.previousDevice = variable.device;
  ++variable.version;
  warp.cta.launch.engine->noteWrite();
}

/// A number that is unique among the threads of all CTAs.
static uint64_t threadNumber(const Warp &warp, unsigned lane) {
  return uint64_t(warp.cta.serial) << 10 | (warp.index * kWarpLanes + lane);
}

const uint64_t *moec::ptx::findStale(Warp &warp, unsigned lane,
                                     const Warp::Place &place, unsigned bytes) {
  if (!place.region)
    return nullptr;
  SyncVariable &variable = variableAt(warp, place);
  if (variable.version == 0 || variable.bytes != bytes)
    return nullptr;
  uint64_t &seen = variable.seen[threadNumber(warp, lane)];
  if (seen < variable.version && !isKnown(variable.writer, warp, lane) &&
      warp.cta.launch.engine->random.oneIn(4))
    return &variable.previous;
  seen = variable.version;
  return nullptr;
}

bool moec::ptx::hasSeenLast(Warp &warp, unsigned lane,
                            const Warp::Place &place) {
  if (!place.region)
    return false;
  const SyncVariable &variable = variableAt(warp, place);
  auto seen = variable.seen.find(threadNumber(warp, lane));
  return seen == variable.seen.end() ? variable.version == 0
                                     : seen->second == variable.version;
}

uint64_t moec::ptx::addressOf(const Warp &warp, const AddressOperand &operand,
                              unsigned lane) {
  uint64_t base = operand.is32 ? warp.lanes<uint32_t>(operand.slot)[lane]
                               : warp.lanes<uint64_t>(operand.slot)[lane];
  return base + uint64_t(operand.offset);
}

Space moec::ptx::takeSpace(Decoder &d) {
  std::string space =
      d.takeOneOf({"global", "shared", "shared::cta", "shared::cluster",
                   "local", "param", "param::entry", "const"});
  return space.empty()                           ? Space::Generic
         : space == "global" || space == "const" ? Space::Global
         : space == "shared::cluster"            ? Space::Cluster
         : space[0] == 's'                       ? Space::Shared
         : space == "local"                      ? Space::Local
                                                 : Space::Param;
}

namespace {

//===----------------------------------------------------------------------===//
// ld and st
//===----------------------------------------------------------------------===//

/// Extends a loaded value of `width` bytes to its register.
uint64_t extend(uint64_t value, unsigned width, bool isSigned) {
  unsigned shift = 64 - 8 * width;
  return isSigned ? uint64_t(int64_t(value << shift) >> shift)
                  : value << shift >> shift;
}

constexpr uint32_t kSigned = 1u << 8;

Step load(Warp &warp, const Instruction &instruction, LaneMask mask) {
  unsigned width = instruction.width, toWidth = instruction.registerWidth;
  unsigned count = instruction.count, bytes = width * count;
  Semantics semantics = Semantics::unpack(instruction.flags);
  bool isSigned = instruction.flags & kSigned;
  // A polling loop that sees nothing new yields.
  bool isPoll = semantics.isStrong, isStale = false;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    Warp::Place place = warp.locate(
        instruction, lane, instruction.space,
        addressOf(warp, instruction.addresses[0], lane), bytes, bytes);
    if (!place.bytes)
      return Step::Failed;
    const uint64_t *stale = nullptr;
    if (semantics.isStrong) {
      bool isOld = hasSeenLast(warp, lane, place);
      stale = findStale(warp, lane, place, bytes);
      isPoll &= stale || isOld;
      isStale |= stale != nullptr;
      learnFrom(warp, lane, place, semantics, stale != nullptr);
    }
    if (!warp.checkRead(instruction, lane, 1u << lane, place, bytes,
                        semantics.isStrongAt(place.owner != nullptr)))
      return Step::Failed;
    const uint8_t *from =
        stale ? reinterpret_cast<const uint8_t *>(stale) : place.bytes;
    for (unsigned i = 0; i < count; ++i) {
      uint8_t *to =
          warp.lanes<uint8_t>(instruction.operands[i]) + lane * toWidth;
      if (width == 4 && toWidth == 4) {
        std::memcpy(to, from + 4 * i, 4);
        continue;
      }
      uint64_t value = 0;
      std::memcpy(&value, from + width * i, width);
      value = extend(value, width, isSigned);
      std::memcpy(to, &value, toWidth);
    }
  }
  if (!isPoll)
    return Step::Next;
  return isStale ? Step::Poll : Step::Sleep;
}

Step store(Warp &warp, const Instruction &instruction, LaneMask mask) {
  unsigned width = instruction.width, fromWidth = instruction.registerWidth;
  unsigned count = instruction.count, bytes = width * count;
  Semantics semantics = Semantics::unpack(instruction.flags);
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    Warp::Place place = warp.locate(
        instruction, lane, instruction.space,
        addressOf(warp, instruction.addresses[0], lane), bytes, bytes);
    if (!place.bytes)
      return Step::Failed;
    if (!warp.checkWrite(instruction, lane, 1u << lane, place, bytes,
                         semantics.isStrongAt(place.owner != nullptr)))
      return Step::Failed;
    if (semantics.isStrong) {
      noteStrongWrite(warp, instruction, lane, place, bytes);
      publishTo(warp, lane, place, semantics, /*keepsEarlier=*/false);
    }
    for (unsigned i = 0; i < count; ++i)
      std::memcpy(place.bytes + width * i,
                  warp.lanes<uint8_t>(instruction.operands[i]) +
                      lane * fromWidth,
                  width);
  }
  return Step::Next;
}

/// Takes the cache operators.
void takeCacheHints(Decoder &d) {
  d.takeOneOf({"ca", "cg", "cs", "lu", "cv", "wb", "wt"});
  d.take("nc");
  for (const char *hint :
       {"L1::evict_normal", "L1::evict_unchanged", "L1::evict_first",
        "L1::evict_last", "L1::no_allocate", "L2::evict_first",
        "L2::evict_last", "L2::evict_normal", "L2::64B", "L2::128B",
        "L2::256B"})
    d.take(hint);
}

void decodeAccess(Decoder &d, bool isStore) {
  Semantics semantics = takeSemantics(d);
  d.instruction.space = takeSpace(d);
  takeCacheHints(d);
  std::string vector = d.takeOneOf({"v2", "v4", "v8"});
  std::string type = d.takeType();
  if (!d.expectOperands(2, 2))
    return;
  unsigned bytes = typeBytes(type);
  unsigned count = vector.empty() ? 1 : unsigned(vector[1] - '0');
  if (bytes == 0 || bytes > 8 || bytes * count > 32)
    return;
  const RawOperand &values = d.operand(isStore ? 1 : 0);
  d.address(isStore ? 0 : 1);
  std::vector<RawOperand> single{values};
  const std::vector<RawOperand> &parts = vector.empty() ? single : values.parts;
  if (parts.size() != count)
    return d.fail("the vector has " + std::to_string(parts.size()) + " parts");
  // A register may be wider than the accessed element.
  unsigned registerBytes = bytes;
  for (const RawOperand &part : parts)
    if (unsigned found = d.registerBytes(part); found && found != 255)
      registerBytes = found;
  if (registerBytes < bytes)
    return d.fail("a register is too small for its type");
  for (const RawOperand &part : parts)
    isStore ? d.value(part, registerBytes) : d.result(part, registerBytes);
  d.instruction.width = uint8_t(bytes);
  d.instruction.registerWidth = uint8_t(registerBytes);
  d.instruction.count = uint8_t(count);
  d.instruction.flags =
      semantics.pack() | (type[0] == 's' ? kSigned : uint32_t(0));
  d.instruction.handler = isStore ? store : load;
}

} // namespace

void moec::ptx::addMemoryForms(FormTable &table) {
  table["ld"] = table["ldu"] = [](Decoder &d) { decodeAccess(d, false); };
  table["st"] = [](Decoder &d) {
    d.take("async") ? decodeAsyncStore(d) : decodeAccess(d, true);
  };
}
