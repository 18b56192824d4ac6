//===- WarpForms.cpp - instructions of a whole warp -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// `.sync` instructions wait until all lanes of their member mask have arrived.
// None but bar.warp.sync orders memory.

#include "WarpForms.h"

#include "../Engine/Engine.h"
#include "Decoder.h"

#include <cstring>

using namespace moec::ptx;

Step moec::ptx::gatherMembers(Warp &warp, const Instruction &instruction,
                              LaneMask mask, Slot memberSlot) {
  const uint32_t *members = warp.lanes<uint32_t>(memberSlot);
  unsigned first = unsigned(__builtin_ctz(mask));
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    if (members[lane] != members[first])
      return warp.fail(
          instruction, lane,
          "lanes that execute together have different member masks");
    if (!(members[lane] >> lane & 1))
      return warp.fail(instruction, lane,
                       "the member mask lacks a lane that executes");
  }
  // The mask may name absent lanes of a partial warp, and lanes that have
  // ended.
  LaneMask wanted = members[first] & warp.live;
  if (!warp.converge(wanted))
    return Step::Blocked;
  if ((mask & wanted) != wanted)
    return warp.fail(instruction, first,
                     "the guard disables lanes of the member mask");
  return Step::Next;
}

Step moec::ptx::gatherWarp(Warp &warp, const Instruction &instruction,
                           LaneMask mask) {
  if (!warp.converge(warp.live))
    return Step::Blocked;
  if (mask != warp.live && mask != 0)
    return warp.fail(
        instruction, unsigned(__builtin_ctz(mask)),
        "all lanes of the warp must execute this; the guard disables some");
  return Step::Next;
}

namespace {

//===----------------------------------------------------------------------===//
// shfl
//===----------------------------------------------------------------------===//

enum class Shuffle : uint8_t { Up, Down, Butterfly, Index };

/// Operands: result, predicate or none, value, lane or distance, clamp and
/// segment, members.
Step shuffle(Warp &warp, const Instruction &instruction, LaneMask mask) {
  const std::vector<Slot> &operands = instruction.operands;
  if (Step step = gatherMembers(warp, instruction, mask, operands[5]);
      step != Step::Next)
    return step;
  uint32_t *d = warp.lanes<uint32_t>(operands[0]);
  uint32_t values[kWarpLanes];
  std::memcpy(values, warp.lanes<uint32_t>(operands[2]), sizeof(values));
  const uint32_t *b = warp.lanes<uint32_t>(operands[3]);
  const uint32_t *c = warp.lanes<uint32_t>(operands[4]);
  LaneMask isInRange = 0;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    int clamp = int(c[lane] & 31), segment = int(c[lane] >> 8 & 31);
    int most = (int(lane) & segment) | (clamp & ~segment);
    int least = int(lane) & segment, by = int(b[lane] & 31), from = 0;
    bool isValid = false;
    switch (Shuffle(instruction.flags)) {
    case Shuffle::Up:
      from = int(lane) - by;
      isValid = from >= most;
      break;
    case Shuffle::Down:
      from = int(lane) + by;
      isValid = from <= most;
      break;
    case Shuffle::Butterfly:
      from = int(lane) ^ by;
      isValid = from <= most;
      break;
    case Shuffle::Index:
      from = least | (by & ~segment);
      isValid = from <= most;
      break;
    }
    if (!isValid)
      from = int(lane);
    if (!(mask >> from & 1))
      return warp.fail(instruction, lane,
                       "reads lane " + std::to_string(from) +
                           ", which does not take part");
    d[lane] = values[from];
    isInRange |= LaneMask(isValid) << lane;
  }
  LaneMask &p = warp.predicate(operands[1]);
  p = (p & ~mask) | isInRange;
  return Step::Next;
}

void decodeShfl(Decoder &d) {
  if (!d.take("sync"))
    return;
  std::string mode = d.takeOneOf({"up", "down", "bfly", "idx"});
  if (mode.empty() || d.takeType() != "b32" || !d.expectOperands(5, 5))
    return;
  RawOperand second;
  second.text = d.operand(0).second.empty() ? "_" : d.operand(0).second;
  d.result(0, 4);
  d.predicateResult(second);
  for (size_t i = 1; i < 5; ++i)
    d.value(i, 4);
  d.instruction.flags = uint32_t(mode == "up"     ? Shuffle::Up
                                 : mode == "down" ? Shuffle::Down
                                 : mode == "bfly" ? Shuffle::Butterfly
                                                  : Shuffle::Index);
  d.instruction.handler = shuffle;
}

