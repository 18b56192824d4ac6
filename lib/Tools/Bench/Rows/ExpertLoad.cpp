//===- ExpertLoad.cpp - loads of experts ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ExpertLoad.h"

#include "Draw.h"
#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace moec;
using namespace moec::bench;

/// The exponent of the load of Zipf's law with this index: 1 first, then spread
/// over 0.5 to 1.5, however many follow.
static double getExponent(int64_t index) {
  constexpr double golden = 0.6180339887498949;
  double whole;
  return 0.5 + std::modf(0.5 + static_cast<double>(index) * golden, &whole);
}

static ExpertLoad makeLoad(const BenchLayer &layer, int64_t index) {
  static constexpr llvm::StringLiteral kinds[] = {"uniform", "zipf", "hot",
                                                  "half", "one"};
  constexpr int64_t numKinds = std::size(kinds), mostHot = 4;
  int64_t experts = layer.numExperts, turn = index / numKinds;
  ExpertLoad load;
  load.kind = kinds[index % numKinds];
  load.name = load.kind.str();
  load.popularity.assign(experts, 1);
  auto seed = static_cast<uint64_t>(index) + 1;
  std::vector<int32_t> ranks = drawRanks(experts, seed),
                       local = drawRanks(layer.localExperts, seed);
  if (load.kind == "zipf") {
    double exponent = getExponent(turn);
    load.name += llvm::formatv(" {0:F2}", exponent).str();
    for (int64_t i = 0; i < experts; ++i)
      load.popularity[ranks[i]] =
          std::pow(static_cast<double>(i + 1), -exponent);
  } else if (load.kind == "hot") {
    int64_t hot = std::min({turn % mostHot + 1, layer.localExperts,
                            std::max<int64_t>(experts - 1, 1)});
    load.name += " " + std::to_string(hot);
    for (int64_t i = 0; i < hot && hot < experts; ++i)
      load.popularity[local[i]] =
          static_cast<double>(experts - hot) / static_cast<double>(hot);
  } else if (load.kind == "half") {
    // A token needs `topK` experts.
    for (int64_t i = std::max(experts / 2, layer.topK); i < experts; ++i)
      load.popularity[ranks[i]] = 0;
  } else if (load.kind == "one") {
    load.one = local.front();
    load.popularity[load.one] = 0;
  }
  return load;
}

std::vector<ExpertLoad> moec::bench::makeLoads(const BenchLayer &layer,
                                               int64_t count) {
  std::vector<ExpertLoad> loads;
  for (int64_t i = 0; i < count; ++i)
    loads.push_back(makeLoad(layer, i));
  return loads;
}
