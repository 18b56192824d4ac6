//===- SyncMutants.cpp - weakened synchronization ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Edit.h"
#include "Mutants.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

const char *mutate::groupName(Group group) {
  static const char *const names[] = {"strict", "sync", "index", "order"};
  return names[size_t(group)];
}

Mutant mutate::makeMutant(Group group, const std::string &kind,
                          const std::string &change, size_t index,
                          std::function<void(RawKernel &)> apply) {
  Mutant mutant;
  mutant.group = group;
  mutant.kind = kind;
  mutant.change = change;
  mutant.index = index;
  mutant.apply = std::move(apply);
  return mutant;
}

Mutant mutate::makeDeletion(Group group, const std::string &kind,
                            size_t index) {
  return makeMutant(group, kind, "deleted", index,
                    [index](RawKernel &kernel) { erase(kernel, index); });
}

std::vector<Mutant> mutate::listMutants(const RawKernel &kernel) {
  std::vector<Mutant> mutants;
  for (size_t i = 0; i < kernel.instructions.size(); ++i) {
    addWaitMutants(kernel, i, mutants);
    addSignalMutants(kernel, i, mutants);
    addOrderMutants(kernel, i, mutants);
    addIndexMutants(kernel, i, mutants);
  }
  for (Mutant &mutant : mutants)
    mutant.line = kernel.instructions[mutant.index].line;
  return mutants;
}

//===----------------------------------------------------------------------===//
// Waits
//===----------------------------------------------------------------------===//

/// Lets `wait_group N` leave one group more in flight, or deletes it.
static void addGroupWait(const RawKernel &kernel, size_t index,
                         const std::string &kind,
                         std::vector<Mutant> &mutants) {
  mutants.push_back(makeDeletion(Group::Strict, kind, index));
  if (kernel.instructions[index].operands.empty())
    return;
  mutants.push_back(makeMutant(Group::Strict, kind, "one group more", index,
                               [index](RawKernel &mutated) {
                                 ++mutated.instructions[index].operands[0].bits;
                               }));
}

/// The number that an arrival adds to the counter that the instruction at
/// `index` polls: 1 if only low bits are compared, else the most that the
/// kernel adds at once.
static int64_t getArrivalUnit(const RawKernel &kernel, size_t index) {
  if (index + 1 < kernel.instructions.size() &&
      kernel.instructions[index + 1].parts.front() == "and")
    return 1;
  int64_t unit = 1;
  for (const RawInstruction &other : kernel.instructions) {
    bool isAtomic = startsWith(other, "atom");
    if ((isAtomic || startsWith(other, "red")) && has(other, "global") &&
        has(other, "add") && other.operands[isAtomic ? 2 : 1].isNumber())
      unit = std::max(unit, int64_t(other.operands[isAtomic ? 2 : 1].bits));
  }
  return unit;
}

/// Weakens a loop that polls a counter in global memory until it is high
/// enough.
static void addCounterWait(const RawKernel &kernel, const RawInstruction &load,
                           size_t index, std::vector<Mutant> &mutants) {
  std::string type = load.parts.back();
  unsigned bytes = typeBytes(type);
  if ((bytes != 4 && bytes != 8) || !load.operands[0].isWord())
    return;
  std::string width = std::to_string(8 * bytes);
  int64_t unit = getArrivalUnit(kernel, index);
  int64_t highest = bytes == 4 ? INT32_MAX : INT64_MAX;
  mutants.push_back(makeMutant(
      Group::Strict, "counter wait", "deleted", index, [=](RawKernel &mutated) {
        RawInstruction &poll = mutated.instructions[index];
        poll.parts = {"mov", "b" + width};
        poll.operands = {poll.operands[0], makeNumber(highest)};
      }));
  mutants.push_back(makeMutant(
      Group::Strict, "counter wait", "for one arrival fewer", index,
      [=](RawKernel &mutated) {
        RawOperand count = mutated.instructions[index].operands[0];
        insertBefore(
            mutated, index + 1,
            makeInstruction("add.s" + width, {count, count, makeNumber(unit)}));
      }));
}

