//===- AtomicForms.cpp - atomics and fences ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Engine/Engine.h"
#include "../Numbers/Floats.h"
#include "MemoryForms.h"

#include <algorithm>

using namespace moec::ptx;

namespace {

//===----------------------------------------------------------------------===//
// atom, red
//===----------------------------------------------------------------------===//

enum class Operation : uint8_t {
  Add,
  Min,
  Max,
  And,
  Or,
  Xor,
  Exchange,
  Increment,
  Decrement,
  CompareAndSwap,
};

enum class Element : uint8_t { U32, S32, U64, S64, F32, F64, F16x2, Bf16x2 };

template <typename T>
T combine(Operation operation, T old, T b, T c) {
  switch (operation) {
  case Operation::Add:
    return T(uint64_t(old) + uint64_t(b));
  case Operation::Min:
    return std::min(old, b);
  case Operation::Max:
    return std::max(old, b);
  case Operation::And:
    return old & b;
  case Operation::Or:
    return old | b;
  case Operation::Xor:
    return old ^ b;
  case Operation::Exchange:
    return b;
  case Operation::Increment:
    return old >= b ? 0 : old + 1;
  case Operation::Decrement:
    return old == 0 || old > b ? b : old - 1;
  case Operation::CompareAndSwap:
    return old == b ? c : old;
  }
  return old;
}

uint32_t addHalves(uint32_t a, uint32_t b, const FloatFormat &format) {
  auto add = [&](unsigned shift) {
    return encodeNearest(format,
                         addToOdd(decodeFloat(format, a >> shift & 0xFFFF),
                                  decodeFloat(format, b >> shift & 0xFFFF)))
           << shift;
  };
  return add(0) | add(16);
}

/// Float atomics on global memory flush denormals to zero.
uint32_t addFloats(float a, float b, bool flushes) {
  float sum =
      flushes ? flushDenormal(flushDenormal(a) + flushDenormal(b)) : a + b;
  return bitCast<uint32_t>(canonical(sum));
}

uint64_t combineBits(Operation operation, Element element, bool flushes,
                     uint64_t old, uint64_t b, uint64_t c) {
  switch (element) {
  case Element::U32:
    return combine(operation, uint32_t(old), uint32_t(b), uint32_t(c));
  case Element::S32:
    return uint32_t(combine(operation, int32_t(old), int32_t(b), int32_t(c)));
  case Element::U64:
    return combine(operation, old, b, c);
  case Element::S64:
    return uint64_t(combine(operation, int64_t(old), int64_t(b), int64_t(c)));
  case Element::F32:
    return addFloats(bitCast<float>(uint32_t(old)), bitCast<float>(uint32_t(b)),
                     flushes);
  case Element::F64:
    return bitCast<uint64_t>(
        canonical(bitCast<double>(old) + bitCast<double>(b)));
  case Element::F16x2:
    return addHalves(uint32_t(old), uint32_t(b), kHalf);
  case Element::Bf16x2:
    return addHalves(uint32_t(old), uint32_t(b), kBfloat);
  }
  return old;
}

/// The seed chooses the order of lanes.
Step atomic(Warp &warp, const Instruction &instruction, LaneMask mask) {
  Engine &engine = *warp.cta.launch.engine;
  unsigned bytes = instruction.width;
  Semantics semantics = Semantics::unpack(instruction.flags);
  auto operation = Operation(instruction.immediate & 0xFF);
  auto element = Element(instruction.immediate >> 8);
  bool hasResult = instruction.count;
  unsigned first = unsigned(engine.random.below(kWarpLanes));
  for (unsigned i = 0; i < kWarpLanes; ++i) {
    unsigned lane = (first + i) % kWarpLanes;
    if (!(mask >> lane & 1))
      continue;
    Warp::Place place = warp.locate(
        instruction, lane, instruction.space,
        addressOf(warp, instruction.addresses[0], lane), bytes, bytes);
    if (!place.bytes)
      return Step::Failed;
    bool isShared = place.owner != nullptr;
    bool isStrong = semantics.isStrongAt(isShared);
    learnFrom(warp, lane, place, semantics);
    if (!warp.checkRead(instruction, lane, 1u << lane, place, bytes,
                        isStrong) ||
        !warp.checkWrite(instruction, lane, 1u << lane, place, bytes, isStrong))
      return Step::Failed;
    auto source = [&](size_t index) {
      uint64_t value = 0;
      if (index < instruction.operands.size())
        std::memcpy(&value,
                    warp.lanes<uint8_t>(instruction.operands[index]) +
                        lane * bytes,
                    bytes);
      return value;
    };
    noteStrongWrite(warp, instruction, lane, place, bytes);
    uint64_t old = 0;
    std::memcpy(&old, place.bytes, bytes);
    uint64_t made =
        combineBits(operation, element, /*flushes=*/!isShared, old,
                    source(hasResult), source(hasResult + size_t(1)));
    std::memcpy(place.bytes, &made, bytes);
    if (hasResult)
      std::memcpy(warp.lanes<uint8_t>(instruction.operands[0]) + lane * bytes,
                  &old, bytes);
    publishTo(warp, lane, place, semantics, /*keepsEarlier=*/true);
  }
  return Step::Next;
}

void decodeAtomic(Decoder &d, bool hasResult) {
  static const std::unordered_map<std::string, Operation> operations = {
      {"add", Operation::Add},       {"min", Operation::Min},
      {"max", Operation::Max},       {"and", Operation::And},
      {"or", Operation::Or},         {"xor", Operation::Xor},
      {"exch", Operation::Exchange}, {"inc", Operation::Increment},
      {"dec", Operation::Decrement}, {"cas", Operation::CompareAndSwap}};
  static const std::unordered_map<std::string, Element> elements = {
      {"u32", Element::U32},     {"b32", Element::U32},
      {"s32", Element::S32},     {"u64", Element::U64},
      {"b64", Element::U64},     {"s64", Element::S64},
      {"f32", Element::F32},     {"f64", Element::F64},
      {"f16x2", Element::F16x2}, {"bf16x2", Element::Bf16x2}};
  Semantics semantics = takeSemantics(d);
  semantics.isStrong = true;
  d.instruction.space = takeSpace(d);
  auto operation = operations.find(d.takeNext());
  d.take("noftz");
  std::string type = d.takeType();
  auto element = elements.find(type);
  if (operation == operations.end() || element == elements.end())
    return;
  bool isFloat = element->second >= Element::F32;
  if (isFloat && operation->second != Operation::Add)
    return;
  size_t sources = operation->second == Operation::CompareAndSwap ? 2 : 1;
  if (!d.expectOperands(sources + 1 + hasResult, sources + 1 + hasResult))
    return;
  unsigned bytes = typeBytes(type);
  if (hasResult)
    d.result(0, bytes);
  d.address(hasResult);
  for (size_t i = 0; i < sources; ++i)
    d.value(hasResult + 1 + i, bytes);
  d.instruction.width = uint8_t(bytes);
  d.instruction.count = hasResult;
  d.instruction.flags = semantics.pack();
  d.instruction.immediate =
      int64_t(element->second) << 8 | int64_t(operation->second);
  d.instruction.handler = atomic;
}

//===----------------------------------------------------------------------===//
// Fences
//===----------------------------------------------------------------------===//

/// fence and membar: acquires what relaxed reads have seen, and lets later
/// relaxed writes publish. `flags`: scope cta.
Step fenceMemory(Warp &warp, const Instruction &instruction, LaneMask mask) {
  bool isCtaScope = instruction.flags;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    LaneMask self = 1u << lane;
    warp.acquire(self, warp.inCta[lane].seen);
    if (!isCtaScope)
      warp.acquire(self, warp.onDevice[lane].seen);
    // A relaxed write after a fence publishes only the lane's own clock, not
    // those of other lanes.
    ClockRef own = warp.clocks[lane];
    unshare(own).own.set(warp.index, self, warp.tick);
    warp.inCta[lane].fenced = own;
    if (!isCtaScope)
      warp.onDevice[lane].fenced = own;
  }
  ++warp.tick;
  return Step::Next;
}

