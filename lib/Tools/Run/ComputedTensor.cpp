//===- ComputedTensor.cpp - values made of several tensors ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ComputedTensor.h"

#include "../../../runtime/src/support/Text.h"
#include "ConvertElements.h"
#include "NestedScales.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"

using namespace moec;
using moert::Result;
using moert::SafetensorsEntry;

/// Minima of codes that are moved: `code` is that of the layer which stands for
/// the stored value. Torchao's int4 is two's complement in files, MLX's bytes
/// are not.
static Result<std::vector<float>> readMinima(moert::Checkpoint &checkpoint,
                                             const std::string &name,
                                             bool ofMiddle) {
  float code = ofMiddle ? 8 : -128;
  auto [module, own] = llvm::StringRef(name).rsplit(ofMiddle ? '_' : '.');
  std::string scales =
      ofMiddle
          ? module.drop_back(llvm::StringRef("_zero").size()).str() + "_scale"
          : module.str() + ".scales";
  auto read = [&](const std::string &name) -> Result<std::vector<float>> {
    Result<const SafetensorsEntry *> entry = checkpoint.find(name);
    if (!entry)
      return entry.status();
    moert::DType dtype = (*entry)->dtype;
    if (dtype != moert::DType::F32 && dtype != moert::DType::BF16 &&
        dtype != moert::DType::F16)
      return moert::invalidArgument(checkpoint.fileOf(name) + ": tensor '" +
                                    moert::printable(name) + "': dtype is " +
                                    moert::dtypeName(dtype) +
                                    ", expected f32, bf16 or f16");
    size_t size = size_t(moert::dtypeBits(dtype)) / 8;
    std::vector<float> values((*entry)->bytes / size);
    for (size_t i = 0; i < values.size(); ++i)
      convertElement((*entry)->data + i * size, dtype,
                     reinterpret_cast<uint8_t *>(&values[i]),
                     moert::DType::F32);
    return values;
  };
  Result<std::vector<float>> minima = read(name);
  if (!minima)
    return minima;
  Result<std::vector<float>> factors = read(scales);
  if (!factors)
    return factors;
  if (factors->size() != minima->size())
    return moert::invalidArgument(
        checkpoint.fileOf(name) + ": tensor '" + moert::printable(name) +
        "': has " + std::to_string(minima->size()) + " elements, but '" +
        moert::printable(scales) + "' " + std::to_string(factors->size()) +
        "; both have one per group");
  for (auto [minimum, factor] : llvm::zip(*minima, *factors))
    minimum = code * factor - minimum;
  return minima;
}

Result<bool> moec::computeValues(moert::Checkpoint &checkpoint, PartUse use,
                                 const std::string &name,
                                 ComputedTensor &computed) {
  bool areMinima = use == PartUse::MiddleValues || use == PartUse::LeastValues;
  if (use != PartUse::NestedScales && !areMinima)
    return false;
  Result<std::vector<float>> found =
      areMinima ? readMinima(checkpoint, name, use == PartUse::MiddleValues)
                : readNestedScales(checkpoint, name);
  if (!found)
    return found.status();
  computed.values = std::move(*found);
  std::vector<int64_t> shape = {int64_t(computed.values.size())};
  if (areMinima)
    shape = (*checkpoint.find(name))->shape;
  computed.entry = {name,
                    moert::DType::F32,
                    std::move(shape),
                    reinterpret_cast<const uint8_t *>(computed.values.data()),
                    computed.values.size() * sizeof(float),
                    /*blockType=*/""};
  return true;
}
