//===- CheckLayer.h - compares results with the reference -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_CHECK_CHECKLAYER_H
#define MOEC_VERIFY_GPUTEST_CHECK_CHECKLAYER_H

#include "../Inputs/Inputs.h"

#include <optional>

namespace moec::gputest {

/// The results of a run. Buffers that the layer lacks are absent.
struct LayerResult {
  HostTensor output;
  std::optional<HostTensor> logits, ids, weights, offsets, position, expertsOut;
};

/// The load of a call, which determines its floor.
struct Load {
  int64_t activeExperts = 0;
  /// Rows of the gate and up gemm.
  int64_t rows = 0;
};

/// Compares with the float64 reference by stages: logits; ids, given the run's
/// logits; weights, given its ids; the sort by expert, exactly; the output,
/// given all of that. Stages up to the ids are checked for all tokens, except
/// logits; the output for all tokens if that takes fewer than kMaxOperations,
/// else for at least kRows.
Load checkLayer(const LayerCase &layerCase, const Inputs &inputs,
                const LayerResult &result, int threads, Outcome &outcome);

/// About ten seconds of 16 cores.
constexpr double kMaxOperations = 2e12;
constexpr int64_t kRows = 64;

/// The tokens whose rows are compared: all, or the first, the last, those at
/// edges of tiles, and random ones; at least `kRows`.
std::vector<int64_t> chooseTokens(int64_t tokens, bool all, uint64_t seed);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_CHECK_CHECKLAYER_H
