//===- SpecText.cpp - a layer as JSON ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Package/SpecText.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/SHA256.h"

using namespace moec;

namespace {

/// Writes the fields of an object that differ from a default.
class Fields {
public:
  explicit Fields(llvm::json::OStream &json) : json(json) {}

  template <typename T>
  void add(llvm::StringRef name, T value, T fallback) {
    if (value != fallback)
      json.attribute(name, value);
  }
  template <typename E>
  void addEnum(llvm::StringRef name, E value, E fallback) {
    if (value != fallback)
      json.attribute(name, stringify(value));
  }
  /// Ids of 32 bits are written as older versions read them.
  void addIdType(llvm::StringRef name, std::optional<IdType> type) {
    if (type == IdType::Int32)
      json.attribute(name, true);
    else if (type)
      json.attribute(name, stringify(*type));
  }
  template <typename T>
  void addIfSet(llvm::StringRef name, const std::optional<T> &value) {
    if (value)
      json.attribute(name, *value);
  }

private:
  llvm::json::OStream &json;
};

void printRouting(const RoutingSpec &routing, Fields fields) {
  const RoutingSpec none;
  fields.addEnum("score", routing.score, none.score);
  fields.addEnum("select", routing.select, none.select);
  fields.add("gate_bias", routing.gateBias, false);
  fields.add("split_gate", routing.splitGate, false);
  fields.addIfSet("gate_hidden_size", routing.gateHiddenSize);
  fields.add("selection_bias", routing.selectionBias, false);
  fields.add("expert_scale", routing.expertScale, false);
  fields.add("num_groups", routing.numGroups, none.numGroups);
  fields.add("topk_groups", routing.topkGroups, none.topkGroups);
  fields.addEnum("group_score", routing.groupScore,
                 routing.selectionBias ? GroupScore::Top2Sum : GroupScore::Max);
  fields.addEnum("weight", routing.weight, none.weight);
  fields.add("renormalize", routing.renormalize, false);
  fields.add("renormalize_epsilon", routing.renormalizeEpsilon, 0.0);
  fields.add("scale", routing.scale, 1.0);
  fields.add("logit_scale", routing.logitScale, 1.0);
  fields.addIfSet("logit_softcap", routing.logitSoftcap);
  fields.addEnum("logits_dtype", routing.logitsDtype, none.logitsDtype);
  fields.addEnum("nonfinite", routing.nonfinite, getDefaultNonFinite(routing));
  fields.add("weight_on_input", routing.weightOnInput, false);
  fields.addIfSet("hash_vocab_size", routing.hashVocabSize);
}

void printActivation(const ActivationSpec &activation,
                     llvm::json::OStream &json) {
  json.attribute("kind", stringify(activation.kind));
  Fields fields(json);
  fields.addIfSet("limit", activation.limit);
  fields.addIfSet("alpha", activation.alpha);
  fields.addIfSet("beta", activation.beta);
  fields.addIfSet("linear_beta", activation.linearBeta);
}

void printNorm(llvm::StringRef name, const std::optional<NormSpec> &norm,
               llvm::json::OStream &json) {
  if (!norm)
    return;
  json.attributeObject(name, [&] {
    json.attribute("epsilon", norm->epsilon);
    Fields fields(json);
    fields.add("offset", norm->offset, 0.0);
    fields.add("weight_first", norm->weightFirst, false);
  });
}

void printOperand(llvm::StringRef name, const OperandQuantization &operand,
                  llvm::json::OStream &json) {
  json.attributeObject(name, [&] {
    json.attribute("dtype", stringify(operand.storage));
    llvm::StringRef granularity = stringify(operand.granularity);
    if (operand.granularity == Granularity::Group)
      json.attributeObject(
          "scale", [&] { json.attribute(granularity, operand.blockColumns); });
    else if (operand.granularity == Granularity::Block)
      json.attributeObject("scale", [&] {
        json.attributeArray(granularity, [&] {
          json.value(operand.blockRows);
          json.value(operand.blockColumns);
        });
      });
    else
      json.attribute("scale", granularity);
    Fields fields(json);
    fields.addEnum("scale_dtype", operand.scale, ScaleType::F32);
    fields.add("static", operand.isStatic, false);
    fields.add("zero_point", operand.hasZeroPoint, false);
    fields.add("global_scale", operand.hasGlobalScale, false);
    fields.add("minimum", operand.hasMinimum, false);
  });
}

void printOperands(const QuantizationSpec &quantization,
                   llvm::json::OStream &json) {
  llvm::StringRef name = getShortName(quantization);
  if (!name.empty())
    return json.attribute("weight", name);
  printOperand("weight", quantization.weight, json);
  if (quantization.activation)
    printOperand("activation", *quantization.activation, json);
}

/// The object's own fields describe the first quantized gemm (w13, else w2). A
/// gemm that differs gets an object or null of its own.
void printQuantization(const ExpertQuantization &quantization,
                       llvm::json::OStream &json) {
  if (!quantization)
    return json.attribute("quantization", nullptr);
  const auto &both = quantization.w13 ? quantization.w13 : quantization.w2;
  auto printProduct = [&](llvm::StringRef name,
                          const std::optional<QuantizationSpec> &product) {
    if (!product)
      json.attribute(name, nullptr);
    else if (!(product == both))
      json.attributeObject(name, [&] { printOperands(*product, json); });
  };
  json.attributeObject("quantization", [&] {
    printOperands(*both, json);
    printProduct("w13", quantization.w13);
    printProduct("w2", quantization.w2);
  });
}

void printParallel(const ParallelSpec &parallel, llvm::json::OStream &json) {
  json.attribute("dp", parallel.dp);
  if (parallel.pcp > 1)
    json.attribute("pcp", parallel.pcp);
  json.attribute("tp", parallel.tp);
  if (parallel.sp)
    json.attribute("sp", true);
  if (!parallel.reduce)
    json.attribute("reduce", false);
  switch (parallel.placement) {
  case ExpertPlacement::Split:
    return;
  case ExpertPlacement::Linear:
    return json.attribute("experts", "linear");
  case ExpertPlacement::RoundRobin:
    return json.attribute("experts", "round_robin");
  case ExpertPlacement::Listed:
    return json.attributeArray("experts", [&] {
      for (const std::vector<int64_t> &list : parallel.lists)
        json.array([&] {
          for (int64_t id : list)
            json.value(id);
        });
    });
  }
}

void printLayer(const LayerSpec &spec, llvm::json::OStream &json) {
  const LayerSpec none;
  Fields fields(json);
  json.attribute("moec_spec", 1);
  json.attribute("name", spec.name);
  json.attribute("dtype", stringify(spec.dtype));
  fields.addEnum("entry", spec.entry, none.entry);
  json.attribute("hidden_size", spec.hiddenSize);
  json.attribute("num_experts", spec.numExperts);
  json.attribute("top_k", spec.topK);
  json.attribute("intermediate_size", spec.intermediateSize);
  fields.add("max_tokens", spec.maxTokens, none.maxTokens);
  fields.add("num_valid_tokens", spec.numValidTokens, false);
  fields.add("padding_mask", spec.paddingMask, false);
  fields.addIdType("record_ids", spec.recordIds);
  fields.addIdType("replay_ids", spec.replayIds);
  fields.add("record_load", spec.recordLoad, false);
  fields.add("batch_invariant", spec.batchInvariant, false);
  fields.add("round_weights", spec.roundWeights, false);
  fields.addIfSet("expert_capacity", spec.expertCapacity);
  fields.addEnum("output", spec.output, none.output);
  fields.add("quantized_input", spec.quantizedInput, false);
  fields.add("num_zero_experts", spec.numZeroExperts, none.numZeroExperts);
  fields.addIfSet("latent_size", spec.latentSize);
  if (spec.norms)
    json.attributeObject("norms", [&] {
      printNorm("latent_in", spec.norms.latentIn, json);
      printNorm("expert", spec.norms.expert, json);
      printNorm("latent_out", spec.norms.latentOut, json);
    });
  if (spec.lora)
    json.attributeObject("lora", [&] {
      json.attribute("adapters", spec.lora->adapters);
      json.attribute("rank", spec.lora->rank);
    });
  fields.addEnum("gate_up_order", spec.gateUpOrder, none.gateUpOrder);
  fields.add("expert_bias", spec.expertBias, false);
  fields.add("output_bias", spec.outputBias, false);
  fields.add("expert_columns", spec.expertColumns, false);
  fields.add("strided_weights", spec.stridedWeights, false);
  json.attributeObject("routing", [&] {
    if (spec.entry == Entry::Ids)
      fields.add("weight_on_input", spec.routing.weightOnInput, false);
    else
      printRouting(spec.routing, fields);
  });
  json.attributeObject("activation",
                       [&] { printActivation(spec.activation, json); });
  if (spec.sharedExperts)
    json.attributeObject("shared_experts", [&] {
      json.attribute("intermediate_size", spec.sharedExperts->intermediateSize);
      fields.addEnum("gate", spec.sharedExperts->gate, SharedGate::None);
      fields.add("gate_bias", spec.sharedExperts->gateBias, false);
      fields.add("bias", spec.sharedExperts->bias, false);
      fields.add("scale", spec.sharedExperts->scale, 1.0);
      fields.add("columns", spec.sharedExperts->columns, false);
      if (spec.sharedExperts->activation)
        json.attributeObject("activation", [&] {
          printActivation(*spec.sharedExperts->activation, json);
        });
      if (spec.sharedExperts->quantization != spec.quantization)
        printQuantization(spec.sharedExperts->quantization, json);
    });
  if (spec.quantization)
    printQuantization(spec.quantization, json);
  if (spec.placement && spec.placement->localExperts)
    json.attributeObject("placement", [&] {
      json.attributeArray("local_experts", [&] {
        for (int64_t id : *spec.placement->localExperts)
          json.value(id);
      });
    });
  if (spec.parallel)
    json.attributeObject("parallel",
                         [&] { printParallel(*spec.parallel, json); });
  if (spec.replicas)
    json.attributeObject("replicas", [&] {
      json.attribute("num_physical_experts", spec.replicas->numPhysicalExperts);
      json.attribute("max_replicas", spec.replicas->maxReplicas);
    });
}

} // namespace

std::string moec::printLayerSpec(const LayerSpec &spec) {
  std::string text;
  llvm::raw_string_ostream os(text);
  llvm::json::OStream json(os, /*IndentSize=*/2);
  json.object([&] { printLayer(spec, json); });
  return text;
}

std::string moec::describeLayer(const std::optional<LayerSpec> &spec,
                                mlir::ModuleOp module) {
  if (spec)
    return printLayerSpec(*spec);
  std::string text;
  llvm::raw_string_ostream os(text);
  module->print(os);
  auto digest = llvm::SHA256::hash(llvm::arrayRefFromStringRef(text));
  return "{\"ir\": \"" + llvm::toHex(digest, /*LowerCase=*/true) + "\"}";
}
