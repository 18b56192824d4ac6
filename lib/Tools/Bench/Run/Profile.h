//===- Profile.h - where the time of a row goes -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RUN_PROFILE_H
#define MOEC_LIB_TOOLS_BENCH_RUN_PROFILE_H

#include "RowRun.h"

namespace moec::bench {

/// One launch of a run.
struct KernelProfile {
  std::string name;
  /// The median; 0 on a device without a clock.
  double seconds = 0;
  int64_t ctas = 0, threads = 0;
  /// What it has to do at least: each tensor once, the touched experts alone.
  double bytes = 0, operations = 0;
};

struct RowProfile {
  std::vector<KernelProfile> kernels;
  /// Between two events with nothing in between.
  double emptySeconds = 0;
  /// Seconds of a run in a graph, as the table has them.
  double graphSeconds = 0;
};

/// Runs that are timed, of all sets together.
constexpr int64_t kProfileSamples = 24;

/// Puts each launch of so many runs between two events. The device is kept busy
/// before, so that launches wait in the stream and not on the host, and a run
/// of another set goes before, so that caches are as between runs. With no
/// samples the first set is run once more and nothing is timed: a profiler that
/// skips the launches before sees each launch of a run whose weights are cold.
moert::Result<RowProfile> profileRow(Session &session, LayerOnDevice &layer,
                                     RowRun &run, const Row &row,
                                     int64_t samples = kProfileSamples);

/// An object per launch, for a record.
llvm::json::Array describeLaunches(const RowProfile &profile);

/// A line per kernel, under a title.
void printProfile(const RowProfile &profile, llvm::StringRef title,
                  const BenchLayer &layer, const Work &work,
                  const Ceilings &ceilings, llvm::raw_ostream &os);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RUN_PROFILE_H
