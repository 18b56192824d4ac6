//===- CopyForms.cpp - cp.async ---------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CopyForms.h"

#include "../Engine/Engine.h"
#include "MemoryForms.h"

#include <algorithm>
#include <cstring>

using namespace moec::ptx;

/// Completes the copy of any remaining lane.
bool LaneCopies::advance(Engine &engine) {
  unsigned skipped =
      unsigned(engine.random.below(uint64_t(__builtin_popcount(pending))));
  LaneMask rest = pending;
  for (; skipped > 0; --skipped)
    rest &= rest - 1;
  arrive(unsigned(__builtin_ctz(rest)));
  return true;
}

void LaneCopies::arrive(unsigned lane) {
  if (!(pending >> lane & 1))
    return;
  const Copy &copy = copies[lane];
  if (copy.from)
    std::memcpy(copy.to, copy.from, copy.bytes);
  std::memset(copy.to + copy.bytes, 0, copy.zeros);
  pending &= ~(1u << lane);
}

void LaneCopies::settle(Warp &warp, unsigned lane) {
  arrive(lane);
  Access from = inFlight;
  from.lanes = 1u << lane;
  Access to = from;
  to.who = Access::pack(warp.cta.serial, warp.index, false);
  to.tick = warp.tick;
  const Copy &copy = copies[lane];
  warp.cta.shared.shadow.settle(copy.offset, unsigned(copy.bytes) + copy.zeros,
                                from, to);
  unsettled &= ~(1u << lane);
}

namespace {

/// Returns an object for copies, recycled if one is unused.
std::shared_ptr<LaneCopies> takeCopies(Warp &warp) {
  for (size_t i = 0; i < warp.spareCopies.size(); ++i)
    if (warp.spareCopies[i].use_count() == 1) {
      std::shared_ptr<LaneCopies> found = std::move(warp.spareCopies[i]);
      warp.spareCopies.erase(warp.spareCopies.begin() + long(i));
      *found = LaneCopies();
      found->cta = &warp.cta;
      return found;
    }
  auto made = std::make_shared<LaneCopies>();
  made->cta = &warp.cta;
  return made;
}

/// Operands: the number of bytes to read, if given.
Step copy(Warp &warp, const Instruction &instruction, LaneMask mask) {
  unsigned bytes = instruction.width;
  std::shared_ptr<LaneCopies> made = takeCopies(warp);
  made->pending = made->unsettled = mask;
  ++warp.copyTick;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    uint32_t read = bytes;
    if (!instruction.operands.empty())
      read = warp.lanes<uint32_t>(instruction.operands[0])[lane];
    if (read > bytes)
      return warp.fail(instruction, lane, "reads more than it writes");
    Warp::Place to = warp.locate(
        instruction, lane, Space::Shared,
        addressOf(warp, instruction.addresses[0], lane), bytes, bytes);
    if (!to.bytes)
      return Step::Failed;
    LaneCopies::Copy &one = made->copies[lane];
    if (read > 0) {
      Warp::Place from = warp.locate(
          instruction, lane, Space::Global,
          addressOf(warp, instruction.addresses[1], lane), read, bytes);
      if (!from.bytes ||
          !warp.checkRead(instruction, lane, 1u << lane, from, read))
        return Step::Failed;
      one.from = from.bytes;
    }
    one.to = to.bytes;
    one.offset = uint32_t(to.address - warp.cta.shared.address);
    one.bytes = uint8_t(read);
    one.zeros = uint8_t(bytes - read);
    one.group = warp.copyGroups[lane];
    if (!warp.checkLateWrite(instruction, lane, kCopyUnit + warp.index,
                             warp.copyTick, to, bytes))
      return Step::Failed;
  }
  Work &work = warp.cta.launch.engine->statistics.work;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    ++work.copies;
    work.copiedBytes += made->copies[__builtin_ctz(rest)].bytes;
  }
  made->inFlight.who =
      Access::pack(warp.cta.serial, kCopyUnit + warp.index, false);
  made->inFlight.tick = warp.copyTick;
  made->instruction = made->inFlight.id = instruction.id;
  warp.copies.push_back(made);
  warp.cta.launch.engine->start(made);
  return Step::Next;
}

/// Waits for the copies of each lane of `mask`, except those of its last `kept`
/// groups.
void settle(Warp &warp, LaneMask mask, uint32_t kept, bool isAll) {
  for (const std::shared_ptr<LaneCopies> &copies : warp.copies)
    for (LaneMask rest = mask & copies->unsettled; rest; rest &= rest - 1) {
      unsigned lane = unsigned(__builtin_ctz(rest));
      uint64_t group = copies->copies[lane].group;
      if (isAll || group + kept < warp.copyGroups[lane])
        copies->settle(warp, lane);
    }
  warp.copies.erase(
      std::remove_if(warp.copies.begin(), warp.copies.end(),
                     [](const auto &copies) { return copies->unsettled == 0; }),
      warp.copies.end());
}

Step commit(Warp &warp, const Instruction &, LaneMask mask) {
  for (LaneMask rest = mask; rest; rest &= rest - 1)
    ++warp.copyGroups[__builtin_ctz(rest)];
  return Step::Next;
}

Step waitGroup(Warp &warp, const Instruction &instruction, LaneMask mask) {
  settle(warp, mask, uint32_t(instruction.immediate), /*isAll=*/false);
  return Step::Next;
}

Step waitAll(Warp &warp, const Instruction &, LaneMask mask) {
  settle(warp, mask, 0, /*isAll=*/true);
  return Step::Next;
}

void decodeCopy(Decoder &d) {
  if (!d.take("async"))
    return;
  if (d.take("bulk"))
    return decodeBulk(d);
  if (d.take("commit_group")) {
    d.instruction.handler = commit;
    return;
  }
  if (d.take("wait_all")) {
    d.instruction.handler = waitAll;
    return;
  }
  if (d.take("wait_group")) {
    if (d.expectOperands(1, 1)) {
      d.instruction.immediate = d.constant(0);
      d.instruction.handler = waitGroup;
    }
    return;
  }
  std::string cache = d.takeOneOf({"ca", "cg"});
  std::string space = d.takeOneOf({"shared", "shared::cta"});
  if (cache.empty() || space.empty() || !d.take("global"))
    return;
  for (const char *hint : {"L2::64B", "L2::128B", "L2::256B"})
    d.take(hint);
  if (!d.expectOperands(3, 4))
    return;
  int64_t bytes = d.constant(2);
  if (bytes != 16 && (cache == "cg" || (bytes != 4 && bytes != 8)))
    return d.fail("a copy must have 16 bytes, or with .ca 4 or 8");
  d.address(size_t(0));
  d.address(1);
  if (d.numOperands() == 4)
    d.value(3, 4);
  d.instruction.width = uint8_t(bytes);
  d.instruction.handler = copy;
}

} // namespace

void moec::ptx::addCopyForms(FormTable &table) { table["cp"] = decodeCopy; }
