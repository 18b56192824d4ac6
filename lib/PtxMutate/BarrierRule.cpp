//===- BarrierRule.cpp - barriers between accesses that do not conflict *- C++
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Edit.h"
#include "Rules.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

namespace {

bool isFullWarpBarrier(const RawInstruction &instruction) {
  constexpr uint32_t kAll = ~uint32_t(0);
  return startsWith(instruction, "bar.warp.sync") &&
         instruction.guard.empty() && instruction.operands[0].isNumber() &&
         uint32_t(instruction.operands[0].bits) == kAll;
}

bool isFullCtaBarrier(const RawInstruction &instruction) {
  return (startsWith(instruction, "bar.sync") ||
          startsWith(instruction, "barrier.sync")) &&
         instruction.guard.empty() && instruction.operands.size() == 1;
}

/// What the neighbours of a barrier have to look at.
enum class Effect : uint8_t { None, Read, Write, Signal };

Effect effectOf(const RawInstruction &instruction) {
  const std::string &first = instruction.parts.front();
  bool isQualified =
      has(instruction, "acquire") || has(instruction, "release") ||
      has(instruction, "relaxed") || has(instruction, "volatile");
  if (first == "ld")
    return has(instruction, "param") ? Effect::None
           : isQualified             ? Effect::Signal
                                     : Effect::Read;
  if (first == "st")
    return isQualified ? Effect::Signal : Effect::Write;
  if (first == "ldmatrix")
    return Effect::Read;
  if (first == "stmatrix")
    return Effect::Write;
  // A copy is a write at an unknown time, which a wait ends.
  static const char *const signals[] = {
      "cp",    "mbarrier", "fence",   "membar",         "atom",     "red",
      "wgmma", "bar",      "barrier", "griddepcontrol", "tensormap"};
  return std::find(std::begin(signals), std::end(signals), first) !=
                 std::end(signals)
             ? Effect::Signal
             : Effect::None;
}

bool isTogether(const RawInstruction &instruction) {
  return has(instruction, "aligned");
}

/// The accesses on one side of a barrier, and all that stands there.
struct Side {
  std::set<size_t> all;
  std::vector<size_t> accesses;
  bool hasSignal = false;
};

class Neighbours {
public:
  Neighbours(const Flow &flow, size_t barrier, Scope scope)
      : flow(flow), barrier(barrier), scope(scope),
        before(collect(/*isForward=*/false)),
        after(collect(/*isForward=*/true)) {}

  bool areEnough() const;

private:
  Side collect(bool isForward) const;
  bool conflicts(size_t first, size_t second) const;
  bool isFixed(const std::string &name, size_t first) const;
  bool isOfOneThread(size_t first, size_t second) const;
  bool isEnd(size_t index) const;
  bool keepApart(const RawInstruction &a, const RawInstruction &b) const;
  bool needsTogether() const;
  const RawInstruction &at(size_t index) const {
    return flow.kernel.instructions[index];
  }

  const Flow &flow;
  const size_t barrier;
  const Scope scope;
  const Side before, after;
};

/// Bytes that one thread moves, 0 if it is not plain.
int64_t bytesOf(const RawInstruction &instruction) {
  int64_t bytes = typeBytes(instruction.parts.back());
  if (instruction.parts[0] != "ld" && instruction.parts[0] != "st")
    return 0;
  return bytes * (has(instruction, "v2") ? 2 : has(instruction, "v4") ? 4 : 1);
}

const RawOperand *addressOf(const RawInstruction &instruction) {
  for (const RawOperand &operand : instruction.operands)
    if (operand.kind == RawOperand::Kind::Address)
      return &operand;
  return nullptr;
}

} // namespace

/// Whether the neighbours' sides end here.
bool Neighbours::isEnd(size_t index) const {
  return isFullCtaBarrier(at(index)) ||
         (scope == Scope::Warp && isFullWarpBarrier(at(index)));
}

Side Neighbours::collect(bool isForward) const {
  Side side;
  side.all =
      flow.walk(barrier, isForward, [&](size_t index) { return isEnd(index); });
  for (size_t index : side.all) {
    Effect effect = effectOf(at(index));
    if (effect == Effect::Read || effect == Effect::Write)
      side.accesses.push_back(index);
    side.hasSignal |= effect == Effect::Signal;
  }
  return side;
}