void mutate::addWaitMutants(const RawKernel &kernel, size_t index,
                            std::vector<Mutant> &mutants) {
  const RawInstruction &instruction = kernel.instructions[index];
  bool isTest = startsWith(instruction, "mbarrier.test_wait");
  if (isTest || startsWith(instruction, "mbarrier.try_wait")) {
    // A test_wait mutant is less strict: the thread also has to wait elsewhere.
    const char *kind = isTest ? "mbarrier test" : "mbarrier wait";
    Group group = isTest ? Group::Sync : Group::Strict;
    mutants.push_back(
        makeMutant(group, kind, "deleted", index, [index](RawKernel &mutated) {
          RawInstruction &wait = mutated.instructions[index];
          wait.parts = {"setp", "eq", "b32"};
          wait.operands = {wait.operands[0], makeNumber(0), makeNumber(0)};
        }));
    if (has(instruction, "parity"))
      mutants.push_back(makeMutant(
          group, kind, "other parity", index, [index](RawKernel &mutated) {
            RawOperand flipped = makeRegister(mutated, index, "b32");
            RawOperand &parity = mutated.instructions[index].operands[2];
            RawInstruction flip =
                makeInstruction("xor.b32", {flipped, parity, makeNumber(1)});
            parity = flipped;
            insertBefore(mutated, index, flip);
          }));
    return;
  }
  if (startsWith(instruction, "cp.async.wait_group") ||
      startsWith(instruction, "cp.async.wait_all"))
    return addGroupWait(kernel, index, "cp.async wait", mutants);
  if (startsWith(instruction, "wgmma.wait_group"))
    return addGroupWait(kernel, index, "wgmma wait", mutants);
  if (startsWith(instruction, "ld.acquire") && has(instruction, "global"))
    return addCounterWait(kernel, instruction, index, mutants);
  if (!startsWith(instruction, "cp.async.bulk.wait_group"))
    return;
  addGroupWait(kernel, index, "bulk wait", mutants);
  if (!has(instruction, "read"))
    mutants.push_back(makeMutant(Group::Strict, "bulk wait", "for reads alone",
                                 index, [index](RawKernel &mutated) {
                                   mutated.instructions[index].parts.push_back(
                                       "read");
                                 }));
}

//===----------------------------------------------------------------------===//
// Arrivals, expected bytes, commits
//===----------------------------------------------------------------------===//

/// Adds `change` to a count that is a number or a register of 32 bits.
static void addToOperand(RawKernel &kernel, size_t index, size_t operandIndex,
                         int64_t change, const char *type = "b32",
                         const char *add = "add.s32") {
  RawOperand &operand = kernel.instructions[index].operands[operandIndex];
  if (operand.isNumber()) {
    operand.bits += uint64_t(change);
    return;
  }
  RawOperand sum = makeRegister(kernel, index, type);
  RawInstruction made =
      makeInstruction(add, {sum, operand, makeNumber(change)});
  operand = sum;
  insertBefore(kernel, index, made);
}

static void addExpectation(size_t index, size_t bytesIndex,
                           std::vector<Mutant> &mutants) {
  constexpr int64_t kUnit = 16;
  for (int64_t change : {kUnit, -kUnit})
    mutants.push_back(makeMutant(
        Group::Strict, "expected bytes", change > 0 ? "16 more" : "16 fewer",
        index, [=](RawKernel &mutated) {
          addToOperand(mutated, index, bytesIndex, change);
        }));
}

/// Mutates an addition to a counter in global memory that others poll.
static void addCounterArrival(size_t index, size_t countIndex,
                              std::vector<Mutant> &mutants) {
  mutants.push_back(makeDeletion(Group::Strict, "counter arrival", index));
  mutants.push_back(makeMutant(Group::Strict, "counter arrival", "one more",
                               index, [=](RawKernel &mutated) {
                                 addToOperand(mutated, index, countIndex, 1);
                               }));
}

