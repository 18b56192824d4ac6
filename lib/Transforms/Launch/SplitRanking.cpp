//===- SplitRanking.cpp - rankings behind counts ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Rewrites/SplitRanking.h"
#include "../Tile/Variants.h"
#include "LaunchRewrite.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace moec;

namespace {

/// First variants are split where their rankings begin to have many slots, so
/// that the launches of each agree. Then the launches of many slots get a
/// kernel of their own, unless there are no others, and one that counts before
/// it.
class SplitRanking final : public LaunchRewrite {
public:
  SplitRanking(StringRef name, RewriteContext &context)
      : LaunchRewrite(name, context),
        most(getParameter("most").value_or(kMost)),
        maxRouted(getParameter("most-routed").value_or(getMaxRouted())) {}

  void cut() override;
  std::vector<RewriteSite> match() override;
  LogicalResult commit(const RewriteSite &site) override;

private:
  /// The most slots that one launch ranks, measured; and where the launch that
  /// routes their tokens can count them.
  static constexpr int64_t kMost = 16384, kMaxRouted = 2048;

  /// Unless that was given.
  int64_t getMaxRouted() const {
    bool isFused = context.enabled.contains("fuse-routing");
    return isFused && !getParameter("most") ? kMaxRouted : most;
  }
  /// The launch's ranking, if slots can be counted before it; or null.
  tile::RankOp getRank(plan::LaunchOp launch);
  /// Whether the launch right before routes the tokens whose slots the launch
  /// ranks, so that it can count them. A forced config has chunks of its own.
  bool isRouted(plan::LaunchOp launch, tile::RankOp rank);
  TokenChunks getChunks(tile::RankOp rank, bool isRouted) {
    return *getSchedule(rank)->as<ReadsCounts>()->chunks(
        rank, rank.getConfigAttr(), isRouted);
  }
  /// From how many tokens on there are too many slots for one launch.
  int64_t getFirstTokens(plan::LaunchOp launch, tile::RankOp rank) {
    int64_t topK = cast<MemRefType>(rank.getIds().getType()).getDimSize(1);
    return (isRouted(launch, rank) ? maxRouted : most) / topK + 1;
  }
  bool areAll(tile::KernelOp kernel, ArrayRef<plan::LaunchOp> launches);
  tile::KernelOp makeCounting(tile::KernelOp kernel, MemRefType counts,
                              int64_t chunkTokens);
  LogicalResult takeCounts(tile::KernelOp kernel, unsigned number,
                           MemRefType counts, int64_t chunkTokens);
  Value getCounts(plan::LaunchOp launch, tile::KernelOp counting);

  int64_t most, maxRouted;
  /// The counts of a kernel's launches on a stream, which follow each other.
  llvm::MapVector<std::pair<Operation *, std::pair<Operation *, int64_t>>,
                  Value>
      buffers;
};

} // namespace

tile::RankOp SplitRanking::getRank(plan::LaunchOp launch) {
  auto rank = getPhase<tile::RankOp>(launch);
  if (!rank || rank.getCounts() || !rank.getConfig() ||
      !isa<plan::VariantOp>(launch->getParentOp()))
    return nullptr;
  tile::ConfigAttr config = rank.getConfigAttr();
  const Schedule *schedule = getSchedule(rank);
  const auto *reads = schedule ? schedule->as<ReadsCounts>() : nullptr;
  bool hasChunks = reads && reads->chunks(rank, config, /*isRouted=*/false);
  return hasChunks ? rank : nullptr;
}

bool SplitRanking::isRouted(plan::LaunchOp launch, tile::RankOp rank) {
  auto before = dyn_cast_or_null<plan::LaunchOp>(launch->getPrevNode());
  auto routing = before ? getPhase<tile::TopKOp>(before) : nullptr;
  return routing && before.getStream() == launch.getStream() &&
         !isForced(getKernel(launch)) &&
         getPassed(before, routing.getIds()) ==
             getPassed(launch, rank.getIds());
}

bool SplitRanking::areAll(tile::KernelOp kernel,
                          ArrayRef<plan::LaunchOp> launches) {
  size_t count = 0;
  context.module.walk([&](plan::LaunchOp launch) {
    count += launch.getKernel() == kernel.getSymName();
  });
  return count == launches.size();
}

