//===- LoadTensors.cpp - loads tensors from files ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoadTensors.h"

#include "../../../runtime/src/support/Text.h"
#include "ComputedTensor.h"
#include "ExpertOrders.h"
#include "PartCopier.h"
#include "StoredMatrices.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>

using namespace moec;
using moert::Result;
using moert::SafetensorsEntry;
using moert::Status;

TensorMemory::~TensorMemory() = default;

Result<uint8_t *> TensorMemory::open(const HostTensor &tensor, size_t offset,
                                     size_t, bool) {
  return tensor.data() + offset;
}

Status TensorMemory::close() { return Status::ok(); }

Result<bool> TensorMemory::copyRows(const HostTensor &,
                                    const moert::RowCopy &) {
  return false;
}

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

private:
  Status loadMatrix(const CopyTarget &target, int64_t index, uint8_t *matrix);
  Status loadPadded(const CopyTarget &target, int64_t index, uint8_t *matrix);
  Status loadOrderedPart(const CopyTarget &target, int64_t index,
                         uint8_t *matrix);
  Status loadAdapters(const LocatedTensor &located, const CopyTarget &target,
                      uint8_t *value);
  Status copy(const LocatedPart &located, const CopyTarget &target,
              int64_t index, uint8_t *matrix);
  Status copyStored(const LocatedPart &located, const CopyTarget &target,
                    int64_t index, uint8_t *matrix);
  Status loadLargest(const LocatedTensor &located, const CopyTarget &target,
                     uint8_t *value);
  /// Copies a matrix within the memory of a device; false if it cannot.
  Result<bool> copyOnDevice(const HostTensor &tensor, const CopyTarget &target,
                            int64_t index);
  bool fillsWhole(const CopyTarget &target, int64_t index) const;

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

/// Bytes of a tensor to fill.
struct FilledBytes {
  const HostTensor &tensor;
  size_t offset = 0, bytes = 0;
  /// Whether no byte keeps its value.
  bool isWhole = true;
};

static Status fill(TensorMemory &memory, const FilledBytes &filled,
                   llvm::function_ref<void(size_t)> read,
                   llvm::function_ref<Status(uint8_t *)> make) {
  Result<uint8_t *> opened =
      memory.open(filled.tensor, filled.offset, filled.bytes, filled.isWhole);
  if (!opened)
    return opened.status();
  if (Status status = make(*opened); !status)
    return status;
  if (Status status = memory.close(); !status)
    return status.withContext("tensor '" + filled.tensor.name + "'");
  if (read)
    read(filled.bytes);
  return Status::ok();
}

/// Whether the parts have elements for all of the matrix.
bool Loader::fillsWhole(const CopyTarget &target, int64_t index) const {
  MatrixShape whole = target.getWhole();
  int64_t elements = 0;
  for (const LocatedPart *located : parts[size_t(index)]) {
    if (!located->part)
      return true;
    if (!isBeside(located->part->use))
      elements +=
          located->part->numRows * located->part->countColumns(whole.columns);
  }
  return elements >= whole.rows * whole.columns || isColumnOrder(target.name);
}

Result<bool> Loader::copyOnDevice(const HostTensor &tensor,
                                  const CopyTarget &target, int64_t index) {
  if (target.shard && target.shard->isPadded())
    return false;
  std::vector<moert::RowCopy> copies;
  size_t offset = size_t(index) * target.getMatrixBytes();
  auto isChecked = [](const LocatedPart *located) {
    return located->part && isBeside(located->part->use);
  };
  for (const LocatedPart *located : parts[size_t(index)]) {
    if (isChecked(located))
      continue;
    Result<const SafetensorsEntry *> entry = checkpoint.locate(located->name);
    if (!entry)
      return entry.status();
    auto rows = PartCopier(checkpoint.fileOf(located->name), **entry, target)
                    .getDeviceRows(located->part, index);
    if (!rows)
      return rows.status();
    if (!*rows)
      return false;
    for (moert::RowCopy copy : **rows) {
      copy.to = static_cast<char *>(copy.to) + offset;
      copies.push_back(copy);
    }
  }
  if (copies.empty())
    return false;
  for (const LocatedPart *located : parts[size_t(index)])
    if (isChecked(located))
      if (Status status = copy(*located, target, index, /*matrix=*/nullptr);
          !status)
        return status;
  for (const moert::RowCopy &copy : copies) {
    Result<bool> isCopied = memory.copyRows(tensor, copy);
    if (!isCopied || !*isCopied)
      return isCopied;
  }
  return true;
}