/// Whether the register is the same at `first` and behind the barrier.
bool Neighbours::isFixed(const std::string &name, size_t first) const {
  if (name.empty() || name[0] != '%')
    return !name.empty();
  std::optional<size_t> made = flow.definition(name);
  return made && !flow.walk(first, /*isForward=*/true,
                            [&](size_t index) {
                              return index != barrier && isEnd(index);
                            })
                      .count(*made);
}

bool Neighbours::isOfOneThread(size_t first, size_t second) const {
  std::optional<OneThread> a = flow.oneThread(first, scope),
                           b = flow.oneThread(second, scope);
  return a && b && a->number == b->number && a->value == b->value &&
         isFixed(a->number, first);
}

/// Whether no two different threads, which begin at the same register, access
/// the same bytes by `a` and `b`.
bool Neighbours::keepApart(const RawInstruction &a,
                           const RawInstruction &b) const {
  constexpr int64_t kLanes = 32, kThreads = 1024;
  const RawOperand &placeA = *addressOf(a), &placeB = *addressOf(b);
  std::optional<Affine> place = flow.affine(placeA.parts[0], scope);
  int64_t bytesA = bytesOf(a), bytesB = bytesOf(b);
  if (!place || bytesA == 0 || bytesB == 0)
    return false;
  int64_t most = scope == Scope::Warp ? kLanes : kThreads;
  for (int64_t apart = 1 - most; apart < most; ++apart) {
    int64_t begin = place->stride * apart + placeA.offset - placeB.offset;
    if (apart != 0 && begin < bytesB && begin + bytesA > 0)
      return false;
  }
  return true;
}

bool Neighbours::conflicts(size_t first, size_t second) const {
  const RawInstruction &a = at(first), &b = at(second);
  if (effectOf(a) == Effect::Read && effectOf(b) == Effect::Read)
    return false;
  bool isSharedA = has(a, "shared"), isSharedB = has(b, "shared");
  bool isGlobalA = has(a, "global"), isGlobalB = has(b, "global");
  if ((isSharedA && isGlobalB) || (isGlobalA && isSharedB))
    return false;
  const RawOperand *placeA = addressOf(a), *placeB = addressOf(b);
  if (!placeA || !placeB)
    return true;
  std::string variableA = flow.variable(placeA->parts[0]),
              variableB = flow.variable(placeB->parts[0]);
  bool isNamed =
      isSharedA && isSharedB && !variableA.empty() && !variableB.empty();
  if (isNamed && variableA != variableB)
    return false;
  if (isOfOneThread(first, second))
    return false;
  return placeA->parts[0].text != placeB->parts[0].text ||
         !isFixed(placeA->parts[0].text, first) || !keepApart(a, b);
}

/// Whether something behind needs the lanes together, which a branch before
/// may have parted.
bool Neighbours::needsTogether() const {
  if (scope == Scope::Cta)
    return false;
  bool isNeeded =
      std::any_of(after.all.begin(), after.all.end(),
                  [&](size_t index) { return isTogether(at(index)); });
  return isNeeded &&
         std::any_of(before.all.begin(), before.all.end(), [&](size_t index) {
           return flow.successors(index).size() > 1;
         });
}

bool Neighbours::areEnough() const {
  bool isSilent = before.accesses.empty() && !before.hasSignal;
  if ((isSilent || (after.accesses.empty() && !after.hasSignal)))
    return !needsTogether();
  if (before.hasSignal || after.hasSignal || needsTogether())
    return false;
  for (size_t first : before.accesses)
    for (size_t second : after.accesses)
      if (conflicts(first, second))
        return false;
  return true;
}

bool mutate::hasNoConflict(const Flow &flow, const Mutant &mutant) {
  if (mutant.change != "deleted")
    return false;
  const RawInstruction &instruction = flow.kernel.instructions[mutant.index];
  if (mutant.kind == "warp barrier" && isFullWarpBarrier(instruction))
    return Neighbours(flow, mutant.index, Scope::Warp).areEnough();
  if (mutant.kind != "CTA barrier" || !isFullCtaBarrier(instruction) ||
      !flow.isReachedByAll(mutant.index))
    return false;
  return Neighbours(flow, mutant.index, Scope::Cta).areEnough();
}
