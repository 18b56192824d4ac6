//===- RowCounts.cpp - how many rows a group gets ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/RowCounts.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace moec;

constexpr int64_t kEighth = 8;

/// Calls `add` with every count that is likely enough to matter, and its
/// probability. Starts at the most frequent count; the others follow by their
/// ratio.
static void addBinomial(int64_t tokens, double pick,
                        llvm::function_ref<void(int64_t, double)> add) {
  if (pick >= 1)
    return add(tokens, 1);
  constexpr double rare = 1e-9;
  auto mode = std::min(tokens, int64_t(std::floor(double(tokens + 1) * pick)));
  double odds = pick / (1 - pick);
  llvm::SmallVector<std::pair<int64_t, double>> counts;
  double weight = 1, sum = 0;
  for (int64_t m = mode; m <= tokens && weight > rare; ++m) {
    counts.push_back({m, weight});
    weight *= double(tokens - m) / double(m + 1) * odds;
  }
  weight = 1;
  for (int64_t m = mode; m > 0;) {
    weight *= double(m) / double(tokens - m + 1) / odds;
    --m;
    if (weight <= rare)
      break;
    counts.push_back({m, weight});
  }
  for (auto [m, weight] : counts)
    sum += weight;
  for (auto [m, weight] : counts)
    add(m, weight / sum);
}

namespace {

/// Experts of about equal likelihood: their share of all experts, and the
/// probability that a token picks one of them.
struct ExpertClass {
  double share, pick;
};

} // namespace

/// Classes of 1, 1, 2, 4, 8, ... experts with frequencies by a power law of
/// their rank, as in published traces of routers. No expert is picked twice by
/// a token.
static llvm::SmallVector<ExpertClass> makeZipfClasses(int64_t topK,
                                                      int64_t experts) {
  constexpr double exponent = 0.8;
  llvm::SmallVector<ExpertClass> classes;
  for (int64_t first = 0; first < experts;) {
    int64_t size = std::min(std::max<int64_t>(first, 1), experts - first);
    double middle = double(first) + double(size + 1) / 2;
    classes.push_back(
        {double(size) / double(experts), std::pow(middle, -exponent)});
    first += size;
  }
  // The factor that makes the picks of a token, at most 1 per expert, add up to
  // top_k.
  double wanted = double(topK) / double(experts), factor = 1;
  constexpr int rounds = 60;
  for (int round = 0; round < rounds; ++round) {
    double sum = 0;
    for (ExpertClass c : classes)
      sum += c.share * std::min(1.0, factor * c.pick);
    factor *= wanted / sum;
  }
  for (ExpertClass &c : classes)
    c.pick = std::min(1.0, factor * c.pick);
  return classes;
}

RowCounts::RowCounts(tile::LoadAttr load, int64_t groups, int64_t tokens,
                     Routing routing)
    : rows(double(tokens) * double(load.getTopK()) /
           double(load.getExperts())) {
  double topK = double(load.getTopK()), experts = double(load.getExperts());
  double pick = topK / experts, all = double(groups);
  llvm::SmallVector<ExpertClass> classes{{1, pick}};
  if (routing == Routing::Same)
    classes = {{pick, 1}};
  else if (routing == Routing::Zipf)
    classes = makeZipfClasses(load.getTopK(), load.getExperts());

  llvm::SmallVector<double> probabilities(tokens / kEighth + 2, 0);
  for (ExpertClass c : classes)
    addBinomial(tokens, c.pick, [&](int64_t m, double probability) {
      probabilities[(m + kEighth - 1) / kEighth] += c.share * probability;
    });
  for (int64_t i = 1; i < int64_t(probabilities.size()); ++i)
    if (probabilities[i] > 0) {
      entries.push_back({i, probabilities[i]});
      active += all * probabilities[i];
    }
  if (routing == Routing::Zipf && tokens > 1) {
    // Approximation: experts are picked independently. One token's picks are
    // known to differ, so that as many groups have a row as it picks.
    activeVariance = active * (1 - active / all);
    return;
  }
  // Probability that no token picks a group, or neither of two: a token picks
  // different experts.
  double picks = routing == Routing::Same ? 1 : double(tokens);
  double none = std::pow(1 - pick, picks);
  double neither = std::pow((experts - topK) * (experts - topK - 1) /
                                std::max(1.0, experts * (experts - 1)),
                            picks);
  activeVariance = std::max(0.0, all * none + all * (all - 1) * neither -
                                     all * all * none * none);
}

void RowCounts::keep(int64_t groups,
                     llvm::function_ref<bool(int64_t rows)> takes) {
  auto isOther = [&](Entry entry) { return !takes(entry.eighths * kEighth); };
  if (llvm::none_of(entries, isOther))
    return;
  llvm::erase_if(entries, isOther);
  double before = active, roundedRows = 0;
  active = 0;
  for (auto [eighths, probability] : entries) {
    active += double(groups) * probability;
    roundedRows += probability * double(eighths * kEighth);
  }
  rows = std::min(rows, roundedRows);
  activeVariance *= active / before;
}
