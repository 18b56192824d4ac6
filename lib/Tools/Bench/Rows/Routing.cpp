//===- Routing.cpp - routings of tokens to experts --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Routing.h"

#include "Draw.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace moec;
using namespace moec::bench;

namespace {

/// Up to this token count the number of touched experts varies by much.
constexpr int64_t kFewTokens = 64;
/// Seeds tried for these token counts.
constexpr uint64_t kSeeds = 200;

void drawUniform(Draw &draw, int64_t experts,
                 llvm::MutableArrayRef<int32_t> ids) {
  for (size_t j = 0; j < ids.size(); ++j) {
    do
      ids[j] = static_cast<int32_t>(draw.below(experts));
    while (llvm::is_contained(ids.take_front(j), ids[j]));
  }
}

/// The cumulative distribution of probabilities in proportion to `weights`.
std::vector<double> accumulate(std::vector<double> weights) {
  double sum = 0;
  for (double &weight : weights)
    weight = sum += weight;
  for (double &value : weights)
    value /= sum;
  return weights;
}

/// The cumulative distribution of probabilities rank^-exponent.
std::vector<double> accumulate(int64_t experts, double exponent) {
  std::vector<double> weights(experts);
  for (int64_t i = 0; i < experts; ++i)
    weights[i] = std::pow(static_cast<double>(i + 1), -exponent);
  return accumulate(std::move(weights));
}

/// Weights of a token's experts, whose sum is 1.
void drawWeights(Draw &draw, llvm::MutableArrayRef<float> weights) {
  float total = 0;
  for (float &weight : weights)
    total += weight = static_cast<float>(0.1 + draw.uniform());
  for (float &weight : weights)
    weight /= total;
}

/// Draws those ids of a token that follow `given` ones.
void drawByRank(Draw &draw, llvm::ArrayRef<double> sums,
                llvm::ArrayRef<int32_t> ranks,
                llvm::MutableArrayRef<int32_t> ids, size_t given = 0) {
  for (size_t j = given; j < ids.size(); ++j) {
    do {
      auto rank = llvm::lower_bound(sums, draw.uniform()) - sums.begin();
      ids[j] = ranks[std::min<size_t>(rank, ranks.size() - 1)];
    } while (llvm::is_contained(ids.take_front(j), ids[j]));
  }
}

} // namespace

/// Replaces the ids of experts that are not local by -1; counts touched experts
/// and rows.
static void keepLocal(const BenchLayer &layer, Routing &routing) {
  std::vector<bool> touched(layer.localExperts);
  routing.rows = 0;
  for (int32_t &id : routing.ids) {
    if (id < 0 || id >= layer.localExperts) {
      id = -1;
      continue;
    }
    touched[id] = true;
    ++routing.rows;
  }
  routing.experts = llvm::count(touched, true);
}

Routing moec::bench::makeRouting(const BenchLayer &layer,
                                 llvm::ArrayRef<int64_t> ids,
                                 llvm::ArrayRef<double> weights) {
  Routing routing;
  for (int64_t id : ids)
    routing.ids.push_back(static_cast<int32_t>(id));
  for (double weight : weights)
    routing.weights.push_back(static_cast<float>(weight));
  keepLocal(layer, routing);
  return routing;
}

Routing moec::bench::drawRouting(const BenchLayer &layer, const Row &row,
                                 uint64_t seed, int64_t index) {
  Draw draw(seed, "routing " + std::to_string(index));
  std::vector<int32_t> ranks;
  std::vector<double> sums;
  if (row.exponent > 0) {
    ranks = drawRanks(layer.numExperts, seed);
    sums = accumulate(layer.numExperts, row.exponent);
  }
  int32_t one = 0;
  if (row.toOne)
    one = static_cast<int32_t>(draw.below(layer.localExperts));
  Routing routing;
  auto topK = static_cast<size_t>(layer.topK);
  routing.ids.resize(row.tokens * topK);
  routing.weights.resize(routing.ids.size());
  for (size_t first = 0; first < routing.ids.size(); first += topK) {
    llvm::MutableArrayRef<int32_t> ids(routing.ids.data() + first, topK);
    if (row.toOne)
      llvm::fill(ids, one);
    else if (row.exponent > 0)
      drawByRank(draw, sums, ranks, ids);
    else
      drawUniform(draw, layer.numExperts, ids);
    drawWeights(draw, {routing.weights.data() + first, topK});
  }
  keepLocal(layer, routing);
  return routing;
}

Routing moec::bench::drawRouting(const BenchLayer &layer, int64_t tokens,
                                 const ExpertLoad &load, uint64_t seed) {
  Draw draw(seed, load.name);
  std::vector<double> sums = accumulate(load.popularity);
  std::vector<int32_t> experts(sums.size());
  std::iota(experts.begin(), experts.end(), 0);
  Routing routing;
  auto topK = static_cast<size_t>(layer.topK);
  routing.ids.assign(tokens * topK, -1);
  routing.weights.resize(routing.ids.size());
  for (size_t first = 0; first < routing.ids.size(); first += topK) {
    llvm::MutableArrayRef<int32_t> ids(routing.ids.data() + first, topK);
    size_t given = load.one >= 0;
    if (given)
      ids.front() = load.one;
    drawByRank(draw, sums, experts, ids, given);
    drawWeights(draw, {routing.weights.data() + first, topK});
  }
  keepLocal(layer, routing);
  return routing;
}

static std::vector<Routing> drawAll(const BenchLayer &layer, const Row &row,
                                    int64_t count, uint64_t seed) {
  std::vector<Routing> routings;
  routings.reserve(count);
  for (int64_t i = 0; i < count; ++i)
    routings.push_back(drawRouting(layer, row, seed, i));
  return routings;
}

std::vector<Routing> moec::bench::drawRoutings(const BenchLayer &layer,
                                               const Row &row, int64_t count,
                                               const Peer *peer) {
  if (!peer || row.tokens > kFewTokens)
    return drawAll(layer, row, count, 1);
  double rows = peer->operations / (2 * layer.getExpertElements());
  std::vector<Routing> best;
  double least = 0;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    std::vector<Routing> routings = drawAll(layer, row, count, seed);
    Work work = getWork(layer, row, routings);
    double distance = std::abs(work.experts / peer->expertsTouched - 1) +
                      std::abs(work.rows / rows - 1);
    if (best.empty() || distance < least) {
      best = std::move(routings);
      least = distance;
    }
    if (least == 0)
      break;
  }
  return best;
}

Work moec::bench::getWork(const BenchLayer &layer, const Row &row,
                          const std::vector<Routing> &routings) {
  double experts = 0, rows = 0;
  for (const Routing &routing : routings) {
    experts += static_cast<double>(routing.experts);
    rows += static_cast<double>(routing.rows);
  }
  auto count = static_cast<double>(routings.size());
  return Work::of(layer, row.tokens, experts / count, rows / count);
}
