//===- SortHarness.h - tensors of one sort_by_expert ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_TARGET_SORTHARNESS_H
#define MOEC_UNITTESTS_TARGET_SORTHARNESS_H

#include "KernelHarness.h"

#include <functional>

namespace moec::test {

struct RankCase {
  int64_t numExperts = 8;
  int64_t topK = 2;
  int64_t tokens = 50;
  int64_t numZeroExperts = 0;
  std::vector<int64_t> local;
  int64_t numValid = -1;
  /// Least tokens per chunk and most chunks, if a kernel counts the slots of
  /// each chunk before.
  int64_t chunkTokens = 0, numChunks = 5;
};

/// Operands of a tile.sort_by_expert and of the tile.count_slots before it.
struct RankTensors {
  explicit RankTensors(const RankCase &test);

  bool hasCounts() const { return test.chunkTokens > 0; }
  /// The kernel `rank` with that config.
  std::string text(const std::string &config) const;
  std::vector<const Array *> arguments() const;
  /// The kernel `count`, with that config or none.
  std::string countText(const std::string &config) const;
  std::vector<const Array *> countArguments() const;
  /// Lets the interpreter fill `counts`.
  void count() const;
  /// Marks memory that no op writes.
  void clear();

  RankCase test;
  int64_t numLocal, positions;
  Array ids, weights, valid, counts, offsets, position, source, rowWeight;

private:
  /// The end of an op whose attributes are these and those of experts.
  std::string attributes(const std::string &more,
                         const std::string &config) const;
};

/// Ids between the two, and the results of `run`. Elements that the interpreter
/// leaves unwritten must stay unwritten, so whole arrays are equal.
void compareWithInterpreter(
    const RankCase &test, int64_t lowest, int64_t highest,
    const std::function<void(const RankTensors &)> &run);

} // namespace moec::test

#endif // MOEC_UNITTESTS_TARGET_SORTHARNESS_H
