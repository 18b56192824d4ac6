//===- StoredMatrices.cpp - matrices that are dequantized at load ---------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StoredMatrices.h"

#include "../../../runtime/src/support/Text.h"
#include "ComputedTensor.h"
#include "ConvertElements.h"
#include "DecodeMatrix.h"
#include "PartCopier.h"
#include "moec/Dialect/Moe/CodeBook.h"
#include "llvm/ADT/STLExtras.h"

#include <array>
#include <cmath>
#include <cstring>

using namespace moec;
using moert::Result;
using moert::SafetensorsEntry;
using moert::Status;

namespace {

moert::DType getDType(moec::TensorType type) {
  switch (type) {
  case moec::TensorType::F32:
    return moert::DType::F32;
  case moec::TensorType::BF16:
    return moert::DType::BF16;
  case moec::TensorType::F16:
    return moert::DType::F16;
  case moec::TensorType::I32:
    return moert::DType::I32;
  case moec::TensorType::I16:
    return moert::DType::I16;
  case moec::TensorType::F8E4M3FN:
    return moert::DType::F8E4M3;
  case moec::TensorType::F8E5M2:
    return moert::DType::F8E5M2;
  case moec::TensorType::F8E8M0FNU:
    return moert::DType::F8E8M0;
  case moec::TensorType::I8:
    return moert::DType::I8;
  }
  llvm_unreachable("every type is listed");
}

float toFloat(const uint8_t *element, moert::DType dtype) {
  float value = 0;
  convertElement(element, dtype, reinterpret_cast<uint8_t *>(&value),
                 moert::DType::F32);
  return value;
}

/// The tensors of one matrix, in the layer's form.
class Matrix {
public:
  explicit Matrix(const StoredMatrix &stored) : stored(stored) {}

  Status read(moert::Checkpoint &checkpoint, const std::string &prefix,
              const CheckpointPart &main, int64_t expert, int64_t number) {
    for (const TensorInfo &tensor : stored.tensors) {
      CopyTarget target;
      target.name = tensor.name;
      target.dtype = getDType(tensor.type);
      target.shape = tensor.shape;
      target.isStacked = true;
      Tensor &read = tensors.emplace_back();
      read.dtype = target.dtype;
      read.columns = target.getWhole().columns;
      read.bytes.resize(target.getMatrixBytes());
      for (CheckpointPart part : tensor.checkpointForms.front()) {
        std::string name = prefix + part.getName(expert);
        if (part.isOptional && !checkpoint.contains(name))
          continue;
        // The file has all tensors of a matrix in one order.
        if (part.maybeTransposed)
          part.transposed = main.transposed;
        if (Status status =
                copy(checkpoint, name, part, target, number, read.bytes.data());
            !status)
          return status;
      }
    }
    return Status::ok();
  }

  /// Reads the values of the codes, if the checkpoint has them.
  Status readTable(moert::Checkpoint &checkpoint, const std::string &prefix,
                   int64_t expert) {
    if (stored.table.empty())
      return Status::ok();
    CheckpointPart part;
    part.name = stored.table;
    std::string name = prefix + part.getName(expert);
    Result<const SafetensorsEntry *> entry = checkpoint.find(name);
    if (!entry)
      return entry.status();
    if ((*entry)->dtype != moert::DType::F32 ||
        (*entry)->bytes != sizeof(table))
      return moert::invalidArgument(
          checkpoint.fileOf(name) + ": tensor '" + moert::printable(name) +
          "': is " + moert::dtypeName((*entry)->dtype) + " of shape " +
          printShape((*entry)->shape) +
          ", expected the 16 f32 values of the codes");
    std::memcpy(table.data(), (*entry)->data, sizeof(table));
    for (float value : table)
      if (!std::isfinite(value))
        return moert::invalidArgument(checkpoint.fileOf(name) + ": tensor '" +
                                      moert::printable(name) +
                                      "': has a value that is not finite");
    return Status::ok();
  }

