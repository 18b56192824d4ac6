//===- Sm80Routing.cpp - schedules from logits to ranked slots --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm80Routing.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace moec;
using namespace moec::sm80;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

TopK::TopK(tile::TopKOp op, tile::ConfigAttr attr) : row(getRow(op)) {
  auto config = cast<tile::Sm80TopKAttr>(attr);
  threads = config.getThreads();
  chunks = {config.getMaxCtas(), config.getTokensPerCta()};
}

/// Storage positions of a row's values, padded by group.
static int64_t getPositions(tile::TopKOp op) {
  int64_t groups = op.getRouting().getNumGroups();
  int64_t routes = cast<MemRefType>(op.getLogits().getType()).getDimSize(1);
  return groups * llvm::alignTo(routes / groups, kWarp);
}

/// Bytes of the values and keys of a row, of groups and of slots.
static int64_t getStoredBytes(tile::TopKOp op) {
  moe::RoutingAttr routing = op.getRouting();
  int64_t groups = routing.getNumGroups();
  int64_t slots = llvm::alignTo(routing.getTopK(), kWarp);
  int64_t groupKeys = groups > 1 ? llvm::alignTo(groups, kWarp) : 0;
  return 4 * (2 * getPositions(op) + groupKeys + 2 * slots);
}

TopK::Row TopK::getRow(tile::TopKOp op) {
  constexpr int64_t maxSlots = 1024;
  moe::RoutingAttr routing = op.getRouting();
  if (routing.getSelect() == moe::Select::TopK && routing.getTopK() <= kWarp &&
      getPositions(op) <= ptxas::kKeysPerLane * kWarp)
    return Row::Held;
  return routing.getTopK() <= maxSlots &&
                 getStoredBytes(op) <= kStaticSharedBytes
             ? Row::Stored
             : Row::Streamed;
}

bool TopK::isRanked(tile::TopKOp op) {
  constexpr int64_t fewSlots = 2;
  return getPositions(op) > kWarp && op.getRouting().getTopK() > fewSlots;
}

int64_t TopK::getWarpBytes(tile::TopKOp op) {
  // A key and an index per lane.
  constexpr int64_t tableBytes = 2 * 4 * kWarp;
  switch (getRow(op)) {
  case Row::Held:
    return isRanked(op) ? tableBytes : 0;
  case Row::Stored:
    return getStoredBytes(op);
  case Row::Streamed:
    return 0;
  }
  llvm_unreachable("a row is kept in one of three ways");
}

int64_t sm80::getNumLocalExperts(tile::RankOp op) {
  return op.getLocalExperts() ? op.getLocalExperts()->size()
                              : op.getNumExperts();
}

int64_t sm80::getNumLocalExperts(tile::CountSlotsOp op) {
  return cast<MemRefType>(op.getCounts().getType()).getDimSize(1);
}

CountSlots::CountSlots(tile::CountSlotsOp op, tile::ConfigAttr config)
    : numLocal(getNumLocalExperts(op)),
      threads(cast<tile::Sm80CountSlotsAttr>(config).getThreads()),
      panel(cast<tile::Sm80CountSlotsAttr>(config).getExpertsAtOnce()),
      chunks{cast<MemRefType>(op.getCounts().getType()).getDimSize(0),
             static_cast<int64_t>(op.getChunkTokens())} {}

Rank::Rank(tile::RankOp op, tile::ConfigAttr attr)
    : numLocal(getNumLocalExperts(op)), hasCounts(op.getCounts()) {
  auto config = cast<tile::Sm80RankAttr>(attr);
  threads = config.getThreads();
  panel = config.getExpertsAtOnce();
  chunks = {kMaxCtas, config.getTokensPerCta()};
  if (hasCounts)
    chunks.most = cast<MemRefType>(op.getCounts().getType()).getDimSize(0);
  auto kernel = op->getParentOfType<tile::KernelOp>();
  if (tile::LoadAttr load = kernel ? kernel.getLoadAttr() : nullptr)
    maxSlots = load.getMaxTokens() *
               cast<MemRefType>(op.getIds().getType()).getDimSize(1);
}

int64_t Rank::getStride() const { return llvm::alignTo(panel, kWarp); }

int64_t Rank::getGroups() const {
  return llvm::alignTo(getStride() / kWarp, kWarp);
}

int64_t Rank::getWords(int64_t runs) const {
  if (isAlwaysFew())
    return getFewSlots();
  // Slots without an expert have a counter too; with panels, one more word
  // carries the total of earlier panels.
  return (runs + 1) * getStride() + getGroups() + 1 + hasPanels();
}