void mutate::addSignalMutants(const RawKernel &kernel, size_t index,
                              std::vector<Mutant> &mutants) {
  const RawInstruction &instruction = kernel.instructions[index];
  if (startsWith(instruction, "mbarrier.arrive")) {
    mutants.push_back(makeDeletion(Group::Strict, "arrival", index));
    if (!has(instruction, "expect_tx"))
      return;
    mutants.push_back(makeMutant(
        Group::Strict, "expected bytes", "deleted", index,
        [index](RawKernel &mutated) {
          RawInstruction &arrive = mutated.instructions[index];
          arrive.parts.erase(
              std::find(arrive.parts.begin(), arrive.parts.end(), "expect_tx"));
          arrive.operands.pop_back();
        }));
    return addExpectation(index, 2, mutants);
  }
  if (startsWith(instruction, "st.async"))
    return mutants.push_back(
        makeDeletion(Group::Strict, "asynchronous store", index));
  if (startsWith(instruction, "mbarrier.expect_tx")) {
    mutants.push_back(makeDeletion(Group::Strict, "expected bytes", index));
    return addExpectation(index, 1, mutants);
  }
  if (startsWith(instruction, "cp.async.mbarrier.arrive"))
    return mutants.push_back(makeDeletion(Group::Strict, "arrival", index));
  if (startsWith(instruction, "cp.async.commit_group") ||
      startsWith(instruction, "cp.async.bulk.commit_group") ||
      startsWith(instruction, "wgmma.commit_group"))
    return mutants.push_back(makeDeletion(Group::Strict, "commit", index));
  bool isAtomic = startsWith(instruction, "atom");
  if ((isAtomic || startsWith(instruction, "red")) &&
      has(instruction, "global") && has(instruction, "add") &&
      has(instruction, "u32"))
    return addCounterArrival(index, isAtomic ? 2 : 1, mutants);
  if (!startsWith(instruction, "mbarrier.init"))
    return;
  mutants.push_back(makeDeletion(Group::Sync, "mbarrier init", index));
  for (int64_t change : {1, -1})
    mutants.push_back(makeMutant(
        Group::Sync, "mbarrier init",
        change > 0 ? "one arrival more" : "one arrival fewer", index,
        [=](RawKernel &mutated) { addToOperand(mutated, index, 1, change); }));
}

//===----------------------------------------------------------------------===//
// Barriers, fences, qualifiers
//===----------------------------------------------------------------------===//

static void addQualifier(const RawInstruction &instruction, size_t index,
                         const std::string &from, const std::string &to,
                         std::vector<Mutant> &mutants) {
  if (!has(instruction, from.c_str()))
    return;
  mutants.push_back(makeMutant(Group::Sync, "qualifier", from + " to " + to,
                               index, [=](RawKernel &mutated) {
                                 std::vector<std::string> &parts =
                                     mutated.instructions[index].parts;
                                 std::replace(parts.begin(), parts.end(), from,
                                              to);
                               }));
}

static void addBarrier(const RawInstruction &instruction, size_t index,
                       std::vector<Mutant> &mutants) {
  constexpr int64_t kWarpThreads = 32;
  mutants.push_back(makeDeletion(Group::Strict, "CTA barrier", index));
  if (instruction.operands.size() == 2)
    mutants.push_back(makeMutant(Group::Strict, "CTA barrier", "a warp fewer",
                                 index, [=](RawKernel &mutated) {
                                   addToOperand(mutated, index, 1,
                                                -kWarpThreads);
                                 }));
}

/// Deletes an arrival with the wait that belongs to it; or lets it order
/// nothing.
static void addClusterBarrier(const RawKernel &kernel, size_t index,
                              std::vector<Mutant> &mutants) {
  if (!has(kernel.instructions[index], "arrive"))
    return;
  size_t wait = index;
  while (++wait < kernel.instructions.size())
    if (startsWith(kernel.instructions[wait], "barrier.cluster.wait"))
      break;
  if (wait == kernel.instructions.size())
    return;
  mutants.push_back(makeMutant(Group::Strict, "cluster barrier", "deleted",
                               index, [=](RawKernel &mutated) {
                                 erase(mutated, wait);
                                 erase(mutated, index);
                               }));
  mutants.push_back(makeMutant(
      Group::Sync, "cluster barrier", "relaxed", index,
      [=](RawKernel &mutated) {
        std::vector<std::string> &parts = mutated.instructions[index].parts;
        parts.erase(std::remove(parts.begin(), parts.end(), "release"),
                    parts.end());
        parts.push_back("relaxed");
      }));
}

