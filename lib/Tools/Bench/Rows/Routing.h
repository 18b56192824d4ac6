//===- Routing.h - routings of tokens to experts ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_ROWS_ROUTING_H
#define MOEC_LIB_TOOLS_BENCH_ROWS_ROUTING_H

#include "ExpertLoad.h"

namespace moec::bench {

/// Ids and weights of the tokens of one call.
struct Routing {
  /// tokens x top_k; -1 for experts that are not local.
  std::vector<int32_t> ids;
  std::vector<float> weights;
  /// Local experts that have rows, and the number of rows.
  int64_t experts = 0, rows = 0;
};

/// Each token chooses distinct experts among all of the layer: uniformly, or
/// without replacement with probabilities rank^-exponent, where the ranks of
/// experts depend only on the seed. Alternatively all tokens choose one expert,
/// which is drawn for each `index`.
Routing drawRouting(const BenchLayer &layer, const Row &row, uint64_t seed,
                    int64_t index);

/// Each token chooses distinct experts without replacement, by the popularity
/// of the load.
Routing drawRouting(const BenchLayer &layer, int64_t tokens,
                    const ExpertLoad &load, uint64_t seed);

/// Draws `count` routings. With `peer` and few tokens, takes the seeds whose
/// touched experts and rows are closest to the recorded ones.
std::vector<Routing> drawRoutings(const BenchLayer &layer, const Row &row,
                                  int64_t count, const Peer *peer);

/// The routing to given experts, with -1 for those that are not local.
Routing makeRouting(const BenchLayer &layer, llvm::ArrayRef<int64_t> ids,
                    llvm::ArrayRef<double> weights);

/// The mean work over routings.
Work getWork(const BenchLayer &layer, const Row &row,
             const std::vector<Routing> &routings);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_ROWS_ROUTING_H
