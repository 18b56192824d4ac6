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
       "fence.mbarrier_init.release.cluster makes new mbarriers visible to "
       "other CTAs of the cluster. The kernel has no cluster and uses no "
       "memory of another CTA, so no CTA needs it; for the async proxy of its "
       "own CTA a fence.proxy.async follows in the same basic block.",
       isOfOneCta},
      {"nothing in flight",
       "A wait whose groups, on every path to it, are empty, were ended by an "
       "earlier wait, or (for a wait for reads) have no pending reads; a wait "
       "that allows one group more, where there are never that many; and the "
       "commit of an empty group on which no later wait depends. The copies "
       "and products that each group may contain are tracked through the "
       "kernel's control flow and merged where paths join.",
       hasNothingInFlight},
      {"nothing to fence",
       "A proxy fence by a thread that, on every path since its last one, has "
       "written nothing to shared memory, has completed no cp.async, and has "
       "waited for no thread whose writes the fence might cover. For "
       "mbarrier.init, fence.mbarrier_init counts as such a fence too.",
       hasNothingToFence},
      {"never equal",
       "A comparison with or without equality of two numbers of which some bit "
       "always differs: a multiple of 8 is never odd. The bits that all values "
       "of a register share are tracked through integer arithmetic, loops "
       "included.",
       isNeverEqual},
      {"stronger neighbours",
       "A barrier orders the accesses between the previous barrier and itself "
       "before those between itself and the next one. All threads pass these "
       "neighbours too, which order all other accesses. The barrier is not "
       "needed if no two of these accesses by different threads conflict: both "
       "read, or they use different spaces or variables, or one thread makes "
       "both, or each thread uses only the location that its own index "
       "selects. Neither side may signal, wait, or copy asynchronously. Behind "
       "a warp barrier the kernel may wait, which signals nothing, and may "
       "begin products if the warp has not written to shared memory before. "
       "Lanes that must be converged for the following code reach it without a "
       "branch, or after an instruction at which all lanes wait.",
       hasNoConflict},
      {"already fenced",
       "A wgmma.fence where, on every path since the last one, only wgmma has "
       "accessed registers of sums or fragments, and the products before and "
       "after it have one shape. The ISA orders such products without a fence.",
       isFencedAlready},
      {"same in all lanes",
       "A shuffle by index, from another lane, of a value that all lanes of "
       "the warp share, such as the index of the warp. The warp is complete, "
       "and all its lanes take part.",
       isSameInAllLanes},
      {"only a hint",
       "A branch around prefetches and the addresses that only they use: "
       "results do not depend on the threads that execute them.",
       guardsOnlyHints},
      {"always one way",
       "A branch that always goes one way, or a comparison of numbers that are "
       "never equal, on all paths that the constants in the text allow: the "
       "number of rounds of a loop, the distance between consecutive "
       "addresses. Ranges of integers, and their differences from the compared "
       "value, are tracked through the arithmetic; sums that might wrap around "
       "are unknown.",
       goesOneWay},
      {"nothing more is written",
       "A bound or branch that starts one round or tile more, or skips one, "
       "where from there to the end neither the kernel nor the mutant, on any "
       "path, writes anything but registers and shared memory: every row is "
       "masked. All threads of the CTA do so together, or they access nothing "
       "that they share. The schedules must show that the mutant ends and "
       "reads no address outside memory.",
       writesNothingMore, /*hasToSurvive=*/true},
      {"asks before it waits",
       "A test of a phase, its address, or the branch that it decides, where "
       "on every path a wait for the same phase comes before any access to "
       "memory, so that nothing depends on the answer. The answer only decides "
       "whether a copy is announced before that wait or after it; the "
       "schedules must show that both paths end.",
       asksBeforeItWaits, /*hasToSurvive=*/true},
      {"single words",
       "A proxy fence by a thread that, on every path since its last one or "
       "since a barrier of the whole CTA, has written to shared memory only "
       "single words, by copies of 4 bytes. Matrices come in chunks of 16 "
       "bytes; single words are scales, which threads read. The simulator must "
       "show that no operation of the async proxy accesses a byte of them, or "
       "of the writes before that barrier: it compares each access with its "
       "writer's fences, under every schedule.",
       fencesSingleWords, /*hasToSurvive=*/true},
      {"never read",
       "A shuffle, select or load of another value, or a branch around "
       "instructions that only write registers: on every path, no instruction "
       "reads such a value before it is overwritten, except instructions that "
       "produce more of these values. Paths are those that the constants in "
       "the text allow; no branch, no address and no other thread's "
       "instruction may depend on such a value. The schedules must show that "
       "the mutant ends and reads no address outside memory.",
       isReadByNobody, /*hasToSurvive=*/true},
      {"waited for again",
       "A wait for products, or the commit on which it depends. On every path "
       "to the next wait, which leaves no more groups pending and has a commit "
       "before it, the kernel accesses no register of the pending products, "
       "writes no memory, signals nothing, and starts only products. The wait "
       "keeps few products in flight, to save registers. The simulator must "
       "show that products of the same sums follow each other.",
       isWaitedForAgain, /*hasToSurvive=*/true},
      {"other buffers",
       "A warp barrier between neighbours as in 'stronger neighbours', where "
       "accesses to global memory on its two sides are based on different "
       "parameters of the kernel. The simulator must show that these are "
       "different buffers: it compares each access with all unordered ones, "
       "under every schedule.",
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
  if (flow.kernel.clusterCtas > 1)
    return false;
  return std::none_of(flow.kernel.instructions.begin(),
                      flow.kernel.instructions.end(),
                      [](const RawInstruction &instruction) {
                        return instruction.parts[0] == "mapa" ||
                               startsWith(instruction, "barrier.cluster") ||
                               has(instruction, "multicast::cluster");
                      });
}
