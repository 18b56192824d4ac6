//===- Tune.h - other configs of a row's products ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_TUNE_TUNE_H
#define MOEC_LIB_TOOLS_BENCH_TUNE_TUNE_H

#include "Trials.h"
#include "moec/Analysis/ConfigText.h"

#include <algorithm>

namespace moec::bench {

/// A kernel of a layer whose config can be another.
struct TunableKernel {
  /// Without a range.
  std::string name;
  /// What is chosen for the tokens of the row, and what else is legal, best
  /// first by the model of its time; each as --config takes it.
  std::string chosen;
  std::vector<std::string> candidates;
};

/// Those that the row launches, with at most so many candidates each.
moert::Result<std::vector<TunableKernel>>
findTunableKernels(const Session &session, const BenchLayer &layer,
                   const Row &row, size_t most);

/// The result for one row.
struct TunedRow {
  /// What the layer takes as it is chosen, and with the best of the configs
  /// that were measured; all of products apart.
  double chosenSeconds = 0, foundSeconds = 0;
  /// Those, by kernel.
  KernelConfigs configs;
  int64_t numMeasured = 0, numFailed = 0;

  /// Whether they are worth to be forced.
  bool isBetter() const;
  double getBestSeconds() const {
    return std::min(chosenSeconds, foundSeconds);
  }
  /// How many times the best the chosen takes; 1 without a clock.
  double getRatio() const {
    return getBestSeconds() > 0 ? chosenSeconds / getBestSeconds() : 1;
  }
};

/// When the measurements of one row end.
struct TuneLimits {
  /// None begins after so long.
  double seconds = 0;
  /// Per kernel.
  size_t candidates = 0;
};

/// Measures the layer as it is chosen, then the candidates of each kernel in
/// turn, cold and in a graph as in the table, those of the second with the best
/// of the first; numbers are checked.
moert::Result<TunedRow> tuneRow(Session &session, LayerOnDevice &layer,
                                RowRun &run, const Row &row,
                                const TuneLimits &limits,
                                llvm::raw_ostream &os);

/// The rows of a layer as configs with ranges: each row's are for the tokens
/// around its own, up to powers of two in between. Where nothing better was
/// found there are none.
std::vector<ForcedConfig> getRanges(const std::map<int64_t, TunedRow> &rows,
                                    int64_t maxTokens);

/// A field that all such rows of a record have.
inline constexpr char kTunedField[] = "tune_chosen_us";
/// As fields of a row of a record, whose names begin with tune_; times in us.
void writeTunedRow(const TunedRow &row, llvm::json::Object &result);
/// What it wrote; zeros where it did not.
TunedRow readTunedRow(const llvm::json::Object &result);

/// The file of a layer in a folder of configs.
std::string getTuningFile(const std::string &folder, const std::string &layer);
/// Writes it as readTunedConfigs() takes it; makes the folder.
moert::Status writeTuning(const std::string &folder, const std::string &layer,
                          const std::string &target,
                          const std::vector<ForcedConfig> &configs);
/// By layer; those without a file are left out.
moert::Result<std::map<std::string, std::vector<std::string>>>
readTuning(const std::string &folder, const Table &table,
           const std::string &target);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_TUNE_TUNE_H
