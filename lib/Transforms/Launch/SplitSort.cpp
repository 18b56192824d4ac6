//===- SplitSort.cpp - rankings behind counts -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Rewrites/SplitSort.h"
#include "../Tile/Variants.h"
#include "LaunchRewrite.h"
#include "llvm/ADT/MapVector.h"

using namespace mlir;
using namespace moec;

namespace {

/// The kernel that counts, and the one that sorts by its counts.
struct CountedKernels {
  tile::KernelOp counting, ranking;
};

/// Splits variants at the token count from which sorts are large, so that all
/// launches of a variant agree. Then launches of large sorts get a copy of the
/// kernel, unless there are no others, and a counting kernel before it.
class SplitSort final : public LaunchRewrite {
public:
  using LaunchRewrite::LaunchRewrite;

  void splitRanges() override;
  std::vector<RewriteSite> match() override;
  FailureOr<std::string> build(const RewriteSite &site) override;
  std::optional<PredictedChange> predict(const RewriteSite &site) override;
  LogicalResult commit(const RewriteSite &site) override;
  void leave(const RewriteSite &site) override;

private:
  /// The most slots that one launch sorts, if given or without a cost model;
  /// `isRouted`: if the launch before routes their tokens.
  std::optional<int64_t> getMostSlots(bool isRouted) const;
  /// The launch's sort, if slots can be counted before it; or null.
  tile::SortByExpertOp getRank(plan::LaunchOp launch);
  /// Whether the launch right before routes the tokens of the sort, so that it
  /// can count their slots. A forced config keeps its own chunks.
  bool isRouted(plan::LaunchOp launch, tile::SortByExpertOp rank);
  TokenChunks getChunks(tile::SortByExpertOp rank, bool isRouted) {
    return *getSchedule(rank)->as<ReadsCounts>()->chunks(
        rank, rank.getConfigAttr(), isRouted);
  }
  /// Whether this holds for all of the site's launches.
  bool areRouted(const RewriteSite &site) {
    return llvm::all_of(
        site.occurrences, [&](const RewriteSite::Occurrence &occurrence) {
          plan::LaunchOp launch = occurrence.front();
          return isRouted(launch, getPhase<tile::SortByExpertOp>(launch));
        });
  }
  /// Fewest tokens with too many slots for one launch; nothing if there are
  /// none.
  std::optional<int64_t> getFirstTokens(plan::LaunchOp launch,
                                        tile::SortByExpertOp rank);
  std::optional<int64_t> predictFirstTokens(plan::LaunchOp launch,
                                            tile::SortByExpertOp rank);
  /// Times at these points of a launch, and of the two launches instead.
  std::pair<PointTimes, PointTimes> predict(plan::LaunchOp launch,
                                            const CountedKernels &kernels,
                                            ArrayRef<TokenPoint> points);
  /// Whether separate kernels pay for launches from their first tokens on.
  bool pays(ArrayRef<plan::LaunchOp> launches);
  bool areAll(const RewriteSite &site);
  /// The kernels for a launch's kernel.
  FailureOr<CountedKernels> makeKernels(plan::LaunchOp launch, bool areRouted);
  void erase(CountedKernels &kernels);
  tile::KernelOp makeCounting(tile::KernelOp kernel, MemRefType counts,
                              int64_t chunkTokens);
  LogicalResult takeCounts(tile::KernelOp kernel, unsigned number,
                           MemRefType counts, int64_t chunkTokens);
  Value getCounts(plan::LaunchOp launch, tile::KernelOp counting);

  /// Built for a site; null if none were built.
  CountedKernels built;
  /// Counts of a kernel's launches on a stream, which run in sequence.
  llvm::MapVector<std::pair<Operation *, std::pair<Operation *, int64_t>>,
                  Value>
      buffers;
};

} // namespace

