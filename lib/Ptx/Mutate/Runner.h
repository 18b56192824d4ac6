//===- Runner.h - what becomes of each mutant -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_PTX_MUTATE_RUNNER_H
#define MOEC_LIB_PTX_MUTATE_RUNNER_H

#include "Launches.h"
#include "Mutants/Mutants.h"

namespace moec::ptx::mutate {

enum class Outcome : uint8_t {
  /// Some seed has found it.
  Killed,
  /// A rule proves that nothing depends on it.
  Equivalent,
  Missed,
};

const char *outcomeName(Outcome outcome);

struct Verdict {
  Mutant mutant;
  Outcome outcome = Outcome::Missed;
  /// "race", "deadlock", "bits", "work" (other copies or products) and so on,
  /// or the rule.
  std::string by;
  /// Where it was killed.
  uint64_t seed = 0;
  std::string inputs, message;
};

struct RunnerOptions {
  /// Schedules that each mutant of a synchronization has to survive, and those
  /// of an index or mask, which is as wrong under all of them.
  uint64_t seeds = 8, indexSeeds = 2;
  unsigned threads = 1;
  /// A random sample of so many mutants per kernel; 0: all of them.
  size_t sample = 0;
  /// The same for mutants of indices and masks alone.
  size_t indexSample = 0;
  uint64_t sampleSeed = 0;
  /// Only mutants whose kind contains this.
  std::string kind;
  /// Says how far it is.
  bool showsProgress = false;
};

/// Runs all mutants of one kernel of the recording. An error is one of the
/// original: it fails, or its bits or its work depend on the seed.
moert::Result<std::vector<Verdict>> runMutants(const Recording &recording,
                                               const std::string &kernel,
                                               const RunnerOptions &options);

} // namespace moec::ptx::mutate

#endif // MOEC_LIB_PTX_MUTATE_RUNNER_H
