//===- LoadTensors.cpp - loads tensors from files ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoadTensors.h"

#include "ExpertOrders.h"
#include "NestedScales.h"
#include "PartCopier.h"
#include "runtime/src/support/Text.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

using namespace moec;
using moert::Result;
using moert::SafetensorsEntry;
using moert::Status;

TensorMemory::~TensorMemory() = default;

Result<uint8_t *> TensorMemory::open(const HostTensor &tensor, size_t offset,
                                     size_t) {
  return tensor.data() + offset;
}

Status TensorMemory::close() { return Status::ok(); }

namespace {

HostTensor *findTensor(std::vector<HostTensor> &tensors, llvm::StringRef name) {
  auto it = llvm::find_if(
      tensors, [&](const HostTensor &tensor) { return tensor.name == name; });
  return it == tensors.end() ? nullptr : &*it;
}

} // namespace

LayerRequest moec::makeRequest(const std::vector<HostTensor> &tensors) {
  LayerRequest request;
  for (const HostTensor &tensor : tensors) {
    TensorInfo info;
    info.name = tensor.name;
    info.shape = tensor.shape;
    info.role = tensor.role == moert::TensorRole::Output   ? TensorRole::Output
                : tensor.role == moert::TensorRole::Weight ? TensorRole::Weight
                                                           : TensorRole::Input;
    request.signature.push_back(std::move(info));
  }
  return request;
}

namespace {

struct LayerOrders {
  ExpertOrders routed, shared;

  const ExpertOrders &of(llvm::StringRef tensor) const {
    return tensor.starts_with("shared_experts.") ? shared : routed;
  }
};

/// Reads the tensors of one layer, or this rank's part of them.
class Loader {
public:
  Loader(moert::Checkpoint &checkpoint, const LayerRequest &request,
         const LayerOrders &orders, TensorMemory &memory,
         llvm::function_ref<void(size_t)> read)
      : checkpoint(checkpoint), request(request), orders(orders),
        memory(memory), read(read) {}

  Status load(const LocatedTensor &located, const HostTensor &tensor);
  Status put(const HostTensor &tensor, const void *data);

private:
  Status loadMatrix(const CopyTarget &target, int64_t place, uint8_t *matrix);
  Status copy(const LocatedPart &located, const CopyTarget &target,
              int64_t place, uint8_t *matrix);
  Status loadLargest(const LocatedTensor &located, const CopyTarget &target,
                     uint8_t *value);
  /// Fills `bytes` bytes of a tensor from `offset` on.
  Status fill(const HostTensor &tensor, size_t offset, size_t bytes,
              llvm::function_ref<Status(uint8_t *)> make);

  moert::Checkpoint &checkpoint;
  const LayerRequest &request;
  const LayerOrders &orders;
  TensorMemory &memory;
  llvm::function_ref<void(size_t)> read;
  /// The parts of each matrix of the tensor that is being loaded.
  std::vector<std::vector<const LocatedPart *>> parts;
};

} // namespace

/// Whether the layer's tensor is stacked, one matrix per expert. A file may
/// have a tensor per expert or one of all experts.
static bool isStacked(const LocatedTensor &located, const HostTensor &tensor) {
  bool isPerExpert =
      llvm::any_of(located.parts, [](const LocatedPart &located) {
        return located.part && located.part->isPerExpert();
      });
  return tensor.shape.size() > 1 &&
         (isPerExpert || llvm::StringRef(tensor.name).starts_with("experts."));
}

Status Loader::fill(const HostTensor &tensor, size_t offset, size_t bytes,
                    llvm::function_ref<Status(uint8_t *)> make) {
  Result<uint8_t *> opened = memory.open(tensor, offset, bytes);
  if (!opened)
    return opened.status();
  if (Status status = make(*opened); !status)
    return status;
  if (Status status = memory.close(); !status)
    return status.withContext("tensor '" + tensor.name + "'");
  if (read)
    read(bytes);
  return Status::ok();
}

Status Loader::put(const HostTensor &tensor, const void *data) {
  size_t bytes = tensor.getNumBytes();
  return fill(tensor, 0, bytes, [&](uint8_t *to) {
    std::memcpy(to, data, bytes);
    return Status::ok();
  });
}

