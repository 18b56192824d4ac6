//===- Join.cpp - two gemms in one kernel of sm90.gemm ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Config selection for joined gemms. Both use one pipeline and one table of
// tiles, so that they need equal BLOCK_M and stages. The cost of that to each
// of them is compared with the cost of a launch of its own for the second.

#include "Join.h"

#include "Candidates.h"
#include "Cost.h"
#include "Shape.h"
#include "moec/Schedules/Device.h"

#include <limits>

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

namespace {

class Joiner {
public:
  Joiner(tile::GemmOp first, tile::GemmOp second, tile::LoadAttr load,
         const Target &target)
      : first(first), second(second), load(load), target(target),
        schedule(*findSchedule(target, first.getConfigAttr().getSchedule())),
        firstModel(schedule.as<ModelsTime>()->costModel(first, load, target)),
        secondModel(schedule.as<ModelsTime>()->costModel(second, load, target)),
        points(getTokenPoints(load.getMinTokens(), load.getMaxTokens())) {}

  std::optional<JoinedConfigs> choose();

private:
  /// Config of the second gemm with `n` columns beside `config`, both with a
  /// number of stages that fits; nothing if there is none.
  std::optional<JoinedConfigs> pair(tile::ConfigAttr config, int64_t n);
  /// Joined gemms have no dynamic scheduler.
  double getApart();
  /// Predicted time of the two joined, relative to their separate times; summed
  /// over the points.
  double getTime(const JoinedConfigs &configs);
  /// Predicted time of the two with these configs.
  double predict(tile::ConfigAttr ofFirst, tile::ConfigAttr ofSecond,
                 int64_t tokens, Routing routing) {
    return firstModel->predict(ofFirst, tokens, routing).us +
           secondModel->predict(ofSecond, tokens, routing).us;
  }

