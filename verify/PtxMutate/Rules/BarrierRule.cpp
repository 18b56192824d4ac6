//===- BarrierRule.cpp - barriers between unrelated accesses ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Flow/Places.h"
#include "../Mutants/Edit.h"
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

/// Effect of an instruction next to a barrier. A wait acquires, but signals no
/// other thread.
enum class Effect : uint8_t { None, Read, Write, Wait, Signal };

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
  if (has(instruction, "test_wait") || has(instruction, "try_wait"))
    return Effect::Wait;
  // A copy writes at an unknown time, until a wait.
  static const char *const signals[] = {
      "cp",    "mbarrier", "fence",   "membar",         "atom",     "red",
      "wgmma", "bar",      "barrier", "griddepcontrol", "tensormap"};
  return std::find(std::begin(signals), std::end(signals), first) !=
                 std::end(signals)
             ? Effect::Signal
             : Effect::None;
}

bool isTogether(const RawInstruction &instruction) {
  return has(instruction, "aligned") || instruction.parts[0] == "activemask";
}

/// Whether all lanes of the warp wait for each other here.
bool bringsTogether(const RawInstruction &instruction) {
  static const char *const collective[] = {"shfl", "vote", "match", "redux",
                                           "elect"};
  constexpr uint32_t kAll = ~uint32_t(0);
  return std::find(std::begin(collective), std::end(collective),
                   instruction.parts[0]) != std::end(collective) &&
         instruction.guard.empty() && instruction.operands.back().isNumber() &&
         uint32_t(instruction.operands.back().bits) == kAll;
}

/// The accesses on one side of a barrier, and all instructions there.
struct Side {
  std::set<size_t> all;
  std::vector<size_t> accesses;
  bool hasWait = false, hasSignal = false, hasProduct = false;

  bool isSilent() const {
    return accesses.empty() && !hasWait && !hasSignal && !hasProduct;
  }
};

class Neighbours {
public:
  /// `areBuffersApart`: different parameters point to different memory.
  Neighbours(const Flow &flow, size_t barrier, Scope scope,
             bool areBuffersApart = false)
      : flow(flow), barrier(barrier), scope(scope),
        areBuffersApart(areBuffersApart), before(collect(/*isForward=*/false)),
        after(collect(/*isForward=*/true)) {}

  bool areEnough() const;

private:
  Side collect(bool isForward) const;
  bool conflicts(size_t first, size_t second) const;
  bool isFixed(const std::string &name, size_t first) const;
  bool isOfOneThread(size_t first, size_t second) const;
  bool isEnd(size_t index) const;
  bool keepApart(const RawInstruction &a, const RawInstruction &b) const;
  bool haveOwnPlaces(size_t first, size_t second) const;
  bool conflictsWithProducts(size_t first) const;
  bool needsTogether() const;
  const RawInstruction &at(size_t index) const {
    return flow.kernel.instructions[index];
  }

  const Flow &flow;
  const size_t barrier;
  const Scope scope;
  const bool areBuffersApart;
  const Side before, after;
};

/// Bytes that one thread moves; 0 if the access is not a plain one.
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

/// Whether the neighbourhood of the barrier ends here.
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
    // After a warp barrier, what one thread waits for it acquires without the
    // others. But an MMA reads what all threads of its warpgroup know.
    bool isProduct =
        scope == Scope::Warp && isForward && has(at(index), "wgmma");
    side.hasWait |= effect == Effect::Wait;
    side.hasProduct |= isProduct;
    side.hasSignal |= effect == Effect::Signal && !isProduct;
  }
  return side;
}

/// Whether the register has the same value at `first` and after the barrier.
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

/// Whether no two different threads, starting from the same register, access
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

/// The threads that may execute an instruction (only `only`, if that names one
/// per warp), and the byte offset of each in the variable.
static std::optional<std::vector<std::optional<int64_t>>>
placesOf(const Flow &flow, const RawOperand &address,
         const std::optional<OneThread> &only) {
  constexpr unsigned kThreads = 1024;
  std::vector<std::optional<int64_t>> places(kThreads);
  for (unsigned thread = 0; thread < kThreads; ++thread) {
    Places values(flow, thread);
    std::optional<int64_t> number =
        only ? values.find(makeWord(only->number)) : std::nullopt;
    if (number && uint64_t(*number) != only->value)
      continue;
    std::optional<int64_t> place = values.find(address.parts[0]);
    if (!place)
      return std::nullopt;
    places[thread] = *place + address.offset;
  }
  return places;
}

