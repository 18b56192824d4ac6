//===- ExchangeTime.cpp - what moving rows between GPUs takes ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/ExchangeTime.h"

#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Schedules/Exchange.h"

#include <cmath>

using namespace mlir;
using namespace moec;

// NCCL: least-squares fit over logarithms to 28 times of all-gathers and
// reduce-scatters of NCCL 2.28.9 on 2 and 4 H200, with rows of 7392 and 14336
// bytes, 1 to 4096 per rank, captured in a graph: root mean square error 7.3 %,
// maximum 25 %.
/// Least time of a collective, and time per other rank.
static constexpr double kStartUs = 6.34, kPeerUs = 2.73;
/// With many bytes per rank (at least `kManyBytes`) NCCL switches its protocol;
/// the relative time that this adds.
static constexpr double kManyBytesShare = 1.083, kManyBytes = 1.35e6;
/// Share of the link's bandwidth.
static constexpr double kLinkShare = 0.80;
/// Bytes per second for a rank's own block.
static constexpr double kOwnBytes = 702e9;

// Peer memory: fitted likewise to 14 gathers and 14 reduce-scatters with their
// sums, by kernels that write to other ranks' memory, with those rows, ranks
// and GPUs: errors of 2.4 % and 6.8 %, maximum 14 %.
/// Least time of a kernel, and time per other rank.
static constexpr double kPeerGatherUs = 3.63, kPeerGatherRankUs = 0.346;
static constexpr double kPeerSumUs = 5.27, kPeerSumRankUs = 0.916;
/// Shares of the link's bandwidth.
static constexpr double kPeerGatherShare = 0.802, kPeerSumShare = 0.790;
/// Sums for others overlap with the link, sums of own rows do not: a factor on
/// their bytes at the memory's rate.
static constexpr double kOwnSumTimes = 1.436;

namespace {

/// A collective in which each rank contributes `bytes`.
struct Exchanged {
  moert::CollectiveKind kind;
  int64_t ranks;
  double bytes;