Status Loader::load(const LocatedTensor &located, const HostTensor &tensor) {
  CopyTarget target;
  target.name = tensor.name;
  target.dtype = tensor.dtype;
  target.shard = request.findShard(tensor.name);
  target.shape = target.shard ? target.shard->whole.shape : tensor.shape;
  target.isStacked = isStacked(located, tensor);
  target.rounds = request.spec && request.spec->roundWeights;
  bool isLargest = llvm::any_of(located.parts, [](const LocatedPart &located) {
    return located.part && located.part->use == PartUse::LargestScale;
  });
  if (isLargest)
    return fill(
        memory, {tensor, 0, tensor.getNumBytes()}, read,
        [&](uint8_t *value) { return loadLargest(located, target, value); });
  if (target.shard && target.shard->expertDimension > 0)
    return fill(
        memory, {tensor, 0, tensor.getNumBytes()}, read,
        [&](uint8_t *value) { return loadAdapters(located, target, value); });
  auto numMatrices = size_t(target.getLocal().count);
  bool hasExperts = target.shard && !target.shard->experts.empty();
  size_t numOwn = hasExperts ? target.shard->experts.size() : numMatrices;
  parts.assign(numOwn, {});
  for (const LocatedPart &each : located.parts) {
    if (each.part && each.part->isPerExpert()) {
      parts[size_t(each.slot)].push_back(&each);
      continue;
    }
    for (auto [index, ofMatrix] : llvm::enumerate(parts))
      if (!each.part || each.part->hasExpert(target.getMatrix(int64_t(index))))
        ofMatrix.push_back(&each);
  }
  size_t bytes = target.getMatrixBytes();
  // Zero on this rank: another rank adds the values.
  bool isZero = target.shard && target.shard->isZero;
  auto fillZeros = [&](size_t index) {
    return fill(memory, {tensor, index * bytes, bytes}, read,
                [&](uint8_t *matrix) {
                  std::memset(matrix, 0, bytes);
                  return Status::ok();
                });
  };
  // Zeros stand for the experts that other ranks have more; they come with the
  // last of this rank's.
  bool isPadded = numOwn < numMatrices && !parts.back().empty();
  for (size_t index = numOwn; isPadded && index < numMatrices; ++index)
    if (Status status = fillZeros(index); !status)
      return status;
  for (size_t index = 0; index < numOwn; ++index) {
    if (request.spec && target.isStacked && index < request.expertIds.size() &&
        request.spec->holdsZeros(tensor.name, request.expertIds[index])) {
      if (Status status = fillZeros(index); !status)
        return status;
      continue;
    }
    if (parts[index].empty() && !isZero)
      continue;
    if (!orders.of(target.name).has(int64_t(index)) && !isZero) {
      Result<bool> isCopied = copyOnDevice(tensor, target, int64_t(index));
      if (!isCopied)
        return isCopied.status();
      if (*isCopied) {
        if (read)
          read(bytes);
        continue;
      }
    }
    FilledBytes filled = {tensor, index * bytes, bytes,
                          isZero || fillsWhole(target, int64_t(index))};
    Status status = fill(memory, filled, read, [&](uint8_t *matrix) {
      if (isZero)
        std::memset(matrix, 0, bytes);
      return target.shard && target.shard->isPadded()
                 ? loadPadded(target, int64_t(index), matrix)
                 : loadMatrix(target, int64_t(index), matrix);
    });
    if (!status)
      return status;
  }
  return Status::ok();
}

