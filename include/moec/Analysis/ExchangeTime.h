//===- ExchangeTime.h - what moving rows between GPUs takes -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_EXCHANGETIME_H
#define MOEC_ANALYSIS_EXCHANGETIME_H

#include "moec/Dialect/Plan/Plan.h"
#include "moec/Support/Parts.h"
#include "moert/Mesh.h"

namespace moec {

struct ExchangeTime {
  double us = 0;
  /// Bytes from other ranks at the rate of the data sheet.
  double floorUs = 0;
};

/// What a collective takes that NCCL runs on `ranks` GPUs of one host, all of
/// them a `part` (docs/design/cost-model.md, "Several GPUs"). `bytes` are those
/// of one rank, as moert::CollectivePart counts them, of all its parts.
ExchangeTime predictExchange(moert::CollectiveKind kind, int64_t ranks,
                             double bytes, const PartFacts &part);

/// Bytes that a rank sends to others in a collective of a plan, or a piece of
/// one, with so many tokens, and gets of them.
double getMovedBytes(plan::CollectiveOp collective, int64_t tokens);

/// That of a collective of a plan, or a piece of one, with so many tokens.
ExchangeTime predictExchange(plan::CollectiveOp collective, int64_t tokens,
                             const PartFacts &part);

/// What a kernel moves between GPUs of one host, through each other's memory
/// (docs/design/cost-model.md, "Several GPUs").
struct PeerExchange {
  int64_t ranks = 0;
  /// Bytes that one rank pushes to others.
  double pushedBytes = 0;
  /// Whether they are summed; bytes that making them reads and writes, where
  /// the kernel does it, or that are read to be summed.
  bool sums = false;
  double sumBytes = 0;
};

ExchangeTime predictPeerExchange(const PeerExchange &exchange,
                                 const PartFacts &part);

/// That of a collective of a plan, or a piece of one, with so many tokens: rows
/// for owners go to these, and sums are made by the kernel.
ExchangeTime predictPeerExchange(plan::CollectiveOp collective, int64_t tokens,
                                 const PartFacts &part);

/// Which share of the other ranks a row goes to that is moved for its owners,
/// if all experts are equally likely; 1 where there are none.
double getOwnedShare(plan::CollectiveOp collective);

} // namespace moec

#endif // MOEC_ANALYSIS_EXCHANGETIME_H
