//===- ExchangeTime.cpp - what moving rows between GPUs takes ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/ExchangeTime.h"

#include "moec/Dialect/Plan/PackedMemRef.h"

#include <cmath>

using namespace mlir;
using namespace moec;

// Fitted by least squares over logarithms to 28 times of all-gathers and
// reduce-scatters of NCCL 2.28.9 on 2 and 4 H200, rows of 7392 and 14336 bytes,
// 1 to 4096 of a rank, captured in a graph: 7.3 % off, root mean square, 25 %
// at most.
/// What a collective takes at least, and per other rank.
static constexpr double kStartUs = 6.34, kPeerUs = 2.73;
/// How many more times that it takes as soon as there are many bytes, for which
/// NCCL has another protocol; and how many bytes of a rank are many.
static constexpr double kManyBytesShare = 1.083, kManyBytes = 1.35e6;
/// Share of the link's bytes per second.
static constexpr double kLinkShare = 0.80;
/// Bytes per second of a rank's own block.
static constexpr double kOwnBytes = 702e9;

namespace {

/// What ranks exchange, of which each has `bytes` of its own.
struct Exchanged {
  moert::CollectiveKind kind;
  int64_t ranks;
  double bytes;

  /// An all-reduce scatters sums of blocks and gathers them, in one kernel.
  bool isBoth() const { return kind == moert::CollectiveKind::AllReduce; }
  double getWays() const { return isBoth() ? 2 : 1; }
  double getBlock() const { return isBoth() ? bytes / double(ranks) : bytes; }
  double getMovedBytes() const {
    return getWays() * double(ranks - 1) * getBlock();
  }
};

} // namespace

static ExchangeTime predict(const Exchanged &exchanged, const PartFacts &part) {
  double block = exchanged.getBlock(), moved = exchanged.getMovedBytes();
  double many = 1 - std::exp(-block / kManyBytes);
  ExchangeTime time;
  time.us = (kStartUs + kPeerUs * double(exchanged.ranks - 1)) *
                (1 + kManyBytesShare * many) +
            1e6 * moved / (kLinkShare * part.sheetLinkBytes) +
            1e6 * exchanged.getWays() * block / kOwnBytes;
  time.floorUs = 1e6 * moved / part.sheetLinkBytes;
  return time;
}

ExchangeTime moec::predictExchange(moert::CollectiveKind kind, int64_t ranks,
                                   double bytes, const PartFacts &part) {
  return predict({kind, ranks, bytes}, part);
}

/// Bytes of the rows of a memory at `tokens`.
static double countBytes(Value memory, int64_t tokens) {
  auto type = cast<MemRefType>(memory.getType());
  moert::Result<int64_t> rows = plan::getRows(memory).evaluate(tokens);
  double bytes = type.getElementTypeBitWidth() / 8.0;
  for (int64_t size : type.getShape().drop_front())
    bytes *= double(size);
  return rows ? bytes * double(*rows) : 0;
}

static Exchanged getExchanged(plan::CollectiveOp collective, int64_t tokens) {
  plan::MeshAttr mesh =
      collective->getParentOfType<plan::ProgramOp>().getMeshAttr();
  bool isScatter = collective.getKind() == plan::CollectiveKind::ReduceScatter;
  // Those of one rank: what it sends to others, or gets of their sums.
  double bytes = 0;
  for (Value memory : isScatter ? ValueRange(collective.getOuts())
                                : ValueRange(collective.getIns())) {
    double all = countBytes(memory, tokens);
    if (std::optional<ArrayRef<int64_t>> columns = collective.getColumns())
      all *= double(columns->back()) /
             double(cast<MemRefType>(memory.getType()).getDimSize(1));
    bytes += all;
  }
  auto kind = moert::CollectiveKind::AllReduce;
  if (collective.getKind() != plan::CollectiveKind::AllReduce)
    kind = isScatter ? moert::CollectiveKind::ReduceScatter
                     : moert::CollectiveKind::AllGather;
  return {kind,
          collective.getAxis() == plan::Axis::Dp ? mesh.getDp() : mesh.getTp(),
          bytes};
}

double moec::getMovedBytes(plan::CollectiveOp collective, int64_t tokens) {
  return getExchanged(collective, tokens).getMovedBytes();
}

ExchangeTime moec::predictExchange(plan::CollectiveOp collective,
                                   int64_t tokens, const PartFacts &part) {
  return predict(getExchanged(collective, tokens), part);
}