int64_t Rank::getFewSlots() const {
  if (hasPanels() || hasCounts)
    return 0;
  return std::min<int64_t>(kFewSlots, llvm::bit_floor(uint64_t(threads)));
}

int64_t Rank::getRuns() const {
  int64_t left = kStaticSharedBytes / 4 - getWords(/*runs=*/0);
  return std::min(left / getStride(), threads / kWarp);
}

/// One CTA per chunk.
static moert::Expr chunksGrid(TokenChunks chunks) {
  return moert::Expr::min(rowBlocks(chunks.tokens), chunks.most);
}

//===----------------------------------------------------------------------===//
// sm80.top_k
//===----------------------------------------------------------------------===//

std::string sm80::topKIllegal(Operation *op, tile::ConfigAttr config,
                              const Target &) {
  constexpr int64_t maxThreads = 1024, maxRows = 1 << 20;
  TopK shape(cast<tile::TopKOp>(op), config);
  if (shape.threads <= 0 || shape.threads > maxThreads || shape.threads % kWarp)
    return "threads = " + number(shape.threads) +
           "; give a multiple of 32 up to " + number(maxThreads);
  if (shape.chunks.tokens <= 0 || shape.chunks.tokens > maxRows)
    return "tokens_per_cta = " + number(shape.chunks.tokens) + "; give 1 to " +
           number(maxRows);
  int64_t bytes = shape.getWarps() * TopK::getWarpBytes(cast<tile::TopKOp>(op));
  if (bytes > kStaticSharedBytes)
    return "threads = " + number(shape.threads) + " needs " + number(bytes) +
           " bytes of shared memory; there are " + number(kStaticSharedBytes);
  return {};
}

/// One token per warp.
tile::ConfigAttr sm80::chooseTopK(Operation *op, const Target &) {
  constexpr int64_t maxWarps = 4;
  int64_t warps = maxWarps;
  if (int64_t bytes = TopK::getWarpBytes(cast<tile::TopKOp>(op)))
    warps = std::clamp<int64_t>(kStaticSharedBytes / bytes, 1, maxWarps);
  return tile::Sm80TopKAttr::get(op->getContext(), warps * kWarp, warps,
                                 /*max_ctas=*/0);
}

moert::Expr sm80::topKGrid(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  TokenChunks chunks = TopK(cast<tile::TopKOp>(op), config).chunks;
  return chunks.most ? chunksGrid(chunks) : rowBlocks(chunks.tokens);
}

//===----------------------------------------------------------------------===//
// sm80.count_slots and sm80.rank, by chunks of slots
//===----------------------------------------------------------------------===//

/// Reason why a CTA cannot have so many threads, with counters of so many
/// experts; empty if it can.
static std::string chunkIllegal(int64_t threads, int64_t experts,
                                int64_t maxExperts) {
  constexpr int64_t maxThreads = 1024;
  if (threads <= 0 || threads > maxThreads || threads % kWarp)
    return "threads = " + number(threads) + "; give a multiple of 32 up to " +
           number(maxThreads);
  if (experts <= 0 || experts > maxExperts)
    return "experts_at_once = " + number(experts) + "; give 1 to " +
           number(maxExperts);
  return {};
}

std::string sm80::countSlotsIllegal(Operation *op, tile::ConfigAttr config,
                                    const Target &) {
  CountSlots shape(cast<tile::CountSlotsOp>(op), config);
  return chunkIllegal(shape.threads, shape.panel, CountSlots::kMaxPanel);
}

/// Threads have two slots of the smallest allowed chunk.
tile::ConfigAttr sm80::chooseCountSlots(Operation *op, const Target &) {
  constexpr int64_t threads = 512;
  int64_t panel = std::min(getNumLocalExperts(cast<tile::CountSlotsOp>(op)),
                           CountSlots::kMaxPanel);
  return tile::Sm80CountSlotsAttr::get(op->getContext(), threads, panel);
}

moert::Expr sm80::countSlotsGrid(Operation *op, tile::ConfigAttr config,
                                 const Target &) {
  return chunksGrid(CountSlots(cast<tile::CountSlotsOp>(op), config).chunks);
}

std::string sm80::rankIllegal(Operation *op, tile::ConfigAttr config,
                              const Target &) {
  constexpr int64_t maxRows = 1 << 20;
  Rank shape(cast<tile::RankOp>(op), config);
  if (std::string reason =
          chunkIllegal(shape.threads, shape.panel, Rank::kMaxPanel);
      !reason.empty())
    return reason;
  std::optional<int64_t> counted = cast<tile::RankOp>(op).getChunkTokens();
  int64_t tokens = shape.chunks.tokens;
  if (counted && tokens != *counted)
    return "tokens_per_cta = " + number(tokens) + "; give the " +
           number(*counted) + " tokens of the chunks that 'counts' are of";
  if (tokens <= 0 || tokens > maxRows)
    return "tokens_per_cta = " + number(tokens) + "; give 1 to " +
           number(maxRows);
  return {};
}

