//===- WgmmaForms.cpp - wgmma -----------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Program/WgmmaForms.h"

#include "../Engine/Wgmma.h"
#include "Decoder.h"
#include "WarpForms.h"

#include <algorithm>
#include <cstdlib>

using namespace moec::ptx;

namespace {

Warpgroup &warpgroupOf(Warp &warp) {
  return *warp.cta.warpgroups[warp.index / kWarpgroupWarps];
}

/// Waits until the four warps of the warpgroup are at the instruction. Returns
/// Next for the last one, which advances the others.
Step gatherWarpgroup(Warp &warp, const Instruction &instruction,
                     LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  Cta &cta = warp.cta;
  unsigned first = warp.index / kWarpgroupWarps * kWarpgroupWarps;
  if (first + kWarpgroupWarps > cta.warps.size() || warp.live != kAllLanes)
    return warp.fail(instruction, 0, "a warpgroup must be four whole warps");
  uint32_t pc = warp.current().pc;
  auto isHere = [&](const Warp &other) {
    return &other == &warp || (other.groups.size() == 1 &&
                               other.groups[0].state == GroupState::Warpgroup &&
                               other.groups[0].pc == pc);
  };
  for (unsigned i = 0; i < kWarpgroupWarps; ++i)
    if (!isHere(*cta.warps[first + i])) {
      warp.current().state = GroupState::Warpgroup;
      return Step::Blocked;
    }
  for (unsigned i = 0; i < kWarpgroupWarps; ++i) {
    Warp &other = *cta.warps[first + i];
    if (&other == &warp)
      continue;
    ++other.groups[0].pc;
    other.wake(GroupState::Warpgroup);
    cta.launch.engine->statistics.threadInstructions += kWarpLanes;
    ++cta.launch.engine->statistics.warpInstructions;
  }
  return Step::Next;
}

template <typename F>
void forWarps(Warp &warp, F function) {
  unsigned first = warp.index / kWarpgroupWarps * kWarpgroupWarps;
  for (unsigned i = 0; i < kWarpgroupWarps; ++i)
    function(*warp.cta.warps[first + i]);
}

/// The common knowledge of all threads of the warpgroup, because an MMA
/// reads matrices on behalf of all of them.
ClockRef commonClock(Warp &warp) {
  Warpgroup &warpgroup = warpgroupOf(warp);
  std::vector<ClockRef> clocks;
  forWarps(warp, [&](Warp &other) {
    for (const ClockRef &clock : other.clocks)
      if (clocks.empty() || clock != clocks.back())
        clocks.push_back(clock);
  });
  if (clocks == warpgroup.lastClocks)
    return warpgroup.commonClock;
  ClockRef common = clocks[0];
  for (size_t i = 1; i < clocks.size(); ++i)
    if (clocks[i] != common)
      unshare(common).meet(*clocks[i]);
  warpgroup.lastClocks = clocks;
  warpgroup.commonClock = common;
  return common;
}

//===----------------------------------------------------------------------===//
// mma_async
//===----------------------------------------------------------------------===//

Step multiplyAsync(Warp &warp, const Instruction &instruction, LaneMask mask) {
  const std::vector<Slot> &operands = instruction.operands;
  size_t at = getNumWgmmaRegisters(instruction);
  bool hasRegisterA = instruction.flags & kWgmmaRegisterA;
  AsyncProduct product;
  product.instruction = &instruction;
  auto descriptor = [&](size_t index) {
    return MatrixDescriptor(warp.lanes<uint64_t>(operands[index])[0]);
  };
  if (!hasRegisterA)
    product.a = descriptor(at++);
  product.b = descriptor(at++);
  product.keepsSums = warp.predicate(operands[at]) & 1;
  if (warp.needsProductFence)
    return warp.fail(
        instruction, 0,
        "registers of this wgmma were used without a later wgmma.fence");
  for (unsigned lane = 0; lane < kWarpLanes; ++lane) {
    bool areEqual =
        ((warp.predicate(operands[at]) >> lane & 1) != 0) == product.keepsSums;
    for (size_t i = getNumWgmmaRegisters(instruction); i < at; ++i)
      areEqual &= warp.lanes<uint64_t>(operands[i])[lane] ==
                  warp.lanes<uint64_t>(operands[i])[0];
    if (!areEqual)
      return warp.fail(instruction, lane,
                       "the lanes have different descriptors or scale-d");
  }
  for (const MatrixDescriptor &matrix : {product.a, product.b})
    if (std::string text = matrix.verify(); !text.empty())
      return warp.fail(instruction, 0, text);
  if (Step step = gatherWarpgroup(warp, instruction, mask); step != Step::Next)
    return step;

  Warpgroup &warpgroup = warpgroupOf(warp);
  if (!warpgroup.open) {
    warpgroup.open =
        std::make_shared<ProductGroup>(warp.cta, warp.index / kWarpgroupWarps);
    warpgroup.open->instruction = instruction.id;
  }
  // A thread holds two sums per column out of 64 rows; K of one MMA is 32
  // bytes.
  constexpr uint64_t numRows = 64, stepBytes = 32;
  warp.cta.launch.engine->statistics.work.products +=
      numRows * 2 * instruction.count * (stepBytes / instruction.width);
  forWarps(warp, [&](Warp &other) { ++other.productsInFlight; });
  warpgroup.open->clock = commonClock(warp);
  warpgroup.open->products.push_back(product);
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// fence, commit_group, wait_group
//===----------------------------------------------------------------------===//

Step fence(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  warp.needsProductFence = false;
  return Step::Next;
}

Step commit(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarpgroup(warp, instruction, mask); step != Step::Next)
    return step;
  Warpgroup &warpgroup = warpgroupOf(warp);
  if (!warpgroup.open)
    warpgroup.open =
        std::make_shared<ProductGroup>(warp.cta, warp.index / kWarpgroupWarps);
  warp.cta.launch.engine->start(warpgroup.open);
  warpgroup.committed.push_back(std::move(warpgroup.open));
  warpgroup.open.reset();
  ++warpgroup.numCommitted;
  return Step::Next;
}

/// Acquires all but the last `immediate` groups, for this warp.
Step waitGroup(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step = gatherWarp(warp, instruction, mask); step != Step::Next)
    return step;
  Engine &engine = *warp.cta.launch.engine;
  Warpgroup &warpgroup = warpgroupOf(warp);
  uint64_t kept = uint64_t(instruction.immediate);
  uint64_t over =
      warpgroup.numCommitted > kept ? warpgroup.numCommitted - kept : 0;
  uint64_t first = warpgroup.numCommitted - warpgroup.committed.size();
  uint64_t &waited = warpgroup.waited[warp.index % kWarpgroupWarps];
  for (; waited < over; ++waited) {
    ProductGroup &group = *warpgroup.committed[waited - first];
    if (!engine.finish(group))
      return Step::Failed;
    warp.acquireUnit(kAllLanes, group.unit, group.tick);
    warp.productsInFlight -= unsigned(group.products.size());
  }
  uint64_t least = waited;
  for (uint64_t other : warpgroup.waited)
    least = std::min(least, other);
  if (least > first)
    warpgroup.committed.erase(warpgroup.committed.begin(),
                              warpgroup.committed.begin() +
                                  long(least - first));
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

void decodeProduct(Decoder &d) {
  std::string shape = d.takeNext();
  if (shape.compare(0, 4, "m64n") != 0)
    return;
  size_t split = shape.find('k');
  unsigned columns = unsigned(std::atoi(shape.c_str() + 4));
  unsigned depth =
      split == std::string::npos ? 0 : unsigned(std::atoi(&shape[split + 1]));
  MatrixType a, b;
  std::string sum = d.takeNext(), typeA = d.takeNext(), typeB = d.takeNext();
  unsigned bytes = parseMatrixType(typeA, a);
  if (bytes == 0 || parseMatrixType(typeB, b) != bytes || depth * bytes != 32 ||
      columns % 8 != 0 || columns == 0 || columns > 256)
    return;
  // Integer MMAs have fewer shapes.
  bool areIntegers = a == MatrixType::Int8;
  if (areIntegers != (b == MatrixType::Int8) ||
      sum != (areIntegers ? "s32" : "f32") ||
      (areIntegers && columns > 24 && columns % 16 != 0))
    return;
  // 16-bit operands can be transposed; integers cannot be negated.
  size_t expected = areIntegers ? 4 : bytes == 2 ? 8 : 6;
  Instruction &instruction = d.instruction;
  bool hasRegisterA = d.operand(1).kind == RawOperand::Kind::Vector;
  if (hasRegisterA && bytes == 2)
    --expected;
  if (!d.expectOperands(expected, expected))
    return;
  instruction.count = uint8_t(columns / 2);
  instruction.width = uint8_t(bytes);
  instruction.flags = uint32_t(a) | uint32_t(b) << 8;
  if (d.operand(0).parts.size() != columns / 2)
    return d.fail("expected " + std::to_string(columns / 2) + " sums");
  for (const RawOperand &part : d.operand(0).parts)
    d.result(part, 4);
  if (hasRegisterA) {
    instruction.flags |= kWgmmaRegisterA;
    if (d.operand(1).parts.size() != 4)
      return d.fail("expected 4 registers of A");
    for (const RawOperand &part : d.operand(1).parts)
      d.value(part, 4);
  } else {
    d.value(1, 8);
  }
  d.value(2, 8);
  d.predicate(d.operand(3));
  if (!areIntegers && d.constant(4) == -1)
    instruction.flags |= kWgmmaNegativeA;
  if (!areIntegers && d.constant(5) == -1)
    instruction.flags |= kWgmmaNegativeB;
  if (bytes == 2 && !hasRegisterA && d.constant(6))
    instruction.flags |= kWgmmaTransposedA;
  if (bytes == 2 && d.constant(expected - 1))
    instruction.flags |= kWgmmaTransposedB;
  instruction.handler = multiplyAsync;
}

void decodeWgmma(Decoder &d) {
  std::string what = d.takeNext();
  if (!d.take("sync") || !d.take("aligned"))
    return;
  d.instruction.isCollective = true;
  if (what == "mma_async")
    return decodeProduct(d);
  if (what == "fence")
    d.instruction.handler = fence;
  if (what == "commit_group")
    d.instruction.handler = commit;
  if (what == "wait_group" && d.expectOperands(1, 1)) {
    d.instruction.immediate = d.constant(0);
    d.instruction.handler = waitGroup;
  }
}

} // namespace

bool moec::ptx::isAsyncProduct(const Instruction &instruction) {
  return instruction.handler == multiplyAsync;
}

void moec::ptx::addWgmmaForms(FormTable &table) {
  table["wgmma"] = decodeWgmma;
}
