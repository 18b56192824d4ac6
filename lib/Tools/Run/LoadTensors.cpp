//===- LoadTensors.cpp - tensors from checkpoints and files -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoadTensors.h"

#include "CheckParts.h"
#include "ConvertElements.h"
#include "NestedScales.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstring>
#include <numeric>

using namespace moec;
using moert::SafetensorsEntry;
using moert::Status;

namespace {

/// Copies elements of one tensor of a file into one of the layer's.
class Copier {
public:
  Copier(const std::string &file, const SafetensorsEntry &entry,
         const HostTensor &tensor)
      : file(file), entry(entry), tensor(tensor) {}

  /// The whole tensor.
  Status copyAll() {
    if (Status status = check(tensor.shape, tensor.dtype); !status)
      return status;
    copyRow(0, 0, tensor.getNumElements());
    return finish();
  }

  /// One element, which stays where it is not less than what is there already.
  Status copyLargest(bool isFirst);

  /// A part, for the expert at `slot` where there is one tensor for each.
  Status copyPart(const CheckpointPart &part, int64_t slot);

private:
  Status fail(const std::string &what) const {
    return moert::invalidArgument(file + ": tensor '" + entry.name +
                                  "': " + what);
  }
  /// `what` is empty where nothing is wrong.
  Status failIfAny(const std::string &what) const {
    return what.empty() ? Status::ok() : fail(what);
  }

  /// `blocks` is what ggml calls those that the elements are in.
  Status check(llvm::ArrayRef<int64_t> shape, moert::DType dtype,
               const std::string &blocks = "") const {
    if (entry.blockType != blocks)
      return fail("is of " +
                  (entry.blockType.empty() ? moert::dtypeName(entry.dtype)
                                           : entry.blockType) +
                  ", expected " +
                  (blocks.empty() ? moert::dtypeName(dtype) : blocks) +
                  "; the layer's quantization says what its weights are");
    if (!canConvert(entry.dtype, dtype))
      return fail(std::string("dtype is ") + moert::dtypeName(entry.dtype) +
                  ", expected " + moert::dtypeName(dtype));
    if (!isSameShape(entry.shape, shape) && !isInBlocks(shape))
      return fail("shape is " + printShape(entry.shape) + ", expected " +
                  printShape(shape));
    return Status::ok();
  }

  /// What the elements are: bytes of a file may be scales.
  Status checkScales(bool haveSigns = false) const {
    bool areBytes = entry.dtype == moert::DType::U8;
    return failIfAny(moec::checkScales(
        entry, areBytes ? tensor.dtype : entry.dtype, haveSigns));
  }

  /// Rows of bytes, each of the groups of a row by itself: mxfp4 has blocks of
  /// 16, one behind the other.
  bool isInBlocks(llvm::ArrayRef<int64_t> shape) const {
    llvm::ArrayRef<int64_t> found = entry.shape;
    if (tensor.dtype != moert::DType::I8 || found.size() != shape.size() + 1)
      return false;
    int64_t block = found.back();
    found = found.drop_back();
    return block > 0 && found.drop_back() == shape.drop_back() &&
           shape.back() % block == 0 && found.back() == shape.back() / block;
  }

  Status finish() const {
    if (lossy < 0)
      return Status::ok();
    size_t size = size_t(moert::dtypeBits(entry.dtype)) / 8;
    return moert::invalidArgument(
        file + ": tensor '" + entry.name + "': is " +
        moert::dtypeName(entry.dtype) + " and the layer's '" + tensor.name +
        "' " + moert::dtypeName(tensor.dtype) + ", which has no value " +
        showElement(entry.data + size_t(lossy) * size, entry.dtype) +
        " (element " + std::to_string(lossy) +
        "); convert the tensor yourself, or compile the layer in " +
        moert::dtypeName(entry.dtype) + " (the configuration's torch_dtype)");
  }

  void copyRow(int64_t from, int64_t to, int64_t count) {
    if (entry.dtype == tensor.dtype) {
      int64_t bits = moert::dtypeBits(entry.dtype);
      if (count > 0)
        std::memcpy(tensor.data() + to * bits / 8, entry.data + from * bits / 8,
                    size_t(count * bits / 8));
      return;
    }
    for (int64_t i = 0; i < count; ++i)
      copy(from + i, to + i);
  }

