//===- Cost.cpp - which config is best over a range of tokens ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/Cost.h"

#include "moec/Schedules/CandidateMemo.h"
#include "moec/Schedules/Device.h"
#include "llvm/ADT/STLExtras.h"

#include <iterator>
#include <limits>
#include <tuple>

using namespace mlir;
using namespace moec;

SmallVector<int64_t> moec::getTokenPoints(int64_t minTokens,
                                          int64_t maxTokens) {
  SmallVector<int64_t> points;
  for (int64_t tokens = 1; tokens < maxTokens; tokens *= 2)
    if (tokens >= minTokens)
      points.push_back(tokens);
  points.push_back(maxTokens);
  return points;
}

ArrayRef<WeightedRouting> moec::getWeightedRoutings() {
  static constexpr WeightedRouting all[] = {
      {Routing::Uniform, 0.8}, {Routing::Zipf, 0.1}, {Routing::Same, 0.1}};
  return all;
}

double PredictsTime::getLaunchTime(const DeviceRates &device) const {
  return device.getLaunchTime();
}

StringRef moec::getBound(const Prediction &prediction) {
  std::pair<double, StringRef> parts[] = {
      {prediction.streamUs, "memory"},
      {prediction.tensorUs + prediction.epilogueUs, prediction.productsBy},
      {prediction.l2Us, "L2"},
      {prediction.powerUs, "power"},
      {prediction.fixedUs, "launch"}};
  return llvm::max_element(parts, llvm::less_first())->second;
}

/// Fitted by least squares to 108 recorded times of an H200 and an H100
/// (python/tests/test_fit.py), which were up to 41 % off without, and 11 % with
/// them.
void moec::correctForRun(Prediction &prediction, Operation *phase,
                         bool isDependent) {
  constexpr double dependentUs = 1.7, productShare = 0.95;
  StringRef bound = getBound(prediction);
  if (isa<tile::GemmOp>(phase) && (bound == "power" || bound == "tensor cores"))
    prediction.us *= productShare;
  if (isDependent) {
    double saved = std::min(dependentUs, prediction.fixedUs);
    prediction.us -= saved;
    prediction.fixedUs -= saved;
  }
  prediction.us = std::max(prediction.us, prediction.floorUs);
}

double moec::getKernelPenalty(tile::KernelOp kernel) {
  // In proportion to the lines of PTX: some thousands, several hundred, a
  // hundred.
  constexpr double groupedPenalty = 0.00525, densePenalty = 0.002,
                   otherPenalty = 0.0002;
  double penalty = otherPenalty;
  for (auto product : kernel.getBody().getOps<tile::GemmOp>())
    penalty =
        std::max(penalty, product.getOffsets() ? groupedPenalty : densePenalty);
  return penalty;
}

/// The candidates of the schedule with their times and scores.
static std::vector<Candidate>
evaluate(Operation *phase, const ModelsTime &schedule, const Target &target,
         tile::LoadAttr load, ArrayRef<int64_t> points) {
  std::vector<Candidate> candidates = schedule.candidates(phase, load, target);
  std::unique_ptr<CostModel> model = schedule.costModel(phase, load, target);
  ArrayRef<WeightedRouting> routings = getWeightedRoutings();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  // One time per routing.
  using Times = SmallVector<double, 3>;
  SmallVector<Times> best(points.size(), Times(routings.size(), infinity));
  std::vector<SmallVector<Times>> times(candidates.size());
  for (auto [candidate, timesOfIt] : llvm::zip(candidates, times)) {
    const Schedule &runner =
        *findSchedule(target, candidate.config.getSchedule());
    if (candidate.whyNot.empty())
      candidate.whyNot = runner.whyIllegal(phase, candidate.config, target);
    if (!candidate.whyNot.empty())
      continue;
    for (auto [least, tokens] : llvm::zip(best, points)) {
      Times &own = timesOfIt.emplace_back();
      for (auto [i, weighted] : llvm::enumerate(routings)) {
        double us =
            model->predict(candidate.config, tokens, weighted.routing).us;
        own.push_back(us);
        least[i] = std::min(least[i], us);
      }
    }
  }
  for (auto [candidate, own] : llvm::zip(candidates, times))
    for (auto [us, least] : llvm::zip(own, best)) {
      double score = candidate.penalty;
      for (auto [i, routing] : llvm::enumerate(routings))
        score += routing.weight * us[i] / least[i];
      candidate.us.push_back(us.front());
      candidate.scores.push_back(score);
      candidate.relative += score / double(points.size());
    }
  return candidates;
}

std::vector<Candidate> moec::evaluateCandidates(Operation *phase,
                                                const ModelsTime &schedule,
                                                const Target &target,
                                                tile::LoadAttr load,
                                                ArrayRef<int64_t> points) {
  CandidateMemo *memo = CandidateMemo::find(phase->getContext());
  // Rates that are not those of a part may change between calls.
  if (!memo || target.rates)
    return evaluate(phase, schedule, target, load, points);
  return memo->get(
      CandidateMemo::getKey(phase, schedule, target, load, points),
      [&] { return evaluate(phase, schedule, target, load, points); });
}

std::vector<Candidate> moec::enumerateCandidates(Operation *phase,
                                                 const ModelsTime &schedule,
                                                 const Target &target,
                                                 tile::LoadAttr load) {
  std::vector<Candidate> candidates = evaluateCandidates(
      phase, schedule, target, load,
      getTokenPoints(load.getMinTokens(), load.getMaxTokens()));
  SmallVector<size_t> order(
      llvm::to_vector(llvm::seq<size_t>(0, candidates.size())));
  llvm::sort(order, [&](size_t a, size_t b) {
    auto key = [&](size_t i) {
      return std::tuple(!candidates[i].whyNot.empty(), candidates[i].relative,
                        i);
    };
    return key(a) < key(b);
  });
  std::vector<Candidate> sorted;
  for (size_t i : order)
    sorted.push_back(std::move(candidates[i]));
  return sorted;
}

tile::ConfigAttr moec::chooseForLoad(Operation *phase, const Target &target) {
  return chooseForLoad(phase, target,
                       phase->getParentOfType<tile::KernelOp>().getLoadAttr());
}

tile::ConfigAttr moec::chooseForLoad(Operation *phase, const Target &target,
                                     tile::LoadAttr load) {
  SmallVector<const Schedule *> schedules = getSchedulesFor(target, phase);
  const ModelsTime *modelled = load && !schedules.empty()
                                   ? schedules.front()->as<ModelsTime>()
                                   : nullptr;
  if (!modelled)
    return {};
  std::vector<Candidate> candidates =
      enumerateCandidates(phase, *modelled, target, load);
  if (candidates.empty() || !candidates.front().whyNot.empty())
    return {};
  return modelled->adaptToSkew(phase, load, target, candidates.front().config);
}
