//===- Choice.cpp - the schedule gpu.exchange -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Interface/ScheduleTables.h"

#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Dialect/RowQuantization.h"
#include "moec/Schedules/Exchange.h"
#include "moec/Support/GpuInstructions.h"
#include "moert/PeerHeap.h"

using namespace mlir;
using namespace moec;
using moert::Expr;

/// Threads of a CTA; one CTA per SM.
static constexpr int64_t kThreads = 512;

/// Chunks of a thread in a round.
static constexpr int64_t kChunks = 4;

/// Named barriers of a CTA, beside the barrier of all its threads.
static constexpr int64_t kNamedBarriers = 15;

ExchangedPart moec::getExchangedPart(plan::CollectiveKind kind, int64_t ranks,
                                     MemRefType in) {
  constexpr int64_t wordBytes = 4, mostBytes = 16;
  int64_t elementBytes = in.getElementTypeBitWidth() / CHAR_BIT;
  int64_t bytes = elementBytes;
  for (int64_t size : in.getShape().drop_front())
    bytes *= size;
  bool perToken = in.isDynamicDim(0);
  if (!perToken) {
    bytes *= in.getDimSize(0);
    if (kind == plan::CollectiveKind::ReduceScatter)
      bytes /= ranks;
  }
  int64_t most = in.getElementType().isInteger(32) ? wordBytes : mostBytes;
  int64_t chunkBytes =
      bytes == 0 ? elementBytes : std::min(most, bytes & -bytes);
  return {chunkBytes, bytes / chunkBytes, perToken};
}

std::optional<int64_t> moec::getLeastRoutedRows(tile::ExchangeOp exchange) {
  auto config =
      dyn_cast_or_null<tile::GpuExchangeAttr>(exchange.getConfigAttr());
  return config ? std::optional<int64_t>(config.getLeastRows()) : std::nullopt;
}

int64_t moec::countRowsOfWarp(int64_t chunks) {
  return 1 + llvm::divideCeil(kWarp - 1, chunks);
}

int64_t moec::countWarpsOfRow(int64_t rowChunks, int64_t chunks) {
  return llvm::divideCeil(rowChunks, kWarp * chunks);
}

bool moec::hasRowScales(tile::ExchangeOp exchange) {
  moe::QuantAttr quant = exchange.getQuantAttr();
  return quant && quant.getGranularity() == moe::Granularity::Token;
}

bool moec::holdsQuantizedRows(moe::QuantAttr quant, const Target &target) {
  return quant.getStorage().isInteger(8) || target.convertsFloat8();
}

int64_t moec::getMaxQuantizedColumns() {
  constexpr int64_t chunkBytes = 16;
  return kThreads * kChunks * chunkBytes;
}

int64_t moec::countQuantizingWarps(int64_t rowChunks, int64_t chunks) {
  return int64_t(
      llvm::PowerOf2Ceil(uint64_t(countWarpsOfRow(rowChunks, chunks))));
}

bool moec::movesToDestinations(tile::ExchangeOp exchange, int64_t index) {
  constexpr int64_t mostRows = 4, wideBytes = 16;
  // Scales that the kernel computes go where their quantized values go.
  if (std::optional<ArrayRef<int64_t>> quantized = exchange.getQuantized();
      quantized && quantized->back() == index)
    index = quantized->front();
  if (!llvm::is_contained(exchange.getRouted().value_or(ArrayRef<int64_t>()),
                          index))
    return false;
  ExchangedPart part =
      getExchangedPart(exchange.getKind(), int64_t(exchange.getHeaps().size()),
                       exchange.getMovedType(size_t(index)));
  return part.chunkBytes == wideBytes &&
         countRowsOfWarp(part.chunks) <= mostRows;
}

std::optional<int64_t> moec::getChunksOfFewRows(plan::CollectiveOp collective,
                                                int64_t ranks,
                                                const Expr &rows) {
  constexpr int64_t chunksOfSums = 2;
  auto variant = collective->getParentOfType<plan::VariantOp>();
  if (!variant || collective.getColumns())
    return std::nullopt;
  moert::Result<int64_t> most = rows.maxUpTo(int64_t(variant.getMaxTokens()));
  if (!most)
    return std::nullopt;
  auto type = [&](int64_t pair) {
    return cast<MemRefType>(collective.getIns()[size_t(pair)].getType());
  };
  constexpr int64_t warps = moert::PeerHeap::kMaxCtas * kThreads / kWarp;
  if (collective.getRows()) {
    ExchangedPart part = getExchangedPart(collective.getKind(), ranks, type(0));
    if (*most <= warps / countWarpsOfRow(part.chunks, chunksOfSums))
      return chunksOfSums;
    return std::nullopt;
  }
  std::optional<ArrayRef<int64_t>> quantized = collective.getQuantized();
  if (!quantized || RowQuantization::getGroup(type(quantized->front()),
                                              type(quantized->back())))
    return std::nullopt;
  ExchangedPart part =
      getExchangedPart(collective.getKind(), ranks, type(quantized->front()));
  for (int64_t chunks = 1; chunks < kChunks; chunks *= 2) {
    int64_t warpsOfRow = countQuantizingWarps(part.chunks, chunks);
    if (warpsOfRow <= kThreads / kWarp && *most <= warps / warpsOfRow)
      return chunks;
  }
  return std::nullopt;
}

tile::ConfigAttr moec::withChunks(tile::ConfigAttr config, int64_t chunks) {
  auto exchange = cast<tile::GpuExchangeAttr>(config);
  return tile::GpuExchangeAttr::get(config.getContext(), exchange.getCtas(),
                                    exchange.getThreads(), chunks,
                                    exchange.getLeastRows());
}

