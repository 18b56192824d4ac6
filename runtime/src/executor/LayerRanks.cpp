//===- LayerRanks.cpp - the ranks that run a layer --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerRanks.h"
#include "../plan/BatchHalves.h"
#include "../plan/PlanDigest.h"
#include "../support/Check.h"
#include "moert/PeerHeap.h"
#include "moert/Workspace.h"

#include <algorithm>

namespace moert {

//===----------------------------------------------------------------------===//
// Memory of collectives
//===----------------------------------------------------------------------===//

/// Bytes that the collective needs in a receive buffer of a heap, at the
/// maximum token count.
static Result<int64_t> countBufferBytes(const Plan &plan, const Step &step) {
  int64_t total = 0;
  for (size_t pair = 0; pair < step.numPairs(); ++pair) {
    Result<int64_t> bytes =
        tensorBytes(plan.tensors[step.ownPart(pair)]).maxUpTo(plan.maxTokens);
    if (!bytes)
      return bytes;
    total += PeerHeap::partBytes(plan.mesh.size(step.axis), *bytes);
  }
  return total;
}

/// Per axis: the maximum bytes of results over all variants, for up to
/// `maxTokens` tokens.
static Result<std::array<int64_t, 2>>
countResults(const Plan &plan,
             const std::vector<std::vector<GatheredResult>> &gathered,
             int64_t maxTokens) {
  std::array<int64_t, 2> most = {};
  for (size_t i = 0; i < gathered.size(); ++i) {
    std::array<int64_t, 2> bytes = {};
    for (const GatheredResult &result : gathered[i]) {
      Result<int64_t> counted = countResultBytes(
          plan, result, std::min(plan.variants[i].maxTokens, maxTokens));
      if (!counted)
        return counted.status();
      bytes[static_cast<size_t>(result.axis)] += *counted;
    }
    for (size_t axis = 0; axis < most.size(); ++axis)
      most[axis] = std::max(most[axis], bytes[axis]);
  }
  return most;
}

/// Buffer sizes of an all-to-all at the maximum token count.
static Result<PackedSizes> countPackedSizes(const Plan &plan,
                                            const Step &step) {
  PackedSizes needed;
  needed.destinationsOfRow = countDestinationsOfRow(plan, step);
  for (size_t pair = 0; pair < step.numPairs(); ++pair) {
    const TensorDecl &tensor = plan.tensors[step.ownPart(pair)];
    if (tensor.shape.empty() || !tensor.shape[0].dependsOnTokens())
      continue;
    Result<int64_t> rows = tensor.shape[0].maxUpTo(plan.maxTokens);
    if (!rows)
      return rows.status();
    needed.rows = std::max(needed.rows, *rows);
    int64_t bits = dtypeBits(tensor.dtype);
    for (size_t i = 1; i < tensor.shape.size(); ++i)
      bits *= tensor.shape[i].constantValue();
    needed.rowBytes.push_back(bits / 8);
  }
  return needed;
}

static Status reservePackedSizes(const Plan &plan, Communicator &communicator) {
  for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor}) {
    std::vector<PackedSizes> sizes;
    for (const Variant &variant : plan.variants)
      for (const Step &step : variant.steps) {
        if (step.kind != Step::Kind::Collective || step.axis != axis ||
            !step.isPacked())
          continue;
        Result<PackedSizes> needed = countPackedSizes(plan, step);
        if (!needed)
          return needed.status();
        sizes.push_back(std::move(*needed));
      }
    if (!sizes.empty())
      MOERT_CHECK(communicator.reservePacked(axis, sizes));
  }
  return Status::ok();
}

