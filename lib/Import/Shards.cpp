//===- Shards.cpp - weight shards of a rank -------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Shards follow from shapes: a dimension that is smaller on a rank is split
// over the ranks, regardless of how a format packs elements. Where ranks do not
// divide the experts or the blocks of scales, shapes are those of the rank with
// most, and zeros pad the others.

#include "moec/Import/Shards.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <numeric>

using namespace llvm;

namespace moec {

static TensorShard makeShard(const LayerSpec &spec, const TensorInfo &whole,
                             const TensorInfo &local, int64_t rank) {
  TensorShard shard;
  shard.whole = whole;
  shard.local = local;
  StringRef name = whole.name;
  bool isShared = name.starts_with("shared_experts.");
  const ParallelSpec &parallel = *spec.parallel;
  shard.expertDimension = name.starts_with("lora.") ? 1 : 0;
  if ((name.starts_with("experts.") || name.starts_with("lora.")) &&
      parallel.hasWholeExperts() &&
      whole.shape[shard.expertDimension] == spec.getNumPhysicalExperts()) {
    shard.experts = spec.getExpertsOf(rank);
    return shard;
  }
  // Every rank would add the full bias; only the first one of a sum does.
  shard.isZero = (name == "experts.w2_bias" && rank != 0) ||
                 (name == "shared_experts.w2_bias" && rank % parallel.tp != 0);
  for (auto [i, from, to] : enumerate(whole.shape, local.shape)) {
    if (from == to)
      continue;
    shard.dimension = i;
    bool hasHalves = name.contains(".w13") && spec.isGated() &&
                     spec.gateUpOrder != GateUpOrder::Interleaved;
    shard.numRuns = hasHalves ? 2 : 1;
    int64_t run = from / shard.numRuns, share = to / shard.numRuns;
    int64_t part = isShared ? rank % parallel.tp : rank;
    shard.first = std::min(part * share, run);
    shard.count = std::min(share, run - shard.first);
  }
  return shard;
}

bool TensorShard::isPadded() const {
  return dimension >= 0 && count * numRuns < local.shape[dimension];
}

TensorShard TensorShard::withoutPadding() const {
  TensorShard shard = *this;
  if (dimension >= 0)
    shard.local.shape[dimension] = count * numRuns;
  return shard;
}

std::vector<TensorShard> shardWeights(const LayerSpec &spec, int64_t rank) {
  std::vector<TensorInfo> wholes = getTensorSignature(spec.getWhole());
  std::vector<TensorShard> shards;
  for (const TensorInfo &local : getTensorSignature(spec)) {
    if (local.role != TensorRole::Weight)
      continue;
    auto whole = find_if(wholes, [&](const TensorInfo &info) {
      return info.name == local.name;
    });
    if (whole != wholes.end())
      shards.push_back(makeShard(spec, *whole, local, rank));
  }
  return shards;
}

std::vector<int32_t> getLocalIds(const LayerSpec &spec, int64_t rank) {
  std::vector<int32_t> indices(spec.getNumPhysicalExperts(), -1);
  for (auto [index, expert] : enumerate(spec.getExpertsOf(rank)))
    indices[expert] = int32_t(index);
  return indices;
}

bool hasDestinations(const LayerSpec &spec) {
  return spec.parallel && spec.parallel->hasWholeExperts() &&
         spec.parallel->getNumGroups() > 1 && !spec.replicas;
}

std::vector<int32_t> getDestinations(const LayerSpec &spec, int64_t rank) {
  std::vector<int32_t> destinations(spec.numExperts, -1);
  int64_t tp = spec.parallel->tp;
  for (int64_t index = 0; index < spec.parallel->getNumGroups(); ++index)
    for (int64_t expert : spec.getExpertsOf(index * tp + rank % tp))
      destinations[expert] = int32_t(index);
  return destinations;
}

void copyShard(const TensorShard &shard, const uint8_t *whole, uint8_t *local) {
  auto multiply = [](auto begin, auto end) {
    return std::accumulate(begin, end, int64_t(1), std::multiplies<>());
  };
  ArrayRef<int64_t> from = shard.whole.shape, to = shard.local.shape;
  int64_t bytes = getStorageBits(shard.whole.type) / 8;
  std::memset(local, 0, size_t(multiply(to.begin(), to.end()) * bytes));
  if (shard.isZero)
    return;
  if (!shard.experts.empty()) {
    const auto *all = from.begin() + shard.expertDimension;
    int64_t outer = multiply(from.begin(), all);
    int64_t each = multiply(all + 1, from.end()) * bytes;
    int64_t count = to[shard.expertDimension];
    for (int64_t i = 0; i < outer; ++i)
      for (auto [index, expert] : enumerate(shard.experts))
        std::memcpy(local + (i * count + int64_t(index)) * each,
                    whole + (i * *all + expert) * each, size_t(each));
    return;
  }
  if (shard.dimension < 0) {
    std::memcpy(local, whole,
                size_t(multiply(from.begin(), from.end()) * bytes));
    return;
  }
  const auto *split = from.begin() + shard.dimension;
  int64_t outer = multiply(from.begin(), split);
  int64_t inner = multiply(split + 1, from.end()) * bytes;
  int64_t run = *split / shard.numRuns;
  int64_t share = to[shard.dimension] / shard.numRuns;
  for (int64_t i = 0; i < outer * shard.numRuns; ++i)
    std::memcpy(local + i * share * inner,
                whole + (i * run + shard.first) * inner,
                size_t(shard.count * inner));
}

} // namespace moec
