//===- Tune.h - tunes the configs of a row's gemms --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_TUNE_TUNE_H
#define MOEC_LIB_TOOLS_BENCH_TUNE_TUNE_H

#include "Trials.h"
#include "moec/Schedules/ConfigText.h"

#include <algorithm>

namespace moec::bench {

/// A kernel of a layer that has other legal configs.
struct TunableKernel {
  /// The kernel's name without its range.
  std::string name;
  /// The config chosen for the row's tokens, and the other legal ones, sorted
  /// by the cost model, best first; in the syntax of --config.
  std::string chosen;
  std::vector<std::string> candidates;
};

/// The kernels that the row launches, with at most `most` candidates each, by
/// their times with a uniform or a skewed load.
moert::Result<std::vector<TunableKernel>>
findTunableKernels(const Session &session, const BenchLayer &layer,
                   const Row &row, size_t most, bool isSkewed = false);

struct TunedRow {
  /// Seconds of the layer with the chosen configs, and with the best measured
  /// ones without joined gemms.
  double chosenSeconds = 0, foundSeconds = 0;
  /// The best measured configs, by kernel.
  KernelConfigs configs;
  int64_t numMeasured = 0, numFailed = 0;

  /// Whether the measured configs are enough faster to be forced.
  bool isBetter() const;
  double getBestSeconds() const {
    return std::min(chosenSeconds, foundSeconds);
  }
  /// Time of the chosen configs relative to the best; 1 without a clock.
  double getRatio() const {
    return getBestSeconds() > 0 ? chosenSeconds / getBestSeconds() : 1;
  }
};

/// Limits on the measurements of one row.
struct TuneLimits {
  /// No measurement begins after this time.
  double seconds = 0;
  /// Per kernel.
  size_t candidates = 0;
};

/// Measures the layer with the chosen configs, then the candidates of each
/// kernel in sequence: cold and in a graph, as in the table. Each kernel is
/// measured with the best configs of those before it. Results are checked.
moert::Result<TunedRow> tuneRow(Session &session, LayerOnDevice &layer,
                                RowRun &run, const Row &row,
                                const TuneLimits &limits,
                                llvm::raw_ostream &os);

/// Converts the rows of a layer into configs with token ranges; neighbouring
/// ranges meet at a power of two between their rows. Rows without an
/// improvement give no configs.
std::vector<ForcedConfig> getRanges(const std::map<int64_t, TunedRow> &rows,
                                    int64_t maxTokens);

/// A field that marks such rows in a record.
inline constexpr char kTunedField[] = "tune_chosen_us";
/// Writes the fields of a record's row that begin with tune_; times in us.
void writeTunedRow(const TunedRow &row, llvm::json::Object &result);
/// Reads these fields; zeros if there are none.
TunedRow readTunedRow(const llvm::json::Object &result);

/// The file of a layer in a folder of configs.
std::string getTuningFile(const std::string &folder, const std::string &layer);
/// Writes the file that readTunedConfigs() reads; creates the folder.
moert::Status writeTuning(const std::string &folder, const std::string &layer,
                          const std::string &target,
                          const std::vector<ForcedConfig> &configs);
/// The configs by layer; layers without a file are left out.
moert::Result<std::map<std::string, std::vector<std::string>>>
readTuning(const std::string &folder, const Table &table,
           const std::string &target);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_TUNE_TUNE_H
