//===- RowTable.h - measures the rows of the benchmark ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_TABLE_ROWTABLE_H
#define MOEC_LIB_TOOLS_BENCH_TABLE_ROWTABLE_H

#include "../Options.h"
#include "../Record/Record.h"
#include "../Run/RowRun.h"
#include "../Run/Watchdog.h"
#include "../Run/Yardstick.h"

namespace moec::bench {

/// Weights are cold if so many bytes are read between two reads of them:
/// several times the L2 cache of any GPU.
inline constexpr double kColdBytes = 300e6;

class RowTable {
public:
  RowTable(Session &session, const Options &options, const Table &table,
           const Peers &peers, const std::string &commit,
           const std::string &target);

  /// Returns the exit code.
  int run();

private:
  void runLayer(size_t layer, llvm::ArrayRef<Row> rows);
  void runRow(LayerOnDevice &layer, LayerOnDevice *routed, const Row &row);
  moert::Status measureRow(LayerOnDevice &layer, LayerOnDevice *routed,
                           const Row &row, llvm::json::Object &result);
  /// Runs in turn with the row's own, each null without its column.
  /// `routed` and `chosen`: the layer with its router, and the layer without
  /// it, given the router's ids and weights. `beside` and `besideRouted`: the
  /// layer with the parameters of --beside, without and with its router.
  struct OtherRuns {
    std::unique_ptr<RowRun> routed, chosen, beside, besideRouted;
  };
  moert::Status timeRow(LayerOnDevice &layer, RowRun &run, OtherRuns &others,
                        const Row &row, const Work &work,
                        llvm::json::Object &result);
  moert::Status sustain(LayerOnDevice &layer, RowRun &run, const Work &work,
                        llvm::json::Object &result);
  void startYardstick();
  void prepareYardstick(const BenchLayer &layer);
  void prepareYardstick(const BenchLayer &layer, const Row &row,
                        const Work &work, llvm::json::Object &result);
  /// Microseconds of `what` in benchmarks/yardstick.py, if it can still be
  /// measured; else the reason is recorded under `error`.
  std::optional<double> observeYardstick(llvm::StringRef what, double seconds,
                                         bool &canMeasure,
                                         llvm::StringRef error,
                                         llvm::json::Object &result);
  moert::Status profileRow(LayerOnDevice &layer, LayerOnDevice *routed,
                           const Row &row, llvm::json::Object &result);
  moert::Status tuneRow(LayerOnDevice &layer, const Row &row,
                        llvm::json::Object &result);
  int finishTuning();
  moert::Status fitRow(LayerOnDevice &layer, const Row &row,
                       llvm::json::Object &result);
  int finishFit();
  moert::Status measureLoads(LayerOnDevice &layer, const Row &row,
                             llvm::json::Object &result);
  int finishLoads();
  /// The number of sets of routings and hidden states that alternate: that of
  /// the recorded measurement, or fewer if each run is long and reads
  /// everything anyway.
  static int64_t getNumSets(const Row &row);
  /// A run of the row with routings drawn for it.
  moert::Result<std::unique_ptr<RowRun>> createRun(LayerOnDevice &layer,
                                                   const Row &row);
  moert::Result<OtherRuns> checkRouter(LayerOnDevice &plain,
                                       LayerOnDevice &routed, const Row &row,
                                       int64_t sets,
                                       llvm::json::Object &result);
  /// Runs of the layers of --beside: with the row's routings, and, if the row
  /// has the column of the router, with the router.
  moert::Status checkBeside(const RowRun &run, const Row &row,
                            OtherRuns &others);
  /// The field that marks rows measured in the current mode.
  llvm::StringRef getField() const;
  /// Whether rows are measured for the record.
  bool makesTable() const {
    return !options.profile && options.tune.empty() && options.fit.empty() &&
           options.loads == 0;
  }
  /// Records that the current row hangs, and ends the process.
  [[noreturn]] void endHanging();
  void give(const Row &row, llvm::json::Object result);
  bool isOver() const;
  void save();

  Session &session;
  const Options &options;
  const Table &table;
  const Peers &peers;
  Record record;
  std::vector<std::string> names;
  Ceilings ceilings;
  /// Null without a yardstick. The flags say whether it supports the current
  /// layer, row and dense pair.
  std::unique_ptr<Yardstick> yardstick;
  bool canMeasureLayer = false, canMeasureRow = false, canMeasureDense = false;
  /// Time limit of --tune, --fit and --loads for each remaining row.
  double tuneSeconds = 0;
  double begin;
  int64_t numFailed = 0, numDone = 0;
  bool isLost = false;
  /// Why the current layer has no column with the router.
  std::string routerReason;
  /// The current layer with the parameters of --beside, without and with its
  /// router; null without the option.
  std::unique_ptr<LayerOnDevice> beside, besideRouted;
  const Row *running = nullptr;
  /// The last member, so that it is destroyed first.
  Watchdog watchdog;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_TABLE_ROWTABLE_H