tile::SortByExpertOp SplitSort::getRank(plan::LaunchOp launch) {
  auto rank = getPhase<tile::SortByExpertOp>(launch);
  if (!rank || rank.getCounts() || !rank.getConfig() ||
      !isa<plan::VariantOp>(launch->getParentOp()))
    return nullptr;
  tile::ConfigAttr config = rank.getConfigAttr();
  const Schedule *schedule = getSchedule(rank);
  const auto *reads = schedule ? schedule->as<ReadsCounts>() : nullptr;
  bool hasChunks = reads && reads->chunks(rank, config, /*isRouted=*/false);
  return hasChunks ? rank : nullptr;
}

bool SplitSort::isRouted(plan::LaunchOp launch, tile::SortByExpertOp rank) {
  auto before = dyn_cast_or_null<plan::LaunchOp>(launch->getPrevNode());
  auto routing = before ? getPhase<tile::TopKOp>(before) : nullptr;
  return routing && before.getStream() == launch.getStream() &&
         !isForced(getKernel(launch)) &&
         getPassed(before, routing.getIds()) ==
             getPassed(launch, rank.getIds());
}

std::optional<int64_t> SplitSort::getMostSlots(bool isRouted) const {
  // Measured on an H200.
  constexpr int64_t many = 16384, manyRouted = 2048;
  std::optional<int64_t> most = getParameter("most"),
                         mostRouted = getParameter("most-routed");
  if (isRouted && mostRouted)
    return mostRouted;
  if (most || context.objective.hasTimes())
    return most;
  bool isFused = isRouted && context.enabled.contains("fuse-routing");
  return isFused ? manyRouted : many;
}

std::optional<int64_t> SplitSort::getFirstTokens(plan::LaunchOp launch,
                                                 tile::SortByExpertOp rank) {
  std::optional<int64_t> most = getMostSlots(isRouted(launch, rank));
  if (!most)
    return predictFirstTokens(launch, rank);
  int64_t topK = cast<MemRefType>(rank.getIds().getType()).getDimSize(1);
  return *most / topK + 1;
}

/// Ranges end at powers of two: after the last one that saves nothing.
std::optional<int64_t>
SplitSort::predictFirstTokens(plan::LaunchOp launch,
                              tile::SortByExpertOp rank) {
  FailureOr<CountedKernels> kernels =
      makeKernels(launch, isRouted(launch, rank));
  if (failed(kernels))
    return std::nullopt;
  auto variant = cast<plan::VariantOp>(launch->getParentOp());
  SmallVector<TokenPoint> points;
  for (int64_t tokens : getTokenPoints(1, variant.getMaxTokens()))
    points.push_back({variant, tokens});
  auto [before, after] = predict(launch, *kernels, points);
  erase(*kernels);
  size_t routings = getWeightedRoutings().size();
  size_t first = points.size();
  while (first > 0 &&
         after[(first - 1) * routings] < before[(first - 1) * routings])
    --first;
  if (first == points.size())
    return std::nullopt;
  return first ? points[first - 1].tokens + 1 : 0;
}

/// A counting launch for routed tokens becomes part of the routing launch.
std::pair<PointTimes, PointTimes>
SplitSort::predict(plan::LaunchOp launch, const CountedKernels &kernels,
                   ArrayRef<TokenPoint> points) {
  auto getForm = [](tile::KernelOp kernel) {
    Operation *phase = &kernel.getBody().front().front();
    return PhaseForm{phase, phase->getAttrOfType<tile::ConfigAttr>("config"),
                     kernel.getLoadAttr()};
  };
  PhaseForm counting = getForm(kernels.counting);
  counting.isLaunched =
      !(isRouted(launch, getPhase<tile::SortByExpertOp>(launch)) &&
        context.enabled.contains("fuse-routing"));
  return {
      context.objective.predict(getForm(getKernel(launch)), points),
      context.objective.predict({counting, getForm(kernels.ranking)}, points)};
}

bool SplitSort::areAll(const RewriteSite &site) {
  size_t count = 0;
  context.module.walk([&](plan::LaunchOp launch) {
    count += launch.getKernel() == site.getLaunch().getKernel();
  });
  return count == site.occurrences.size();
}

