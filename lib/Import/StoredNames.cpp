//===- StoredNames.cpp - what a checkpoint has of a layer -----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StoredNames.h"

#include "Packings.h"
#include "QuantizationMethods.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

using namespace llvm;

namespace moec {

StoredNames::StoredNames(const StoredTensors *stored,
                         const LayerModules &modules)
    : stored(stored), modules(modules) {
  if (!stored)
    return;
  for (StringRef name : stored->names)
    for (StringRef prefix : modules.getPrefixes())
      if (name.starts_with(prefix)) {
        tensors.insert(name);
        break;
      }
}

SmallVector<std::string, 1> StoredNames::find(const LayerModule &module,
                                              StringRef suffix) const {
  SmallVector<std::string, 1> found;
  for (StringRef name : module.names) {
    // A checkpoint may lack the model's own module.
    StringRef inModel = name;
    inModel.consume_front("model.");
    for (StringRef own : {name, inModel})
      if (tensors.contains(joinName(own, suffix)))
        found.push_back(joinName(own, suffix));
  }
  return found;
}

bool StoredNames::has(const LayerModule &module, StringRef suffix) const {
  return !find(module, suffix).empty();
}

bool StoredNames::hasScales(const LayerModule &module,
                            const QuantizationSpec &quantization) const {
  return llvm::any_of(
      getModuleTensors(quantization, Projection::Scale),
      [&](const CheckpointPart &part) { return has(module, part.name); });
}

ScaleType StoredNames::chooseScale(const LayerModule &module,
                                   const QuantizationSpec &quantization) const {
  constexpr StringLiteral suffix = ".scales";
  const OperandQuantization &weight = quantization.weight;
  bool isMlx = quantization.packing == Packing::Mlx ||
               quantization.packing == Packing::Metal;
  // Minima of bytes are sums.
  bool areSums =
      weight.storage == StorageType::Int8 && !quantization.storedBits;
  if (!isMlx || !weight.hasMinimum || areSums || !stored || !stored->findDType)
    return weight.scale;
  for (StringRef name : find(module, suffix))
    if (std::optional<DType> dtype = stored->findDType(name))
      return getScaleType(*dtype);
  return weight.scale;
}

bool StoredNames::isPlain(const LayerModule &module,
                          const QuantizationSpec &quantization) const {
  if (tensors.empty())
    return false;
  for (const CheckpointPart &part :
       getModuleTensors(quantization, Projection::Scale))
    if (has(module, part.name))
      return false;
  for (const std::string &suffix :
       getFusedSuffixes(quantization, Projection::Scale))
    if (has(module, suffix))
      return false;
  // Codes without scales lack tensors; the loader names those.
  auto isFloat = [&](const std::string &name) {
    return !stored->findDType || stored->findDType(name);
  };
  return llvm::any_of(find(module, ".weight"), isFloat) ||
         llvm::any_of(find(module, ""), isFloat);
}

Packing StoredNames::choosePacking(const LayerModule &module,
                                   const QuantizationSpec &quantization) const {
  // Factors of the input, or of a product of low rank, belong to a matrix.
  if (quantization.packing == Packing::ModelOpt &&
      quantization.weight.storage == StorageType::Fp4E2M1 &&
      quantization.weight.hasGlobalScale &&
      (has(module, ".pre_quant_scale") || has(module, ".svdquant_lora_a")))
    return Packing::ModelOptSvd;
  if (quantization.packing != Packing::Unstated)
    return quantization.packing;
  QuantizationSpec stored = quantization;
  for (Packing packing : {Packing::Unstated, Packing::InverseNames,
                          Packing::Modules, Packing::ShortNames}) {
    stored.packing = packing;
    for (const CheckpointPart &part :
         getModuleTensors(stored, Projection::Scale))
      if (has(module, part.name))
        return packing;
  }
  return Packing::Unstated;
}

bool StoredNames::hasOwnName(const QuantizationSpec &quantization) {
  return llvm::none_of(
      getModuleTensors(quantization, Projection::Weight),
      [](const CheckpointPart &part) { return part.name == ".weight"; });
}

bool StoredNames::cutsAcrossHalves(StringRef weight,
                                   const QuantizationSpec &quantization,
                                   const LayerSpec &spec) const {
  const OperandQuantization &stored = quantization.weight;
  if (tensors.empty() || stored.granularity != Granularity::Block ||
      !spec.isGated() || weight != "experts.w13" ||
      spec.intermediateSize % stored.blockRows == 0)
    return false;
  LayerModule gate = modules.get(weight, 0).front();
  // The suffix of a module is that of gate alone, too.
  SmallVector<CheckpointPart, 4> own =
      getModuleTensors(quantization, Projection::Scale);
  return llvm::any_of(
      getFusedSuffixes(quantization, Projection::Scale), [&](StringRef suffix) {
        return (own.empty() || suffix != own.front().name) && has(gate, suffix);
      });
}

} // namespace moec
