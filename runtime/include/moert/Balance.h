//===- Balance.h - where replicas of experts go -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A layer with `replicas` has physical experts, each of which is one of a
// logical one (docs/layers.md). A map says of which: in the order of physical
// experts, and over several ranks those of rank 0 first.

#ifndef MOERT_BALANCE_H
#define MOERT_BALANCE_H

#include "moert/Communicator.h"
#include "moert/Device.h"
#include "moert/Status.h"

#include <cstdint>
#include <vector>

namespace moert {

/// What `replicas.physical_ids` (experts x max_replicas) and `replicas.counts`
/// of a layer hold.
struct ReplicaTables {
  std::vector<int32_t> physicalIds;
  std::vector<int32_t> counts;
};

/// The tables of the map `logicalIds`. Of an expert that is there more than
/// `maxReplicas` times those are used whose numbers are lowest.
Result<ReplicaTables> makeReplicaTables(const std::vector<int64_t> &logicalIds,
                                        int64_t numExperts,
                                        int64_t maxReplicas);

struct BalanceOptions {
  /// Physical experts: a multiple of `numRanks`, and as many as experts at
  /// least.
  int64_t numPhysical = 0;
  /// Groups of neighbouring experts that a token's choice is limited to. Where
  /// `numNodes` divides it the experts of a group are all on one node; else
  /// replicas are spread over all ranks alike.
  int64_t numGroups = 1;
  /// Nodes, and the ranks on all of them together.
  int64_t numNodes = 1;
  int64_t numRanks = 1;
  /// As many as an expert may have; 0 for any number.
  int64_t maxReplicas = 0;
};

/// A new map from the load of each expert, by the expert-parallel load balancer
/// (EPLB) of DeepSeek: groups to nodes, heavy ones first, each to the node with
/// least; on each node one replica more, again and again, of the expert whose
/// replicas have the largest loads; replicas to the node's ranks as groups to
/// nodes. Of equal ones the first is taken.
Result<std::vector<int64_t>> balanceExperts(const std::vector<double> &loads,
                                            const BalanceOptions &options);

/// How often each expert was chosen on all ranks: `own` has the numbers of the
/// rank's physical experts, in their order, and `logicalIds` is the map, the
/// same on all ranks. All of them call it, and wait for each other.
Result<std::vector<int64_t>> sumLoads(Communicator &communicator,
                                      Device &device,
                                      const std::vector<int64_t> &own,
                                      const std::vector<int64_t> &logicalIds,
                                      int64_t numExperts);

} // namespace moert

#endif // MOERT_BALANCE_H