std::optional<Expr> moec::getExchangedRows(plan::CollectiveOp collective) {
  bool scatters = collective.getKind() == plan::CollectiveKind::ReduceScatter;
  std::optional<Expr> rows;
  for (Value memory : scatters ? collective.getOuts() : collective.getIns()) {
    if (!cast<MemRefType>(memory.getType()).isDynamicDim(0))
      continue;
    Expr own = plan::getRows(memory);
    if (rows && !(*rows == own))
      return std::nullopt;
    rows = own;
  }
  return rows;
}

namespace {

int64_t getThreads(tile::ConfigAttr config) {
  return cast<tile::GpuExchangeAttr>(config).getThreads();
}

int64_t getChunks(tile::ConfigAttr config) {
  return cast<tile::GpuExchangeAttr>(config).getChunks();
}

/// Reason why the threads of a CTA cannot hold whole rows to quantize with one
/// scale each.
std::string whyNotHeld(tile::ExchangeOp exchange, tile::GpuExchangeAttr config,
                       const Target &target) {
  if (!hasRowScales(exchange))
    return {};
  if (!holdsQuantizedRows(exchange.getQuantAttr(), target))
    return "quantization to e4m3 with one scale per row needs conversion "
           "instructions that the target lacks; quantize in an earlier launch";
  ExchangedPart part = getExchangedPart(
      exchange.getKind(), int64_t(exchange.getHeaps().size()),
      exchange.getMovedType(size_t(exchange.getQuantized()->front())));
  int64_t warps = config.getThreads() / kWarp;
  int64_t ofRow = countQuantizingWarps(part.chunks, config.getChunks());
  if (warps % ofRow != 0)
    return "threads = " + number(config.getThreads()) +
           ", but the threads that quantize one row are " +
           number(ofRow * kWarp) + "; give a multiple of that, or more chunks";
  if (ofRow > 1 && warps / ofRow > kNamedBarriers)
    return "threads = " + number(config.getThreads()) + " quantize " +
           number(warps / ofRow) + " rows at once; only " +
           number(kNamedBarriers) + " have barriers, so give fewer threads";
  return {};
}

class ExchangeSchedule final : public Schedule {
public:
  ExchangeSchedule() : Schedule("gpu.exchange", "tile.exchange") {}

  std::string whyConfigIllegal(Operation *op, tile::ConfigAttr config,
                               const Target &target) const override {
    constexpr int64_t maxThreads = 1024, maxChunks = 8;
    auto exchange = cast<tile::GpuExchangeAttr>(config);
    int64_t threads = exchange.getThreads();
    if (exchange.getCtas() < 1 ||
        exchange.getCtas() > moert::PeerHeap::kMaxCtas)
      return "ctas = " + number(exchange.getCtas()) + "; give 1 to " +
             number(moert::PeerHeap::kMaxCtas);
    // The first CTA has a thread for each counter of a peer heap.
    if (threads < moert::PeerHeap::kMaxCtas || threads > maxThreads ||
        threads % kWarp != 0)
      return "threads = " + number(threads) + "; give a multiple of " +
             number(kWarp) + " from " + number(moert::PeerHeap::kMaxCtas) +
             " to " + number(maxThreads);
    if (exchange.getChunks() < 1 || exchange.getChunks() > maxChunks)
      return "chunks = " + number(exchange.getChunks()) + "; give 1 to " +
             number(maxChunks);
    if (Value position = cast<tile::ExchangeOp>(op).getPosition();
        position &&
        cast<MemRefType>(position.getType()).getDimSize(1) > kMostSummedSlots)
      return "a row has more than " + number(kMostSummedSlots) +
             " slots, the most that a warp sums; sum them in an earlier launch";
    if (std::string reason =
            whyNotHeld(cast<tile::ExchangeOp>(op), exchange, target);
        !reason.empty())
      return reason;
    if (exchange.getLeastRows() > 0 &&
        !cast<tile::ExchangeOp>(op).getDestinations())
      return "least_rows = " + number(exchange.getLeastRows()) +
             ", but all rows go to all ranks; remove it";
    return {};
  }

  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    return tile::GpuExchangeAttr::get(
        op->getContext(), moert::PeerHeap::kMaxCtas, kThreads, kChunks,
        cast<tile::ExchangeOp>(op).getDestinations() ? kLeastRoutedRows : 0);
  }

  Expr grid(Operation *op, tile::ConfigAttr config,
            const Target &) const override {
    auto exchange = cast<tile::ExchangeOp>(op);
    // The largest part has a chunk for each thread, as long as there are CTAs.
    Expr most = 0;
    for (size_t i = 0; i < exchange.getIns().size(); ++i) {
      ExchangedPart part =
          getExchangedPart(exchange.getKind(), exchange.getHeaps().size(),
                           exchange.getMovedType(i));
      Expr chunks =
          exchange.getRows()
              ? kWarp * countWarpsOfRow(part.chunks, getChunks(config))
          : hasRowScales(exchange) &&
                  exchange.getQuantized()->front() == int64_t(i)
              ? kWarp * countQuantizingWarps(part.chunks, getChunks(config))
              : part.chunks;
      if (part.perToken)
        chunks = chunks * Expr::tokens();
      most = most == Expr(0) ? chunks : Expr::max(most, chunks);
    }
    return Expr::min(Expr::ceilDiv(most, getThreads(config)),
                     cast<tile::GpuExchangeAttr>(config).getCtas());
  }

  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return getThreads(config);
  }
};

} // namespace

const Schedule &moec::getGpuExchangeSchedule() {
  return getOnly<ExchangeSchedule>();
}
