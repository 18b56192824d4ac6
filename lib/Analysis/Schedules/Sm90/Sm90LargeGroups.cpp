//===- Sm90LargeGroups.cpp - large groups by themselves ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A config that suits experts which are about equally likely may have low tiles
// and many stages. When most tokens go to a few experts, each tile of those
// reads as many weights as a high one would. Such groups get a launch with a
// config of their own, behind that of all others: in most runs it finds no
// group, and costs little beside a product that takes long.

#include "Sm90LargeGroups.h"

#include "moec/Analysis/Cost.h"
#include "moec/Analysis/Sm90.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

int64_t sm90::getLargeGroupRows(tile::ContractOp product, tile::LoadAttr load) {
  // A quarter of the most tokens: while most of them are at other experts,
  // reading the weights of those takes longer than all products do, and tiles
  // that run meanwhile cost nothing, however low they are; in a launch of their
  // own they would. And more than four tiles: of fewer, high ones would be
  // padded.
  constexpr int64_t share = 4, tiles = 4;
  int64_t highest = Contract(product, product.getConfigAttr()).getMaxHeight();
  return std::max<int64_t>(load.getMaxTokens() / share, tiles * highest + 1);
}

namespace {

/// What groups with many rows take, with one config or another.
class LargeGroupsTimes {
public:
  LargeGroupsTimes(const Schedule &schedule, tile::ContractOp large,
                   tile::LoadAttr load, const Target &target)
      : model(schedule.as<ModelsTime>()->costModel(large, load, target)) {
    auto least = static_cast<int64_t>(*large.getMinGroupRows());
    for (int64_t tokens :
         getTokenPoints(load.getMinTokens(), load.getMaxTokens()))
      if (tokens >= least)
        counts.push_back(tokens);
  }

  /// The sum over numbers of tokens, all of them at the same experts. What
  /// takes long counts most: of few rows a launch is short in any config.
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

tile::ConfigAttr sm90::chooseLargeGroupsContract(tile::ContractOp product,
                                                 tile::ContractOp large,
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
    double us = times.get(candidate.config) * (1 + candidate.price);
    if (us >= least)
      continue;
    least = us;
    best = candidate.config;
  }
  return best;
}
