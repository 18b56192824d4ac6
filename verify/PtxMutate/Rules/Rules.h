//===- Rules.h - proofs that a mutant is equivalent -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_RULES_RULES_H
#define MOEC_VERIFY_PTXMUTATE_RULES_RULES_H

#include "../Flow/Flow.h"
#include "../Mutants/Mutants.h"

namespace moec::ptx::mutate {

/// A rule whose code proves, from the kernel, that a mutant is equivalent to
/// the original.
struct Rule {
  /// Such as "single CTA".
  const char *name;
  /// The statement of the rule, and why it holds.
  const char *text;
  bool (*proves)(const Flow &flow, const Mutant &mutant);
  /// The proof is complete only for mutants that no simulated schedule has
  /// killed.
  bool hasToSurvive = false;
};

const std::vector<Rule> &allRules();

/// The name of the first rule that proves the mutant equivalent to the kernel;
/// empty if none does. Some rules apply only to mutants that have survived all
/// schedules.
std::string proveEquivalent(const Flow &flow, const Mutant &mutant,
                            bool hasSurvived = false);

// The rules.
bool isOfOneCta(const Flow &flow, const Mutant &mutant);
bool hasNothingInFlight(const Flow &flow, const Mutant &mutant);
bool hasNothingToFence(const Flow &flow, const Mutant &mutant);
bool isNeverEqual(const Flow &flow, const Mutant &mutant);
bool hasNoConflict(const Flow &flow, const Mutant &mutant);
bool keepsBuffersApart(const Flow &flow, const Mutant &mutant);
bool isFencedAlready(const Flow &flow, const Mutant &mutant);
bool isSameInAllLanes(const Flow &flow, const Mutant &mutant);
bool isReadByNobody(const Flow &flow, const Mutant &mutant);
bool asksBeforeItWaits(const Flow &flow, const Mutant &mutant);
bool fencesSingleWords(const Flow &flow, const Mutant &mutant);
bool goesOneWay(const Flow &flow, const Mutant &mutant);
bool writesNothingMore(const Flow &flow, const Mutant &mutant);
bool guardsOnlyHints(const Flow &flow, const Mutant &mutant);
bool isWaitedForAgain(const Flow &flow, const Mutant &mutant);

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_RULES_RULES_H
