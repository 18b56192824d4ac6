//===- Routing.h - which experts tokens go to -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_ROWS_ROUTING_H
#define MOEC_LIB_TOOLS_BENCH_ROWS_ROUTING_H

#include "Rows.h"

namespace moec::bench {

/// Ids and weights of the tokens of one call.
struct Routing {
  /// tokens x top_k; -1 for experts that are not held here.
  std::vector<int32_t> ids;
  std::vector<float> weights;
  /// Experts with rows, and their rows.
  int64_t experts = 0, rows = 0;
};

/// Each token goes to distinct experts of all that the layer has: all alike, or
/// with a probability of rank^-exponent each, drawn without replacement; which
/// expert has which rank depends on the seed alone. Or all tokens go to one
/// expert, which is drawn for each `index`.
Routing drawRouting(const BenchLayer &layer, const Row &row, uint64_t seed,
                    int64_t index);

/// `count` routings. Where `peer` is given and few tokens leave much to chance,
/// those seeds that come nearest to the experts and rows that were recorded.
std::vector<Routing> drawRoutings(const BenchLayer &layer, const Row &row,
                                  int64_t count, const Peer *peer);

/// The routing to experts that somebody chose, -1 in the place of those that
/// are not here.
Routing makeRouting(const BenchLayer &layer, llvm::ArrayRef<int64_t> ids,
                    llvm::ArrayRef<double> weights);

/// Means over routings.
Work getWork(const BenchLayer &layer, const Row &row,
             const std::vector<Routing> &routings);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_ROWS_ROUTING_H