/// Loads the rank's part of the adapters of all experts.
Status Loader::loadAdapters(const LocatedTensor &located,
                            const CopyTarget &target, uint8_t *value) {
  CopyTarget whole = target;
  whole.shard = nullptr;
  std::vector<uint8_t> bytes(whole.getMatrixBytes());
  for (const LocatedPart &part : located.parts)
    if (Status status = copy(part, whole, /*index=*/0, bytes.data()); !status)
      return status;
  copyShard(*target.shard, bytes.data(), value);
  return Status::ok();
}

/// Loads the rank's rows or columns, and pads them with zeros.
Status Loader::loadPadded(const CopyTarget &target, int64_t index,
                          uint8_t *matrix) {
  TensorShard shard = target.shard->withoutPadding();
  CopyTarget own = target;
  own.shard = &shard;
  // In bytes: runs of rows, or the only run of columns in each row.
  bool hasColumns = !target.getWhole().isVector &&
                    target.shard->dimension + 1 == int64_t(target.shape.size());
  auto numRuns =
      size_t(hasColumns ? target.getLocal().rows : target.shard->numRuns);
  size_t step = target.getMatrixBytes() / numRuns;
  size_t filled = own.getMatrixBytes() / numRuns;
  // Parts that are loaded by another call keep their values.
  std::vector<uint8_t> bytes(own.getMatrixBytes());
  for (size_t i = 0; i < numRuns; ++i)
    std::copy_n(matrix + i * step, filled, bytes.data() + i * filled);
  if (filled > 0)
    if (Status status = loadMatrix(own, index, bytes.data()); !status)
      return status;
  for (size_t i = 0; i < numRuns; ++i)
    std::fill(std::copy_n(bytes.data() + i * filled, filled, matrix + i * step),
              matrix + (i + 1) * step, uint8_t(0));
  return Status::ok();
}

Status Loader::loadMatrix(const CopyTarget &target, int64_t index,
                          uint8_t *matrix) {
  if (isColumnOrder(target.name) && !parts[size_t(index)].empty() &&
      parts[size_t(index)].front()->part) {
    // The order comes from tensors beside the weights of each module.
    MatrixShape local = target.getLocal();
    orders.of(target.name)
        .writeColumns(index, {reinterpret_cast<int32_t *>(matrix),
                              size_t(local.rows * local.columns)});
    return Status::ok();
  }
  const ExpertOrders &order = orders.of(target.name);
  bool isSplit = target.shard && target.shard->dimension >= 0;
  if (isSplit && order.mixesParts(index))
    return loadOrderedPart(target, index, matrix);
  for (const LocatedPart *located : parts[size_t(index)])
    if (Status status = copy(*located, target, index, matrix); !status)
      return status;
  order.apply(target, index, matrix);
  if (target.name == "gate.selection_bias" && request.spec)
    std::fill_n(reinterpret_cast<float *>(matrix) + target.getWhole().rows -
                    request.spec->numAlwaysChosen,
                request.spec->numAlwaysChosen, LayerSpec::kAlwaysChosenBias);
  return Status::ok();
}

