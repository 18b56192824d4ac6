//===- LargeGroups.cpp - large groups by themselves -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A separate launch for large groups. A config for balanced experts may have
// low tiles and many stages. When most tokens go to a few experts, each low
// tile of those reads as many weights as a high one would. Large groups
// therefore get a launch with a config of their own, behind that of all others:
// in most runs it finds no group, and costs little beside a long gemm.

#include "LargeGroups.h"

#include "Shape.h"
#include "moec/Schedules/Cost.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

int64_t sm90::getLargeGroupRows(tile::GemmOp product, tile::LoadAttr load) {
  // A large group has at least a quarter of the most tokens: while most tokens
  // are at other experts, reading the weights of those takes longer than all
  // multiplications, so that low tiles are free as long as they overlap; in a
  // launch of their own they would not. A large group also has more than four
  // tiles: with fewer, high ones would be padded.
  constexpr int64_t share = 4, tiles = 4;
  int64_t highest =
      GemmShape(product, product.getConfigAttr()).tile().getMaxBlockM();
  return std::max<int64_t>(load.getMaxTokens() / share, tiles * highest + 1);
}

namespace {

/// Times of large groups with one config or another.
class LargeGroupsTimes {
public:
  LargeGroupsTimes(const Schedule &schedule, tile::GemmOp large,
                   tile::LoadAttr load, const Target &target)
      : model(schedule.as<ModelsTime>()->costModel(large, load, target)) {
    auto least = static_cast<int64_t>(*large.getMinGroupRows());
    for (int64_t tokens :
         getTokenPoints(load.getMinTokens(), load.getMaxTokens()))
      if (tokens >= least)
        counts.push_back(tokens);
  }

  /// Sum over token counts, with all tokens at the same experts. Long times
  /// count most: with few rows a launch is short in any config.
  double get(tile::ConfigAttr config) {
    double us = 0;
    for (int64_t tokens : counts)
      us += model->predict(config, tokens, Routing::Same).us;
    return us;
  }

private:
  std::unique_ptr<CostModel> model;
  SmallVector<int64_t> counts;
};

} // namespace

tile::ConfigAttr sm90::chooseLargeGroupsGemm(tile::GemmOp product,
                                             tile::GemmOp large,
                                             tile::LoadAttr load,
                                             const Target &target) {
  tile::ConfigAttr best = product.getConfigAttr();
  const Schedule &schedule = *findSchedule(target, best.getSchedule());
  LargeGroupsTimes times(schedule, large, load, target);
  double least = times.get(best);
  for (const Candidate &candidate :
       schedule.as<ModelsTime>()->candidates(large, load, target)) {
    if (!candidate.whyNot.empty() ||
        candidate.config.getSchedule() != schedule.name ||
        !schedule.whyIllegal(large, candidate.config, target).empty())
      continue;
    double us = times.get(candidate.config) * (1 + candidate.penalty);
    if (us >= least)
      continue;
    least = us;
    best = candidate.config;
  }
  return best;
}
