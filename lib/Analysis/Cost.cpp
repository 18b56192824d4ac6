//===- Cost.cpp - which config is best over a range of tokens ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Analysis/Cost.h"

#include "llvm/ADT/STLExtras.h"

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

std::vector<Candidate> moec::evaluateCandidates(Operation *phase,
                                                const Schedule &schedule,
                                                const Target &target,
                                                tile::LoadAttr load,
                                                ArrayRef<int64_t> points) {
  std::vector<Candidate> candidates = schedule.candidates(phase, target);
  std::unique_ptr<CostModel> model = schedule.costModel(phase, load, target);
  SmallVector<double> best(points.size(),
                           std::numeric_limits<double>::infinity());
  for (Candidate &candidate : candidates) {
    if (candidate.whyNot.empty())
      candidate.whyNot = schedule.whyIllegal(phase, candidate.config, target);
    if (!candidate.whyNot.empty())
      continue;
    for (auto [i, tokens] : llvm::enumerate(points)) {
      double us = model->predict(candidate.config, tokens).us;
      candidate.us.push_back(us);
      best[i] = std::min(best[i], us);
    }
  }
  for (Candidate &candidate : candidates) {
    for (auto [us, least] : llvm::zip(candidate.us, best))
      candidate.relative += us / least;
    candidate.relative /= double(points.size());
  }
  return candidates;
}

std::vector<Candidate> moec::enumerateCandidates(Operation *phase,
                                                 const Schedule &schedule,
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