/// Reserves memory for a plan's collectives in the communicator.
static Status reserveBuffers(const Plan &plan,
                             const std::array<int64_t, 2> &resultBytes,
                             Communicator &communicator) {
  for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor}) {
    int64_t most = 0;
    for (const Variant &variant : plan.variants)
      for (const Step &step : variant.steps) {
        if (step.kind != Step::Kind::Collective || step.axis != axis ||
            step.toResults)
          continue;
        Result<int64_t> bytes = countBufferBytes(plan, step);
        if (!bytes)
          return bytes.status();
        most = std::max(most, *bytes);
      }
    int64_t results = resultBytes[static_cast<size_t>(axis)];
    if (most > 0 || results > 0)
      MOERT_CHECK(communicator.reserve(axis, most, results));
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Settings
//===----------------------------------------------------------------------===//

Status LayerRanks::checkRank(int64_t number) const {
  if (number < 0 || number >= layer->plan.mesh.numRanks())
    return outOfRange("rank is " + std::to_string(number) + "; 0 to " +
                      std::to_string(layer->plan.mesh.numRanks() - 1) +
                      " are those of " + layer->plan.mesh.str());
  if (communicator && communicator->rank() != number)
    return invalidArgument("rank is " + std::to_string(number) +
                           ", but the communicator is of rank " +
                           std::to_string(communicator->rank()) +
                           "; give the weights of that rank");
  return Status::ok();
}

Status LayerRanks::useMicroBatches(int64_t fromTokens) {
  const std::string call = "useMicroBatches";
  if (fromTokens < 0)
    return outOfRange(
        call + ": " + std::to_string(fromTokens) +
        "; at least 1 token per rank, or 0 for never, is accepted");
  if (layer->plan.mesh.numRanks() == 1)
    return invalidArgument(
        call +
        ": the layer has one rank, which exchanges nothing; remove the call");
  if (communicator)
    return invalidArgument(call + ": ranks have already agreed on what they "
                                  "run; call it before setting a communicator");
  if (fromTokens > 0)
    MOERT_CHECK(checkHalves(layer->plan).withContext(call));
  microBatchesFrom = fromTokens;
  return Status::ok();
}

Status LayerRanks::checkCommunicator(const Communicator *made) const {
  const Mesh &mesh = layer->plan.mesh;
  if (!made)
    return invalidArgument("useCommunicator: null; give one for the mesh " +
                           mesh.str());
  if (!(made->mesh() == mesh))
    return invalidArgument("useCommunicator: the communicator has the mesh " +
                           made->mesh().str() + ", but the layer has " +
                           mesh.str() + "; give one of that mesh");
  if (rank && *rank != made->rank())
    return invalidArgument(
        "useCommunicator: the communicator is of rank " +
        std::to_string(made->rank()) + ", but the weights are those of rank " +
        std::to_string(*rank) + "; give the communicator of that rank");
  return Status::ok();
}

Result<std::array<int64_t, 2>> LayerRanks::countReserved() const {
  const Plan &plan = layer->plan;
  Result<std::array<int64_t, 2>> bytes =
      countResults(plan, layer->gatheredResults, plan.maxTokens);
  if (!bytes || microBatchesFrom == 0)
    return bytes;
  // Each result is padded, so two halves may need more than a whole batch.
  Result<std::array<int64_t, 2>> first = countResults(
      plan, layer->gatheredResults, splitBatch(plan, plan.maxTokens)[0]);
  if (!first)
    return first;
  for (size_t axis = 0; axis < bytes->size(); ++axis)
    (*bytes)[axis] = std::max((*bytes)[axis], 2 * (*first)[axis]);
  return bytes;
}

Status LayerRanks::useCommunicator(std::shared_ptr<Communicator> made) {
  const Plan &plan = layer->plan;
  std::string what = digestPlan(plan);
  // All ranks must agree on micro-batches, or they deadlock.
  if (microBatchesFrom > 0)
    what += ", two micro-batches from " + std::to_string(microBatchesFrom) +
            " tokens per rank on";
  MOERT_CHECK(made->agree("the layer's plan", what));
  Result<std::array<int64_t, 2>> bytes = countReserved();
  if (!bytes)
    return bytes.status();
  MOERT_CHECK(reserveBuffers(plan, *bytes, *made));
  MOERT_CHECK(reservePackedSizes(plan, *made));
  resultBytes = *bytes;
  rank = made->rank();
  communicator = std::move(made);
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// Runs
//===----------------------------------------------------------------------===//

Status LayerRanks::checkTokens(int64_t tokens) const {
  const Plan &plan = layer->plan;
  if (tokens < 0 || tokens > plan.maxTokens)
    return outOfRange("0 to max_tokens = " + std::to_string(plan.maxTokens) +
                      " tokens are accepted; compile with a larger "
                      "max_tokens or split the batch");
  if (tokens % plan.mesh.tokenRanks() != 0)
    return invalidArgument("tokens are those of a group of " +
                           std::to_string(plan.mesh.tokenRanks()) +
                           " ranks; give a multiple of that");
  if (plan.mesh.numRanks() > 1 && !communicator)
    return invalidArgument("the layer has the ranks of " + plan.mesh.str() +
                           "; give it a communicator first");
  return Status::ok();
}

bool LayerRanks::hasMicroBatches(int64_t tokens) const {
  return microBatchesFrom > 0 &&
         tokens / layer->plan.mesh.tokenRanks() >= microBatchesFrom;
}

Result<int64_t> LayerRanks::workspaceBytes(int64_t tokens) const {
  Result<int64_t> whole = moert::workspaceBytes(layer->plan, tokens);
  if (!whole || !hasMicroBatches(tokens))
    return whole;
  Result<int64_t> both = halvesWorkspaceBytes(layer->plan, tokens);
  return both ? std::max(*whole, *both) : both;
}

Result<bool> LayerRanks::isHalved(int64_t tokens) const {
  if (!hasMicroBatches(tokens))
    return false;
  return mayRunBeside(layer->plan, tokens);
}

Status LayerRanks::synchronize(Stream &stream) const {
  return communicator ? communicator->synchronize(stream)
                      : layer->device.synchronize(stream);
}

} // namespace moert
