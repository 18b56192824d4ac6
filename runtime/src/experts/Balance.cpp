//===- Balance.cpp - placement of replicas of experts -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Balance.h"
#include "../support/Check.h"
#include "../support/FloatState.h"
#include "ExpertMap.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace moert {

Status checkMap(const std::vector<int64_t> &logicalIds, int64_t numExperts) {
  auto count = static_cast<int64_t>(logicalIds.size());
  if (numExperts < 1 || numExperts > count || count > kMaxPhysical)
    return invalidArgument("a map of " + std::to_string(count) +
                           " physical experts and " +
                           std::to_string(numExperts) +
                           " experts; at least one expert, and one physical "
                           "expert for each, are expected");
  std::vector<bool> seen(static_cast<size_t>(numExperts));
  for (size_t i = 0; i < logicalIds.size(); ++i) {
    if (logicalIds[i] < 0 || logicalIds[i] >= numExperts)
      return outOfRange("the map has expert " + std::to_string(logicalIds[i]) +
                        " at " + std::to_string(i) + "; 0 to " +
                        std::to_string(numExperts - 1) + " are there");
    seen[static_cast<size_t>(logicalIds[i])] = true;
  }
  auto missing = std::find(seen.begin(), seen.end(), false);
  if (missing != seen.end())
    return invalidArgument("the map has expert " +
                           std::to_string(missing - seen.begin()) +
                           " nowhere; each expert must occur at least once");
  return Status::ok();
}

Result<ReplicaTables> makeReplicaTables(const std::vector<int64_t> &logicalIds,
                                        int64_t numExperts,
                                        int64_t maxReplicas) {
  MOERT_CHECK(checkMap(logicalIds, numExperts));
  if (maxReplicas < 1 || maxReplicas > static_cast<int64_t>(logicalIds.size()))
    return invalidArgument("max_replicas is " + std::to_string(maxReplicas) +
                           "; 1 to the number of physical experts, " +
                           std::to_string(logicalIds.size()) +
                           ", are accepted");
  ReplicaTables tables;
  tables.physicalIds.assign(static_cast<size_t>(numExperts * maxReplicas), -1);
  tables.counts.assign(static_cast<size_t>(numExperts), 0);
  for (size_t index = 0; index < logicalIds.size(); ++index) {
    auto expert = static_cast<size_t>(logicalIds[index]);
    int32_t &count = tables.counts[expert];
    if (count < maxReplicas)
      tables.physicalIds[expert * static_cast<size_t>(maxReplicas) +
                         static_cast<size_t>(count++)] =
          static_cast<int32_t>(index);
  }
  return tables;
}

namespace {

/// For each item, its pack and its index in the pack.
struct Packing {
  std::vector<size_t> pack, index;
};

/// Distributes items to packs of equal size: heaviest item first, each to the
/// lightest pack that is not full.
Packing packItems(const std::vector<double> &loads, size_t numPacks) {
  size_t size = loads.size() / numPacks;
  std::vector<size_t> order(loads.size());
  std::iota(order.begin(), order.end(), size_t(0));
  Packing made = {order, std::vector<size_t>(loads.size(), 0)};
  // One item per pack: keep the order.
  if (size == 1)
    return made;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return loads[a] > loads[b]; });
  std::vector<double> weights(numPacks, 0);
  std::vector<size_t> counts(numPacks, 0);
  for (size_t item : order) {
    size_t chosen = numPacks;
    for (size_t pack = 0; pack < numPacks; ++pack)
      if (counts[pack] < size &&
          (chosen == numPacks || weights[pack] < weights[chosen]))
        chosen = pack;
    made.pack[item] = chosen;
    made.index[item] = counts[chosen]++;
    weights[chosen] += loads[item];
  }
  return made;
}

/// The expert of each of `count` replicas: one of each expert, then repeatedly
/// one of the expert with the largest load per replica.
std::vector<size_t> replicate(const std::vector<double> &loads, size_t count,
                              int64_t maxReplicas,
                              std::vector<int64_t> &replicas) {
  std::vector<size_t> experts(loads.size());
  std::iota(experts.begin(), experts.end(), size_t(0));
  replicas.assign(loads.size(), 1);
  auto share = [&](size_t expert) {
    return loads[expert] / static_cast<double>(replicas[expert]);
  };
  while (experts.size() < count) {
    size_t chosen = loads.size();
    for (size_t expert = 0; expert < loads.size(); ++expert)
      if ((maxReplicas == 0 || replicas[expert] < maxReplicas) &&
          (chosen == loads.size() || share(expert) > share(chosen)))
        chosen = expert;
    experts.push_back(chosen);
    ++replicas[chosen];
  }
  return experts;
}

