//===- Choice.cpp - schedules from logits to ranked slots -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Choice.h"
#include "Schedules/Quantize/Shape.h"
#include "moec/Schedules/PtxasLimits.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/ADT/bit.h"
#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;
using namespace moec;
using namespace moec::anygpu;

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

TopK::TopK(tile::TopKOp op, tile::ConfigAttr attr) : row(getRow(op)) {
  auto config = cast<tile::GpuTopKAttr>(attr);
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

int64_t anygpu::getNumLocalExperts(tile::SortByExpertOp op) {
  return op.getLocalExperts() ? op.getLocalExperts()->size()
                              : op.getNumExperts();
}

int64_t anygpu::getNumLocalExperts(tile::CountSlotsOp op) {
  return cast<MemRefType>(op.getCounts().getType()).getDimSize(1);
}

CountSlots::CountSlots(tile::CountSlotsOp op, tile::ConfigAttr config)
    : numLocal(getNumLocalExperts(op)),
      threads(cast<tile::GpuCountSlotsAttr>(config).getThreads()),
      expertsAtOnce(cast<tile::GpuCountSlotsAttr>(config).getExpertsAtOnce()),
      chunks{cast<MemRefType>(op.getCounts().getType()).getDimSize(0),
             static_cast<int64_t>(op.getChunkTokens())} {}

SortByExpert::SortByExpert(tile::SortByExpertOp op, tile::ConfigAttr attr)
    : numLocal(getNumLocalExperts(op)), hasCounts(op.getCounts()) {
  auto config = cast<tile::GpuSortByExpertAttr>(attr);
  threads = config.getThreads();
  expertsAtOnce = config.getExpertsAtOnce();
  chunks = {kMaxCtas, config.getTokensPerCta()};
  if (hasCounts)
    chunks.most = cast<MemRefType>(op.getCounts().getType()).getDimSize(0);
  auto kernel = op->getParentOfType<tile::KernelOp>();
  if (tile::LoadAttr load = kernel ? kernel.getLoadAttr() : nullptr)
    maxSlots = load.getMaxTokens() *
               cast<MemRefType>(op.getIds().getType()).getDimSize(1);
}

int64_t SortByExpert::getStride() const {
  return llvm::alignTo(expertsAtOnce, kWarp);
}

int64_t SortByExpert::getGroups() const {
  return llvm::alignTo(getStride() / kWarp, kWarp);
}

int64_t SortByExpert::getWords(int64_t runs) const {
  if (isAlwaysFew())
    return getFewSlots();
  // Slots without an expert have a counter too; with rounds, one more word
  // carries the total of earlier rounds.
  return (runs + 1) * getStride() + getGroups() + 1 + hasRounds();
}

int64_t SortByExpert::getFewSlots() const {
  if (hasRounds() || hasCounts)
    return 0;
  return std::min<int64_t>(kFewSlots, llvm::bit_floor(uint64_t(threads)));
}

int64_t SortByExpert::getRuns() const {
  int64_t left = kStaticSharedBytes / 4 - getWords(/*runs=*/0);
  return std::min(left / getStride(), threads / kWarp);
}

/// One CTA per chunk.
static moert::Expr chunksGrid(TokenChunks chunks) {
  return moert::Expr::min(rowBlocks(chunks.tokens), chunks.most);
}

//===----------------------------------------------------------------------===//
// gpu.top_k
//===----------------------------------------------------------------------===//

std::string anygpu::topKIllegal(Operation *op, tile::ConfigAttr config,
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
tile::ConfigAttr anygpu::chooseTopK(Operation *op, const Target &) {
  constexpr int64_t maxWarps = 4;
  int64_t warps = maxWarps;
  if (int64_t bytes = TopK::getWarpBytes(cast<tile::TopKOp>(op)))
    warps = std::clamp<int64_t>(kStaticSharedBytes / bytes, 1, maxWarps);
  return tile::GpuTopKAttr::get(op->getContext(), warps * kWarp, warps,
                                /*max_ctas=*/0);
}

moert::Expr anygpu::topKGrid(Operation *op, tile::ConfigAttr config,
                             const Target &) {
  TokenChunks chunks = TopK(cast<tile::TopKOp>(op), config).chunks;
  return chunks.most ? chunksGrid(chunks) : rowBlocks(chunks.tokens);
}

//===----------------------------------------------------------------------===//
// gpu.count_slots and gpu.sort_by_expert, by chunks of slots
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

std::string anygpu::countSlotsIllegal(Operation *op, tile::ConfigAttr config,
                                      const Target &) {
  CountSlots shape(cast<tile::CountSlotsOp>(op), config);
  return chunkIllegal(shape.threads, shape.expertsAtOnce,
                      CountSlots::kMaxExpertsAtOnce);
}

/// Threads have two slots of the smallest allowed chunk.
tile::ConfigAttr anygpu::chooseCountSlots(Operation *op, const Target &) {
  constexpr int64_t threads = 512;
  int64_t expertsAtOnce =
      std::min(getNumLocalExperts(cast<tile::CountSlotsOp>(op)),
               CountSlots::kMaxExpertsAtOnce);
  return tile::GpuCountSlotsAttr::get(op->getContext(), threads, expertsAtOnce);
}

moert::Expr anygpu::countSlotsGrid(Operation *op, tile::ConfigAttr config,
                                   const Target &) {
  return chunksGrid(CountSlots(cast<tile::CountSlotsOp>(op), config).chunks);
}

std::string anygpu::sortIllegal(Operation *op, tile::ConfigAttr config,
                                const Target &) {
  constexpr int64_t maxRows = 1 << 20;
  SortByExpert shape(cast<tile::SortByExpertOp>(op), config);
  if (std::string reason = chunkIllegal(shape.threads, shape.expertsAtOnce,
                                        SortByExpert::kMaxExpertsAtOnce);
      !reason.empty())
    return reason;
  std::optional<int64_t> counted =
      cast<tile::SortByExpertOp>(op).getChunkTokens();
  int64_t tokens = shape.chunks.tokens;
  if (counted && tokens != *counted)
    return "tokens_per_cta = " + number(tokens) + "; give the " +
           number(*counted) + " tokens of a chunk of 'counts'";
  if (tokens <= 0 || tokens > maxRows)
    return "tokens_per_cta = " + number(tokens) + "; give 1 to " +
           number(maxRows);
  return {};
}

/// All experts at a time if their counters fit, because every round reads all
/// slots, or counts, again.
tile::ConfigAttr anygpu::chooseSort(Operation *op, const Target &) {
  constexpr int64_t fewExperts = 1024, minThreads = 512, maxThreads = 1024;
  auto rank = cast<tile::SortByExpertOp>(op);
  int64_t expertsAtOnce = getNumLocalExperts(rank);
  if (expertsAtOnce > SortByExpert::kMaxExpertsAtOnce)
    expertsAtOnce = fewExperts;
  int64_t topK = cast<MemRefType>(rank.getIds().getType()).getDimSize(1);
  int64_t rows = rank.getChunkTokens().value_or(
      std::max<int64_t>(SortByExpert::kSlotsPerCta / topK, 1));
  // Runs of few slots each take longer to sum over than to give positions.
  int64_t threads =
      rank.getCounts() && rows * topK <= minThreads ? minThreads : maxThreads;
  return tile::GpuSortByExpertAttr::get(op->getContext(), threads, rows,
                                        expertsAtOnce);
}

/// Without tokens the offsets still have to be written.
moert::Expr anygpu::sortGrid(Operation *op, tile::ConfigAttr config,
                             const Target &) {
  return moert::Expr::max(
      chunksGrid(SortByExpert(cast<tile::SortByExpertOp>(op), config).chunks),
      1);
}

int64_t anygpu::chunkBlock(Operation *, tile::ConfigAttr attr) {
  return llvm::TypeSwitch<Attribute, int64_t>(attr)
      .Case<tile::GpuTopKAttr, tile::GpuCountSlotsAttr,
            tile::GpuSortByExpertAttr>(
          [](auto config) { return config.getThreads(); });
}

/// A chunk should have no more counts than slots, because all CTAs read the
/// counts. CTAs that also route take fewer slots, because routing takes longer.
std::optional<TokenChunks> anygpu::getSortChunks(tile::SortByExpertOp op,
                                                 tile::ConfigAttr config,
                                                 bool isRouted) {
  constexpr int64_t routedTokens = 16;
  SortByExpert shape(op, config);
  if (shape.numLocal > SortByExpert::kSlotsPerCta)
    return std::nullopt;
  if (isRouted)
    shape.chunks.tokens = routedTokens;
  return shape.chunks;
}

//===----------------------------------------------------------------------===//
// gpu.top_k and one of the others in one kernel
//===----------------------------------------------------------------------===//

/// As many threads as shared memory has space for, beside `words` of i32.
static int64_t getRoutingThreads(tile::TopKOp op, int64_t words,
                                 int64_t maxWarps) {
  int64_t bytes = std::max<int64_t>(TopK::getWarpBytes(op), 1);
  int64_t most = std::min((kStaticSharedBytes - 4 * words) / bytes, maxWarps);
  return most > 0 ? kWarp * llvm::bit_floor(uint64_t(most)) : 0;
}

static std::string whyDoesNotFit(tile::TopKOp first, const TopK &routing,
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
anygpu::countRouted(Operation *first, Operation *second, tile::LoadAttr) {
  auto topK = cast<tile::TopKOp>(first);
  auto count = cast<tile::CountSlotsOp>(second);
  CountSlots shape(count, count.getConfigAttr());
  int64_t threads = getRoutingThreads(topK, shape.getWords(), kCountingWarps);
  if (!threads)
    return std::nullopt;
  return JoinedConfigs{
      tile::GpuTopKAttr::get(first->getContext(), threads, shape.chunks.tokens,
                             shape.chunks.most),
      tile::GpuCountSlotsAttr::get(second->getContext(), threads,
                                   shape.expertsAtOnce)};
}

/// Reason given by a phase that can only follow a routing.
constexpr llvm::StringLiteral kNoRouting =
    "only a 'tile.top_k' may precede it in a kernel, since a CTA continues "
    "with the tokens that it routed";

std::string anygpu::whyNotCounted(Operation *first, Operation *second,
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
           ", but counts chunks of " + number(shape.chunks.tokens) + ", " +
           number(shape.chunks.most) + " at most; give both the same";
  if (std::string reason = whyOtherThreads(routing, shape.threads);
      !reason.empty())
    return reason;
  return whyDoesNotFit(topK, routing, shape.getWords());
}

std::optional<JoinedConfigs>
anygpu::sortRouted(Operation *first, Operation *second, tile::LoadAttr load) {
  auto topK = cast<tile::TopKOp>(first);
  auto rank = cast<tile::SortByExpertOp>(second);
  // Keys, and copies of ids and weights.
  int64_t threads =
      getRoutingThreads(topK, 3 * SortByExpert::kFewSlots, kSortingWarps);
  int64_t tokens = std::max<int64_t>(load.getMaxTokens(), 1);
  if (!threads)
    return std::nullopt;
  auto config = tile::GpuSortByExpertAttr::get(
      second->getContext(), threads, tokens,
      cast<tile::GpuSortByExpertAttr>(rank.getConfigAttr()).getExpertsAtOnce());
  SortByExpert shape(rank, config);
  if (tokens * topK.getRouting().getTopK() > shape.getFewSlots())
    return std::nullopt;
  return JoinedConfigs{tile::GpuTopKAttr::get(first->getContext(), threads,
                                              tokens,
                                              /*max_ctas=*/0),
                       config};
}

std::optional<SortsInEachCta::Configs>
anygpu::sortInEachCta(tile::TopKOp routing, tile::SortByExpertOp sort,
                      int64_t tokens, int64_t threads) {
  MLIRContext *context = routing.getContext();
  auto routed =
      tile::GpuTopKAttr::get(context, threads, tokens, /*max_ctas=*/0);
  auto sorted = tile::GpuSortByExpertAttr::get(
      context, threads, tokens,
      cast<tile::GpuSortByExpertAttr>(sort.getConfigAttr()).getExpertsAtOnce());
  TopK shape(routing, routed);
  SortByExpert sorting(sort, sorted);
  int64_t slots = sorting.getFewSlots();
  // A row in registers waits for the launch before where that is of use.
  if (shape.row != TopK::Row::Held ||
      tokens * routing.getRouting().getTopK() > slots)
    return std::nullopt;
  return SortsInEachCta::Configs{
      routed, sorted,
      shape.getWarps() * TopK::getWarpBytes(routing) + 4 * slots};
}

/// The kernel has a single CTA.
std::string anygpu::whyNotSorted(Operation *first, Operation *second,
                                 tile::LoadAttr load) {
  auto topK = dyn_cast<tile::TopKOp>(first);
  if (!topK)
    return kNoRouting.str();
  auto rank = cast<tile::SortByExpertOp>(second);
  TopK routing(topK, topK.getConfigAttr());
  SortByExpert shape(rank, rank.getConfigAttr());
  int64_t rows = std::min(routing.chunks.tokens, shape.chunks.tokens);
  if (!load || static_cast<int64_t>(load.getMaxTokens()) > rows)
    return "one CTA sorts the slots that all CTAs have routed; give the kernel "
           "a 'load' of at most the " +
           number(rows) + " tokens that one CTA routes";
  if (std::string reason = whyOtherThreads(routing, shape.threads);
      !reason.empty())
    return reason;
  return whyDoesNotFit(topK, routing, shape.getWords(shape.getRuns()));
}

//===----------------------------------------------------------------------===//
// gpu.quantize ahead of both in one kernel
//===----------------------------------------------------------------------===//

/// CTAs in excess of the routing ones find no token to route.
std::optional<JoinedConfigs> anygpu::quantizeAhead(Operation *first,
                                                   Operation *second,
                                                   tile::LoadAttr load) {
  auto quantize = dyn_cast<tile::QuantizeOp>(first);
  auto topK = cast<tile::TopKOp>(second);
  if (!quantize || !whyNotAhead(first, second, load).empty())
    return std::nullopt;
  return JoinedConfigs{quantize.getConfigAttr(), topK.getConfigAttr()};
}

std::string anygpu::whyNotAhead(Operation *first, Operation *second,
                                tile::LoadAttr) {
  auto quantize = dyn_cast<tile::QuantizeOp>(first);
  auto topK = cast<tile::TopKOp>(second);
  if (!quantize)
    return "a 'tile.top_k' must be the first phase, or follow a "
           "'tile.quantize'";
  if (Quantize(quantize, quantize.getConfigAttr()).areRows())
    return "a scale per row needs a barrier of the whole CTA; groups of [1, "
           "128] need none";
  if (!isa_and_nonnull<tile::SortByExpertOp>(second->getNextNode()))
    return "only a routing whose slots one CTA sorts can quantize first";
  TopK routing(topK, topK.getConfigAttr());
  if (routing.row != TopK::Row::Held)
    return "with this many experts or slots, the kernel waits at its entry for "
           "the launch before it";
  if (routing.threads < Quantize::kThreads)
    return "threads = " + number(routing.threads) + "; give at least the " +
           number(Quantize::kThreads) + " threads that quantize";
  // No phase waits for rows that other CTAs quantize.
  for (Operation &phase : *second->getBlock())
    for (Value memref : quantize->getOperands().drop_front())
      if (&phase != first && llvm::is_contained(phase.getOperands(), memref))
        return "a phase of the same kernel uses the memory of the quantization";
  return {};
}
