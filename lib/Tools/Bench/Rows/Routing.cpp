//===- Routing.cpp - routings of tokens to experts --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Routing.h"

#include "moec/Generator/Generator.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <numeric>

using namespace moec;
using namespace moec::bench;

namespace {

/// Up to this token count the number of touched experts varies by much.
constexpr int64_t kFewTokens = 64;
/// Seeds tried for these token counts.
constexpr uint64_t kSeeds = 200;

class Draw {
public:
  Draw(uint64_t seed, llvm::StringRef name) : stream(seed, name) {}
  /// Uniform in (0, 1).
  double uniform() {
    return (static_cast<double>(stream.getBits(next++) >> 11) + 0.5) * 0x1p-53;
  }
  int64_t below(int64_t count) {
    return static_cast<int64_t>(stream.getBits(next++) %
                                static_cast<uint64_t>(count));
  }

private:
  RandomStream stream;
  uint64_t next = 0;
};

/// The experts sorted by popularity.
std::vector<int32_t> drawRanks(int64_t count, uint64_t seed) {
  std::vector<int32_t> experts(count);
  std::iota(experts.begin(), experts.end(), 0);
  Draw draw(seed, "popularity");
  for (int64_t i = count - 1; i > 0; --i)
    std::swap(experts[i], experts[draw.below(i + 1)]);
  return experts;
}

void drawUniform(Draw &draw, int64_t experts,
                 llvm::MutableArrayRef<int32_t> ids) {
  for (size_t j = 0; j < ids.size(); ++j) {
    do
      ids[j] = static_cast<int32_t>(draw.below(experts));
    while (llvm::is_contained(ids.take_front(j), ids[j]));
  }
}

/// The cumulative distribution of probabilities rank^-exponent.
std::vector<double> accumulate(int64_t experts, double exponent) {
  std::vector<double> sums(experts);
  double sum = 0;
  for (int64_t i = 0; i < experts; ++i)
    sums[i] = sum += std::pow(static_cast<double>(i + 1), -exponent);
  for (double &value : sums)
    value /= sum;
  return sums;
}

void drawZipf(Draw &draw, llvm::ArrayRef<double> sums,
              llvm::ArrayRef<int32_t> ranks,
              llvm::MutableArrayRef<int32_t> ids) {
  for (size_t j = 0; j < ids.size(); ++j) {
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
      drawZipf(draw, sums, ranks, ids);
    else
      drawUniform(draw, layer.numExperts, ids);
    float total = 0;
    for (size_t j = first; j < first + topK; ++j)
      total += routing.weights[j] = static_cast<float>(0.1 + draw.uniform());
    for (size_t j = first; j < first + topK; ++j)
      routing.weights[j] /= total;
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
