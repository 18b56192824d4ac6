//===- Options.h - options of moe-bench -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_OPTIONS_H
#define MOEC_LIB_TOOLS_BENCH_OPTIONS_H

#include "../OnDevice/DeviceOptions.h"

namespace moec::bench {

struct Options : DeviceOptions {
  Options();

  llvm::cl::list<std::string> others{llvm::cl::Positional,
                                     llvm::cl::desc("[OLD.json NEW.json]"),
                                     llvm::cl::cat(category)};
  llvm::cl::list<std::string> rows{
      "rows", llvm::cl::value_desc("NAME[:TOKENS,...]"),
      llvm::cl::desc("Only these rows; names may contain * and ?; may be given "
                     "several times"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> table{
      "table", llvm::cl::value_desc("rows.json|asked.json"),
      llvm::cl::desc("Table of layers and rows in the data folder (default: "
                     "rows.json); asked.json has layers that users of other "
                     "libraries asked for"),
      llvm::cl::init("rows.json"), llvm::cl::cat(category)};
  llvm::cl::opt<bool> spec{
      "spec",
      llvm::cl::desc("Print the spec (docs/use/layers.md) of the first row's "
                     "layer, for moe-compile, and stop"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> router{
      "router",
      llvm::cl::desc(
          "Add a column of times with the router, from hidden states alone"),
      llvm::cl::cat(category)};
  llvm::cl::list<std::string> beside{
      "beside", llvm::cl::value_desc("rewrite.name[=value],..."),
      llvm::cl::CommaSeparated,
      llvm::cl::desc(
          "Also time each layer with these parameters of rewrites, in turn "
          "with the layer itself, as in --beside=join-sums.always"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> profile{
      "profile",
      llvm::cl::desc(
          "Print times of each kernel of the rows instead of the table; with "
          "--router, also for the layers with their routers"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> untimed{
      "untimed",
      llvm::cl::desc(
          "With --profile: run each row once more and measure no times, under "
          "an external profiler (benchmarks/counters.py)"),
      llvm::cl::cat(category)};
  llvm::cl::list<std::string> config{
      "config", llvm::cl::value_desc("KERNEL[@MIN-MAX]:TEXT"),
      llvm::cl::desc(
          "Force a config of a kernel (docs/design/lowering-to-gpu.md); may be "
          "given several times"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> tuned{
      "tuned", llvm::cl::value_desc("folder"),
      llvm::cl::desc(
          "Use the configs that --tune wrote; --config takes precedence"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> tune{
      "tune", llvm::cl::value_desc("folder"),
      llvm::cl::desc(
          "Measure other configs of the rows' gemms and write the better ones "
          "to LAYER.json (for --tuned), instead of the table"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> fit{
      "fit", llvm::cl::value_desc("file"),
      llvm::cl::desc("Measure the rows with several configs, fit the cost "
                     "model's coefficients of this GPU to the times, and write "
                     "its entry for lib/Schedules/Interface/Fits "
                     "(docs/design/cost-model.md), instead of the table"),
      llvm::cl::cat(category)};
  llvm::cl::opt<int> loads{
      "loads", llvm::cl::value_desc("N"),
      llvm::cl::desc(
          "Draw N loads of the experts for each row (uniform, Zipf's law, few "
          "hot experts, half of the experts, one expert with all tokens), "
          "measure the layer as compiled and with other configs of its gemms, "
          "and print what the chosen configs lose for each load, instead of "
          "the table"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<int> candidates{
      "candidates", llvm::cl::value_desc("N"),
      llvm::cl::desc(
          "For --tune: largest number of configs measured per kernel, the best "
          "predicted ones first (default: 32). For --fit and --loads: number "
          "of configs per kernel beside the chosen one (default: 5 and 4)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<double> seconds{
      "seconds", llvm::cl::value_desc("N"),
      llvm::cl::desc(
          "For --tune, --fit and --loads: approximate time for all rows "
          "(default: 300)"),
      llvm::cl::init(300), llvm::cl::cat(category)};
  llvm::cl::opt<bool> resume{
      "resume",
      llvm::cl::desc("Keep the rows already in the file of --json, if they are "
                     "from the same build and device"),
      llvm::cl::cat(category)};
  llvm::cl::opt<double> rowLimit{
      "row-limit", llvm::cl::value_desc("seconds"),
      llvm::cl::desc(
          "Exit if a row takes longer, since a kernel that hangs cannot be "
          "stopped (default: 60; with --tune, in addition to its own time)"),
      llvm::cl::init(60), llvm::cl::cat(category)};
  llvm::cl::opt<int> observations{
      "observations", llvm::cl::value_desc("N"),
      llvm::cl::desc("Observations of each row, alternating with those of the "
                     "yardstick (default: 3)"),
      llvm::cl::init(3), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> yardstick{
      "yardstick", llvm::cl::value_desc("python|none"),
      llvm::cl::desc("Python with PyTorch to measure ceilings and "
                     "torch._grouped_mm (default: python3, if it has PyTorch)"),
      llvm::cl::init("python3"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> commit{
      "commit", llvm::cl::value_desc("text"),
      llvm::cl::desc(
          "Commit to record with the results (default: that of the build)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> cacheDir{
      "cache-dir", llvm::cl::value_desc("folder"),
      llvm::cl::desc("Cache of compiled layers (docs/use/c-api.md)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> noCache{
      "no-cache", llvm::cl::desc("Neither read nor write the cache"),
      llvm::cl::cat(category)};
  KernelOptions kernels{category};
  llvm::cl::opt<bool> compare{
      "compare",
      llvm::cl::desc("Measure nothing: compare the records OLD.json and "
                     "NEW.json; exit code 1 if a row got slower"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> toleranceText{
      "tolerance", llvm::cl::value_desc("3%"),
      llvm::cl::desc("For --compare: slowdown that counts as equal"),
      llvm::cl::init("3%"), llvm::cl::cat(category)};

  /// Parses the command line; returns false, with a message, if it makes no
  /// sense.
  bool parse(int argc, char **argv);
  std::vector<std::string> getRows() const {
    return {rows.begin(), rows.end()};
  }
  std::vector<std::string> getConfigs() const {
    return {config.begin(), config.end()};
  }
  /// The value of --candidates, or its default.
  size_t getCandidates() const {
    constexpr int few = 4, some = 5, many = 32;
    return static_cast<size_t>(candidates     ? candidates
                               : loads > 0    ? few
                               : !fit.empty() ? some
                                              : many);
  }

  /// The value of --tolerance, as a fraction.
  double tolerance = 0;

private:
  bool parseTolerance();
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_OPTIONS_H
