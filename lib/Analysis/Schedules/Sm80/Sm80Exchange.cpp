//===- Sm80Exchange.cpp - the schedule sm80.exchange ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../ScheduleTables.h"

#include "moec/Analysis/Exchange.h"
#include "moec/Analysis/Sm80.h"
#include "moec/Dialect/Plan/PackedMemRef.h"
#include "moec/Dialect/RowCodes.h"
#include "moert/PeerHeap.h"

using namespace mlir;
using namespace moec;
using moert::Expr;

/// Threads of a CTA; one CTA per SM.
static constexpr int64_t kThreads = 512;

/// Chunks of a thread in a round.
static constexpr int64_t kPieces = 4;

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
  int64_t pieceBytes =
      bytes == 0 ? elementBytes : std::min(most, bytes & -bytes);
  return {pieceBytes, bytes / pieceBytes, perToken};
}

std::optional<int64_t> moec::getLeastRowsOfOwners(tile::ExchangeOp exchange) {
  auto config =
      dyn_cast_or_null<tile::Sm80ExchangeAttr>(exchange.getConfigAttr());
  return config ? std::optional<int64_t>(config.getLeastRows()) : std::nullopt;
}

double moec::getOwnedShare(int64_t numExperts, int64_t numLocal, int64_t topK) {
  double none = 1;
  for (int64_t i = 0; i < topK; ++i)
    none *= std::max(0.0, double(numExperts - numLocal - i)) /
            double(numExperts - i);
  return 1 - none;
}

int64_t moec::countRowsOfWarp(int64_t pieces) {
  return 1 + llvm::divideCeil(sm80::kWarp - 1, pieces);
}

int64_t moec::countWarpsOfRow(int64_t rowPieces, int64_t pieces) {
  return llvm::divideCeil(rowPieces, sm80::kWarp * pieces);
}

bool moec::hasCodesOfRows(tile::ExchangeOp exchange) {
  moe::QuantAttr quant = exchange.getQuantAttr();
  return quant && quant.getGranularity() == moe::Granularity::Token;
}

bool moec::holdsCodesOfRows(moe::QuantAttr quant, const Target &target) {
  return quant.getStorage().isInteger(8) || target.convertsFloat8();
}

int64_t moec::getMostCodesOfRow() {
  constexpr int64_t pieceBytes = 16;
  return kThreads * kPieces * pieceBytes;
}

int64_t moec::countWarpsOfCodes(int64_t rowPieces, int64_t pieces) {
  return int64_t(
      llvm::PowerOf2Ceil(uint64_t(countWarpsOfRow(rowPieces, pieces))));
}

bool moec::isMovedForOwners(tile::ExchangeOp exchange, int64_t index) {
  constexpr int64_t mostRows = 4, wideBytes = 16;
  // Scales that the kernel computes go where their quantized values go.
  if (std::optional<ArrayRef<int64_t>> coded = exchange.getCoded();
      coded && coded->back() == index)
    index = coded->front();
  if (!llvm::is_contained(exchange.getOwned().value_or(ArrayRef<int64_t>()),
                          index))
    return false;
  ExchangedPart part =
      getExchangedPart(exchange.getKind(), int64_t(exchange.getHeaps().size()),
                       exchange.getMovedType(size_t(index)));
  return part.pieceBytes == wideBytes &&
         countRowsOfWarp(part.pieces) <= mostRows;
}

std::optional<int64_t> moec::getPiecesOfFewRows(plan::CollectiveOp collective,
                                                int64_t ranks,
                                                const Expr &rows) {
  constexpr int64_t piecesOfSums = 2;
  auto variant = collective->getParentOfType<plan::VariantOp>();
  if (!variant || collective.getColumns())
    return std::nullopt;
  moert::Result<int64_t> most = rows.maxUpTo(int64_t(variant.getMaxTokens()));
  if (!most)
    return std::nullopt;
  auto type = [&](int64_t pair) {
    return cast<MemRefType>(collective.getIns()[size_t(pair)].getType());
  };
  constexpr int64_t warps = moert::PeerHeap::kMaxCtas * kThreads / sm80::kWarp;
  if (collective.getRows()) {
    ExchangedPart part = getExchangedPart(collective.getKind(), ranks, type(0));
    if (*most <= warps / countWarpsOfRow(part.pieces, piecesOfSums))
      return piecesOfSums;
    return std::nullopt;
  }
  std::optional<ArrayRef<int64_t>> coded = collective.getCoded();
  if (!coded || RowCodes::getGroup(type(coded->front()), type(coded->back())))
    return std::nullopt;
  ExchangedPart part =
      getExchangedPart(collective.getKind(), ranks, type(coded->front()));
  for (int64_t pieces = 1; pieces < kPieces; pieces *= 2) {
    int64_t warpsOfRow = countWarpsOfCodes(part.pieces, pieces);
    if (warpsOfRow <= kThreads / sm80::kWarp && *most <= warps / warpsOfRow)
      return pieces;
  }
  return std::nullopt;
}

