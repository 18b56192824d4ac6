//===- Trials.h - a row with configs that are tried -------------*- C++ -*-===//
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

/// Configs by kernel, as --config takes them.
using KernelConfigs = std::vector<std::pair<std::string, std::string>>;

/// Compiles the layer of a row with other configs, many at a time, and measures
/// them one after the other, cold and in a graph as in the table; numbers are
/// checked.
class Trials {
public:
  Trials(Session &session, LayerOnDevice &layer, RowRun &run, const Row &row);

  /// What the compiler's threads are for.
  static size_t getNumThreads();
  /// The session of a layer for the row's tokens alone, with products apart.
  const Session &getSession() const { return small; }

  /// Side by side; those that begin after `isOver` have no value.
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
  /// Whether the device has had nothing to do while others were compiled.
  bool isRested = true;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_TUNE_TRIALS_H
