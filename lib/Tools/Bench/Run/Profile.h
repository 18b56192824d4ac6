//===- Profile.h - times of the launches of a row ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RUN_PROFILE_H
#define MOEC_LIB_TOOLS_BENCH_RUN_PROFILE_H

#include "RowRun.h"

namespace moec::bench {

struct KernelProfile {
  std::string name;
  /// The median; 0 on a device without a clock.
  double seconds = 0;
  int64_t ctas = 0, threads = 0;
  /// The least work: each tensor moved once, weights of touched experts only.
  double bytes = 0, operations = 0;
};

struct RowProfile {
  std::vector<KernelProfile> kernels;
  /// Seconds between two events with nothing in between.
  double emptySeconds = 0;
  /// Seconds per run of a graph, as in the table.
  double graphSeconds = 0;
};

/// Timed runs, over all sets together.
constexpr int64_t kProfileSamples = 24;

/// Times each launch of `samples` runs by events around it. The device is kept
/// busy before, so that launches queue in the stream and not on the host, and a
/// run of another set goes before, so that caches are in the state of
/// consecutive runs. With no samples the first set is run once more untimed: an
/// external profiler that skips the launches before it sees each launch of a
/// run with cold weights.
moert::Result<RowProfile> profileRow(Session &session, LayerOnDevice &layer,
                                     RowRun &run, const Row &row,
                                     int64_t samples = kProfileSamples);

llvm::json::Array describeLaunches(const RowProfile &profile);

/// Prints a line per kernel, under a title.
void printProfile(const RowProfile &profile, llvm::StringRef title,
                  const BenchLayer &layer, const Work &work,
                  const Ceilings &ceilings, llvm::raw_ostream &os);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RUN_PROFILE_H
