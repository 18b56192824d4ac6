//===- Balance.h - placement of replicas of experts -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A layer with `replicas` has physical experts, each a replica of one logical
// expert (docs/use/layers.md). A map lists the logical expert of each physical
// one; if the layer has several ranks, those of rank 0 come first.

#ifndef MOERT_BALANCE_H
#define MOERT_BALANCE_H

#include "moert/Communicator.h"
#include "moert/Device.h"
#include "moert/Status.h"

#include <cstdint>
#include <vector>

namespace moert {

/// Most physical experts of a map, and most elements of a list about them.
constexpr int64_t kMaxPhysical = int64_t(1) << 24;

/// Contents of a layer's tensors `replicas.physical_ids` (experts x
/// max_replicas) and `replicas.counts`.
struct ReplicaTables {
  std::vector<int32_t> physicalIds;
  std::vector<int32_t> counts;
};

/// The tables of the map `logicalIds`. If an expert has more than `maxReplicas`
/// replicas, those with the lowest numbers are used.
Result<ReplicaTables> makeReplicaTables(const std::vector<int64_t> &logicalIds,
                                        int64_t numExperts,
                                        int64_t maxReplicas);

struct BalanceOptions {
  /// Number of physical experts: a multiple of `numRanks`, at least the number
  /// of experts.
  int64_t numPhysical = 0;
  /// Groups of neighbouring experts that a token's choice is limited to. If
  /// `numNodes` divides their number, all experts of a group are on one node;
  /// else replicas are spread over all ranks without regard to groups.
  int64_t numGroups = 1;
  /// Number of nodes, and of ranks on all nodes together.
  int64_t numNodes = 1;
  int64_t numRanks = 1;
  /// Maximum number of replicas of an expert; 0 for no limit.
  int64_t maxReplicas = 0;
};

/// Computes a new map from the load of each expert by DeepSeek's
/// expert-parallel load balancer (EPLB). Groups go to nodes, heaviest first,
/// each to the node with the least load. On each node, replicas are added one
/// at a time to the expert whose replicas have the largest load. Replicas are
/// assigned to the node's ranks as groups are to nodes. Ties go to the first
/// candidate.
Result<std::vector<int64_t>> balanceExperts(const std::vector<double> &loads,
                                            const BalanceOptions &options);

/// Sums over all ranks how often each expert was chosen. `own` has the counts
/// of the rank's physical experts in their order; `logicalIds` is the map,
/// equal on all ranks. All ranks call this and wait for each other.
Result<std::vector<int64_t>> sumLoads(Communicator &communicator,
                                      Device &device,
                                      const std::vector<int64_t> &own,
                                      const std::vector<int64_t> &logicalIds,
                                      int64_t numExperts);

} // namespace moert

#endif // MOERT_BALANCE_H