//===----------------------------------------------------------------------===//
// vote, match, redux, elect, activemask
//===----------------------------------------------------------------------===//

enum class Vote : uint8_t { All, Any, Uniform, Ballot };

Step vote(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step =
          gatherMembers(warp, instruction, mask, instruction.operands[2]);
      step != Step::Next)
    return step;
  LaneMask holds = warp.predicate(instruction.operands[1]);
  if (instruction.immediate)
    holds = ~holds;
  holds &= mask;
  auto mode = Vote(instruction.flags);
  if (mode == Vote::Ballot) {
    uint32_t *d = warp.lanes<uint32_t>(instruction.operands[0]);
    for (unsigned lane = 0; lane < kWarpLanes; ++lane)
      if (mask >> lane & 1)
        d[lane] = holds;
    return Step::Next;
  }
  bool result = mode == Vote::All   ? holds == mask
                : mode == Vote::Any ? holds != 0
                                    : holds == 0 || holds == mask;
  LaneMask &p = warp.predicate(instruction.operands[0]);
  p = (p & ~mask) | (result ? mask : 0);
  return Step::Next;
}

void decodeVote(Decoder &d) {
  if (!d.take("sync"))
    return;
  std::string mode = d.takeOneOf({"all", "any", "uni", "ballot"});
  if (mode.empty() || !d.expectOperands(3, 3))
    return;
  std::string type = d.takeType();
  if (type != (mode == "ballot" ? "b32" : "pred"))
    return;
  mode == "ballot" ? d.result(0, 4) : d.predicateResult(d.operand(0));
  d.predicate(d.operand(1));
  d.instruction.immediate = d.operand(1).isNegated;
  d.value(2, 4);
  d.instruction.flags = uint32_t(mode == "all"   ? Vote::All
                                 : mode == "any" ? Vote::Any
                                 : mode == "uni" ? Vote::Uniform
                                                 : Vote::Ballot);
  d.instruction.handler = vote;
}

/// Operands: result, predicate or none, value, members.
template <typename T>
Step match(Warp &warp, const Instruction &instruction, LaneMask mask) {
  const std::vector<Slot> &operands = instruction.operands;
  if (Step step = gatherMembers(warp, instruction, mask, operands[3]);
      step != Step::Next)
    return step;
  uint32_t *d = warp.lanes<uint32_t>(operands[0]);
  const T *source = warp.lanes<T>(operands[2]);
  T values[kWarpLanes];
  std::memcpy(values, source, sizeof(values));
  bool isAll = instruction.flags;
  bool areEqual = true;
  for (LaneMask rest = mask; rest; rest &= rest - 1) {
    unsigned lane = unsigned(__builtin_ctz(rest));
    LaneMask same = 0;
    for (LaneMask others = mask; others; others &= others - 1) {
      unsigned other = unsigned(__builtin_ctz(others));
      same |= LaneMask(values[other] == values[lane]) << other;
    }
    areEqual &= same == mask;
    d[lane] = same;
  }
  if (!isAll)
    return Step::Next;
  for (unsigned lane = 0; lane < kWarpLanes; ++lane)
    if (mask >> lane & 1)
      d[lane] = areEqual ? mask : 0;
  LaneMask &p = warp.predicate(operands[1]);
  p = (p & ~mask) | (areEqual ? mask : 0);
  return Step::Next;
}

void decodeMatch(Decoder &d) {
  std::string mode = d.takeOneOf({"any", "all"});
  if (mode.empty() || !d.take("sync") || !d.expectOperands(3, 3))
    return;
  unsigned bytes = typeBytes(d.takeType());
  RawOperand second;
  second.text = d.operand(0).second.empty() ? "_" : d.operand(0).second;
  d.result(0, 4);
  d.predicateResult(second);
  d.value(1, bytes);
  d.value(2, 4);
  d.instruction.flags = mode == "all";
  d.instruction.handler = bytes == 4   ? match<uint32_t>
                          : bytes == 8 ? match<uint64_t>
                                       : Handler(nullptr);
}

enum class Reduce : uint8_t { Add, MinS, MaxS, MinU, MaxU, And, Or, Xor };

