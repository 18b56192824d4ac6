//===- ExchangeTime.h - what moving rows between GPUs takes -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_EXCHANGETIME_H
#define MOEC_SCHEDULES_EXCHANGETIME_H

#include "moec/Dialect/Plan/Plan.h"
#include "moec/Support/Parts.h"
#include "moert/Mesh.h"

namespace moec {

struct ExchangeTime {
  double us = 0;
  /// Least time: bytes from other ranks at the data sheet's rate.
  double floorUs = 0;
};

/// Predicts a collective of NCCL on `ranks` GPUs of one host, each a `part`
/// (docs/design/cost-model.md, "Several GPUs"). `bytes`: the sum over the
/// collective's tensors for one rank, as moert::CollectivePart counts them.
ExchangeTime predictExchange(moert::CollectiveKind kind, int64_t ranks,
                             double bytes, const PartFacts &part);

/// Bytes that a rank sends and receives in a collective of a plan, or a chunk
/// of one, at `tokens`.
double getMovedBytes(plan::CollectiveOp collective, int64_t tokens);

/// Predicts a collective of a plan, or a chunk of one, at `tokens`.
ExchangeTime predictExchange(plan::CollectiveOp collective, int64_t tokens,
                             const PartFacts &part);

/// Bytes that a kernel moves between GPUs of one host through peer memory
/// (docs/design/cost-model.md, "Several GPUs").
struct PeerExchange {
  int64_t ranks = 0;
  /// Bytes that one rank writes to others.
  double pushedBytes = 0;
  /// Whether it sums; bytes read and written to compute the sums if the kernel
  /// does so, else bytes read to be summed.
  bool sums = false;
  double sumBytes = 0;
};

ExchangeTime predictPeerExchange(const PeerExchange &exchange,
                                 const PartFacts &part);

/// Predicts a collective of a plan, or a chunk of one, at `tokens`. Rows with
/// destination ranks go only to these, and the kernel computes sums.
ExchangeTime predictPeerExchange(plan::CollectiveOp collective, int64_t tokens,
                                 const PartFacts &part);

/// Share of the other ranks that a row goes to, with uniform routing; 1 if rows
/// have no destination ranks.
double getRoutedShare(plan::CollectiveOp collective);

} // namespace moec

#endif // MOEC_SCHEDULES_EXCHANGETIME_H
