//===- ExpertMove.cpp - moves experts between ranks at run time -----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/ExpertMove.h"
#include "../support/Check.h"
#include "../support/Sha256.h"
#include "ExpertMap.h"
#include "moert/Balance.h"

#include <algorithm>

namespace moert {

namespace {

constexpr const char *kPhysicalIds = "replicas.physical_ids";
constexpr const char *kCounts = "replicas.counts";
constexpr const char *kLocalIds = "placement.local_ids";

bool isTable(const std::string &name) {
  return name == kPhysicalIds || name == kCounts;
}

/// Whether a tensor has a row per expert; a scale that all inputs share has
/// not.
bool isOfExperts(const TensorDecl &tensor) {
  const std::string prefix = "experts.", shared = "_input_scale";
  const std::string &name = tensor.name;
  bool isShared =
      name.size() > shared.size() &&
      name.compare(name.size() - shared.size(), shared.size(), shared) == 0;
  return tensor.role == TensorRole::Weight &&
         name.compare(0, prefix.size(), prefix) == 0 && !isShared;
}

/// The shape of a tensor that does not depend on the tokens, such as a weight;
/// -1 for sizes that cannot be evaluated.
std::vector<int64_t> constantShape(const TensorDecl &tensor) {
  std::vector<int64_t> shape;
  for (const Expr &size : tensor.shape) {
    Result<int64_t> value = size.evaluate(0);
    shape.push_back(value ? *value : -1);
  }
  return shape;
}

/// Stride between experts in elements, if each expert is contiguous.
Result<int64_t> expertStride(const std::string &name, const TensorView &view) {
  if (view.strides.empty()) {
    int64_t stride = 1;
    for (size_t i = 1; i < view.shape.size(); ++i)
      stride *= view.shape[i];
    return stride;
  }
  int64_t packed = 1;
  for (size_t i = view.shape.size(); i-- > 1;) {
    if (view.shape[i] != 1 && view.strides[i] != packed)
      return invalidArgument("'" + name +
                             "' has gaps between the rows of an expert, but an "
                             "expert moves as one block; bind it without gaps");
    packed *= view.shape[i];
  }
  return view.shape[0] == 1 ? packed : view.strides[0];
}

std::string mapDigest(const std::vector<int64_t> &from,
                      const std::vector<int64_t> &to) {
  std::vector<int64_t> both = from;
  both.insert(both.end(), to.begin(), to.end());
  return showDigest(sha256(both.data(), both.size() * sizeof(int64_t)));
}

} // namespace

std::vector<std::string> ExpertMove::tensorNames(const Plan &plan) {
  std::vector<std::string> names;
  if (plan.findTensor(kCounts) < 0 || plan.findTensor(kLocalIds) < 0)
    return names;
  for (const TensorDecl &tensor : plan.tensors)
    if (isOfExperts(tensor) || isTable(tensor.name))
      names.push_back(tensor.name);
  return names;
}

Result<std::unique_ptr<ExpertMove>>
ExpertMove::begin(Executor &executor, Device &device,
                  std::shared_ptr<Communicator> communicator,
                  ExpertMoveOptions options) {
  std::unique_ptr<ExpertMove> move(new ExpertMove(
      executor, device, std::move(communicator), std::move(options)));
  if (Status status = move->open(); !status)
    return status.withContext("a move of experts");
  return move;
}

Status ExpertMove::open() {
  const Plan &plan = executor.plan();
  if (!communicator || !(communicator->mesh() == plan.mesh))
    return invalidArgument(
        "a communicator of the layer's mesh, " + plan.mesh.str() +
        ", expected, " +
        (communicator ? communicator->mesh().str() : std::string("none")) +
        " found");
  std::vector<std::string> names = tensorNames(plan);
  if (names.empty())
    return invalidArgument("the layer has no 'replicas' over ranks; add them "
                           "to its spec, beside 'parallel.experts'");
  if (!plan.prepare.empty())
    return invalidArgument("the layer has prepared weights, which cannot move");
  MOERT_CHECK(checkMaps());
  MOERT_CHECK(checkTables());
  for (const std::string &name : names) {
    auto given =
        std::find_if(options.spare.begin(), options.spare.end(),
                     [&](const auto &tensor) { return tensor.first == name; });
    if (given == options.spare.end())
      return invalidArgument("memory for '" + name +
                             "' is needed, but not given");
    MOERT_CHECK(executor.checkBinding(name, given->second));
    MOERT_CHECK(isTable(name) ? fillTable(name, given->second)
                              : addTensor(name, given->second));
  }
  if (options.spare.size() != names.size())
    return invalidArgument(std::to_string(options.spare.size()) +
                           " tensors given, of which " +
                           std::to_string(names.size()) + " move");
  Result<std::unique_ptr<Stream>> made = device.createStream();
  if (!made)
    return made.status();
  stream = std::move(*made);
  return communicator->agree("the maps of experts",
                             mapDigest(options.from, options.to));
}

Status ExpertMove::checkMaps() {
  const Plan &plan = executor.plan();
  std::vector<int64_t> table = constantShape(
      plan.tensors[static_cast<size_t>(plan.findTensor(kPhysicalIds))]);
  std::vector<int64_t> localIds = constantShape(
      plan.tensors[static_cast<size_t>(plan.findTensor(kLocalIds))]);
  numExperts = table[0];
  maxReplicas = table[1];
  numExpertsHere = localIds[0] / plan.mesh.numRanks();
  for (const auto *map : {&options.from, &options.to}) {
    std::string context = map == &options.from ? "from" : "to";
    if (static_cast<int64_t>(map->size()) != localIds[0])
      return invalidArgument(context + ": " + std::to_string(localIds[0]) +
                             " physical experts expected, " +
                             std::to_string(map->size()) + " found");
    MOERT_CHECK(checkMap(*map, numExperts).withContext(context));
  }
  return Status::ok();
}

Result<std::vector<int32_t>>
ExpertMove::readTable(const std::string &name) const {
  Result<TensorView> view = executor.bound(name);
  if (!view)
    return view.status();
  int64_t count = 1;
  for (int64_t size : view->shape)
    count *= size;
  std::vector<int32_t> values(static_cast<size_t>(count));
  MOERT_CHECK(device.copyOut(values.data(), view->data,
                             values.size() * sizeof(int32_t)));
  return values;
}

/// Success if the layer's tables match the map `from`.
Status ExpertMove::checkTables() {
  Result<std::vector<int32_t>> localIds = readTable(kLocalIds);
  Result<std::vector<int32_t>> counts = readTable(kCounts);
  Result<std::vector<int32_t>> table = readTable(kPhysicalIds);
  for (const auto *read : {&localIds, &counts, &table})
    if (!*read)
      return read->status();
  int64_t first = communicator->rank() * numExpertsHere;
  for (size_t i = 0; i < localIds->size(); ++i) {
    int64_t index = static_cast<int64_t>(i) - first;
    if (index < 0 || index >= numExpertsHere)
      index = -1;
    if ((*localIds)[i] != index)
      return invalidArgument(
          std::string("'") + kLocalIds + "' has " +
          std::to_string((*localIds)[i]) + " for physical expert " +
          std::to_string(i) + ", and " + std::to_string(index) +
          " is expected on rank " + std::to_string(communicator->rank()) +
          ": physical experts are numbered rank by rank");
  }
  for (int64_t expert = 0; expert < numExperts; ++expert)
    for (int64_t i = 0;
         i < (*counts)[static_cast<size_t>(expert)] && i < maxReplicas; ++i) {
      int32_t physical =
          (*table)[static_cast<size_t>(expert * maxReplicas + i)];
      bool isThere =
          physical >= 0 && static_cast<size_t>(physical) < options.from.size();
      if (!isThere || options.from[static_cast<size_t>(physical)] != expert)
        return invalidArgument(
            "from: '" + std::string(kPhysicalIds) + "' has physical expert " +
            std::to_string(physical) + " for expert " + std::to_string(expert) +
            ", but the map " +
            (isThere ? "assigns it to " +
                           std::to_string(
                               options.from[static_cast<size_t>(physical)])
                     : std::string("has none of that number")) +
            "; give the layer's map");
    }
  return Status::ok();
}

Status ExpertMove::fillTable(const std::string &name, const TensorView &spare) {
  Result<ReplicaTables> tables =
      makeReplicaTables(options.to, numExperts, maxReplicas);
  if (!tables)
    return tables.status();
  const std::vector<int32_t> &values =
      name == kCounts ? tables->counts : tables->physicalIds;
  return device.copyIn(spare.data, values.data(),
                       values.size() * sizeof(int32_t));
}

Status ExpertMove::addTensor(const std::string &name, const TensorView &spare) {
  Result<TensorView> own = executor.bound(name);
  if (!own)
    return own.status();
  if (own->data == spare.data)
    return invalidArgument(
        "'" + name +
        "' is memory that the layer is bound to; give other memory");
  Rows rows;
  int64_t bytes = dtypeBits(own->dtype) / 8;
  for (bool isNew : {false, true}) {
    const TensorView &view = isNew ? spare : *own;
    Result<int64_t> stride = expertStride(name, view);
    if (!stride)
      return stride.status();
    (isNew ? rows.to : rows.from) = static_cast<char *>(view.data);
    (isNew ? rows.toStride : rows.fromStride) = *stride * bytes;
  }
  rows.bytes = bytes;
  for (size_t i = 1; i < own->shape.size(); ++i)
    rows.bytes *= own->shape[i];
  tensors.push_back(rows);
  return Status::ok();
}

/// The transfer of the expert that each rank has at `index` in the new
/// map.
Transfer ExpertMove::makeTransfer(int64_t index) const {
  int64_t ranks = communicator->mesh().numRanks(), own = communicator->rank();
  Transfer made;
  made.where = "a move of experts, step " + std::to_string(index + 1) + " of " +
               std::to_string(numExpertsHere);
  // All ranks choose the same sources: the rank itself if it has the expert,
  // else the rank that has it with the fewest sends so far.
  std::vector<int64_t> numSent(static_cast<size_t>(ranks), 0);
  for (int64_t to = 0; to < ranks; ++to) {
    int64_t expert =
        options.to[static_cast<size_t>(to * numExpertsHere + index)];
    int64_t source = -1, sourceIndex = 0;
    for (size_t i = 0; i < options.from.size(); ++i) {
      int64_t rank = static_cast<int64_t>(i) / numExpertsHere;
      if (options.from[i] != expert || source == to ||
          (source >= 0 && rank != to &&
           numSent[static_cast<size_t>(rank)] >=
               numSent[static_cast<size_t>(source)]))
        continue;
      source = rank;
      sourceIndex = static_cast<int64_t>(i) % numExpertsHere;
    }
    if (source != to)
      ++numSent[static_cast<size_t>(source)];
    for (const Rows &rows : tensors) {
      if (source == own)
        made.sends.push_back(
            {to, rows.from + sourceIndex * rows.fromStride, rows.bytes});
      if (to == own)
        made.receives.push_back(
            {source, rows.to + index * rows.toStride, rows.bytes});
    }
  }
  return made;
}

Status ExpertMove::fail(const Status &status) {
  ended = status;
  return ended;
}

Status ExpertMove::step() {
  MOERT_CHECK(ended);
  if (numSteps() == 0)
    return invalidArgument("a move of experts: all " +
                           std::to_string(numExpertsHere) +
                           " steps were given; call switchOver()");
  if (Status status = communicator->transfer(*stream, makeTransfer(numGiven));
      !status)
    return fail(status);
  ++numGiven;
  return Status::ok();
}

Status ExpertMove::switchOver() {
  MOERT_CHECK(ended);
  if (numSteps() > 0)
    return invalidArgument("a move of experts: " + std::to_string(numSteps()) +
                           " of " + std::to_string(numExpertsHere) +
                           " steps are left; call step() for each");
  Status status = communicator->synchronize(*stream);
  // Barrier: all ranks have all of their experts before any switches.
  if (status)
    status = communicator->agree("the end of a move of experts",
                                 mapDigest(options.from, options.to));
  if (status)
    status = executor.bindAll(options.spare);
  if (!status)
    return fail(status);
  ended = invalidArgument("the move of experts has ended; begin another one");
  return Status::ok();
}

} // namespace moert
