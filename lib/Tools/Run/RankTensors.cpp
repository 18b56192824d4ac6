//===- RankTensors.cpp - tensors that ranks bind ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankRun.h"

#include "../Progress.h"
#include "LoadTensors.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Import/BuildLayer.h"
#include "moec/Import/Shards.h"
#include "llvm/ADT/STLExtras.h"

#include <cstring>

using namespace mlir;
using namespace moec;
using moert::Result;
using moert::Status;

static HostTensor *find(std::vector<HostTensor> &tensors,
                        llvm::StringRef name) {
  auto found = llvm::find_if(
      tensors, [&](const HostTensor &tensor) { return tensor.name == name; });
  return found == tensors.end() ? nullptr : &*found;
}

Status RankRun::makeTensors() {
  Progress progress("moe-run", "making weights and activations");
  int64_t tokens = spec.parallel->getTokenRanks() * options.run.tokens;
  LayerSpec whole = spec.getWhole();
  whole.maxTokens = std::max(tokens, int64_t(1));
  OwningOpRef<ModuleOp> layer = buildLayer(*module.getContext(), whole);
  if (!layer)
    return moert::internalError("the layer does not verify on one rank");
  FailureOr<moert::Plan> plan = makePlan(*layer, options.run.compile);
  if (failed(plan))
    return moert::invalidArgument("the layer does not compile on one rank");
  Result<std::vector<HostTensor>> all = allocateTensors(
      *plan, tokens, {moert::TensorRole::Input, moert::TensorRole::Output});
  if (!all)
    return all.status();
  // splitGroups() sets the count of each group from the command line.
  if (!options.validTokens.empty())
    for (HostTensor &tensor : *all)
      tensor.isGiven |= tensor.name == "num_valid_tokens";
  if (!options.hiddenStates.empty()) {
    Result<moert::Checkpoint> file =
        moert::Checkpoint::open(options.hiddenStates);
    if (!file)
      return file.status();
    if (Status status = loadCall(*all, *file); !status)
      return status;
  }
  if (!options.inputs.empty()) {
    Result<moert::Checkpoint> file = moert::Checkpoint::open(options.inputs);
    if (!file)
      return file.status();
    checkpoint = std::make_unique<moert::Checkpoint>(std::move(*file));
    LayerRequest request = makeRequest(whole);
    request.expertIds = spec.getLogicalIds();
    request.inputsAreRequired = options.hiddenStates.empty();
    if (Status status = loadTensors(*all, *checkpoint, request); !status)
      return status;
  }
  if (Status status = generate(*all, options.seed); !status)
    return status;
  Result<Groups> split = splitGroups(*all);
  if (!split)
    return split.status();
  groups = std::move(*split);
  bool areSplit = !checkpoint && options.run.prepared.empty();
  if (areSplit || options.checks)
    if (Status status = makeWeights(*plan); !status)
      return status;
  return makeOtherInputs(*plan, tokens);
}

Status RankRun::makeWeights(const moert::Plan &plan) {
  Result<std::vector<HostTensor>> all =
      allocateTensors(plan, plan.mesh.dp * options.run.tokens);
  if (!all)
    return all.status();
  llvm::erase_if(*all, [](const HostTensor &tensor) {
    return tensor.role != moert::TensorRole::Weight;
  });
  weights = std::move(*all);
  if (!checkpoint)
    return generate(weights, options.seed);
  LayerRequest request = makeRequest(spec.getWhole());
  request.expertIds = spec.getLogicalIds();
  request.inputsAreRequired = false;
  return loadTensors(weights, *checkpoint, request);
}

Status RankRun::generate(std::vector<HostTensor> &tensors,
                         uint64_t seed) const {
  GenerateOptions generate;
  generate.seed = seed;
  generate.numExperts = spec.getNumRouted();
  generate.logicalIds = spec.getLogicalIds();
  return generateTensors(tensors, generate);
}

