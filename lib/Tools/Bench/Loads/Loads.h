//===- Loads.h - times of configs with many loads ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_LOADS_LOADS_H
#define MOEC_LIB_TOOLS_BENCH_LOADS_LOADS_H

#include "../Tune/Tune.h"

namespace moec::bench {

/// The measured times of one load, per config.
struct MeasuredLoad {
  ExpertLoad load;
  /// Local experts that have rows, and the rows of the largest one, in the
  /// first set.
  int64_t experts = 0, mostRows = 0;
  /// Observations of each config, as many of each and an even number; none
  /// without a clock. The first config is the layer as compiled.
  std::vector<std::vector<double>> observations;
  bool isChecked = false;

  bool isTimed() const { return !observations.front().empty(); }
  double getSeconds(size_t config) const;
  /// The best config by the first half of the observations.
  size_t getBest() const;
  /// Time of the layer as compiled beyond that of the best config, as a share
  /// of the latter, by the second half of the observations: the least of many
  /// noisy times, which chose the config, would be too small. Negative where
  /// the second half disagrees; 0 without a clock.
  double getRegret() const;
};

struct LoadsOfRow {
  /// Descriptions of the configs, the first of which is the layer as compiled.
  std::vector<std::string> configs;
  std::vector<MeasuredLoad> loads;
  /// Configs that did not compile, or failed.
  int64_t numFailed = 0;
};

struct LoadsLimits {
  /// Loads; other configs per kernel.
  int64_t loads = 0;
  size_t candidates = 0;
  /// No load begins after this time.
  double seconds = 0;
  /// Sets of a run.
  int64_t sets = 1;
};

/// Measures the layer as compiled, and with other configs of its gemms, with
/// each load: configs in turn, each in one graph, which is captured once and
/// whose ids change in place. Results of the first load of each kind are
/// checked, and those of others as long as checks take little of the time.
moert::Result<LoadsOfRow> measureLoads(Session &session, LayerOnDevice &layer,
                                       const Row &row,
                                       const LoadsLimits &limits,
                                       llvm::raw_ostream &os);

/// A field that marks such rows in a record.
inline constexpr char kLoadsField[] = "loads";
/// Writes the fields of a record's row that begin with load; times in us.
void writeLoads(const LoadsOfRow &row, llvm::json::Object &result);

/// Prints the mean and worst regret of each kind of load and of all.
void printRegrets(const LoadsOfRow &row, llvm::raw_ostream &os);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_LOADS_LOADS_H