/// The kernel that counts what another one ranks.
tile::KernelOp SplitRanking::makeCounting(tile::KernelOp kernel,
                                          MemRefType counts,
                                          int64_t chunkTokens) {
  auto rank = cast<tile::RankOp>(kernel.getBody().front().front());
  OpBuilder builder(kernel);
  SmallVector<Type> types{rank.getIds().getType()};
  if (Value valid = rank.getNumValidTokens())
    types.push_back(valid.getType());
  llvm::append_values(types, Type(counts), Type(builder.getI64Type()));
  auto counting = tile::KernelOp::create(
      builder, kernel.getLoc(), (kernel.getSymName() + "_counts").str(),
      builder.getFunctionType(types, {}));
  symbols.insert(counting, kernel->getIterator());
  counting.setLoadAttr(kernel.getLoadAttr());
  auto arguments = counting.getBody().getArguments();
  builder.setInsertionPointToStart(&counting.getBody().front());
  auto count = tile::CountSlotsOp::create(
      builder, rank.getLoc(), counting.getTokens(), arguments.front(),
      rank.getNumValidTokens() ? arguments[1] : Value(),
      arguments.drop_back().back(), rank.getNumExpertsAttr(),
      rank.getLocalExpertsAttr(), builder.getI64IntegerAttr(chunkTokens),
      tile::ConfigAttr());
  tile::ReturnOp::create(builder, rank.getLoc());
  const Schedule *schedule = getSchedulesFor(context.target, count).front();
  count.setConfigAttr(schedule->choose(count, context.target));
  setLaunchShape(counting, context.target);
  return counting;
}

/// Lets the ranking of a kernel take counts as argument `number`.
LogicalResult SplitRanking::takeCounts(tile::KernelOp kernel, unsigned number,
                                       MemRefType counts, int64_t chunkTokens) {
  auto rank = cast<tile::RankOp>(kernel.getBody().front().front());
  if (failed(kernel.insertArgument(number, counts, DictionaryAttr(),
                                   rank.getLoc())))
    return kernel.emitOpError("cannot take counts of its slots");
  rank.getCountsMutable().assign(kernel.getArgument(number));
  rank.setChunkTokens(chunkTokens);
  // Other chunks than it had.
  tile::ConfigAttr config = rank.getConfigAttr();
  if (cast<tile::Sm80RankAttr>(config).getTokensPerCta() != chunkTokens)
    rank.setConfigAttr(getSchedule(rank)->choose(rank, context.target));
  setLaunchShape(kernel, context.target);
  return success();
}

Value SplitRanking::getCounts(plan::LaunchOp launch, tile::KernelOp counting) {
  auto program = launch->getParentOfType<plan::ProgramOp>();
  int64_t stream = launch.getStream();
  Value &buffer = buffers[{program, {counting, stream}}];
  if (!buffer) {
    std::string name = counting.getSymName().str();
    if (stream)
      name += "_stream" + std::to_string(stream);
    buffer = addBuffer(program, launch.getLoc(),
                       counting.getArgumentTypes().drop_back().back(), name);
  }
  return buffer;
}

LogicalResult SplitRanking::commit(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  SmallVector<plan::LaunchOp> launches;
  for (const RewriteSite::Place &place : site.places)
    launches.push_back(place.front());
  auto rank = cast<tile::RankOp>(kernel.getBody().front().front());
  auto offsets = cast<MemRefType>(rank.getOffsets().getType());
  bool areRouted = llvm::all_of(
      launches, [&](plan::LaunchOp launch) { return isRouted(launch, rank); });
  TokenChunks chunks = getChunks(rank, areRouted);
  auto counts = MemRefType::get({chunks.most, offsets.getDimSize(0) - 1},
                                offsets.getElementType());
  tile::KernelOp counting = makeCounting(kernel, counts, chunks.tokens);
  tile::KernelOp own = kernel;
  if (!areAll(kernel, launches)) {
    own = kernel.clone();
    own.setSymName((kernel.getSymName() + "_by_counts").str());
    symbols.insert(own, std::next(kernel->getIterator()));
  }
  // Behind the other ins; in the same place in every launch.
  plan::LaunchOp first = launches.front();
  for (plan::LaunchOp launch : launches) {
    Value buffer = getCounts(launch, counting);
    SmallVector<Value> ins{getPassed(launch, rank.getIds())};
    if (Value valid = getPassed(launch, rank.getNumValidTokens()))
      ins.push_back(valid);
    OpBuilder builder(launch);
    plan::LaunchOp::create(builder, launch.getLoc(), counting.getSymName(),
                           launch.getStream(), ins, buffer,
                           /*dependent=*/false);
  }
  unsigned number = first.getIns().size();
  for (plan::LaunchOp launch : launches) {
    launch.getInsMutable().append(getCounts(launch, counting));
    launch.setKernel(own.getSymName());
  }
  return takeCounts(own, number, counts, chunks.tokens);
}

void SplitRanking::cut() {
  splitVariants(context.module,
                [&](plan::LaunchOp launch) -> std::optional<int64_t> {
                  if (tile::RankOp rank = getRank(launch))
                    return getFirstTokens(launch, rank);
                  return std::nullopt;
                });
}

std::vector<RewriteSite> SplitRanking::match() {
  return matchKernels<tile::RankOp>([&](plan::LaunchOp launch, tile::RankOp) {
    tile::RankOp rank = getRank(launch);
    return rank &&
           getFirstTokens(launch, rank) <=
               static_cast<int64_t>(
                   cast<plan::VariantOp>(launch->getParentOp()).getMinTokens());
  });
}

std::unique_ptr<LaunchRewrite> moec::makeSplitRanking(RewriteContext &context) {
  return std::make_unique<SplitRanking>("split-ranking", context);
}