/// Generates further inputs, even if the first ones are read from a file.
Status RankRun::makeOtherInputs(const moert::Plan &plan, int64_t tokens) {
  for (int64_t i = 1; i < options.numInputs; ++i) {
    Result<std::vector<HostTensor>> all =
        allocateTensors(plan, tokens, {moert::TensorRole::Input});
    if (!all)
      return all.status();
    if (Status status = generate(*all, options.seed + uint64_t(i)); !status)
      return status;
    Result<Groups> split = splitGroups(*all);
    if (!split)
      return split.status();
    otherInputs.push_back(std::move(*split));
  }
  return Status::ok();
}

Result<RankRun::Groups>
RankRun::splitGroups(const std::vector<HostTensor> &all) const {
  int64_t numGroups = spec.parallel->getTokenRanks();
  Groups made;
  for (int64_t group = 0; group < numGroups; ++group) {
    std::vector<HostTensor> &tensors = made.emplace_back();
    for (const HostTensor &tensor : all) {
      if (tensor.role == moert::TensorRole::Weight)
        continue;
      HostTensor &own = tensors.emplace_back();
      own.name = tensor.name;
      own.role = tensor.role;
      own.dtype = tensor.dtype;
      own.shape = tensor.shape;
      bool isCount = tensor.name == "num_valid_tokens";
      if (!isCount)
        own.shape[0] /= numGroups;
      if (Status status = own.allocate(); !status)
        return status;
      if (isCount)
        *reinterpret_cast<int32_t *>(own.data()) =
            int32_t(options.validTokens.empty() ? options.run.tokens
                                                : options.validTokens[group]);
      else if (own.getNumBytes() > 0)
        std::memcpy(own.data(), tensor.data() + group * own.getNumBytes(),
                    own.getNumBytes());
    }
  }
  return made;
}

Result<std::vector<HostTensor>>
RankRun::makeRankTensors(const moert::Plan &plan, int64_t rank) {
  int64_t tokens = plan.mesh.tokenRanks() * options.run.tokens;
  std::initializer_list<moert::TensorRole> ofCalls = {
      moert::TensorRole::Input, moert::TensorRole::Output};
  std::initializer_list<moert::TensorRole> all = {moert::TensorRole::Input,
                                                  moert::TensorRole::Weight,
                                                  moert::TensorRole::Output};
  auto tensors = allocateTensors(plan, tokens,
                                 options.run.prepared.empty() ? all : ofCalls);
  if (!tensors)
    return tensors.status();
  std::vector<HostTensor> &inputs = groups[plan.mesh.tokenRank(rank)];
  for (HostTensor &tensor : *tensors) {
    if (tensor.role != moert::TensorRole::Input)
      continue;
    HostTensor *input = find(inputs, tensor.name);
    if (input->getNumBytes() > 0)
      std::memcpy(tensor.data(), input->data(), tensor.getNumBytes());
    tensor.isGiven = true;
  }
  if (options.run.prepared.empty())
    if (Status status = fillRankWeights(*tensors, rank); !status)
      return status;
  return tensors;
}

Status RankRun::fillRankWeights(std::vector<HostTensor> &tensors,
                                int64_t rank) {
  LayerRequest request = makeRequest(spec, rank);
  if (checkpoint)
    return loadTensors(tensors, *checkpoint, request);
  for (HostTensor &tensor : tensors) {
    if (tensor.role != moert::TensorRole::Weight)
      continue;
    auto table =
        llvm::find_if(request.rank->tables, [&](const NamedTable &table) {
          return table.name == tensor.name;
        });
    if (table != request.rank->tables.end())
      std::memcpy(tensor.data(), table->values.data(), tensor.getNumBytes());
    else
      copyShard(*request.findShard(tensor.name),
                find(weights, tensor.name)->data(), tensor.data());
  }
  return Status::ok();
}

Result<std::vector<std::vector<HostTensor>>>
RankRun::makeRankTensors(const moert::Plan &plan) {
  int64_t numRanks = plan.mesh.numRanks();
  Progress progress("moe-run", "making the weights of all ranks");
  std::vector<std::vector<HostTensor>> made;
  for (int64_t rank = 0; rank < numRanks; ++rank) {
    auto tensors = makeRankTensors(plan, rank);
    if (!tensors)
      return tensors.status().withContext("rank " + std::to_string(rank));
    made.push_back(std::move(*tensors));
    progress.step(size_t(rank + 1), size_t(numRanks));
  }
  return made;
}
