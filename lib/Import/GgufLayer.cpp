//===- GgufLayer.cpp - what a GGUF file's tensors say ---------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GgufLayer.h"

#include "GgufNames.h"
#include "moec/Import/GgufMetadata.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

class GgufLayer {
public:
  GgufLayer(const GgufModel &model, int64_t layer, LayerSpec &spec)
      : model(model), layer(layer), spec(spec) {}

  void readRouter() {
    RoutingSpec &routing = spec.routing;
    if (spec.entry == Entry::Ids)
      return;
    // Engines select by the bias if the file has one.
    if (routing.select != Select::Hash)
      routing.selectionBias = model.find(layer, "exp_probs_b.bias") != nullptr;
    StringRef gate = "ffn_gate_inp.weight";
    // Converters store every router as f32, most of them with values of bf16.
    if (spec.entry == Entry::Gate && spec.dtype != DType::F32 &&
        !routing.gateBias && model.find(layer, gate))
      routing.splitGate = !model.isExact(getName(gate), spec.dtype);
  }

  /// llama.cpp's converter leaves out the bias of the experts' sum.
  void readOutputBias() {
    if (!spec.outputBias)
      return;
    spec.outputBias = false;
    spec.remarks.push_back(
        "the file has no bias of the experts' sum, which this model adds to "
        "the output; add it yourself, or load the model's own files");
  }

  void readWeights() {
    std::vector<TensorInfo> signature = getTensorSignature(spec);
    for (StringRef weight : spec.getExpertWeights()) {
      auto info = llvm::find_if(
          signature, [&](const TensorInfo &one) { return one.name == weight; });
      if (info != signature.end())
        readWeight(*info);
    }
  }

private:
  std::string getName(StringRef name) const {
    return "blk." + std::to_string(layer) + "." + name.str();
  }

  /// The file's tensors of a weight; empty if some are missing, which the
  /// loader reports.
  std::vector<StringRef> findTensors(const TensorInfo &weight) const {
    for (const CheckpointForm &form : weight.ggufForms) {
      std::vector<StringRef> names;
      for (const CheckpointPart &part : form)
        if (model.find(layer, part.name))
          names.push_back(part.name);
      if (names.size() == form.size())
        return names;
    }
    return {};
  }

  /// Sets the quantization of a weight whose tensors have blocks of one kind
  /// that layers multiply.
  void readWeight(const TensorInfo &weight) {
    std::vector<StringRef> names = findTensors(weight);
    if (names.empty())
      return;
    StringRef kind = model.find(layer, names.front())->block;
    bool isOne = llvm::all_of(names, [&](StringRef name) {
      return model.find(layer, name)->block == kind;
    });
    if (isOne && kind.empty())
      return;
    std::optional<OperandQuantization> quantization =
        isOne ? getBlockQuantization(kind) : std::nullopt;
    if (quantization && quantization->hasGlobalScale &&
        !llvm::all_of(names, [&](StringRef name) {
          return name.consume_back(".weight") && name.ends_with("_exps") &&
                 model.find(layer, (name + ".scale").str());
        }))
      quantization.reset();
    // Experts that the loader joins have values, not codes.
    if (!quantization || spec.adjugate)
      return addRemark(weight, names, isOne);
    ExpertQuantization &experts = StringRef(weight.name).starts_with("experts.")
                                      ? spec.quantization
                                      : spec.sharedExperts->quantization;
    (StringRef(weight.name).ends_with(".w2") ? experts.w2 : experts.w13) =
        QuantizationSpec{*quantization, std::nullopt};
  }

  /// Says why the loader dequantizes a weight.
  void addRemark(const TensorInfo &weight, ArrayRef<StringRef> names,
                 bool isOne) {
    auto describe = [&](StringRef name) {
      StringRef block = model.find(layer, name)->block;
      return "'" + getName(name) + "' has " +
             (block.empty() ? "elements" : "blocks of " + block.str());
    };
    std::string why = describe(names.front());
    if (!isOne)
      why += " and " + describe(names.back());
    spec.remarks.push_back(why + "; '" + weight.name + "' is dequantized to " +
                           stringify(spec.dtype).str() + " when it is loaded");
  }

  const GgufModel &model;
  int64_t layer;
  LayerSpec &spec;
};

} // namespace

void readGgufLayer(const GgufModel &model, const Family &family, int64_t layer,
                   ImportContext &context, LayerSpec &spec) {
  GgufLayer reader(model, layer, spec);
  reader.readRouter();
  reader.readOutputBias();
  // Converters before October 2025 left out the groups of the family's models.
  if (auto name = model.metadata.find("general.architecture");
      family.numGroups && (family.groupsIf || !family.numGroups.fallback) &&
      !model.metadata.count(name->second + ".expert_group_count"))
    spec.remarks.push_back(
        quote(name->second + ".expert_group_count") +
        " is missing; experts are chosen from all, not from groups");
  if (auto message = findContradiction(spec, model.metadata, layer))
    context.diags.error(context.text.getName(),
                        *message +
                            " (the description is that of model_type \"" +
                            spec.modelType + "\")");
  else
    reader.readWeights();
}

} // namespace moec