Step reduce(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step =
          gatherMembers(warp, instruction, mask, instruction.operands[2]);
      step != Step::Next)
    return step;
  uint32_t *d = warp.lanes<uint32_t>(instruction.operands[0]);
  const uint32_t *a = warp.lanes<uint32_t>(instruction.operands[1]);
  uint32_t result = a[__builtin_ctz(mask)];
  for (LaneMask rest = mask & (mask - 1); rest; rest &= rest - 1) {
    uint32_t value = a[__builtin_ctz(rest)];
    switch (Reduce(instruction.flags)) {
    case Reduce::Add:
      result += value;
      break;
    case Reduce::MinS:
      result = int32_t(value) < int32_t(result) ? value : result;
      break;
    case Reduce::MaxS:
      result = int32_t(value) > int32_t(result) ? value : result;
      break;
    case Reduce::MinU:
      result = value < result ? value : result;
      break;
    case Reduce::MaxU:
      result = value > result ? value : result;
      break;
    case Reduce::And:
      result &= value;
      break;
    case Reduce::Or:
      result |= value;
      break;
    case Reduce::Xor:
      result ^= value;
      break;
    }
  }
  for (unsigned lane = 0; lane < kWarpLanes; ++lane)
    if (mask >> lane & 1)
      d[lane] = result;
  return Step::Next;
}

void decodeRedux(Decoder &d) {
  static const std::unordered_map<std::string, Reduce> modes = {
      {"add.s32", Reduce::Add},  {"add.u32", Reduce::Add},
      {"min.s32", Reduce::MinS}, {"max.s32", Reduce::MaxS},
      {"min.u32", Reduce::MinU}, {"max.u32", Reduce::MaxU},
      {"and.b32", Reduce::And},  {"or.b32", Reduce::Or},
      {"xor.b32", Reduce::Xor}};
  if (!d.take("sync"))
    return;
  std::string mode = d.takeNext();
  mode += "." + d.takeType();
  auto found = modes.find(mode);
  if (found == modes.end() || !d.expectOperands(3, 3))
    return;
  d.result(0, 4);
  d.value(1, 4);
  d.value(2, 4);
  d.instruction.flags = uint32_t(found->second);
  d.instruction.handler = reduce;
}

/// PTX leaves the elected lane open; it is the same for a mask throughout a
/// launch.
Step elect(Warp &warp, const Instruction &instruction, LaneMask mask) {
  if (Step step =
          gatherMembers(warp, instruction, mask, instruction.operands[2]);
      step != Step::Next)
    return step;
  const Launch &launch = warp.cta.launch;
  LaneMask leader = mask & -mask;
  if (launch.engine->options.seed != 0) {
    Random choice(launch.engine->options.seed ^ mask);
    uint64_t skipped = choice.below(uint64_t(__builtin_popcount(mask)));
    LaneMask rest = mask;
    for (; skipped > 0; --skipped)
      rest &= rest - 1;
    leader = rest & -rest;
  }
  uint32_t *d = warp.lanes<uint32_t>(instruction.operands[0]);
  for (unsigned lane = 0; lane < kWarpLanes; ++lane)
    if (mask >> lane & 1)
      d[lane] = uint32_t(__builtin_ctz(leader));
  LaneMask &p = warp.predicate(instruction.operands[1]);
  p = (p & ~mask) | leader;
  return Step::Next;
}

void decodeElect(Decoder &d) {
  if (!d.take("sync") || !d.expectOperands(2, 2))
    return;
  RawOperand second;
  second.text = d.operand(0).second;
  d.result(0, 4);
  d.predicateResult(second);
  d.value(1, 4);
  d.instruction.handler = elect;
}

Step activeMask(Warp &warp, const Instruction &instruction, LaneMask mask) {
  uint32_t *d = warp.lanes<uint32_t>(instruction.operands[0]);
  for (unsigned lane = 0; lane < kWarpLanes; ++lane)
    if (mask >> lane & 1)
      d[lane] = mask;
  return Step::Next;
}

void decodeActiveMask(Decoder &d) {
  if (d.takeType() != "b32" || !d.expectOperands(1, 1))
    return;
  d.result(0, 4);
  d.instruction.handler = activeMask;
}

} // namespace

void moec::ptx::addWarpForms(FormTable &table) {
  table["shfl"] = decodeShfl;
  table["vote"] = decodeVote;
  table["match"] = decodeMatch;
  table["redux"] = decodeRedux;
  table["elect"] = decodeElect;
  table["activemask"] = decodeActiveMask;
}