/// Puts the whole matrix in order and copies this rank's part of it.
Status Loader::loadOrderedPart(const CopyTarget &target, int64_t index,
                               uint8_t *matrix) {
  CopyTarget whole = target;
  whole.shard = nullptr;
  std::vector<uint8_t> bytes(whole.getMatrixBytes());
  for (const LocatedPart *located : parts[size_t(index)])
    if (Status status =
            copy(*located, whole, target.getMatrix(index), bytes.data());
        !status)
      return status;
  orders.of(target.name).apply(whole, index, bytes.data());
  MatrixShape shape = whole.getWhole();
  std::vector<int64_t> sizes = {shape.rows};
  if (!shape.isVector)
    sizes.push_back(shape.columns);
  SafetensorsEntry entry = {target.name,  target.dtype, std::move(sizes),
                            bytes.data(), bytes.size(), /*blockType=*/""};
  CheckpointPart all;
  all.name = "{e}";
  all.numRows = shape.rows;
  return PartCopier(checkpoint.path(), entry, target)
      .copyPart(all, index, matrix);
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
          "; gate and up of an expert share their input, so their input scales "
          "must agree within a relative error of 1e-5");
    largest = std::max(largest, *scale);
  }
  std::memcpy(value, &largest, sizeof(largest));
  return Status::ok();
}

Status Loader::copy(const LocatedPart &located, const CopyTarget &target,
                    int64_t index, uint8_t *matrix) {
  // Only a part's matrix is fetched from a device, unless it is small.
  bool isFetched = !located.part || isBeside(located.part->use);
  Result<const SafetensorsEntry *> entry =
      isFetched ? checkpoint.find(located.name)
                : checkpoint.locate(located.name);
  if (!entry)
    return entry.status();
  ComputedTensor computed;
  Result<bool> isComputed = computeValues(
      checkpoint, located.part ? located.part->use : PartUse::Values,
      located.name, computed);
  if (!isComputed)
    return isComputed.status();
  if (*isComputed)
    entry = &computed.entry;
  if (located.part && located.part->matrix)
    return copyStored(located, target, index, matrix);
  PartCopier copier(checkpoint.fileOf(located.name), **entry, target);
  return located.part ? copier.copyPart(*located.part, index, matrix)
                      : copier.copyOwn(index, matrix);
}

/// Dequantizes a matrix and copies this rank's part of it.
Status Loader::copyStored(const LocatedPart &located, const CopyTarget &target,
                          int64_t index, uint8_t *matrix) {
  const CheckpointPart &part = *located.part;
  // With whole experts on each rank, slots count this rank's experts.
  int64_t number = target.getMatrix(index);
  int64_t expert = request.expertIds[size_t(number)];
  Result<std::vector<uint8_t>> values =
      readStoredMatrix(checkpoint, located, expert, number, target.dtype);
  if (!values)
    return values.status();
  SafetensorsEntry entry = {located.name,
                            target.dtype,
                            {part.numRows, target.getWhole().columns},
                            values->data(),
                            values->size(),
                            /*blockType=*/""};
  CheckpointPart plain;
  // The values are those of one expert.
  plain.name = "{e}";
  plain.firstRow = part.firstRow;
  plain.rowStride = part.rowStride;
  plain.numRows = part.numRows;
  return PartCopier(checkpoint.fileOf(located.name), entry, target)
      .copyPart(plain, index, matrix);
}

