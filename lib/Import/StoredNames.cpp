//===- StoredNames.cpp - what a checkpoint has of a layer -----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StoredNames.h"

#include "Packings.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

using namespace llvm;

namespace moec {

StoredNames::StoredNames(const std::vector<std::string> *names,
                         const LayerModules &modules)
    : modules(modules) {
  if (!names)
    return;
  for (StringRef name : *names)
    for (StringRef prefix : modules.getPrefixes())
      if (name.starts_with(prefix)) {
        tensors.insert(name);
        break;
      }
}

bool StoredNames::has(const LayerModule &module, StringRef suffix) const {
  return llvm::any_of(module.names, [&](StringRef name) {
    // A checkpoint may lack the model's own module.
    StringRef inModel = name;
    inModel.consume_front("model.");
    return tensors.contains(joinName(name, suffix)) ||
           tensors.contains(joinName(inModel, suffix));
  });
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
  return has(module, ".weight") || has(module, "");
}

Packing StoredNames::choosePacking(const LayerModule &module,
                                   const QuantizationSpec &quantization) const {
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
