//===- Generate.cpp - pseudo-random tensors from a seed ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "HostTensor.h"

#include "../../../runtime/src/support/Threads.h"
#include "moec/Generator/Generator.h"
#include "moec/Import/TensorSignature.h"
#include "moert/Balance.h"
#include "llvm/ADT/APFloat.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

using namespace moec;
using ElementType = moert::DType;
using moert::Result;
using moert::Status;

namespace {

/// Approximately normal, with mean 0 and variance 1.
float getUnit(const RandomStream &stream, int64_t i) {
  return getFactor(1) * static_cast<float>(stream.getSum(uint64_t(i)));
}

uint16_t toBF16(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, 4);
  return uint16_t((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

uint16_t toF16(float value) {
  llvm::APFloat x(value);
  bool lost;
  x.convert(llvm::APFloat::IEEEhalf(), llvm::APFloat::rmNearestTiesToEven,
            &lost);
  return uint16_t(x.bitcastToAPInt().getZExtValue());
}

/// Whether the tensor holds counts or ids.
bool isInteger(const HostTensor &tensor) {
  return tensor.name == "num_valid_tokens" || tensor.name == "input_ids" ||
         tensor.name == "adapter_ids" || tensor.name == "topk_ids" ||
         tensor.name == "gate.hash_table" || isColumnOrder(tensor.name) ||
         llvm::StringRef(tensor.name).starts_with("replicas.");
}

void store(const HostTensor &tensor, int64_t i, float value) {
  switch (tensor.dtype) {
  case ElementType::BF16:
    reinterpret_cast<uint16_t *>(tensor.data())[i] = toBF16(value);
    return;
  case ElementType::F16:
    reinterpret_cast<uint16_t *>(tensor.data())[i] = toF16(value);
    return;
  case ElementType::F64:
    reinterpret_cast<double *>(tensor.data())[i] = value;
    return;
  case ElementType::F32:
    reinterpret_cast<float *>(tensor.data())[i] = value;
    return;
  default:
    llvm_unreachable("checked by hasValues");
  }
}

/// Whether values can be generated for the tensor's dtype.
bool hasValues(const HostTensor &tensor) {
  switch (tensor.dtype) {
  case ElementType::BF16:
  case ElementType::F16:
  case ElementType::F32:
  case ElementType::F64:
  case ElementType::F8E4M3:
    return !isInteger(tensor);
  case ElementType::I32:
  case ElementType::I16:
    return isInteger(tensor);
  case ElementType::I8:
    return tensor.name == "topk_ids";
  default:
    return false;
  }
}

void fillRandom(const HostTensor &tensor, const RandomTensor &random) {
  int64_t count = tensor.getNumElements();
  int64_t bytes = moert::dtypeBits(tensor.dtype) / 8;
  auto fill = [&](int64_t begin, int64_t end) {
    if (tensor.dtype != ElementType::F64)
      return random.write(begin, end - begin, tensor.data() + begin * bytes);
    for (int64_t i = begin; i < end; ++i)
      store(tensor, i,
            random.factor *
                static_cast<float>(random.stream.getSum(uint64_t(i))));
  };
  int64_t numParts =
      count < (1 << 16) ? 1 : static_cast<int64_t>(moert::countProcessors());
  std::atomic<int64_t> next{0};
  moert::shareWork(static_cast<size_t>(numParts), [&] {
    for (int64_t part = next++; part < numParts; part = next++)
      fill(count * part / numParts, count * (part + 1) / numParts);
  });
}

/// Size of the last dimension, at least 1, so that it can be a divisor.
int64_t getRowSize(const HostTensor &tensor) {
  return tensor.shape.empty() ? 1 : std::max<int64_t>(1, tensor.shape.back());
}

/// Fills in distinct ids per token, if there are enough experts: a draw moves
/// on from an id that is taken.
void fillIds(const HostTensor &tensor, const GenerateOptions &options) {
  RandomStream stream(options.seed, tensor.name);
  int64_t topK = getRowSize(tensor);
  std::vector<int32_t> ids(tensor.getNumElements());
  for (int64_t row = 0; row < tensor.getNumElements() / topK; ++row) {
    int32_t *first = ids.data() + row * topK;
    for (int64_t j = 0; j < topK; ++j) {
      auto id = int32_t(stream.getBits(uint64_t(row * topK + j)) %
                        uint64_t(options.numExperts));
      for (int64_t tries = 0; tries < options.numExperts &&
                              std::find(first, first + j, id) != first + j;
           ++tries)
        id = (id + 1) % int32_t(options.numExperts);
      first[j] = id;
    }
  }
  switch (tensor.dtype) {
  case ElementType::I16:
    llvm::copy(ids, reinterpret_cast<int16_t *>(tensor.data()));
    return;
  case ElementType::I8:
    llvm::copy(ids, reinterpret_cast<uint8_t *>(tensor.data()));
    return;
  default:
    llvm::copy(ids, reinterpret_cast<int32_t *>(tensor.data()));
  }
}

void fillWeights(const HostTensor &tensor, uint64_t seed) {
  RandomStream stream(seed, tensor.name);
  int64_t topK = getRowSize(tensor);
  auto getValue = [&](int64_t j) { return 1.1f + 0.3f * getUnit(stream, j); };
  for (int64_t row = 0; row < tensor.getNumElements() / topK; ++row) {
    float sum = 0;
    for (int64_t j = row * topK; j < (row + 1) * topK; ++j)
      sum += getValue(j);
    for (int64_t j = row * topK; j < (row + 1) * topK; ++j)
      store(tensor, j, getValue(j) / sum);
  }
}

} // namespace

Result<std::vector<NamedTable>>
moec::makeReplicaTables(const std::vector<HostTensor> &tensors,
                        std::vector<int64_t> logicalIds) {
  const HostTensor *ids = nullptr, *counts = nullptr;
  int64_t numPhysical = 0;
  for (const HostTensor &tensor : tensors) {
    if (tensor.name == "replicas.physical_ids")
      ids = &tensor;
    if (tensor.name == "replicas.counts")
      counts = &tensor;
    if (tensor.name == "experts.w13" && !tensor.shape.empty())
      numPhysical = tensor.shape[0];
  }
  if (!ids || !counts || ids->shape.size() != 2)
    return std::vector<NamedTable>();
  if (ids->isGiven != counts->isGiven)
    return moert::invalidArgument(
        "'replicas.physical_ids' and 'replicas.counts' go together; give both "
        "or leave both out");
  if (ids->isGiven)
    return std::vector<NamedTable>();
  int64_t numExperts = ids->shape[0];
  if (logicalIds.empty())
    for (int64_t index = 0; index < numPhysical; ++index)
      logicalIds.push_back(index % numExperts);
  auto tables = moert::makeReplicaTables(logicalIds, numExperts, ids->shape[1]);
  if (!tables)
    return tables.status();
  return std::vector<NamedTable>{{ids->name, std::move(tables->physicalIds)},
                                 {counts->name, std::move(tables->counts)}};
}

Status moec::generateTensors(std::vector<HostTensor> &tensors,
                             const GenerateOptions &options) {
  int64_t vocabulary = 1, adapters = 1;
  int64_t tokens = 0;
  auto tables = makeReplicaTables(tensors, options.logicalIds);
  if (!tables)
    return tables.status();
  for (NamedTable &table : *tables)
    for (HostTensor &tensor : tensors)
      if (tensor.name == table.name) {
        llvm::copy(table.values, reinterpret_cast<int32_t *>(tensor.data()));
        tensor.isGiven = true;
      }
  for (const HostTensor &tensor : tensors) {
    if (tensor.name == "gate.hash_table" && !tensor.shape.empty())
      vocabulary = std::max<int64_t>(1, tensor.shape[0]);
    if (tensor.name == "lora.up_a" && !tensor.shape.empty())
      adapters = tensor.shape[0];
    if (tensor.name == "hidden_states" && !tensor.shape.empty())
      tokens = tensor.shape[0];
  }
  auto find = [&](llvm::StringRef name) -> std::optional<TensorForm> {
    for (const HostTensor &tensor : tensors)
      if (tensor.name == name)
        return TensorForm{tensor.dtype, tensor.shape};
    return std::nullopt;
  };
  for (const HostTensor &tensor : tensors) {
    if (tensor.role == moert::TensorRole::Output || tensor.isGiven)
      continue;
    RandomStream stream(options.seed, tensor.name);
    std::optional<RandomTensor> quantized =
        makeQuantized(stream, tensor.name, find);
    if (tensor.name == "is_padding") {
      // No token is padding.
      std::memset(tensor.data(), 0, tensor.getNumBytes());
      continue;
    }
    if (!quantized && !hasValues(tensor))
      return moert::invalidArgument(
          "cannot generate tensor '" + tensor.name + "' of dtype " +
          moert::dtypeName(tensor.dtype) + "; give the tensors with --inputs");
    auto *integers = reinterpret_cast<int32_t *>(tensor.data());
    int64_t count = tensor.getNumElements();
    if (tensor.name == "num_valid_tokens") {
      std::fill_n(integers, count, int32_t(tokens));
    } else if (tensor.name == "topk_ids" || tensor.name == "gate.hash_table") {
      fillIds(tensor, options);
    } else if (isColumnOrder(tensor.name)) {
      int64_t width = getRowSize(tensor);
      llvm::copy(makeOrders(stream, count / width, width), integers);
    } else if (tensor.name == "topk_weights") {
      fillWeights(tensor, options.seed);
    } else if (tensor.name == "input_ids") {
      for (int64_t i = 0; i < count; ++i)
        integers[i] =
            int32_t(stream.getBits(uint64_t(i)) % uint64_t(vocabulary));
    } else if (tensor.name == "adapter_ids") {
      // Some tokens have none.
      for (int64_t i = 0; i < count; ++i)
        integers[i] =
            int32_t(stream.getBits(uint64_t(i)) % uint64_t(adapters + 1)) - 1;
    } else if (tensor.name == "gate.expert_scale") {
      for (int64_t i = 0; i < count; ++i)
        store(tensor, i, 1.0f + 0.1f * getUnit(stream, i));
    } else if (quantized) {
      fillRandom(tensor, *quantized);
    } else {
      bool isBias = llvm::StringRef(tensor.name).ends_with("bias");
      bool isWeight = tensor.role == moert::TensorRole::Weight && !isBias;
      double deviation = isBias     ? 0.1
                         : isWeight ? 1 / std::sqrt(double(getRowSize(tensor)))
                                    : 1;
      fillRandom(tensor, {stream, tensor.dtype, getFactor(deviation)});
    }
  }
  return Status::ok();
}