/// Sets the order of parameters that models publish in either: the shapes of
/// all of them together tell. `turned` holds the parts.
static Status setOrders(moert::Checkpoint &checkpoint,
                        const LayerRequest &request, LocatedLayer &layer,
                        std::deque<CheckpointPart> &turned) {
  std::optional<bool> areTransposed;
  auto forEach = [&](auto take) -> Status {
    for (LocatedTensor &tensor : layer.tensors)
      for (LocatedPart &located : tensor.parts)
        if (located.part && located.part->maybeTransposed)
          if (Status status = take(tensor, located); !status)
            return status;
    return Status::ok();
  };
  Status status = forEach([&](LocatedTensor &tensor, LocatedPart &located) {
    Result<const SafetensorsEntry *> entry = checkpoint.locate(located.name);
    if (!entry)
      return entry.status();
    auto info = llvm::find_if(request.signature, [&](const TensorInfo &one) {
      return one.name == tensor.name;
    });
    const std::vector<int64_t> &shape = (*entry)->shape;
    int64_t rows = located.part->numRows, columns = info->shape.back();
    // The first shape that tells decides, and the others are held to it.
    if (areTransposed || shape.size() < 2 || rows == columns ||
        located.part->maybeTiled)
      return Status::ok();
    int64_t last = shape.back(), before = shape[shape.size() - 2];
    if (before == columns && last == rows)
      areTransposed = true;
    else if (before == rows && last == columns)
      areTransposed = false;
    return Status::ok();
  });
  if (!status || !areTransposed)
    return status;
  return forEach([&](LocatedTensor &, LocatedPart &located) {
    turned.push_back(*located.part);
    turned.back().transposed = *areTransposed;
    located.part = &turned.back();
    return Status::ok();
  });
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
  llvm::erase_if(layer->tensors, [&](const LocatedTensor &located) {
    HostTensor *tensor = findTensor(tensors, located.name);
    return tensor && tensor->isGiven;
  });
  bool hasCheckpointNames = layer->hasCheckpointNames;
  std::vector<std::string> loaded;
  for (const LocatedTensor &located : layer->tensors)
    loaded.push_back(located.name);
  if (Status status = loadParts(tensors, checkpoint, request, std::move(*layer),
                                memory, read);
      !status)
    return status;
  for (const std::string &name : loaded)
    if (HostTensor *tensor = findTensor(tensors, name))
      tensor->isGiven = true;
  if (Status status = loadTables(tensors, request, memory, read); !status)
    return status;
  // A file of canonical names must have all inputs; a checkpoint has none.
  for (const HostTensor &tensor : tensors)
    if (tensor.role == moert::TensorRole::Input && !tensor.isGiven &&
        !hasCheckpointNames && request.inputsAreRequired)
      return moert::notFound(checkpoint.path() + ": no tensor for '" +
                             tensor.name + "'; accepted names: '" +
                             tensor.name + "'");
  return Status::ok();
}

Status moec::loadParts(std::vector<HostTensor> &tensors,
                       moert::Checkpoint &checkpoint,
                       const LayerRequest &request, LocatedLayer layer,
                       TensorMemory &memory,
                       llvm::function_ref<void(size_t)> read) {
  std::deque<CheckpointPart> turned;
  if (Status status = setOrders(checkpoint, request, layer, turned); !status)
    return status;
  Result<ExpertOrders> routed =
      ExpertOrders::read(checkpoint, layer, request, "experts.");
  if (!routed)
    return routed.status();
  Result<ExpertOrders> shared =
      ExpertOrders::read(checkpoint, layer, request, "shared_experts.");
  if (!shared)
    return shared.status();
  LayerOrders orders{std::move(*routed), std::move(*shared)};
  Loader loader(checkpoint, request, orders, memory, read);
  for (const LocatedTensor &located : layer.tensors)
    if (const HostTensor *tensor = findTensor(tensors, located.name))
      if (Status status = loader.load(located, *tensor); !status)
        return status;
  return Status::ok();
}

Status moec::loadTables(std::vector<HostTensor> &tensors,
                        const LayerRequest &request, TensorMemory &memory,
                        llvm::function_ref<void(size_t)> read) {
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
    Status status = fill(
        memory, {*tensor, 0, tensor->getNumBytes()}, read, [&](uint8_t *to) {
          std::memcpy(to, table.values.data(), tensor->getNumBytes());
          return Status::ok();
        });
    if (!status)
      return status;
    tensor->isGiven = true;
  }
  return Status::ok();
}

/// Copies an input unchanged from the file.
static Status copyCall(const std::string &file, const SafetensorsEntry &entry,
                       const HostTensor &tensor) {
  CopyTarget target;
  target.name = tensor.name;
  target.dtype = tensor.dtype;
  target.shape = tensor.shape;
  return PartCopier(file, entry, target).copyOwn(/*index=*/0, tensor.data());
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
          "' is not an input of a call of this layer; --signature lists the "
          "inputs (role input)");
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