/// Whether both accesses are to byte offsets in one variable that depend only
/// on the thread's number, and no two different threads of a warp share a byte.
bool Neighbours::haveOwnPlaces(size_t first, size_t second) const {
  constexpr size_t kLanes = 32;
  int64_t bytesA = bytesOf(at(first)), bytesB = bytesOf(at(second));
  if (scope != Scope::Warp || bytesA == 0 || bytesB == 0)
    return false;
  auto placesA =
           placesOf(flow, *addressOf(at(first)), flow.oneThread(first, scope)),
       placesB = placesOf(flow, *addressOf(at(second)),
                          flow.oneThread(second, scope));
  if (!placesA || !placesB)
    return false;
  for (size_t a = 0; a < placesA->size(); ++a)
    for (size_t b = a / kLanes * kLanes; b < (a / kLanes + 1) * kLanes; ++b) {
      std::optional<int64_t> placeA = (*placesA)[a], placeB = (*placesB)[b];
      if (a != b && placeA && placeB && *placeA < *placeB + bytesB &&
          *placeB < *placeA + bytesA)
        return false;
    }
  return true;
}

/// Whether an MMA after the barrier may read what is written before it.
bool Neighbours::conflictsWithProducts(size_t first) const {
  return effectOf(at(first)) == Effect::Write && !has(at(first), "global");
}

/// The parameter that is the base of an address; empty if unknown.
static std::string bufferOf(const Flow &flow, const RawOperand &operand,
                            unsigned depth = 32) {
  std::optional<size_t> at = flow.definition(operand.text);
  if (!at || depth == 0)
    return "";
  const RawInstruction &made = flow.kernel.instructions[*at];
  const std::string &first = made.parts[0];
  if (first == "ld" && has(made, "param") && made.operands.size() == 2)
    return made.operands[1].parts[0].text + "+" +
           std::to_string(made.operands[1].offset);
  if ((first == "mov" || first == "cvta") && made.operands.size() == 2)
    return bufferOf(flow, made.operands[1], depth - 1);
  if (first != "add" || made.operands.size() != 3)
    return "";
  // The base address, plus a byte offset that is computed from numbers.
  std::string left = bufferOf(flow, made.operands[1], depth - 1),
              right = bufferOf(flow, made.operands[2], depth - 1);
  return left.empty() ? right : right.empty() ? left : "";
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
  if (areBuffersApart && isGlobalA && isGlobalB) {
    std::string bufferA = bufferOf(flow, placeA->parts[0]),
                bufferB = bufferOf(flow, placeB->parts[0]);
    if (!bufferA.empty() && !bufferB.empty() && bufferA != bufferB)
      return false;
  }
  std::string variableA = flow.variable(placeA->parts[0]),
              variableB = flow.variable(placeB->parts[0]);
  bool isNamed =
      isSharedA && isSharedB && !variableA.empty() && !variableB.empty();
  if (isNamed && variableA != variableB)
    return false;
  if (isOfOneThread(first, second) || (isNamed && haveOwnPlaces(first, second)))
    return false;
  return placeA->parts[0].text != placeB->parts[0].text ||
         !isFixed(placeA->parts[0].text, first) || !keepApart(a, b);
}

/// Whether an instruction after the barrier needs the lanes converged, an
/// earlier branch may have diverged them, and nothing else reconverges them.
bool Neighbours::needsTogether() const {
  if (scope == Scope::Cta)
    return false;
  std::set<size_t> apart =
      flow.walk(barrier, /*isForward=*/true, [&](size_t index) {
        return isEnd(index) || bringsTogether(at(index));
      });
  bool isNeeded = std::any_of(apart.begin(), apart.end(), [&](size_t index) {
    return isTogether(at(index));
  });
  return isNeeded &&
         std::any_of(before.all.begin(), before.all.end(), [&](size_t index) {
           return flow.successors(index).size() > 1;
         });
}

bool Neighbours::areEnough() const {
  if (before.isSilent() || after.isSilent())
    return !needsTogether();
  if (before.hasWait || before.hasSignal || after.hasSignal ||
      (after.hasWait && scope == Scope::Cta) || needsTogether())
    return false;
  for (size_t first : before.accesses) {
    if (after.hasProduct && conflictsWithProducts(first))
      return false;
    for (size_t second : after.accesses)
      if (conflicts(first, second))
        return false;
  }
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

bool mutate::keepsBuffersApart(const Flow &flow, const Mutant &mutant) {
  const RawInstruction &instruction = flow.kernel.instructions[mutant.index];
  return mutant.change == "deleted" && mutant.kind == "warp barrier" &&
         isFullWarpBarrier(instruction) &&
         Neighbours(flow, mutant.index, Scope::Warp, /*areBuffersApart=*/true)
             .areEnough();
}
