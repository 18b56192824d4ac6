//===- RowRun.h - timed and checked runs of a row ---------------*- C++ -*-===//
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

struct RowCheck {
  double error = 0, worstRowError = 0;
  int64_t rows = 0;
};

/// Seconds of one run, and their spread.
struct Observation {
  /// The median over replays.
  double seconds = 0;
  int64_t replays = 0;
};

/// The calls of a row. Each routing has a set of hidden states, ids, weights
/// and an output. One graph runs all sets, so that the data of a run has left
/// the caches before it is read again.
class RowRun {
public:
  /// Without routings (a layer with its router) there are `sets` of hidden
  /// states.
  static moert::Result<std::unique_ptr<RowRun>>
  create(Session &session, LayerOnDevice &layer, const Row &row, int64_t sets,
         std::vector<Routing> routings);

  int64_t getNumSets() const { return static_cast<int64_t>(sets.size()); }
  /// The choices of the layer's router for each set, by the reference. A token
  /// whose experts are decided by the last bits of its logits may get others.
  std::vector<Routing> chooseRoutings() const;
  const std::vector<Routing> &getRoutings() const { return routings; }
  /// Replaces ids and weights, one routing per set. A captured graph reads the
  /// new ones.
  moert::Status setRoutings(std::vector<Routing> given);
  /// Takes over what check() expects of a run with equal routings and sets.
  void expectLike(const RowRun &other) { samples = other.samples; }

  /// Runs all sets once, on poisoned outputs.
  moert::Status runAll();
  /// Checks sample rows of the latest runs of the first and the last set.
  moert::Result<RowCheck> check();
  /// Fails if the bits of sample rows have changed since check().
  moert::Status checkAgain();

  moert::Status capture();
  moert::Result<Observation> observe(double seconds);
  /// Replays the graph for about `seconds` and evaluates the later half; calls
  /// `meanwhile` while the device works.
  moert::Result<Observation> sustain(double seconds,
                                     llvm::function_ref<void()> meanwhile);

  /// Enqueues one run of a set on the stream.
  moert::Status start(int64_t set);
  moert::Stream &getStream() { return *stream; }

private:
  struct Set {
    std::unique_ptr<moert::Buffer> hidden, ids, weights, output;
    RandomTensor random;
  };

  /// The rows of a set that check() compares, and their bits at that time.
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
  moert::Status copyRouting(const Set &set, const Routing &routing);
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
