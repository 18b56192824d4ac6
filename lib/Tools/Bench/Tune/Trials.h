//===- Trials.h - measures a row with other configs -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_TUNE_TRIALS_H
#define MOEC_LIB_TOOLS_BENCH_TUNE_TRIALS_H

#include "../Run/RowRun.h"

#include <optional>

namespace moec::bench {

/// Configs by kernel, in the syntax of --config.
using KernelConfigs = std::vector<std::pair<std::string, std::string>>;

/// Compiles the layer of a row with other configs in parallel, and measures
/// them in sequence: cold and in a graph, as in the table. Results are checked.
class Trials {
public:
  Trials(Session &session, LayerOnDevice &layer, RowRun &run, const Row &row);

  /// The number of parallel compilations.
  static size_t getNumThreads();
  /// The session for a layer of only the row's tokens, without joined gemms.
  const Session &getSession() const { return small; }

  /// Compiles in parallel; entries that have not begun when `isOver` becomes
  /// true have no value.
  std::vector<std::optional<moert::Result<ReadyLayer>>>
  compile(const std::vector<KernelConfigs> &all,
          llvm::function_ref<bool()> isOver);
  /// The seconds of a run; 0 without a clock.
  moert::Result<double> measure(moert::Result<ReadyLayer> ready);

private:
  Session &session;
  LayerOnDevice &layer;
  RowRun &run;
  Session small;
  /// Whether the device was idle during a compilation.
  bool isRested = true;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_TUNE_TRIALS_H