Status Loader::load(const LocatedTensor &located, const HostTensor &tensor) {
  CopyTarget target;
  target.name = tensor.name;
  target.dtype = tensor.dtype;
  target.shard = request.findShard(tensor.name);
  target.shape = target.shard ? target.shard->whole.shape : tensor.shape;
  target.isStacked = isStacked(located, tensor);
  bool isLargest = llvm::any_of(located.parts, [](const LocatedPart &located) {
    return located.part && located.part->use == PartUse::LargestScale;
  });
  if (isLargest)
    return fill(tensor, 0, tensor.getNumBytes(), [&](uint8_t *value) {
      return loadLargest(located, target, value);
    });
  auto numMatrices = size_t(target.getLocal().count);
  parts.assign(numMatrices, {});
  for (const LocatedPart &each : located.parts) {
    if (each.part && each.part->isPerExpert()) {
      parts[size_t(each.slot)].push_back(&each);
      continue;
    }
    for (auto &ofMatrix : parts)
      ofMatrix.push_back(&each);
  }
  size_t bytes = target.getMatrixBytes();
  for (size_t place = 0; place < numMatrices; ++place) {
    Status status = fill(tensor, place * bytes, bytes, [&](uint8_t *matrix) {
      // Zero on this rank: another rank adds the values.
      if (target.shard && target.shard->isZero)
        std::memset(matrix, 0, bytes);
      return loadMatrix(target, int64_t(place), matrix);
    });
    if (!status)
      return status;
  }
  return Status::ok();
}

Status Loader::loadMatrix(const CopyTarget &target, int64_t place,
                          uint8_t *matrix) {
  if (isColumnOrder(target.name) && parts[size_t(place)].front()->part) {
    // The order comes from tensors beside the weights of each module.
    MatrixShape local = target.getLocal();
    orders.of(target.name)
        .writeColumns(place, {reinterpret_cast<int32_t *>(matrix),
                              size_t(local.rows * local.columns)});
    return Status::ok();
  }
  for (const LocatedPart *located : parts[size_t(place)])
    if (Status status = copy(*located, target, place, matrix); !status)
      return status;
  orders.of(target.name).apply(target, place, matrix);
  return Status::ok();
}

Status Loader::loadLargest(const LocatedTensor &located,
                           const CopyTarget &target, uint8_t *value) {
  constexpr float tolerance = 1e-5F;
  // The name and value of each expert's first scale.
  std::map<int64_t, std::pair<llvm::StringRef, float>> scales;
  float largest = 0;
  for (const LocatedPart &part : located.parts) {
    Result<const SafetensorsEntry *> entry = checkpoint.find(part.name);
    if (!entry)
      return entry.status();
    const std::string &file = checkpoint.fileOf(part.name);
    Result<float> scale = PartCopier(file, **entry, target).readInputScale();
    if (!scale)
      return scale.status();
    auto [found, isFirst] =
        scales.try_emplace(part.slot, llvm::StringRef(part.name), *scale);
    auto [other, otherScale] = found->second;
    if (std::fabs(otherScale - *scale) >
        tolerance * std::max(otherScale, *scale))
      return moert::invalidArgument(
          file + ": tensors '" + other.str() + "' and '" + part.name +
          "' are " + std::to_string(otherScale) + " and " +
          std::to_string(*scale) +
          "; gate and up of an expert have the same input, so their scales of "
          "it must agree within 1e-5 of their size");
    largest = std::max(largest, *scale);
  }
  std::memcpy(value, &largest, sizeof(largest));
  return Status::ok();
}

Status Loader::copy(const LocatedPart &located, const CopyTarget &target,
                    int64_t place, uint8_t *matrix) {
  Result<const SafetensorsEntry *> entry = checkpoint.find(located.name);
  if (!entry)
    return entry.status();
  // Scales that are computed from the file's bytes.
  SafetensorsEntry resolved;
  std::vector<float> scales;
  if (located.part && located.part->use == PartUse::NestedScales) {
    Result<std::vector<float>> found =
        readNestedScales(checkpoint, located.name);
    if (!found)
      return found.status();
    scales = std::move(*found);
    resolved = {located.name,
                moert::DType::F32,
                {int64_t(scales.size())},
                reinterpret_cast<const uint8_t *>(scales.data()),
                scales.size() * sizeof(float),
                /*blockType=*/""};
    entry = &resolved;
  }
  PartCopier copier(checkpoint.fileOf(located.name), **entry, target);
  return located.part ? copier.copyPart(*located.part, place, matrix)
                      : copier.copyOwn(place, matrix);
}