/// All experts at a time if their counters fit, because every panel reads all
/// slots, or counts, again.
tile::ConfigAttr sm80::chooseRank(Operation *op, const Target &) {
  constexpr int64_t fewExperts = 1024, minThreads = 512, maxThreads = 1024;
  auto rank = cast<tile::RankOp>(op);
  int64_t panel = getNumLocalExperts(rank);
  if (panel > Rank::kMaxPanel)
    panel = fewExperts;
  int64_t topK = cast<MemRefType>(rank.getIds().getType()).getDimSize(1);
  int64_t rows = rank.getChunkTokens().value_or(
      std::max<int64_t>(Rank::kSlotsPerCta / topK, 1));
  // Runs of few slots each take longer to sum over than to give positions.
  int64_t threads =
      rank.getCounts() && rows * topK <= minThreads ? minThreads : maxThreads;
  return tile::Sm80RankAttr::get(op->getContext(), threads, rows, panel);
}

/// Without tokens the offsets still have to be written.
moert::Expr sm80::rankGrid(Operation *op, tile::ConfigAttr config,
                           const Target &) {
  return moert::Expr::max(
      chunksGrid(Rank(cast<tile::RankOp>(op), config).chunks), 1);
}

int64_t sm80::chunkBlock(Operation *, tile::ConfigAttr attr) {
  return llvm::TypeSwitch<Attribute, int64_t>(attr)
      .Case<tile::Sm80TopKAttr, tile::Sm80CountSlotsAttr, tile::Sm80RankAttr>(
          [](auto config) { return config.getThreads(); });
}

/// A chunk should have no more counts than slots, because all CTAs read the
/// counts. CTAs that also route take fewer slots, because routing takes longer.
std::optional<TokenChunks>
sm80::rankChunks(tile::RankOp op, tile::ConfigAttr config, bool isRouted) {
  constexpr int64_t routedTokens = 16;
  Rank shape(op, config);
  if (shape.numLocal > Rank::kSlotsPerCta)
    return std::nullopt;
  if (isRouted)
    shape.chunks.tokens = routedTokens;
  return shape.chunks;
}

//===----------------------------------------------------------------------===//
// sm80.top_k and one of the others in one kernel
//===----------------------------------------------------------------------===//

/// As many threads as shared memory has space for, beside `words` of i32.
static int64_t getRoutingThreads(tile::TopKOp op, int64_t words,
                                 int64_t maxWarps) {
  int64_t bytes = std::max<int64_t>(TopK::getWarpBytes(op), 1);
  int64_t most = std::min((kStaticSharedBytes - 4 * words) / bytes, maxWarps);
  return most > 0 ? kWarp * llvm::bit_floor(uint64_t(most)) : 0;
}

static std::string whyNoRoom(tile::TopKOp first, const TopK &routing,
                             int64_t words) {
  int64_t bytes = routing.getWarps() * TopK::getWarpBytes(first) + 4 * words;
  if (bytes <= kStaticSharedBytes)
    return {};
  return "both need " + number(bytes) + " bytes of shared memory; there are " +
         number(kStaticSharedBytes);
}

static std::string whyOtherThreads(const TopK &routing, int64_t threads) {
  if (routing.threads == threads)
    return {};
  return "threads = " + number(routing.threads) + " and " + number(threads) +
         "; give both the same threads";
}

std::optional<JoinedConfigs>
sm80::countRouted(Operation *first, Operation *second, tile::LoadAttr) {
  auto topK = cast<tile::TopKOp>(first);
  auto count = cast<tile::CountSlotsOp>(second);
  CountSlots shape(count, count.getConfigAttr());
  int64_t threads = getRoutingThreads(topK, shape.getWords(), kCountingWarps);
  if (!threads)
    return std::nullopt;
  return JoinedConfigs{tile::Sm80TopKAttr::get(first->getContext(), threads,
                                               shape.chunks.tokens,
                                               shape.chunks.most),
                       tile::Sm80CountSlotsAttr::get(second->getContext(),
                                                     threads, shape.panel)};
}

/// Reason given by a phase that can only follow a routing.
constexpr llvm::StringLiteral kNoRouting =
    "a CTA has its share of what a 'tile.top_k' has routed, and of nothing "
    "else";

