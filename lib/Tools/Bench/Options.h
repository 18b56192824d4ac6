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
      llvm::cl::desc("Only these rows; * and ? in the name as usual, may be "
                     "given several times"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> spec{
      "spec",
      llvm::cl::desc(
          "Print the spec (docs/use/layers.md) of the first row's layer "
          "and stop; for moe-compile"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> router{
      "router",
      llvm::cl::desc("A second column: with the router, from hidden states "
                     "alone"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> profile{
      "profile",
      llvm::cl::desc("Times of each kernel of the rows, no table; with "
                     "--router, of the layers with their routers too"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> untimed{
      "untimed",
      llvm::cl::desc("With --profile: one more run of each row and no times, "
                     "for a profiler around it (benchmarks/counters.py)"),
      llvm::cl::cat(category)};
  llvm::cl::list<std::string> config{
      "config", llvm::cl::value_desc("KERNEL[@MIN-MAX]:TEXT"),
      llvm::cl::desc("Take this config for a kernel "
                     "(docs/design/lowering-to-gpu.md), may be "
                     "given several times"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> tuned{
      "tuned", llvm::cl::value_desc("folder"),
      llvm::cl::desc("Take the configs that --tune wrote; those of --config "
                     "come first"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> tune{
      "tune", llvm::cl::value_desc("folder"),
      llvm::cl::desc("Measure other configs of the rows' products and write "
                     "those that are better to LAYER.json (for --tuned), no "
                     "table"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> fit{
      "fit", llvm::cl::value_desc("file"),
      llvm::cl::desc("Measure the rows with several configs, fit the "
                     "coefficients of the device's part to the times, and "
                     "write its entry for lib/Analysis/Cost/Fits "
                     "(docs/design/cost-model.md), no table"),
      llvm::cl::cat(category)};
  llvm::cl::opt<int> candidates{
      "candidates", llvm::cl::value_desc("N"),
      llvm::cl::desc("For --tune: configs of a kernel that are measured at "
                     "most, the best first by the model (default: 32). For "
                     "--fit: configs of a kernel beside the chosen one "
                     "(default: 5)"),
      llvm::cl::init(0), llvm::cl::cat(category)};
  llvm::cl::opt<double> seconds{
      "seconds", llvm::cl::value_desc("N"),
      llvm::cl::desc("For --tune and --fit: about how long, for all rows "
                     "(default: 300)"),
      llvm::cl::init(300), llvm::cl::cat(category)};
  llvm::cl::opt<bool> resume{
      "resume",
      llvm::cl::desc("Keep the rows that the file of --json has, of the same "
                     "build on the same device"),
      llvm::cl::cat(category)};
  llvm::cl::opt<double> rowLimit{
      "row-limit", llvm::cl::value_desc("seconds"),
      llvm::cl::desc("End the program where a row takes so long: a kernel that "
                     "does not end cannot be stopped (default: 60; with --tune "
                     "beside its time)"),
      llvm::cl::init(60), llvm::cl::cat(category)};
  llvm::cl::opt<int> observations{
      "observations", llvm::cl::value_desc("N"),
      llvm::cl::desc("Of each row, in turn with those of the yardstick "
                     "(default: 3)"),
      llvm::cl::init(3), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> yardstick{
      "yardstick", llvm::cl::value_desc("python|none"),
      llvm::cl::desc("The Python with PyTorch that measures ceilings and "
                     "torch._grouped_mm (default: python3, where it has both)"),
      llvm::cl::init("python3"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> commit{
      "commit", llvm::cl::value_desc("text"),
      llvm::cl::desc("Recorded with the results (default: what the build "
                     "wrote)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> cacheDir{
      "cache-dir", llvm::cl::value_desc("folder"),
      llvm::cl::desc("Where compiled layers are kept (docs/use/c-api.md)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> noCache{"no-cache",
                              llvm::cl::desc("Compile each layer anew"),
                              llvm::cl::cat(category)};
  KernelOptions kernels{category};
  llvm::cl::opt<bool> compare{
      "compare",
      llvm::cl::desc("Measure nothing: compare the records OLD.json and "
                     "NEW.json; exit code 1 if a row got slower"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> toleranceText{
      "tolerance", llvm::cl::value_desc("3%"),
      llvm::cl::desc("For --compare: how much slower is the same"),
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
    constexpr int some = 5, many = 32;
    return static_cast<size_t>(candidates     ? candidates
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