/// Makes the kernel that counts the slots of a sort.
tile::KernelOp SplitSort::makeCounting(tile::KernelOp kernel, MemRefType counts,
                                       int64_t chunkTokens) {
  auto rank = cast<tile::SortByExpertOp>(kernel.getBody().front().front());
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

/// Makes the sort of a kernel take counts as argument `number`.
LogicalResult SplitSort::takeCounts(tile::KernelOp kernel, unsigned number,
                                    MemRefType counts, int64_t chunkTokens) {
  auto rank = cast<tile::SortByExpertOp>(kernel.getBody().front().front());
  if (failed(kernel.insertArgument(number, counts, DictionaryAttr(),
                                   rank.getLoc())))
    return kernel.emitOpError("cannot take the slot counts as an operand");
  rank.getCountsMutable().assign(kernel.getArgument(number));
  rank.setChunkTokens(chunkTokens);
  // The chunks may have changed.
  const Schedule *schedule = getSchedule(rank);
  if (schedule->as<ReadsCounts>()->getChunkTokens(rank.getConfigAttr()) !=
      chunkTokens)
    rank.setConfigAttr(schedule->choose(rank, context.target));
  setLaunchShape(kernel, context.target);
  return success();
}

Value SplitSort::getCounts(plan::LaunchOp launch, tile::KernelOp counting) {
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

FailureOr<CountedKernels> SplitSort::makeKernels(plan::LaunchOp launch,
                                                 bool areRouted) {
  tile::KernelOp kernel = getKernel(launch);
  auto rank = cast<tile::SortByExpertOp>(kernel.getBody().front().front());
  auto offsets = cast<MemRefType>(rank.getOffsets().getType());
  TokenChunks chunks = getChunks(rank, areRouted);
  auto counts = MemRefType::get({chunks.most, offsets.getDimSize(0) - 1},
                                offsets.getElementType());
  CountedKernels kernels{makeCounting(kernel, counts, chunks.tokens),
                         kernel.clone()};
  kernels.ranking.setSymName((kernel.getSymName() + "_by_counts").str());
  symbols.insert(kernels.ranking, std::next(kernel->getIterator()));
  // After the other ins, at the same index in every launch.
  if (succeeded(takeCounts(kernels.ranking, launch.getIns().size(), counts,
                           chunks.tokens)))
    return kernels;
  erase(kernels);
  return failure();
}

void SplitSort::erase(CountedKernels &kernels) {
  for (tile::KernelOp kernel : {kernels.counting, kernels.ranking})
    if (kernel)
      symbols.erase(kernel);
  kernels = {};
}

FailureOr<std::string> SplitSort::build(const RewriteSite &site) {
  FailureOr<CountedKernels> kernels =
      makeKernels(site.getLaunch(), areRouted(site));
  if (failed(kernels))
    return failure();
  built = *kernels;
  return std::string();
}

std::optional<PredictedChange> SplitSort::predict(const RewriteSite &site) {
  if (getMostSlots(areRouted(site)))
    return std::nullopt;
  PredictedChange change{getPoints(site)};
  std::tie(change.before, change.after) =
      predict(site.getLaunch(), built, change.points);
  change.penalty = getKernelPenalty(built.counting) +
                   getKernelPenalty(built.ranking) -
                   getPenaltyOf(site.getLaunch(), site);
  return change;
}

LogicalResult SplitSort::commit(const RewriteSite &site) {
  tile::KernelOp kernel = getKernel(site.getLaunch());
  auto rank = cast<tile::SortByExpertOp>(kernel.getBody().front().front());
  bool replaces = areAll(site);
  for (const RewriteSite::Occurrence &occurrence : site.occurrences) {
    plan::LaunchOp launch = occurrence.front();
    Value buffer = getCounts(launch, built.counting);
    SmallVector<Value> ins{getPassed(launch, rank.getIds())};
    if (Value valid = getPassed(launch, rank.getNumValidTokens()))
      ins.push_back(valid);
    OpBuilder builder(launch);
    plan::LaunchOp::create(builder, launch.getLoc(),
                           built.counting.getSymName(), launch.getStream(), ins,
                           buffer, /*dependent=*/false, /*tokens=*/{},
                           /*columns=*/{});
    launch.getInsMutable().append(buffer);
    launch.setKernel(replaces ? kernel.getSymName()
                              : built.ranking.getSymName());
  }
  if (replaces)
    replaceKernel(kernel, built.ranking);
  built = {};
  return success();
}

void SplitSort::leave(const RewriteSite &) { erase(built); }

bool SplitSort::pays(ArrayRef<plan::LaunchOp> launches) {
  double saved = 0, penalty = 0;
  bool areAll = true;
  for (plan::LaunchOp launch : launches) {
    tile::SortByExpertOp rank = getRank(launch);
    auto variant = cast<plan::VariantOp>(launch->getParentOp());
    int64_t max = variant.getMaxTokens();
    std::optional<int64_t> first = getFirstTokens(launch, rank);
    areAll &= first && *first <= int64_t(variant.getMinTokens());
    if (!first || *first > max)
      continue;
    FailureOr<CountedKernels> kernels =
        makeKernels(launch, isRouted(launch, rank));
    if (failed(kernels))
      return false;
    SmallVector<TokenPoint> points;
    for (const TokenPoint &point : Objective::getPoints(variant, {}))
      if (point.tokens >= *first)
        points.push_back(point);
    auto [before, after] = predict(launch, *kernels, points);
    saved += context.objective.getSaved(before, after, points);
    penalty = getKernelPenalty(kernels->counting) +
              getKernelPenalty(kernels->ranking);
    erase(*kernels);
  }
  tile::KernelOp kernel = getKernel(launches.front());
  return saved > penalty - (areAll ? getKernelPenalty(kernel) : 0);
}

void SplitSort::splitRanges() {
  llvm::MapVector<Operation *, SmallVector<plan::LaunchOp>> launches;
  for (plan::LaunchOp launch : getVariantLaunches(context.module))
    if (getRank(launch))
      launches[getKernel(launch)].push_back(launch);
  llvm::DenseSet<Operation *> paying;
  for (auto &[kernel, own] : launches)
    if (getMostSlots(/*isRouted=*/false) || pays(own))
      paying.insert(kernel);
  splitVariants(context.module,
                [&](plan::LaunchOp launch) -> std::optional<int64_t> {
                  tile::SortByExpertOp rank = getRank(launch);
                  if (!rank || !paying.contains(getKernel(launch)))
                    return std::nullopt;
                  return getFirstTokens(launch, rank);
                });
}

std::vector<RewriteSite> SplitSort::match() {
  auto matchUpTo = [&](auto getTokens) {
    return matchKernels<tile::SortByExpertOp>(
        [&](plan::LaunchOp launch, tile::SortByExpertOp) {
          tile::SortByExpertOp rank = getRank(launch);
          if (!rank)
            return false;
          std::optional<int64_t> first = getFirstTokens(launch, rank);
          auto variant = cast<plan::VariantOp>(launch->getParentOp());
          return first && *first <= static_cast<int64_t>(getTokens(variant));
        });
  };
  std::vector<RewriteSite> sites =
      matchUpTo([](plan::VariantOp variant) { return variant.getMinTokens(); });
  // Variants that are not split are matched, too, so that remarks give the
  // reason.
  llvm::StringSet<> kernels;
  for (const RewriteSite &site : sites)
    kernels.insert(site.getLaunch().getKernel());
  for (RewriteSite &site : matchUpTo(
           [](plan::VariantOp variant) { return variant.getMaxTokens(); }))
    if (!kernels.contains(site.getLaunch().getKernel()))
      sites.push_back(std::move(site));
  return sites;
}

std::unique_ptr<LaunchRewrite> moec::makeSplitSort(RewriteContext &context) {
  return std::make_unique<SplitSort>("split-sort", context);
}