/// Lets an arrival at another CTA order nothing. Arrivals with expected bytes
/// are left out, because the bytes order themselves.
static void addRemoteArrival(const RawInstruction &arrive, size_t index,
                             std::vector<Mutant> &mutants) {
  if (!startsWith(arrive, "mbarrier.arrive.shared::cluster"))
    return;
  mutants.push_back(makeMutant(Group::Sync, "qualifier", "release to relaxed",
                               index, [=](RawKernel &mutated) {
                                 std::vector<std::string> &parts =
                                     mutated.instructions[index].parts;
                                 parts.insert(parts.begin() + 2,
                                              {"relaxed", "cluster"});
                               }));
}

/// Lets a multicast go to one CTA fewer, or to one that does not exist.
static void addMulticast(const RawInstruction &copy, size_t index,
                         std::vector<Mutant> &mutants) {
  size_t mask = copy.operands.size() - 1;
  if (has(copy, "L2::cache_hint"))
    --mask;
  for (int64_t bit : {1, 2, 4})
    mutants.push_back(makeMutant(
        Group::Strict, "multicast mask", "^ " + std::to_string(bit), index,
        [=](RawKernel &mutated) {
          RawOperand changed = makeRegister(mutated, index, "b16");
          RawOperand &operand = mutated.instructions[index].operands[mask];
          RawInstruction change =
              makeInstruction("xor.b16", {changed, operand, makeNumber(bit)});
          operand = changed;
          insertBefore(mutated, index, change);
        }));
}

/// Lets mapa name one CTA, whatever the register, or another one.
static void addRank(const RawInstruction &map, size_t index,
                    std::vector<Mutant> &mutants) {
  const RawOperand &rank = map.operands[2];
  int64_t other = rank.isNumber() ? int64_t(rank.bits ^ 1) : 1;
  mutants.push_back(
      makeMutant(Group::Strict, "rank in a cluster", std::to_string(other),
                 index, [=](RawKernel &mutated) {
                   mutated.instructions[index].operands[2] = makeNumber(other);
                 }));
}

void mutate::addOrderMutants(const RawKernel &kernel, size_t index,
                             std::vector<Mutant> &mutants) {
  const RawInstruction &instruction = kernel.instructions[index];
  const std::string &first = instruction.parts.front();
  if (startsWith(instruction, "bar.warp.sync")) {
    mutants.push_back(makeDeletion(Group::Sync, "warp barrier", index));
  } else if (startsWith(instruction, "barrier.cluster")) {
    addClusterBarrier(kernel, index, mutants);
  } else if (has(instruction, "multicast::cluster")) {
    addMulticast(instruction, index, mutants);
  } else if (first == "mapa") {
    addRank(instruction, index, mutants);
  } else if (first == "bar" || first == "barrier") {
    addBarrier(instruction, index, mutants);
  } else if (startsWith(instruction, "fence.proxy")) {
    mutants.push_back(makeDeletion(Group::Strict, "proxy fence", index));
  } else if (startsWith(instruction, "wgmma.fence")) {
    mutants.push_back(makeDeletion(Group::Sync, "wgmma fence", index));
  } else if (first == "fence" || first == "membar") {
    mutants.push_back(makeDeletion(
        Group::Sync,
        has(instruction, "mbarrier_init") ? "fence of mbarrier init" : "fence",
        index));
    addQualifier(instruction, index, "gpu", "cta", mutants);
    addQualifier(instruction, index, "gl", "cta", mutants);
  } else if (first == "ld" || first == "st" || first == "atom" ||
             first == "red" || first == "mbarrier") {
    addQualifier(instruction, index, "acquire", "relaxed", mutants);
    addQualifier(instruction, index, "release", "relaxed", mutants);
    addQualifier(instruction, index, "acq_rel", "relaxed", mutants);
    if (first == "mbarrier") {
      addQualifier(instruction, index, "cluster", "cta", mutants);
      addRemoteArrival(instruction, index, mutants);
    } else {
      addQualifier(instruction, index, "gpu", "cta", mutants);
    }
  }
}