  tile::GemmOp first, second;
  tile::LoadAttr load;
  const Target &target;
  const Schedule &schedule;
  std::unique_ptr<CostModel> firstModel, secondModel;
  SmallVector<int64_t> points;
  /// Predicted separate times: for each point, one of each routing.
  SmallVector<double> separate;
};

/// Without the dynamic scheduler, and so without raster groups, whose rows are
/// those of one gemm.
tile::ConfigAttr with(tile::Sm90GemmAttr base, int64_t n, int64_t stages,
                      bool mapRows) {
  return tile::Sm90GemmAttr::get(base.getContext(), base.getBlockM(), n,
                                 base.getBlockK(), stages, /*l2_rows=*/0,
                                 mapRows, base.getNoSwapAb(),
                                 /*dynamic_scheduler=*/false,
                                 /*multicast_weights=*/false, /*split_k=*/0);
}

/// sm90.gemm without the dynamic scheduler.
struct OrderedTiles final : ModelsTime {
  std::vector<Candidate> candidates(Operation *op, tile::LoadAttr load,
                                    const Target &target) const override {
    return getOrderedCandidates(op, load, target);
  }
  std::unique_ptr<CostModel> costModel(Operation *op, tile::LoadAttr load,
                                       const Target &target) const override {
    return makeGemmCost(op, load, target);
  }
  std::pair<int64_t, int64_t>
  getTile(tile::ConfigAttr candidate) const override {
    return getLargestTile(candidate);
  }
};

/// Whether two gemms can share a pipeline; else why not.
enum class Sharing { Fits, TooLarge, Impossible };

Sharing getSharing(GemmShape one, const GemmShape &other,
                   const Target &target) {
  if (!one.whyApart(other).empty())
    return Sharing::Impossible;
  one.shareWith(other);
  return one.shared().getBytes() > target.getSharedBytes() ? Sharing::TooLarge
                                                           : Sharing::Fits;
}

std::optional<JoinedConfigs> Joiner::pair(tile::ConfigAttr attr, int64_t n) {
  auto config = cast<tile::Sm90GemmAttr>(attr);
  bool mapRows = second.getConfigAttr().getMapRows() &&
                 !GemmProblem(second).copiesScales();
  for (int64_t stages = kMaxStages; stages >= kMinStages; --stages) {
    JoinedConfigs configs{
        with(config, config.getBlockN(), stages, /*mapRows=*/false),
        with(config, n, stages, mapRows)};
    GemmShape one(first, configs.first), other(second, configs.second);
    Sharing sharing = getSharing(one, other, target);
    if (sharing == Sharing::TooLarge)
      continue;
    // Stages do not change the number of lines.
    if (sharing == Sharing::Impossible ||
        estimateLines(first, one) + estimateLines(second, other) >
            ptxas::kMaxLines)
      return std::nullopt;
    if (schedule.whyIllegal(first, configs.first, target).empty() &&
        schedule.whyIllegal(second, configs.second, target).empty() &&
        (!other.problem().quantizesInput ||
         whySpills(second, configs.second).empty()))
      return configs;
  }
  return std::nullopt;
}

double Joiner::getApart() {
  bool areDynamic = first.getConfigAttr().getDynamicScheduler() &&
                    second.getConfigAttr().getDynamicScheduler();
  return areDynamic ? 1 - getDeviceRates(target)->dynamicSchedulerShare : 1;
}

double Joiner::getTime(const JoinedConfigs &configs) {
  double saved = getDeviceRates(target)->getLaunchTime();
  double relative = 0;
  const double *apart = separate.begin();
  for (int64_t tokens : points)
    for (WeightedRouting weighted : getWeightedRoutings()) {
      double joined =
          predict(configs.first, configs.second, tokens, weighted.routing) -
          saved;
      relative += weighted.weight * joined / (*apart++ * configs.apart);
    }
  return relative;
}

std::optional<JoinedConfigs> Joiner::choose() {
  // The best static configs of the first gemm, each with all widths of the
  // second.
  static const OrderedTiles ordered;
  constexpr size_t maxConfigs = 6;
  static constexpr int64_t widths[] = {64, 128, 256};
  SmallVector<tile::ConfigAttr> bases{first.getConfigAttr()};
  for (const Candidate &candidate :
       enumerateCandidates(first, ordered, target, load)) {
    if (!candidate.whyNot.empty() || bases.size() > maxConfigs)
      break;
    if (candidate.config.getSchedule() == schedule.name)
      bases.push_back(candidate.config);
  }
  for (int64_t tokens : points)
    for (WeightedRouting weighted : getWeightedRoutings())
      separate.push_back(predict(first.getConfigAttr(), second.getConfigAttr(),
                                 tokens, weighted.routing));
  std::optional<JoinedConfigs> best;
  double least = std::numeric_limits<double>::infinity();
  for (tile::ConfigAttr base : bases)
    for (int64_t n : widths)
      if (std::optional<JoinedConfigs> configs = pair(base, n)) {
        configs->apart = getApart();
        if (double time = getTime(*configs); time < least) {
          least = time;
          best = configs;
        }
      }
  return best;
}

} // namespace

std::optional<JoinedConfigs>
sm90::joinGemms(tile::GemmOp first, tile::GemmOp second, tile::LoadAttr load,
                bool areFixed, bool mayCopyScales, const Target &target) {
  JoinedConfigs given{first.getConfigAttr().withDynamicScheduler(false),
                      second.getConfigAttr().withDynamicScheduler(false)};
  if (!first.getOffsets() || !second.getOffsets() || !getDeviceRates(target))
    return std::nullopt;
  // Threads that quantize rows copy them anyway, so that no tensor map is lost.
  auto losesMaps = [](tile::GemmOp gemm) {
    GemmProblem problem(gemm);
    return problem.copiesScales() && !problem.quantizesInput;
  };
  if (!mayCopyScales && (losesMaps(first) || losesMaps(second)))
    return std::nullopt;
  if (!areFixed)
    return Joiner(first, second, load, target).choose();
  GemmShape one(first, given.first), other(second, given.second);
  // CTAs in clusters do not wait for those of others.
  if (one.tile().getClusterCtas() > 1 || other.tile().getClusterCtas() > 1)
    return std::nullopt;
  if (getSharing(one, other, target) != Sharing::Fits)
    return std::nullopt;
  return given;
}