std::string sm80::whyNotCounted(Operation *first, Operation *second,
                                tile::LoadAttr) {
  auto topK = dyn_cast<tile::TopKOp>(first);
  if (!topK)
    return kNoRouting.str();
  auto count = cast<tile::CountSlotsOp>(second);
  TopK routing(topK, topK.getConfigAttr());
  CountSlots shape(count, count.getConfigAttr());
  if (routing.chunks.most != shape.chunks.most ||
      routing.chunks.tokens != shape.chunks.tokens)
    return "a CTA routes tokens_per_cta = " + number(routing.chunks.tokens) +
           ", of max_ctas = " + number(routing.chunks.most) +
           ", and counts those of chunks of " + number(shape.chunks.tokens) +
           ", " + number(shape.chunks.most) + " at most; give both the same";
  if (std::string reason = whyOtherThreads(routing, shape.threads);
      !reason.empty())
    return reason;
  return whyNoRoom(topK, routing, shape.getWords());
}

std::optional<JoinedConfigs>
sm80::rankRouted(Operation *first, Operation *second, tile::LoadAttr load) {
  auto topK = cast<tile::TopKOp>(first);
  auto rank = cast<tile::RankOp>(second);
  // Keys, and copies of ids and weights.
  int64_t threads = getRoutingThreads(topK, 3 * Rank::kFewSlots, kRankingWarps);
  int64_t tokens = std::max<int64_t>(load.getMaxTokens(), 1);
  if (!threads)
    return std::nullopt;
  auto config = tile::Sm80RankAttr::get(
      second->getContext(), threads, tokens,
      cast<tile::Sm80RankAttr>(rank.getConfigAttr()).getExpertsAtOnce());
  Rank shape(rank, config);
  if (tokens * topK.getRouting().getTopK() > shape.getFewSlots())
    return std::nullopt;
  return JoinedConfigs{tile::Sm80TopKAttr::get(first->getContext(), threads,
                                               tokens,
                                               /*max_ctas=*/0),
                       config};
}

/// The kernel has a single CTA.
std::string sm80::whyNotRanked(Operation *first, Operation *second,
                               tile::LoadAttr load) {
  auto topK = dyn_cast<tile::TopKOp>(first);
  if (!topK)
    return kNoRouting.str();
  auto rank = cast<tile::RankOp>(second);
  TopK routing(topK, topK.getConfigAttr());
  Rank shape(rank, rank.getConfigAttr());
  int64_t rows = std::min(routing.chunks.tokens, shape.chunks.tokens);
  if (!load || static_cast<int64_t>(load.getMaxTokens()) > rows)
    return "a CTA ranks what all CTAs have routed; give the kernel a 'load' of "
           "at most the " +
           number(rows) + " tokens that one of them takes";
  if (std::string reason = whyOtherThreads(routing, shape.threads);
      !reason.empty())
    return reason;
  return whyNoRoom(topK, routing, shape.getWords(shape.getRuns()));
}

//===----------------------------------------------------------------------===//
// sm80.quantize ahead of both in one kernel
//===----------------------------------------------------------------------===//

/// CTAs in excess of the routing ones find no token to route.
std::optional<JoinedConfigs>
sm80::quantizeAhead(Operation *first, Operation *second, tile::LoadAttr load) {
  auto quantize = dyn_cast<tile::QuantizeOp>(first);
  auto topK = cast<tile::TopKOp>(second);
  if (!quantize || !whyNotAhead(first, second, load).empty())
    return std::nullopt;
  return JoinedConfigs{quantize.getConfigAttr(), topK.getConfigAttr()};
}

std::string sm80::whyNotAhead(Operation *first, Operation *second,
                              tile::LoadAttr) {
  auto quantize = dyn_cast<tile::QuantizeOp>(first);
  auto topK = cast<tile::TopKOp>(second);
  if (!quantize)
    return "a routing comes first, or behind a 'tile.quantize'";
  if (Quantize(quantize, quantize.getConfigAttr()).areRows())
    return "threads that share the scale of a row wait for one another at a "
           "barrier of the whole CTA; groups of [1, 128] need none";
  if (!isa_and_nonnull<tile::RankOp>(second->getNextNode()))
    return "a routing whose slots one CTA ranks quantizes first, no other";
  TopK routing(topK, topK.getConfigAttr());
  if (routing.row != TopK::Row::Held)
    return "of so many experts, or slots, the kernel waits for the launch "
           "before it at its entry";
  if (routing.threads < Quantize::kThreads)
    return "threads = " + number(routing.threads) + "; give at least the " +
           number(Quantize::kThreads) + " threads that quantize";
  // No phase waits for rows that other CTAs quantize.
  for (Operation &phase : *second->getBlock())
    for (Value memref : quantize->getOperands().drop_front())
      if (&phase != first && llvm::is_contained(phase.getOperands(), memref))
        return "a phase of the same kernel touches what is quantized";
  return {};
}