Status moec::loadTensors(std::vector<HostTensor> &tensors,
                         moert::Checkpoint &checkpoint,
                         const LayerRequest &request,
                         llvm::function_ref<void(size_t)> read) {
  TensorMemory memory;
  return loadTensors(tensors, checkpoint, request, memory, read);
}

Status moec::loadTensors(std::vector<HostTensor> &tensors,
                         moert::Checkpoint &checkpoint,
                         const LayerRequest &request, TensorMemory &memory,
                         llvm::function_ref<void(size_t)> read) {
  Result<LocatedLayer> layer = locateLayer(checkpoint, request);
  if (!layer)
    return layer.status();
  Result<ExpertOrders> routed =
      ExpertOrders::read(checkpoint, *layer, request, "experts.");
  if (!routed)
    return routed.status();
  Result<ExpertOrders> shared =
      ExpertOrders::read(checkpoint, *layer, request, "shared_experts.");
  if (!shared)
    return shared.status();
  LayerOrders orders{std::move(*routed), std::move(*shared)};
  Loader loader(checkpoint, request, orders, memory, read);
  for (const LocatedTensor &located : layer->tensors) {
    HostTensor *tensor = findTensor(tensors, located.name);
    if (!tensor || tensor->isGiven)
      continue;
    if (Status status = loader.load(located, *tensor); !status)
      return status;
    tensor->isGiven = true;
  }
  std::vector<NamedTable> tables;
  if (request.rank)
    tables = request.rank->tables;
  if (!request.expertIds.empty()) {
    auto ofReplicas = makeReplicaTables(tensors, request.expertIds);
    if (!ofReplicas)
      return ofReplicas.status();
    llvm::append_range(tables, *ofReplicas);
  }
  for (const NamedTable &table : tables) {
    HostTensor *tensor = findTensor(tensors, table.name);
    if (!tensor)
      continue;
    if (Status status = loader.put(*tensor, table.values.data()); !status)
      return status;
    tensor->isGiven = true;
  }
  // A file of canonical names must have all inputs; a checkpoint has none.
  for (const HostTensor &tensor : tensors)
    if (tensor.role == moert::TensorRole::Input && !tensor.isGiven &&
        !layer->hasCheckpointNames && request.inputsAreRequired)
      return moert::notFound(checkpoint.path() + ": no tensor for '" +
                             tensor.name + "'; accepted names: '" +
                             tensor.name + "'");
  return Status::ok();
}

/// Copies an input unchanged from the file.
static Status copyCall(const std::string &file, const SafetensorsEntry &entry,
                       const HostTensor &tensor) {
  CopyTarget target;
  target.name = tensor.name;
  target.dtype = tensor.dtype;
  target.shape = tensor.shape;
  return PartCopier(file, entry, target).copyOwn(/*place=*/0, tensor.data());
}

Status moec::loadCall(std::vector<HostTensor> &tensors,
                      moert::Checkpoint &file) {
  const auto &names = file.tensors();
  for (const auto &entry : names) {
    const std::string &name = entry.first;
    // A file's only tensor is `hidden_states`, whatever its name.
    HostTensor *tensor = findTensor(
        tensors, names.size() == 1 ? std::string("hidden_states") : name);
    if (!tensor || tensor->role != moert::TensorRole::Input)
      return moert::invalidArgument(
          file.path() + ": tensor '" + moert::printable(name) +
          "' is none that a call of this layer brings; --signature lists "
          "them (role input)");
    if (tensor->isGiven)
      return moert::invalidArgument(file.path() + ": tensor '" +
                                    moert::printable(name) +
                                    "' is given twice");
    Result<const SafetensorsEntry *> found = file.find(name);
    if (!found)
      return found.status();
    if (Status status = copyCall(file.fileOf(name), **found, *tensor); !status)
      return status;
    tensor->isGiven = true;
  }
  return Status::ok();
}