  /// Row r of the destination begins at `to + r * step` and is column r of the
  /// source. Goes by squares, because one of the two sides jumps in memory.
  void copyTransposed(int64_t from, int64_t to, int64_t rows, int64_t columns,
                      int64_t step) {
    constexpr int64_t side = 32;
    for (int64_t row = 0; row < rows; row += side)
      for (int64_t column = 0; column < columns; column += side)
        for (int64_t r = row; r < std::min(row + side, rows); ++r)
          for (int64_t c = column; c < std::min(column + side, columns); ++c)
            copy(from + c * rows + r, to + r * step + c);
  }

  /// Reciprocals, of a tensor of f32.
  void invertRow(int64_t to, int64_t count) {
    auto *values = reinterpret_cast<float *>(tensor.data()) + to;
    for (int64_t i = 0; i < count; ++i)
      values[i] = 1.0F / values[i];
  }

  void copy(int64_t from, int64_t to) {
    size_t size = size_t(moert::dtypeBits(entry.dtype)) / 8;
    size_t resultSize = size_t(moert::dtypeBits(tensor.dtype)) / 8;
    const uint8_t *source = entry.data + size_t(from) * size;
    uint8_t *result = tensor.data() + size_t(to) * resultSize;
    if (entry.dtype == tensor.dtype)
      std::memcpy(result, source, size);
    else if (!convertElement(source, entry.dtype, result, tensor.dtype) &&
             lossy < 0)
      lossy = from;
  }

