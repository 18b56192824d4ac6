//===- RowRun.h - runs of a row, timed and checked --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RUN_ROWRUN_H
#define MOEC_LIB_TOOLS_BENCH_RUN_ROWRUN_H

#include "../Rows/Routing.h"
#include "LayerOnDevice.h"
#include "moec/Reference/Tensors.h"

namespace moec::bench {

/// Errors against the reference.
struct RowCheck {
  double error = 0, worstRowError = 0;
  int64_t rows = 0;
};

/// Seconds of one run, and how steady it was.
struct Observation {
  /// The median over replays.
  double seconds = 0;
  int64_t replays = 0;
};

/// The calls of a row: a set of hidden states, ids and weights, and an output,
/// per routing. One graph has a run of each, so that what a run reads has left
/// the caches before it is read again.
class RowRun {
public:
  /// Without routings (a layer with its router) there are `sets` of hidden
  /// states.
  static moert::Result<std::unique_ptr<RowRun>>
  create(Session &session, LayerOnDevice &layer, const Row &row, int64_t sets,
         std::vector<Routing> routings);

  int64_t getNumSets() const { return static_cast<int64_t>(sets.size()); }
  /// What the router of a layer that has one chooses for each set, by the
  /// reference. A token whose experts hang on the last bits of its logits may
  /// have others there.
  std::vector<Routing> chooseRoutings() const;
  const std::vector<Routing> &getRoutings() const { return routings; }

  /// Runs all sets once, on poisoned outputs.
  moert::Status runAll();
  /// Compares sample rows of the latest runs of the first and the last set.
  moert::Result<RowCheck> check();
  /// Whether sample rows still have the bits that check() saw.
  moert::Status checkAgain();

  /// Makes the graph.
  moert::Status capture();
  /// Replays it for about so long.
  moert::Result<Observation> observe(double seconds);
  /// The same, but only the later half counts; `meanwhile` is called while the
  /// device works.
  moert::Result<Observation> sustain(double seconds,
                                     llvm::function_ref<void()> meanwhile);

  /// Gives one run of a set to the stream.
  moert::Status start(int64_t set);
  moert::Stream &getStream() { return *stream; }

private:
  struct Set {
    std::unique_ptr<moert::Buffer> hidden, ids, weights, output;
    RandomTensor random;
  };

  /// What check() compares of a set, and the bits that it saw.
  struct Sample {
    std::vector<int64_t> tokens;
    reference::Matrix expected;
    std::vector<uint8_t> seen;
  };

  RowRun(Session &session, LayerOnDevice &layer, const Row &row,
         std::vector<Routing> routings)
      : session(session), layer(layer), row(row),
        routings(std::move(routings)) {}

  moert::Status addSet();
  moert::Result<std::vector<uint8_t>> readRows(int64_t set,
                                               const std::vector<int64_t> &);
  Sample makeSample(int64_t set) const;
  moert::Status checkSet(int64_t set, RowCheck &check);
  moert::Result<std::vector<double>> replay(int64_t count,
                                            llvm::function_ref<void()>);

  Session &session;
  LayerOnDevice &layer;
  const Row &row;
  std::vector<Routing> routings;
  std::vector<Set> sets;
  std::unique_ptr<moert::Stream> stream;
  std::unique_ptr<moert::Graph> graph;
  std::map<int64_t, Sample> samples;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RUN_ROWRUN_H