Status checkOptions(const std::vector<double> &loads,
                    const BalanceOptions &options) {
  auto numExperts = static_cast<int64_t>(loads.size());
  auto found = [](const char *name, int64_t value) {
    return std::string(name) + ": " + std::to_string(value) + " found";
  };
  for (auto [name, value] :
       {std::pair<const char *, int64_t>("num_groups", options.numGroups),
        {"num_nodes", options.numNodes},
        {"num_ranks", options.numRanks}})
    if (value < 1)
      return invalidArgument(found(name, value) + ", at least 1 expected");
  if (options.maxReplicas < 0)
    return invalidArgument(found("max_replicas", options.maxReplicas) +
                           ", at least 1 expected, or 0 for any number");
  if (options.numPhysical > kMaxPhysical)
    return invalidArgument(found("num_physical", options.numPhysical) +
                           ", at most " + std::to_string(kMaxPhysical) +
                           " expected");
  if (numExperts < 1 || options.numPhysical < numExperts)
    return invalidArgument(found("num_physical", options.numPhysical) +
                           ", one at least for each of " +
                           std::to_string(numExperts) + " experts expected");
  struct Divisor {
    const char *name;
    int64_t value;
    const char *part;
    int64_t whole;
  };
  for (const Divisor &divisor :
       {Divisor{"num_groups", options.numGroups, "experts", numExperts},
        {"num_nodes", options.numNodes, "num_ranks", options.numRanks},
        {"num_ranks", options.numRanks, "num_physical", options.numPhysical}})
    if (divisor.whole % divisor.value != 0)
      return invalidArgument(found(divisor.name, divisor.value) +
                             "; it has to divide " + divisor.part + ", " +
                             std::to_string(divisor.whole));
  if (options.maxReplicas > 0 &&
      options.numPhysical / options.maxReplicas +
              (options.numPhysical % options.maxReplicas != 0) >
          numExperts)
    return invalidArgument(
        found("max_replicas", options.maxReplicas) + ", but " +
        std::to_string(numExperts) + " experts with as many are fewer than " +
        std::to_string(options.numPhysical) + " physical experts");
  for (size_t expert = 0; expert < loads.size(); ++expert)
    if (!std::isfinite(loads[expert]) || loads[expert] < 0)
      return invalidArgument("the load of expert " + std::to_string(expert) +
                             " is " + std::to_string(loads[expert]) +
                             "; a number of at least 0 expected");
  return Status::ok();
}

} // namespace

Result<std::vector<int64_t>> balanceExperts(const std::vector<double> &loads,
                                            const BalanceOptions &options) {
  MOERT_CHECK(checkOptions(loads, options));
  // All ranks must compute the same map, bit for bit.
  FloatState state;
  bool hasGroups = options.numGroups % options.numNodes == 0;
  auto groups = static_cast<size_t>(hasGroups ? options.numGroups : 1);
  auto nodes = static_cast<size_t>(hasGroups ? options.numNodes : 1);
  auto physical = static_cast<size_t>(options.numPhysical);
  auto ranks = static_cast<size_t>(options.numRanks);
  size_t groupSize = loads.size() / groups, onNode = loads.size() / nodes;

  std::vector<double> groupLoads(groups, 0);
  for (size_t expert = 0; expert < loads.size(); ++expert)
    groupLoads[expert / groupSize] += loads[expert];
  Packing byNode = packItems(groupLoads, nodes);
  // Experts sorted by node.
  std::vector<size_t> original(loads.size());
  for (size_t expert = 0; expert < loads.size(); ++expert) {
    size_t group = expert / groupSize;
    size_t index = byNode.pack[group] * (groups / nodes) + byNode.index[group];
    original[index * groupSize + expert % groupSize] = expert;
  }

  std::vector<int64_t> logicalIds(physical), replicas;
  size_t nodePhysical = physical / nodes, rankPhysical = physical / ranks;
  for (size_t node = 0; node < nodes; ++node) {
    std::vector<double> own;
    own.reserve(onNode);
    for (size_t i = 0; i < onNode; ++i)
      own.push_back(loads[original[node * onNode + i]]);
    std::vector<size_t> experts =
        replicate(own, nodePhysical, options.maxReplicas, replicas);
    std::vector<double> shares;
    shares.reserve(experts.size());
    for (size_t expert : experts)
      shares.push_back(own[expert] / static_cast<double>(replicas[expert]));
    Packing byRank = packItems(shares, ranks / nodes);
    for (size_t i = 0; i < experts.size(); ++i)
      logicalIds[node * nodePhysical + byRank.pack[i] * rankPhysical +
                 byRank.index[i]] =
          static_cast<int64_t>(original[node * onNode + experts[i]]);
  }
  return logicalIds;
}

} // namespace moert