  const std::string &file;
  const SafetensorsEntry &entry;
  const HostTensor &tensor;
  /// The first element whose value the layer's type does not have, or -1.
  int64_t lossy = -1;
};

Status Copier::copyLargest(bool isFirst) {
  if (Status status = check({1}, tensor.dtype); !status)
    return status;
  if (Status status = checkScales(); !status)
    return status;
  auto *value = reinterpret_cast<float *>(tensor.data());
  float before = *value;
  copy(0, 0);
  if (!isFirst)
    *value = std::max(*value, before);
  return finish();
}

Status Copier::copyPart(const CheckpointPart &part, int64_t slot) {
  // What the destination holds per expert: rows x columns, a bias one column.
  bool isStacked = part.isPerExpert() || tensor.name.rfind("experts.", 0) == 0;
  bool isVector = tensor.shape.size() == (isStacked ? 2 : 1);
  int64_t columns = isVector ? 1 : tensor.shape.back();
  int64_t rows =
      isVector ? tensor.shape.back() : tensor.shape[tensor.shape.size() - 2];
  if (part.use == PartUse::Shape || part.use == PartUse::GroupOfColumn ||
      part.use == PartUse::NF4State)
    columns = columns * 8 / part.packing.layerBits;
  if (isBeside(part.use))
    return failIfAny(checkBeside(part, entry, part.numRows, columns));
  bool hasBlocks = isStacked && !part.isPerExpert();
  int64_t blocks = hasBlocks ? tensor.shape.front() : 1;
  moert::DType dtype = tensor.dtype;
  std::vector<int64_t> expected = {part.numRows};
  int64_t rowBytes = columns * moert::dtypeBits(tensor.dtype) / 8;
  if (part.blocks) {
    dtype = moert::DType::U8;
    expected.push_back(rowBytes / part.blocks.count * part.blocks.bytes);
  } else if (part.packing) {
    dtype = getPackedType(part.packing);
    expected = getPackedShape(part.packing, part.transposed, part.numRows,
                              columns * 8 / part.packing.layerBits);
  } else if (!isVector) {
    expected.insert(part.transposed ? expected.begin() : expected.end(),
                    columns);
  }
  if (part.isFlat)
    expected = {std::accumulate(expected.begin(), expected.end(), int64_t(1),
                                std::multiplies<>())};
  if (hasBlocks && part.flattened)
    expected.front() *= blocks;
  else if (hasBlocks)
    expected.insert(expected.begin(), blocks);
  if (Status status = check(expected, dtype, part.blocks.type); !status)
    return status;
  bool haveSigns =
      part.use == PartUse::AnyScales || part.use == PartUse::NestedScales;
  bool areScales = haveSigns || part.use == PartUse::Scales ||
                   part.use == PartUse::InverseScales;
  if (areScales && !part.blocks)
    if (Status status = checkScales(haveSigns); !status)
      return status;
  for (int64_t block = 0; block < blocks; ++block) {
    if (part.blocks) {
      PartRows target = {tensor.data() + (slot + block) * rows * rowBytes,
                         rowBytes, part.firstRow, part.rowStride, part.numRows};
      size_t bytes = entry.bytes / size_t(blocks);
      unpackBlocks(part.blocks, entry.data + size_t(block) * bytes, target);
      for (int64_t row = 0; areScales && row < part.numRows; ++row) {
        SafetensorsEntry scales = entry;
        scales.data = target.getRow(row);
        scales.bytes = size_t(rowBytes);
        std::string what = moec::checkScales(scales, tensor.dtype, haveSigns);
        if (!what.empty())
          return fail(what + " (row " + std::to_string(row) + " of matrix " +
                      std::to_string(block) + ")");
      }
      continue;
    }
    if (part.packing) {
      PartRows target = {tensor.data() + (slot + block) * rows * columns,
                         columns, part.firstRow, part.rowStride, part.numRows};
      size_t bytes = entry.bytes / size_t(blocks);
      unpackElements(part.packing, part.transposed,
                     entry.data + size_t(block) * bytes, target);
      continue;
    }
    int64_t from = block * part.numRows * columns;
    int64_t to = ((slot + block) * rows + part.firstRow) * columns;
    int64_t step = part.rowStride * columns;
    if (part.transposed)
      copyTransposed(from, to, part.numRows, columns, step);
    else
      for (int64_t row = 0; row < part.numRows; ++row)
        copyRow(from + row * columns, to + row * step, columns);
    if (part.use == PartUse::InverseScales)
      for (int64_t row = 0; row < part.numRows; ++row)
        invertRow(to + row * step, columns);
  }
  return finish();
}

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

Status moec::loadTensors(std::vector<HostTensor> &tensors,
                         moert::Checkpoint &checkpoint,
                         const LayerRequest &request,
                         llvm::function_ref<void(const HostTensor &)> loaded) {
  moert::Result<LocatedLayer> layer = locateLayer(checkpoint, request);
  if (!layer)
    return layer.status();
  for (const LocatedTensor &located : layer->tensors) {
    HostTensor *tensor = findTensor(tensors, located.name);
    if (!tensor || tensor->isGiven)
      continue;
    for (const LocatedPart &part : located.parts) {
      moert::Result<const SafetensorsEntry *> entry =
          checkpoint.find(part.name);
      if (!entry)
        return entry.status();
      // What is not in the file as it goes in.
      SafetensorsEntry resolved;
      std::vector<float> scales;
      if (part.part && part.part->use == PartUse::NestedScales) {
        moert::Result<std::vector<float>> found =
            readNestedScales(checkpoint, part.name);
        if (!found)
          return found.status();
        scales = std::move(*found);
        resolved = {part.name,
                    moert::DType::F32,
                    {int64_t(scales.size())},
                    reinterpret_cast<const uint8_t *>(scales.data()),
                    scales.size() * sizeof(float),
                    /*blockType=*/""};
        entry = &resolved;
      }
      Copier copier(checkpoint.fileOf(part.name), **entry, *tensor);
      Status status = !part.part ? copier.copyAll()
                      : part.part->use == PartUse::LargestScale
                          ? copier.copyLargest(&part == &located.parts.front())
                          : copier.copyPart(*part.part, part.slot);
      if (!status)
        return status;
    }
    tensor->isGiven = true;
    if (loaded)
      loaded(*tensor);
  }
  if (!request.expertIds.empty())
    if (Status status = fillReplicaTables(tensors, request.expertIds); !status)
      return status;
  // A file of canonical names is a whole call; a checkpoint never has one.
  for (const HostTensor &tensor : tensors)
    if (tensor.role == moert::TensorRole::Input && !tensor.isGiven &&
        !layer->hasCheckpointNames && request.inputsAreRequired)
      return moert::notFound(checkpoint.path() + ": no tensor for '" +
                             tensor.name + "'; accepted names: '" +
                             tensor.name + "'");
  return Status::ok();
}

Status moec::loadCall(std::vector<HostTensor> &tensors,
                      moert::Checkpoint &file) {
  const auto &names = file.tensors();
  for (const auto &entry : names) {
    const std::string &name = entry.first;
    // The only tensor of a file needs no name.
    HostTensor *tensor = findTensor(
        tensors, names.size() == 1 ? std::string("hidden_states") : name);
    if (!tensor || tensor->role != moert::TensorRole::Input)
      return moert::invalidArgument(
          file.path() + ": tensor '" + name +
          "' is none that a call of this layer brings; --signature lists "
          "them (role input)");
    if (tensor->isGiven)
      return moert::invalidArgument(file.path() + ": tensor '" + name +
                                    "' is given twice");
    moert::Result<const SafetensorsEntry *> found = file.find(name);
    if (!found)
      return found.status();
    if (Status status = Copier(file.fileOf(name), **found, *tensor).copyAll();
        !status)
      return status;
    tensor->isGiven = true;
  }
  return Status::ok();
}