  std::vector<uint8_t> dequantize(moert::DType dtype) const {
    const TensorInfo &elements = stored.tensors.front();
    int64_t rows = elements.shape[1];
    int64_t columns =
        elements.shape[2] * 8 / getElementBits(stored.quantization.storage);
    size_t size = size_t(moert::dtypeBits(dtype)) / 8;
    std::vector<uint8_t> result(size_t(rows * columns) * size);
    const Tensor *scales = find("_scale"), *zeros = find("_zero_point"),
                 *minima = find("_minimum"), *global = find("_global_scale");
    float factor = global ? global->get(0, 0) : 1.0F;
    ScaleGroup group = stored.quantization.getScaleGroup();
    for (int64_t row = 0; row < rows; ++row) {
      int64_t scaleRow = group.rowOf(row, rows, /*hasHalves=*/false);
      for (int64_t column = 0; column < columns; ++column) {
        int64_t at = group.columnOf(column);
        std::optional<int> zero;
        if (zeros)
          zero = zeros->bytes[size_t(scaleRow * zeros->columns + at)];
        float value = getElement(row * columns + column, zero) *
                      (scales->get(scaleRow, at) * factor);
        if (minima)
          value -= minima->get(scaleRow, at);
        convertElement(
            reinterpret_cast<const uint8_t *>(&value), moert::DType::F32,
            result.data() + size_t(row * columns + column) * size, dtype);
      }
    }
    return result;
  }

private:
  struct Tensor {
    moert::DType dtype = moert::DType::F32;
    int64_t columns = 0;
    std::vector<uint8_t> bytes;

    float get(int64_t row, int64_t column) const {
      size_t size = size_t(moert::dtypeBits(dtype)) / 8;
      return toFloat(bytes.data() + size_t(row * columns + column) * size,
                     dtype);
    }
  };

  const Tensor *find(llvm::StringRef suffix) const {
    for (auto [info, tensor] : llvm::zip(stored.tensors, tensors))
      if (info.name == suffix)
        return &tensor;
    return nullptr;
  }

  /// Element `i` without its scale; docs/use/layers.md has the formats.
  float getElement(int64_t i, std::optional<int> zero) const {
    const std::vector<uint8_t> &bytes = tensors.front().bytes;
    StorageType storage = stored.quantization.storage;
    bool areHalves = getElementBits(storage) == 4;
    uint8_t byte = bytes[size_t(areHalves ? i / 2 : i)];
    int code = i % 2 ? byte >> 4 : byte & 15;
    constexpr float sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    switch (storage) {
    case StorageType::NF4:
      return stored.table.empty() ? moe::kNF4[size_t(code)]
                                  : table[size_t(code)];
    case StorageType::Fp4E2M1:
      return code & 8 ? -sizes[code & 7] : sizes[code];
    case StorageType::Int4:
      return float(code -
                   zero.value_or(stored.quantization.hasMinimum ? 0 : 8));
    case StorageType::Int8:
      return zero ? float(int(byte) - *zero) : float(int8_t(byte));
    case StorageType::Fp8E4M3:
    case StorageType::Fp8E5M2:
      return toFloat(&byte, tensors.front().dtype);
    }
    llvm_unreachable("every storage is listed");
  }

  static Status copy(moert::Checkpoint &checkpoint, const std::string &name,
                     const CheckpointPart &part, const CopyTarget &target,
                     int64_t number, uint8_t *matrix) {
    Result<const SafetensorsEntry *> entry =
        isBeside(part.use) ? checkpoint.find(name) : checkpoint.locate(name);
    if (!entry)
      return entry.status();
    ComputedTensor computed;
    Result<bool> isComputed =
        computeValues(checkpoint, part.use, name, computed);
    if (!isComputed)
      return isComputed.status();
    if (*isComputed)
      entry = &computed.entry;
    return PartCopier(checkpoint.fileOf(name), **entry, target)
        .copyPart(part, number, matrix);
  }

  const StoredMatrix &stored;
  std::vector<Tensor> tensors;
  std::array<float, 16> table = {};
};

} // namespace

Result<std::vector<uint8_t>>
moec::readStoredMatrix(moert::Checkpoint &checkpoint,
                       const LocatedPart &located, int64_t expert,
                       int64_t number, moert::DType dtype) {
  llvm::StringRef prefix = located.name;
  prefix.consume_back(located.part->getName(expert));
  if (!getDecodedForm(located.part->matrix->packing).empty())
    return decodeMatrix(checkpoint, prefix.str(), *located.part->matrix, expert,
                        dtype);
  Matrix matrix(*located.part->matrix);
  if (Status status =
          matrix.read(checkpoint, prefix.str(), *located.part, expert, number);
      !status)
    return status;
  if (Status status = matrix.readTable(checkpoint, prefix.str(), expert);
      !status)
    return status;
  return matrix.dequantize(dtype);
}
