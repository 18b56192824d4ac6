//===- DecodeMatrix.cpp - matrices in forms of other tools ----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DecodeMatrix.h"

#include "../../../runtime/src/support/Text.h"
#include "CheckParts.h"
#include "ConvertElements.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

#include <cmath>
#include <cstring>

using namespace moec;
using moert::Result;
using moert::SafetensorsEntry;
using moert::Status;

float ModuleTensor::get(int64_t i) const {
  auto size = size_t(moert::dtypeBits(dtype)) / 8;
  const uint8_t *element = data + size_t(i) * size;
  if (dtype == moert::DType::I8)
    return float(int8_t(*element));
  float value = 0;
  convertElement(element, dtype, reinterpret_cast<uint8_t *>(&value),
                 moert::DType::F32);
  return value;
}

uint32_t ModuleTensor::getBits(int64_t i) const {
  uint32_t bits = 0;
  auto size = size_t(moert::dtypeBits(dtype)) / 8;
  std::memcpy(&bits, data + size_t(i) * size, std::min(size, sizeof(bits)));
  return bits;
}

Status ModuleTensor::fail(const llvm::Twine &found) const {
  return moert::invalidArgument((what + found).str());
}

bool ModuleMatrix::has(llvm::StringRef suffix) const {
  return checkpoint.contains(module + suffix.str());
}

Status ModuleMatrix::checkMultiple(int64_t ofRows, int64_t ofColumns) const {
  if (rows % ofRows == 0 && columns % ofColumns == 0)
    return Status::ok();
  return moert::invalidArgument(
      checkpoint.path() + ": module '" + moert::printable(module) +
      "': " + std::to_string(rows) + " x " + std::to_string(columns) +
      " elements are not stored in this form, which has multiples of " +
      std::to_string(ofRows) + " x " + std::to_string(ofColumns));
}

Result<ModuleTensor> ModuleMatrix::find(llvm::StringRef suffix,
                                        llvm::ArrayRef<moert::DType> types,
                                        llvm::ArrayRef<int64_t> shape) const {
  std::string name = module + suffix.str();
  Result<const SafetensorsEntry *> entry = checkpoint.find(name);
  if (!entry)
    return entry.status();
  ModuleTensor tensor{
      checkpoint.fileOf(name) + ": tensor '" + moert::printable(name) + "': ",
      (*entry)->dtype, (*entry)->shape, (*entry)->data, (*entry)->bytes};
  if (!llvm::is_contained(types, tensor.dtype)) {
    std::string expected;
    for (moert::DType type : types)
      expected +=
          (expected.empty() ? "" : " or ") + std::string(dtypeName(type));
    return tensor.fail(llvm::Twine("dtype is ") + dtypeName(tensor.dtype) +
                       ", expected " + expected);
  }
  if (!shape.empty() && !isSameShape(tensor.shape, shape))
    return tensor.fail("shape is " + printShape(tensor.shape) + ", expected " +
                       printShape(shape));
  return tensor;
}

Result<ModuleTensor>
ModuleMatrix::findNumbers(llvm::StringRef suffix,
                          llvm::ArrayRef<int64_t> shape) const {
  return find(suffix,
              {moert::DType::F16, moert::DType::BF16, moert::DType::F32},
              shape);
}

Result<std::vector<uint8_t>> moec::decodeMatrix(moert::Checkpoint &checkpoint,
                                                const std::string &prefix,
                                                const StoredMatrix &stored,
                                                int64_t expert,
                                                moert::DType dtype) {
  CheckpointPart part;
  part.name = stored.module;
  std::string module = prefix + part.getName(expert);
  ModuleMatrix matrix(checkpoint, module, stored);
  std::vector<float> values(size_t(matrix.rows * matrix.columns));
  Decoder decode = findAwqDecoder(stored.packing);
  if (!decode)
    decode = findCodeDecoder(stored.packing);
  if (Status status = decode(matrix, values); !status)
    return status;
  auto size = size_t(moert::dtypeBits(dtype)) / 8;
  std::vector<uint8_t> result(values.size() * size);
  for (auto [i, value] : llvm::enumerate(values)) {
    if (!std::isfinite(value))
      return moert::invalidArgument(
          checkpoint.path() + ": module '" + moert::printable(module) +
          "' has a weight that is not finite (element " + std::to_string(i) +
          "); weights are finite");
    convertElement(reinterpret_cast<const uint8_t *>(&value), moert::DType::F32,
                   result.data() + i * size, dtype);
  }
  return result;
}
