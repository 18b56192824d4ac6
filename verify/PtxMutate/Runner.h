//===- Runner.h - runs and judges mutants -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXMUTATE_RUNNER_H
#define MOEC_VERIFY_PTXMUTATE_RUNNER_H

#include "Launches.h"
#include "Mutants/Mutants.h"

namespace moec::ptx::mutate {

enum class Outcome : uint8_t {
  /// At least one seed exposed the mutant.
  Killed,
  /// A rule proves that the mutant behaves as the original.
  Equivalent,
  Missed,
};

const char *outcomeName(Outcome outcome);

struct Verdict {
  Mutant mutant;
  Outcome outcome = Outcome::Missed;
  /// The check: "race", "deadlock", "bits", "work" (other copies or products)
  /// and so on; or the name of the rule.
  std::string by;
  /// The run that killed the mutant.
  uint64_t seed = 0;
  std::string inputs, message;
};

struct RunnerOptions {
  /// Schedules that each synchronization mutant must survive; and each index or
  /// mask mutant, which misbehaves under every schedule alike.
  uint64_t seeds = 8, indexSeeds = 2;
  unsigned threads = 1;
  /// Size of a random sample of mutants per kernel; 0: all of them.
  size_t sample = 0;
  /// Sample size for mutants of indices and masks alone.
  size_t indexSample = 0;
  uint64_t sampleSeed = 0;
  /// Takes listSumOrderMutants() in place of listMutants().
  bool swapsProducts = false;
  /// Only mutants whose kind contains this.
  std::string kind;
  /// Reports progress.
  bool showsProgress = false;
};

/// Runs all mutants of one kernel of the recording. An error means that the
/// original fails, or that its bits or its work depend on the seed.
moert::Result<std::vector<Verdict>> runMutants(const Recording &recording,
                                               const std::string &kernel,
                                               const RunnerOptions &options);

} // namespace moec::ptx::mutate

#endif // MOEC_VERIFY_PTXMUTATE_RUNNER_H
