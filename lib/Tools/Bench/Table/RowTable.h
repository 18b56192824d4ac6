//===- RowTable.h - measures the rows of the table --------------*- C++ -*-===//
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

class RowTable {
public:
  RowTable(Session &session, const Options &options, const Table &table,
           const Peers &peers, const std::string &commit,
           const std::string &target);

  /// The exit code.
  int run();

private:
  void runLayer(size_t layer, llvm::ArrayRef<Row> rows);
  void runRow(LayerOnDevice &layer, LayerOnDevice *routed, const Row &row);
  moert::Status measureRow(LayerOnDevice &layer, LayerOnDevice *routed,
                           const Row &row, llvm::json::Object &result);
  /// The column with the router: the layer that has it, and the one without it
  /// with the ids and weights that the router chooses. Both null: no column.
  struct RouterRuns {
    std::unique_ptr<RowRun> routed, chosen;
  };
  moert::Status timeRow(LayerOnDevice &layer, RowRun &run, RouterRuns &router,
                        const Row &row, const Work &work,
                        llvm::json::Object &result);
  moert::Status sustain(LayerOnDevice &layer, RowRun &run, const Work &work,
                        llvm::json::Object &result);
  void startYardstick();
  void prepareYardstick(const BenchLayer &layer);
  void prepareYardstick(const BenchLayer &layer, const Row &row,
                        const Work &work, llvm::json::Object &result);
  /// Microseconds of `what` in benchmarks/yardstick.py, if it can still measure
  /// that; the record has under `error` why it cannot any more.
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
  /// Routings and hidden states that take turns: as many as the recorded
  /// measurement had, fewer where each run is long and reads everything anyway.
  static int64_t getNumSets(const Row &row);
  /// A run of the row with routings drawn for it.
  moert::Result<std::unique_ptr<RowRun>> createRun(LayerOnDevice &layer,
                                                   const Row &row);
  moert::Result<RouterRuns> checkRouter(LayerOnDevice &plain,
                                        LayerOnDevice &routed, const Row &row,
                                        int64_t sets,
                                        llvm::json::Object &result);
  /// What all rows have that were measured as they are this time.
  llvm::StringRef getField() const;
  /// Whether rows are measured for the record.
  bool makesTable() const {
    return !options.profile && options.tune.empty() && options.fit.empty();
  }
  /// Records that the row at hand hangs, and ends the process.
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
  /// Null where there is none; whether it has the layer, the row and the dense
  /// pair at hand.
  std::unique_ptr<Yardstick> yardstick;
  bool canMeasureLayer = false, canMeasureRow = false, canMeasureDense = false;
  /// What --tune and --fit may take for one of the rows that are left.
  double tuneSeconds = 0;
  double begin;
  int64_t numFailed = 0, numDone = 0;
  bool isLost = false;
  /// Why the layer at hand has no column with the router.
  std::string routerReason;
  const Row *running = nullptr;
  /// Last, so that it ends first.
  Watchdog watchdog;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_TABLE_ROWTABLE_H