constexpr uint32_t kFencesShared = 1, kFencesGlobal = 2;

Step fenceProxy(Warp &warp, const Instruction &instruction, LaneMask mask) {
  FenceLog &log = warp.cta.launch.engine->fenceLog(warp.cta);
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    size_t thread = warp.index * kWarpLanes + unsigned(__builtin_ctz(rest));
    if (instruction.flags & kFencesShared)
      log.shared[thread].push_back(warp.tick);
    if (instruction.flags & kFencesGlobal)
      log.global[thread].push_back(warp.tick);
  }
  ++warp.tick;
  return Step::Next;
}

/// Makes mbarriers, and nothing else, visible to asynchronous operations.
Step fenceInit(Warp &warp, const Instruction &, LaneMask mask) {
  for (auto &[address, barrier] : warp.cta.mbarriers)
    if (barrier.initializer / kWarpLanes == warp.index &&
        mask >> barrier.initializer % kWarpLanes & 1)
      barrier.isFenced = true;
  return Step::Next;
}

void decodeFence(Decoder &d) {
  if (d.take("proxy")) {
    if (!d.take("async"))
      return;
    std::string which =
        d.takeOneOf({"global", "shared::cta", "shared::cluster"});
    d.instruction.flags = which.empty()     ? kFencesShared | kFencesGlobal
                          : which[0] == 's' ? kFencesShared
                                            : kFencesGlobal;
    d.instruction.handler = fenceProxy;
    return;
  }
  if (d.take("mbarrier_init")) {
    d.take("release");
    d.take("cluster");
    d.instruction.handler = fenceInit;
    return;
  }
  d.takeOneOf({"sc", "acq_rel", "acquire", "release"});
  std::string scope = d.takeOneOf({"cta", "cluster", "gpu", "sys"});
  d.instruction.flags = scope == "cta" || scope == "cluster";
  d.instruction.handler = fenceMemory;
}

void decodeMembar(Decoder &d) {
  std::string scope = d.takeOneOf({"cta", "gl", "sys"});
  d.instruction.flags = scope == "cta";
  if (!scope.empty())
    d.instruction.handler = fenceMemory;
}

} // namespace

void moec::ptx::addAtomicForms(FormTable &table) {
  table["atom"] = [](Decoder &d) { decodeAtomic(d, true); };
  table["red"] = [](Decoder &d) { decodeAtomic(d, false); };
  table["fence"] = decodeFence;
  table["membar"] = decodeMembar;
}