  /// An all-reduce is a reduce-scatter and an all-gather of blocks in one
  /// kernel.
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

/// Bytes of a memref's rows at `tokens`.
static double countBytes(Value memory, int64_t tokens) {
  auto type = cast<MemRefType>(memory.getType());
  moert::Result<int64_t> rows = plan::getRows(memory).evaluate(tokens);
  double bytes = type.getElementTypeBitWidth() / 8.0;
  for (int64_t size : type.getShape().drop_front())
    bytes *= double(size);
  return rows ? bytes * double(*rows) : 0;
}

/// Share of each row's columns that a chunk of a collective has.
static double getColumnShare(plan::CollectiveOp collective) {
  std::optional<ArrayRef<int64_t>> columns = collective.getColumns();
  if (!columns)
    return 1;
  auto type = cast<MemRefType>(collective.getIns().front().getType());
  return double(columns->back()) / double(type.getDimSize(1));
}

static plan::MeshAttr getMesh(plan::CollectiveOp collective) {
  return collective->getParentOfType<plan::ProgramOp>().getMeshAttr();
}

static int64_t getRanks(plan::CollectiveOp collective) {
  plan::MeshAttr mesh = getMesh(collective);
  return collective.getAxis() == plan::Axis::Dp ? mesh.getDp() : mesh.getTp();
}

/// One rank's part: the memory that it sends to each other rank, or its share
/// of the sums.
static ValueRange getOwnParts(plan::CollectiveOp collective) {
  return collective.getKind() == plan::CollectiveKind::ReduceScatter
             ? ValueRange(collective.getOuts())
             : ValueRange(collective.getIns());
}

static Exchanged getExchanged(plan::CollectiveOp collective, int64_t tokens) {
  bool isScatter = collective.getKind() == plan::CollectiveKind::ReduceScatter;
  double bytes = 0;
  for (Value memory : getOwnParts(collective))
    bytes += countBytes(memory, tokens) * getColumnShare(collective);
  auto kind = moert::CollectiveKind::AllReduce;
  if (collective.getKind() != plan::CollectiveKind::AllReduce)
    kind = isScatter ? moert::CollectiveKind::ReduceScatter
                     : moert::CollectiveKind::AllGather;
  return {kind, getRanks(collective), bytes};
}

double moec::getMovedBytes(plan::CollectiveOp collective, int64_t tokens) {
  return getExchanged(collective, tokens).getMovedBytes();
}

ExchangeTime moec::predictExchange(plan::CollectiveOp collective,
                                   int64_t tokens, const PartFacts &part) {
  return predict(getExchanged(collective, tokens), part);
}

//===----------------------------------------------------------------------===//
// Through the memory of other ranks
//===----------------------------------------------------------------------===//

ExchangeTime moec::predictPeerExchange(const PeerExchange &exchange,
                                       const PartFacts &part) {
  double others = double(exchange.ranks - 1);
  double linkUs = 1e6 * exchange.pushedBytes / part.sheetLinkBytes;
  ExchangeTime time;
  time.floorUs = linkUs;
  if (!exchange.sums) {
    time.us =
        kPeerGatherUs + kPeerGatherRankUs * others + linkUs / kPeerGatherShare;
    return time;
  }
  time.us = kPeerSumUs + kPeerSumRankUs * others + linkUs / kPeerSumShare +
            1e6 * kOwnSumTimes * exchange.sumBytes /
                (double(exchange.ranks) * part.sheetReadBytes);
  return time;
}

double moec::getRoutedShare(int64_t numExperts, int64_t numLocal,
                            int64_t topK) {
  double none = 1;
  for (int64_t i = 0; i < topK; ++i)
    none *= std::max(0.0, double(numExperts - numLocal - i)) /
            double(numExperts - i);
  return 1 - none;
}

double moec::getRoutedShare(plan::CollectiveOp collective) {
  if (!collective.getDestinations())
    return 1;
  plan::MeshAttr mesh = getMesh(collective);
  int64_t numExperts =
      cast<MemRefType>(collective.getDestinations().getType()).getDimSize(0);
  int64_t topK =
      cast<MemRefType>(collective.getIds().front().getType()).getDimSize(1);
  // With replicas, the experts of all ranks of a mesh coordinate.
  int64_t numHere = std::min<int64_t>(
      numExperts, collective.getExpertsPerRank().value_or(
                      numExperts / (mesh.getDp() * mesh.getTp())));
  return getRoutedShare(numExperts, numHere, topK);
}

/// Bytes of the summands and, where the kernel computes the sums, of the sums.
static double countSumBytes(plan::CollectiveOp collective, int64_t tokens) {
  double summed = countBytes(collective.getIns().front(), tokens) *
                  getColumnShare(collective);
  if (!collective.getRows())
    return summed;
  double slots = double(
      cast<MemRefType>(collective.getPosition().getType()).getDimSize(1));
  // With whole experts, a rank has only its share of a row's slots.
  auto program = collective->getParentOfType<plan::ProgramOp>();
  bool areWhole = llvm::any_of(
      program.getBody().getOps<plan::TensorOp>(), [](plan::TensorOp tensor) {
        return tensor.getName() == "placement.local_ids";
      });
  plan::MeshAttr mesh = getMesh(collective);
  if (areWhole)
    slots /= double(mesh.getDp() * mesh.getTp());
  return summed * (slots + 1);
}

ExchangeTime moec::predictPeerExchange(plan::CollectiveOp collective,
                                       int64_t tokens, const PartFacts &part) {
  PeerExchange exchange;
  exchange.ranks = getRanks(collective);
  moert::Result<int64_t> rows =
      plan::getRows(getOwnParts(collective).front()).evaluate(tokens);
  bool asks = rows && *rows >= kLeastRoutedRows;
  ArrayRef<int64_t> routed =
      collective.getRouted().value_or(ArrayRef<int64_t>());
  for (auto [index, memory] : llvm::enumerate(getOwnParts(collective))) {
    double share = asks && llvm::is_contained(routed, int64_t(index))
                       ? getRoutedShare(collective)
                       : 1;
    exchange.pushedBytes += double(exchange.ranks - 1) * share *
                            countBytes(memory, tokens) *
                            getColumnShare(collective);
  }
  exchange.sums = collective.getKind() != plan::CollectiveKind::AllGather;
  if (exchange.sums)
    exchange.sumBytes = countSumBytes(collective, tokens);
  return predictPeerExchange(exchange, part);
}
