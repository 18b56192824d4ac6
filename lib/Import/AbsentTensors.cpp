//===- AbsentTensors.cpp - checkpoint tensors a layer leaves out ----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Import/AbsentTensors.h"

#include "llvm/ADT/StringSet.h"

using namespace llvm;

namespace moec {

namespace {

/// A field that adds tensors to a layer that lacks it.
struct Feature {
  StringLiteral field;
  void (*add)(LayerSpec &spec);
};

constexpr Feature kFeatures[] = {
    {"routing.gate_bias",
     [](LayerSpec &spec) {
       spec.routing.gateBias = spec.entry == Entry::Gate;
     }},
    {"routing.selection_bias",
     [](LayerSpec &spec) { spec.routing.selectionBias = true; }},
    {"routing.expert_scale",
     [](LayerSpec &spec) { spec.routing.expertScale = true; }},
    {"routing.hash_vocab_size",
     [](LayerSpec &spec) {
       spec.routing.select = Select::Hash;
       spec.routing.hashVocabSize = 1;
     }},
    {"expert_bias", [](LayerSpec &spec) { spec.expertBias = true; }},
    {"activation.kind",
     [](LayerSpec &spec) {
       if (!spec.isGated())
         spec.activation = getDefaultActivation(Activation::Silu);
     }},
    {"shared_experts",
     [](LayerSpec &spec) {
       if (spec.sharedExperts)
         return;
       spec.sharedExperts.emplace();
       spec.sharedExperts->intermediateSize = spec.intermediateSize;
       spec.sharedExperts->gate = SharedGate::Sigmoid;
     }},
    {"shared_experts.gate",
     [](LayerSpec &spec) {
       if (spec.sharedExperts)
         spec.sharedExperts->gate = SharedGate::Sigmoid;
     }},
    {"quantization",
     [](LayerSpec &spec) {
       if (spec.quantization.w13 || spec.quantization.w2)
         return;
       QuantizationSpec blocks;
       blocks.weight.granularity = Granularity::Block;
       constexpr int64_t side = 128;
       blocks.weight.blockRows = blocks.weight.blockColumns = side;
       spec.quantization = blocks;
       if (spec.sharedExperts)
         spec.sharedExperts->quantization = blocks;
     }},
    {"latent_size",
     [](LayerSpec &spec) {
       if (!spec.latentSize)
         spec.latentSize = spec.hiddenSize;
     }},
    {"lora", [](LayerSpec &spec) { spec.lora = LoraSpec{1, 1}; }},
    {"norms.latent_in", [](LayerSpec &spec) { spec.norms.latentIn.emplace(); }},
    {"norms.expert", [](LayerSpec &spec) { spec.norms.expert.emplace(); }},
    {"norms.latent_out",
     [](LayerSpec &spec) { spec.norms.latentOut.emplace(); }},
};

/// Calls `take` for each checkpoint tensor of the layer.
template <typename Take>
void forEachPart(const LayerSpec &spec, bool inGguf, Take take) {
  for (const TensorInfo &tensor : getTensorSignature(spec))
    for (const CheckpointForm &form :
         inGguf ? tensor.ggufForms : tensor.checkpointForms)
      for (const CheckpointPart &part : form)
        take(part);
}

} // namespace

std::vector<AbsentTensor> getAbsentTensors(const LayerSpec &spec, bool inGguf) {
  StringSet<> known;
  forEachPart(spec, inGguf,
              [&](const CheckpointPart &part) { known.insert(part.name); });
  std::vector<AbsentTensor> absent;
  for (const Feature &feature : kFeatures) {
    LayerSpec with = spec;
    feature.add(with);
    forEachPart(with, inGguf, [&](const CheckpointPart &part) {
      if (known.insert(part.name).second)
        absent.push_back({part, feature.field});
    });
  }
  return absent;
}

} // namespace moec
