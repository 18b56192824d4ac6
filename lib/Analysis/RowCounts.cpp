//===- RowCounts.cpp - how many rows a group gets ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/RowCounts.h"

#include <cmath>

using namespace moec;

constexpr int64_t kEighth = 8;

/// Weights of the counts around the most frequent one, from which the others
/// follow by their ratio; what is too rare to matter is left out.
static void addBinomial(int64_t tokens, double pick,
                        llvm::function_ref<void(int64_t, double)> add) {
  constexpr double rare = 1e-9;
  auto mode = std::min(tokens, int64_t(std::floor(double(tokens + 1) * pick)));
  double odds = pick / (1 - pick);
  double weight = 1;
  for (int64_t m = mode; m <= tokens && weight > rare; ++m) {
    add(m, weight);
    weight *= double(tokens - m) / double(m + 1) * odds;
  }
  weight = 1;
  for (int64_t m = mode; m > 0;) {
    weight *= double(m) / double(tokens - m + 1) / odds;
    --m;
    if (weight <= rare)
      break;
    add(m, weight);
  }
}

RowCounts::RowCounts(tile::LoadAttr load, int64_t groups, int64_t tokens,
                     Routing routing) {
  double topK = double(load.getTopK()), experts = double(load.getExperts());
  double pick = topK / experts, all = double(groups);
  rows = double(tokens) * pick;
  if (load.getTopK() == load.getExperts()) {
    entries.push_back({(tokens + kEighth - 1) / kEighth, 1});
    active = all;
    activeVariance = 0;
    return;
  }
  auto addActive = [&](double picks) {
    // No token picks a group, or neither of two: tokens pick different experts.
    double none = std::pow(1 - pick, picks);
    double neither = std::pow((experts - topK) * (experts - topK - 1) /
                                  std::max(1.0, experts * (experts - 1)),
                              picks);
    active = all * (1 - none);
    activeVariance = std::max(0.0, all * none + all * (all - 1) * neither -
                                       all * all * none * none);
  };
  if (routing == Routing::Same) {
    entries.push_back({(tokens + kEighth - 1) / kEighth, pick});
    addActive(1);
    return;
  }
  llvm::SmallVector<double> weights(tokens / kEighth + 2, 0);
  double sum = 0;
  addBinomial(tokens, pick, [&](int64_t m, double weight) {
    sum += weight;
    weights[(m + kEighth - 1) / kEighth] += weight;
  });
  for (int64_t i = 1; i < int64_t(weights.size()); ++i)
    if (weights[i] > 0)
      entries.push_back({i, weights[i] / sum});
  addActive(double(tokens));
}