tile::ConfigAttr moec::withPieces(tile::ConfigAttr config, int64_t pieces) {
  auto exchange = cast<tile::Sm80ExchangeAttr>(config);
  return tile::Sm80ExchangeAttr::get(config.getContext(), exchange.getCtas(),
                                     exchange.getThreads(), pieces,
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
  return cast<tile::Sm80ExchangeAttr>(config).getThreads();
}

int64_t getPieces(tile::ConfigAttr config) {
  return cast<tile::Sm80ExchangeAttr>(config).getPieces();
}

/// Reason why the threads of a CTA cannot hold whole rows to quantize with one
/// scale each.
std::string whyNotHeld(tile::ExchangeOp exchange, tile::Sm80ExchangeAttr config,
                       const Target &target) {
  if (!hasCodesOfRows(exchange))
    return {};
  if (!holdsCodesOfRows(exchange.getQuantAttr(), target))
    return "e4m3 with one scale for a row is made by instructions alone, which "
           "the target has not; quantize ahead";
  ExchangedPart part = getExchangedPart(
      exchange.getKind(), int64_t(exchange.getHeaps().size()),
      exchange.getMovedType(size_t(exchange.getCoded()->front())));
  int64_t warps = config.getThreads() / sm80::kWarp;
  int64_t ofRow = countWarpsOfCodes(part.pieces, config.getPieces());
  if (warps % ofRow != 0)
    return "threads = " + number(config.getThreads()) +
           ", but a row with one scale is quantized by " +
           number(ofRow * sm80::kWarp) +
           "; give a multiple of these, or more pieces";
  if (ofRow > 1 && warps / ofRow > kNamedBarriers)
    return "threads = " + number(config.getThreads()) + " quantize " +
           number(warps / ofRow) + " rows at once; up to " +
           number(kNamedBarriers) + " have barriers, so give fewer";
  return {};
}

class ExchangeSchedule final : public Schedule {
public:
  ExchangeSchedule() : Schedule("sm80.exchange", "tile.exchange") {}

  std::string whyIllegal(Operation *op, tile::ConfigAttr config,
                         const Target &target) const override {
    constexpr int64_t maxThreads = 1024, maxPieces = 8;
    auto exchange = cast<tile::Sm80ExchangeAttr>(config);
    int64_t threads = exchange.getThreads();
    if (exchange.getCtas() < 1 ||
        exchange.getCtas() > moert::PeerHeap::kMaxCtas)
      return "ctas = " + number(exchange.getCtas()) + "; give 1 to " +
             number(moert::PeerHeap::kMaxCtas);
    // The first CTA has a thread for each counter of a peer heap.
    if (threads < moert::PeerHeap::kMaxCtas || threads > maxThreads ||
        threads % sm80::kWarp != 0)
      return "threads = " + number(threads) + "; give a multiple of " +
             number(sm80::kWarp) + " from " +
             number(moert::PeerHeap::kMaxCtas) + " to " + number(maxThreads);
    if (exchange.getPieces() < 1 || exchange.getPieces() > maxPieces)
      return "pieces = " + number(exchange.getPieces()) + "; give 1 to " +
             number(maxPieces);
    if (Value position = cast<tile::ExchangeOp>(op).getPosition();
        position &&
        cast<MemRefType>(position.getType()).getDimSize(1) > kMostSummedSlots)
      return "a row has more than " + number(kMostSummedSlots) +
             " slots, of which a warp asks at once; sum them ahead";
    if (std::string reason =
            whyNotHeld(cast<tile::ExchangeOp>(op), exchange, target);
        !reason.empty())
      return reason;
    if (exchange.getLeastRows() > 0 && !cast<tile::ExchangeOp>(op).getOwners())
      return "least_rows = " + number(exchange.getLeastRows()) +
             ", but all rows go to all ranks; leave it out";
    return {};
  }

  tile::ConfigAttr choose(Operation *op, const Target &) const override {
    return tile::Sm80ExchangeAttr::get(
        op->getContext(), moert::PeerHeap::kMaxCtas, kThreads, kPieces,
        cast<tile::ExchangeOp>(op).getOwners() ? kLeastRowsOfOwners : 0);
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
      Expr pieces =
          exchange.getRows()
              ? sm80::kWarp * countWarpsOfRow(part.pieces, getPieces(config))
          : hasCodesOfRows(exchange) &&
                  exchange.getCoded()->front() == int64_t(i)
              ? sm80::kWarp * countWarpsOfCodes(part.pieces, getPieces(config))
              : part.pieces;
      if (part.perToken)
        pieces = pieces * Expr::tokens();
      most = most == Expr(0) ? pieces : Expr::max(most, pieces);
    }
    return Expr::min(Expr::ceilDiv(most, getThreads(config)),
                     cast<tile::Sm80ExchangeAttr>(config).getCtas());
  }

  int64_t block(Operation *, tile::ConfigAttr config) const override {
    return getThreads(config);
  }
};

} // namespace

const Schedule &moec::getSm80ExchangeSchedule() {
  return getOnly<ExchangeSchedule>();
}
