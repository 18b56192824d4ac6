//===- CApiExperts.cpp - moves of experts in the C API ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CApi.h"

#include "moert/Balance.h"
#include "moert/ExpertMove.h"

#include <algorithm>
#include <string>
#include <vector>

using namespace moert;
using namespace moert::answers;

struct moert_expert_move {
  std::unique_ptr<ExpertMove> move;
};

/// Elements of a caller's list are copied, so their number is bounded.
static Status checkCount(const char *name, int64_t count) {
  if (count >= 0 && count <= kMaxPhysical)
    return Status::ok();
  return invalidArgument(std::string(name) + " is " + std::to_string(count) +
                         "; 0 to " + std::to_string(kMaxPhysical) +
                         " are accepted");
}

// NOLINTBEGIN(readability-identifier-naming): arguments are named as in
// moert.h, which messages cite.
moert_status *moert_replica_tables(const int64_t *map, int64_t num_physical,
                                   int64_t num_experts, int64_t max_replicas,
                                   int32_t *physical_ids, int32_t *counts) {
  NEEDED(map);
  NEEDED(physical_ids);
  NEEDED(counts);
  if (Status status = checkCount("num_physical", num_physical); !status)
    return answer(std::move(status));
  Result<ReplicaTables> tables =
      makeReplicaTables({map, map + num_physical}, num_experts, max_replicas);
  if (!tables)
    return answer(tables.status());
  std::copy(tables->physicalIds.begin(), tables->physicalIds.end(),
            physical_ids);
  std::copy(tables->counts.begin(), tables->counts.end(), counts);
  return nullptr;
}

moert_status *moert_balance_experts(const moert_balance_options *options,
                                    const double *loads, int64_t *map) {
  NEEDED(options);
  NEEDED(loads);
  NEEDED(map);
  if (options->size < sizeof(moert_balance_options))
    return answer(invalidArgument(
        "moert_balance_options.size is " + std::to_string(options->size) +
        "; set it to " + "sizeof(moert_balance_options), " +
        std::to_string(sizeof(moert_balance_options))));
  if (Status status = checkCount("num_experts", options->num_experts); !status)
    return answer(std::move(status));
  BalanceOptions read;
  read.numPhysical = options->num_physical;
  read.numGroups = options->num_groups;
  read.numNodes = options->num_nodes;
  read.numRanks = options->num_ranks;
  read.maxReplicas = options->max_replicas;
  Result<std::vector<int64_t>> made =
      balanceExperts({loads, loads + options->num_experts}, read);
  if (!made)
    return answer(made.status());
  std::copy(made->begin(), made->end(), map);
  return nullptr;
}

moert_status *moert_layer_sum_loads(moert_layer *layer,
                                    const moert_communicator *communicator,
                                    const int64_t *own, int64_t num_own,
                                    const int64_t *map, int64_t num_physical,
                                    int64_t *loads, int64_t num_experts) {
  NEEDED(layer);
  NEEDED(communicator);
  NEEDED(own);
  NEEDED(map);
  NEEDED(loads);
  for (auto [name, count] :
       {std::pair<const char *, int64_t>("num_own", num_own),
        {"num_physical", num_physical}})
    if (Status status = checkCount(name, count); !status)
      return answer(std::move(status));
  Result<std::vector<int64_t>> sums =
      sumLoads(*communicator->communicator, layer->device, {own, own + num_own},
               {map, map + num_physical}, num_experts);
  if (!sums)
    return answer(sums.status());
  std::copy(sums->begin(), sums->end(), loads);
  return nullptr;
}

moert_status *moert_expert_move_begin(moert_layer *layer,
                                      const moert_communicator *communicator,
                                      const int64_t *from, const int64_t *to,
                                      int64_t num_physical,
                                      const moert_tensor *spare, int num_spare,
                                      moert_expert_move **move) {
  NEEDED(move);
  *move = nullptr;
  NEEDED(layer);
  NEEDED(communicator);
  NEEDED(from);
  NEEDED(to);
  NEEDED(spare);
  for (auto [name, count] :
       {std::pair<const char *, int64_t>("num_physical", num_physical),
        {"num_spare", num_spare}})
    if (Status status = checkCount(name, count); !status)
      return answer(std::move(status));
  ExpertMoveOptions options;
  options.from.assign(from, from + num_physical);
  options.to.assign(to, to + num_physical);
  for (int i = 0; i < num_spare; ++i) {
    NEEDED(spare[i].name);
    NEEDED(spare[i].dtype);
    Result<TensorView> view = readTensor(spare[i]);
    if (!view)
      return answer(view.status());
    options.spare.emplace_back(spare[i].name, std::move(*view));
  }
  Result<std::unique_ptr<ExpertMove>> made =
      ExpertMove::begin(*layer->executor, layer->device,
                        communicator->communicator, std::move(options));
  if (!made)
    return answer(made.status());
  *move = new moert_expert_move{std::move(*made)};
  return nullptr;
}
// NOLINTEND(readability-identifier-naming)

int64_t moert_expert_move_num_steps(const moert_expert_move *move) {
  return move ? move->move->numSteps() : 0;
}

moert_status *moert_expert_move_step(moert_expert_move *move) {
  NEEDED(move);
  return answer(move->move->step());
}

moert_status *moert_expert_move_switch(moert_expert_move *move) {
  NEEDED(move);
  return answer(move->move->switchOver());
}

void moert_expert_move_free(moert_expert_move *move) { delete move; }
