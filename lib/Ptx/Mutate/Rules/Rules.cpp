//===- Rules.cpp - proofs that a mutant is equivalent -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Rules.h"

#include "../Mutants/Edit.h"

#include <algorithm>

using namespace moec::ptx;
using namespace moec::ptx::mutate;

const std::vector<Rule> &mutate::allRules() {
  static const std::vector<Rule> rules = {
      {"single CTA",
       "fence.mbarrier_init.release.cluster makes new mbarriers known to other "
       "CTAs of the cluster. The kernel has no cluster and names no memory of "
       "one, so there is nobody to know; and for the async proxy of its own "
       "CTA "
       "a fence.proxy.async follows it in the same straight line.",
       isOfOneCta},
      {"nothing in flight",
       "A wait for groups that are empty, or ended at an earlier wait, on "
       "every "
       "way that leads to it, or of their reads alone; one group more where "
       "there are never that many; "
       "and the commit of an empty group, where no later wait ends a group "
       "because of it. The copies and products that may be in each group are "
       "followed through the kernel's control flow, and joined where ways "
       "meet.",
       hasNothingInFlight},
      {"nothing to fence",
       "A proxy fence by a thread that, on every way, has written nothing to "
       "shared memory since its last one, had no copy by cp.async end, and has "
       "waited for nobody whose writes it might stand in for. For "
       "mbarrier.init "
       "fence.mbarrier_init is such a fence, too.",
       hasNothingToFence},
      {"never equal",
       "A comparison with and without equality, of two numbers of which some "
       "bit always differs: multiples of 8 are no odd number. The bits that "
       "all values of a register have in common are followed through integer "
       "arithmetic, loops included.",
       isNeverEqual},
      {"stronger neighbours",
       "A barrier orders what stands between the barrier before it and itself "
       "with what stands between itself and the next one; all else the "
       "neighbours order, which all threads pass, too. Nothing is lost where "
       "no two of these accesses of different threads conflict: both read, or "
       "they lead into different spaces or variables, or one thread alone "
       "makes both, or every thread keeps to the place that its own number "
       "names. Neither side may signal, wait, or copy asynchronously. Behind "
       "the barrier of a warp it may wait, which tells nobody anything, and "
       "begin products, if what it writes before is not in shared memory. A "
       "warp whose lanes have to be together for what follows comes there "
       "without a branch, or by an instruction that all lanes wait at.",
       hasNoConflict},
      {"already fenced",
       "A wgmma.fence where, on every way since the last one, no instruction "
       "but wgmma has touched a register of sums or fragments, and the "
       "products before and behind it are of one shape: those the ISA orders "
       "without a fence.",
       isFencedAlready},
      {"same in all lanes",
       "A shuffle by index of a value that all lanes of the warp have in "
       "common, such as the number of the warp, from another lane. The warp "
       "is whole, and all its lanes take part.",
       isSameInAllLanes},
      {"only a hint",
       "A branch around prefetches and the addresses that they alone use: "
       "who executes them does not show.",
       guardsOnlyHints},
      {"always one way",
       "A branch that goes one way alone, or a comparison of numbers that are "
       "never equal, on all ways that the numbers in the text leave open: "
       "how many rounds a loop has, by how much a place is behind the last "
       "one. Between which values integers lie, and how far from the one that "
       "is compared with, is followed through the arithmetic; sums that might "
       "wrap around are unknown.",
       goesOneWay},
      {"nothing more is written",
       "A bound or branch that begins one round or tile more, or leaves one "
       "out, where from there to the end of the kernel neither the kernel nor "
       "the mutant, on any way, writes anything but registers and shared "
       "memory: every row is masked. All threads of the CTA do so together, "
       "or they touch nothing that they share. That the mutant comes to an "
       "end and reads no place that is not there, the schedules have to show.",
       writesNothingMore, /*hasToSurvive=*/true},
      {"asks before it waits",
       "A test of a phase, its address, or the branch that it decides, where "
       "on every way a wait for the same phase comes before any access to "
       "memory: nobody relies on the answer. It decides alone whether what "
       "was copied is announced before that wait or after it; that both ways "
       "come to an end, the schedules have to show.",
       asksBeforeItWaits, /*hasToSurvive=*/true},
      {"single words",
       "A proxy fence by a thread that, on every way since its last one or "
       "since a barrier of the whole CTA, has written nothing to shared memory "
       "itself but single numbers, of which copies bring 4 bytes each. "
       "Matrices come in chunks of 16; these are scales, which threads read. "
       "That no operation of the async proxy touches a byte of them, nor of "
       "what was written before that barrier, the simulator has to show: it "
       "compares each with its writer's fences, under every schedule.",
       fencesSingleWords, /*hasToSurvive=*/true},
      {"read by nobody",
       "A shuffle, select or load of another value, or a branch around "
       "instructions that write registers alone: no way leads from there to an "
       "instruction, other than such as make more of these values, that reads "
       "one before it is written anew. Ways are those that the numbers in the "
       "text leave open; no branch, no address and no other thread's "
       "instruction may depend on such a value. That the mutant comes to an "
       "end and reads no place that is not there, the schedules have to show.",
       isReadByNobody, /*hasToSurvive=*/true},
      {"waited for again",
       "A wait for products, or the commit that one relies on, where on every "
       "way to the next wait, which leaves no more groups and ahead of which "
       "there is a commit, nobody touches a register of the products that are "
       "in flight then, writes memory, signals, or begins anything but "
       "products. It keeps few of them in flight, for the sake of registers. "
       "That products of the same sums follow each other the simulator has to "
       "show.",
       isWaitedForAgain, /*hasToSurvive=*/true},
      {"other buffers",
       "A barrier of a warp between neighbours as above, where accesses to "
       "global memory on its two sides begin at different parameters of the "
       "kernel. That these are different buffers the simulator has to show: it "
       "compares each access with all that nothing orders before it, whatever "
       "the schedule.",
       keepsBuffersApart, /*hasToSurvive=*/true},
  };
  return rules;
}

std::string mutate::proveEquivalent(const Flow &flow, const Mutant &mutant,
                                    bool hasSurvived) {
  for (const Rule &rule : allRules())
    if (rule.hasToSurvive == hasSurvived && rule.proves(flow, mutant))
      return rule.name;
  return "";
}

//===----------------------------------------------------------------------===//
// Single CTA
//===----------------------------------------------------------------------===//

/// Whether a fence of the async proxy follows before any other effect.
static bool isFencedNext(const Flow &flow, size_t index) {
  while (flow.successors(index).size() == 1) {
    index = flow.successors(index)[0];
    const RawInstruction &instruction = flow.kernel.instructions[index];
    if (startsWith(instruction, "fence.proxy.async"))
      return instruction.guard.empty();
    if (instruction.parts[0] != "mov" && instruction.parts[0] != "add" &&
        instruction.parts[0] != "cvt")
      return false;
  }
  return false;
}

bool mutate::isOfOneCta(const Flow &flow, const Mutant &mutant) {
  if (mutant.kind != "fence of mbarrier init" ||
      !isFencedNext(flow, mutant.index))
    return false;
  // The parser rejects clusters of more than one CTA. So shared::cluster
  // addresses are of the own CTA, unless the kernel uses mapa or a cluster
  // barrier.
  return std::none_of(flow.kernel.instructions.begin(),
                      flow.kernel.instructions.end(),
                      [](const RawInstruction &instruction) {
                        return instruction.parts[0] == "mapa" ||
                               startsWith(instruction, "barrier.cluster") ||
                               has(instruction, "multicast::cluster");
                      });
}
