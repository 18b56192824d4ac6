//===- ParseLayerSpec.cpp - parser of the JSON spec -----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per object of the spec, in the order of docs/use/layers.md.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"

using namespace llvm;

namespace moec {

namespace {

using Null = FieldReader::Null;

void readVersion(FieldReader &reader) {
  constexpr int64_t version = 1;
  const json::Value *value = reader.get("moec_spec");
  if (!value || value->getInteger() != version)
    reader.error("moec_spec",
                 "'moec_spec' must be 1, the version of the spec that this "
                 "compiler reads");
}

std::string readName(FieldReader &reader) {
  std::string fallback = "layer";
  if (!reader.has("name"))
    return fallback;
  std::optional<StringRef> name = reader.getString("name");
  if (!name)
    return fallback;
  constexpr size_t maxLength = 200;
  bool legal = !name->empty() && name->size() <= maxLength &&
               llvm::all_of(*name, [](char c) {
                 return isAlnum(c) || c == '_' || c == '.' || c == '-';
               });
  if (!legal)
    reader.error("name", "'name' must be 1 to " + Twine(maxLength) +
                             " letters, digits and characters of '_.-'");
  return name->str();
}

/// With ids and weights as inputs, only `weight_on_input` of routing remains.
RoutingSpec readRoutingOfIds(FieldReader &reader) {
  RoutingSpec routing;
  routing.weightOnInput = reader.getBoolean("weight_on_input", false);
  for (const json::Member &member : reader.getObjectValue().members)
    if (!reader.isKnown(member.name))
      reader.error(member.name,
                   reader.show(member.name) +
                       " has no meaning with entry \"ids\", whose ids and "
                       "weights are routed already; only 'weight_on_input' "
                       "has");
  return routing;
}

RoutingSpec readRouting(FieldReader &reader) {
  RoutingSpec routing;
  routing.score = reader.getEnum<Score>("score", routing.score);
  routing.select = reader.getEnum<Select>("select", routing.select);
  routing.gateBias = reader.getBoolean("gate_bias", false);
  routing.splitGate = reader.getBoolean("split_gate", false);
  if (reader.has("gate_hidden_size"))
    routing.gateHiddenSize =
        reader.getInteger("gate_hidden_size", 1, limits::kMaxWidth);
  routing.selectionBias = reader.getBoolean("selection_bias", false);
  routing.expertScale = reader.getBoolean("expert_scale", false);
  routing.numGroups =
      reader.getInteger("num_groups", 1, limits::kMaxExperts, 1);
  routing.topkGroups =
      reader.getInteger("topk_groups", 1, limits::kMaxExperts, 1);
  routing.groupScore = reader.getEnum<GroupScore>(
      "group_score",
      routing.selectionBias ? GroupScore::Top2Sum : GroupScore::Max);
  routing.weight = reader.getEnum<RouteWeight>("weight", routing.weight);
  routing.renormalize = reader.getBoolean("renormalize", false);
  routing.renormalizeEpsilon = reader.getNumber("renormalize_epsilon", 0.0);
  routing.scale = reader.getNumber("scale", 1.0);
  routing.logitScale = reader.getNumber("logit_scale", routing.logitScale);
  if (reader.has("logit_softcap"))
    routing.logitSoftcap = reader.getNumber("logit_softcap", 1.0);
  routing.logitsDtype =
      reader.getEnum<DType>("logits_dtype", routing.logitsDtype);
  routing.nonfinite =
      reader.getEnum<NonFinite>("nonfinite", getDefaultNonFinite(routing));
  routing.weightOnInput = reader.getBoolean("weight_on_input", false);
  if (reader.has("hash_vocab_size"))
    routing.hashVocabSize =
        reader.getInteger("hash_vocab_size", 1, limits::kMaxVocabulary);
  reader.refuseUnknown();
  return routing;
}

/// Reads a parameter of the activation, if the kind has it.
void readParameter(FieldReader &reader, StringRef name, Activation kind,
                   const ActivationParameters::Parameter &parameter,
                   std::optional<double> &value) {
  if (!reader.has(name))
    return;
  if (!parameter.exists)
    return reader.error(name, reader.show(name) +
                                  " is not a parameter of activation \"" +
                                  stringify(kind) + "\"; remove it");
  value = reader.getNumber(name, /*fallback=*/1.0);
}

ActivationSpec readActivation(FieldReader &reader) {
  ActivationSpec spec =
      getDefaultActivation(reader.getEnum<Activation>("kind"));
  ActivationParameters parameters = getParameters(spec.kind);
  readParameter(reader, "limit", spec.kind, parameters.limit, spec.limit);
  readParameter(reader, "alpha", spec.kind, parameters.alpha, spec.alpha);
  readParameter(reader, "beta", spec.kind, parameters.beta, spec.beta);
  readParameter(reader, "linear_beta", spec.kind, parameters.linearBeta,
                spec.linearBeta);
  reader.refuseUnknown();
  return spec;
}

/// `quantization` is that of the routed experts.
SharedExpertsSpec readSharedExperts(FieldReader &reader,
                                    const ExpertQuantization &quantization) {
  SharedExpertsSpec spec;
  spec.intermediateSize =
      reader.getInteger("intermediate_size", 1, limits::kMaxWidth);
  spec.gate = reader.getEnum<SharedGate>("gate", SharedGate::None);
  spec.gateBias = reader.getBoolean("gate_bias", false);
  spec.bias = reader.getBoolean("bias", false);
  spec.scale = reader.getNumber("scale", 1.0);
  spec.columns = reader.getBoolean("columns", false);
  if (const json::Value *object = reader.getObject("activation")) {
    reader.setOrigin("activation", "", *object);
    FieldReader activation(reader.getContext(), *object,
                           "shared_experts.activation.", Null::IsWrong);
    spec.activation = readActivation(activation);
  }
  spec.quantization =
      reader.has("quantization") ? readQuantizationField(reader) : quantization;
  reader.refuseUnknown();
  return spec;
}

/// Reads the lists of `parallel.experts`.
std::vector<std::vector<int64_t>> readExpertLists(FieldReader &reader,
                                                  const json::Value &lists) {
  std::vector<std::vector<int64_t>> read;
  for (const json::Value &list : lists.elements) {
    read.emplace_back();
    for (const json::Value &element : list.elements) {
      std::optional<int64_t> id = element.getInteger();
      if (id && *id >= 0 && *id < limits::kMaxExperts) {
        read.back().push_back(*id);
        continue;
      }
      reader.error("experts", "'parallel.experts' must list ids of experts, "
                              "not " +
                                  describeValue(element));
      return read;
    }
    if (read.back().empty())
      reader.error("experts", "'parallel.experts' must have a list of ids for "
                              "each rank, not " +
                                  describeValue(list));
  }
  return read;
}

ParallelSpec readParallel(FieldReader &reader) {
  ParallelSpec spec;
  spec.dp = reader.getInteger("dp", 1, limits::kMaxRanks, 1);
  spec.pcp = reader.getInteger("pcp", 1, limits::kMaxRanks, 1);
  spec.tp = reader.getInteger("tp", 1, limits::kMaxRanks, 1);
  spec.sp = reader.getBoolean("sp", false);
  spec.reduce = reader.getBoolean("reduce", true);
  if (const json::Value *experts = reader.get("experts")) {
    StringRef name;
    if (experts->kind == json::Value::Kind::String)
      name = experts->text;
    reader.getContext().origins["parallel.experts"] = {"'parallel.experts'",
                                                       experts->range};
    if (name == "linear") {
      spec.placement = ExpertPlacement::Linear;
    } else if (name == "round_robin") {
      spec.placement = ExpertPlacement::RoundRobin;
    } else if (experts->kind == json::Value::Kind::Array) {
      spec.placement = ExpertPlacement::Listed;
      spec.lists = readExpertLists(reader, *experts);
    } else {
      reader.error("experts", "'parallel.experts' must be \"linear\", "
                              "\"round_robin\" or a list of ids for each "
                              "rank, not " +
                                  describeValue(*experts));
    }
  }
  reader.refuseUnknown();
  return spec;
}

ReplicasSpec readReplicas(FieldReader &reader) {
  ReplicasSpec spec;
  spec.numPhysicalExperts =
      reader.getInteger("num_physical_experts", 1, limits::kMaxExperts);
  spec.maxReplicas = reader.getInteger("max_replicas", 1, limits::kMaxReplicas);
  reader.refuseUnknown();
  return spec;
}

PlacementSpec readPlacement(FieldReader &reader) {
  PlacementSpec spec;
  if (reader.getInteger("num_ranks", 1, limits::kMaxExperts, 1) != 1)
    reader.error("num_ranks", "'placement.num_ranks' must be 1: the ranks of a "
                              "layer are what 'parallel' says");
  if (const json::Value *list = reader.getList("local_experts")) {
    std::vector<int64_t> ids;
    for (const json::Value &element : list->elements) {
      std::optional<int64_t> id = element.getInteger();
      if (!id || *id < 0 || *id >= limits::kMaxExperts) {
        reader.error(
            "local_experts",
            "'placement.local_experts' must list ids of experts, not " +
                describeValue(element));
        break;
      }
      ids.push_back(*id);
    }
    reader.getContext().origins["placement.local_experts"] = {
        "'placement.local_experts'", list->range};
    spec.localExperts = std::move(ids);
  }
  reader.refuseUnknown();
  return spec;
}

NormSpec readNorm(FieldReader &reader) {
  NormSpec spec;
  spec.epsilon = reader.getNumber("epsilon", spec.epsilon);
  spec.offset = reader.getNumber("offset", spec.offset);
  spec.weightFirst = reader.getBoolean("weight_first", spec.weightFirst);
  reader.refuseUnknown();
  return spec;
}

/// A reader for the object in a field, if it is present.
std::optional<FieldReader> enter(FieldReader &reader, StringRef name) {
  const json::Value *object = reader.getObject(name);
  if (!object)
    return std::nullopt;
  return FieldReader(reader.getContext(), *object, reader.getPath(name) + ".",
                     Null::IsWrong);
}

NormsSpec readNorms(FieldReader &reader) {
  NormsSpec spec;
  if (auto norm = enter(reader, "latent_in"))
    spec.latentIn = readNorm(*norm);
  if (auto norm = enter(reader, "expert"))
    spec.expert = readNorm(*norm);
  if (auto norm = enter(reader, "latent_out"))
    spec.latentOut = readNorm(*norm);
  reader.refuseUnknown();
  return spec;
}

LoraSpec readLora(FieldReader &reader) {
  LoraSpec spec;
  spec.adapters = reader.getInteger("adapters", 1, limits::kMaxAdapters);
  spec.rank = reader.getInteger("rank", 1, limits::kMaxRank);
  reader.refuseUnknown();
  return spec;
}

/// A type of ids by its name, or `true` for ids of 32 bits.
std::optional<IdType> readIdType(FieldReader &reader, StringRef name) {
  if (!reader.isText(name))
    return reader.getBoolean(name, false) ? std::optional(IdType::Int32)
                                          : std::nullopt;
  return reader.getEnum<IdType>(name, IdType::Int32);
}

LayerSpec readLayer(FieldReader &reader) {
  LayerSpec spec;
  readVersion(reader);
  spec.name = readName(reader);
  spec.dtype = reader.getEnum<DType>("dtype");
  spec.entry = reader.getEnum<Entry>("entry", Entry::Gate);
  spec.hiddenSize = reader.getInteger("hidden_size", 1, limits::kMaxWidth);
  spec.numExperts = reader.getInteger("num_experts", 1, limits::kMaxExperts);
  spec.topK = reader.getInteger("top_k", 1, limits::kMaxTopK);
  spec.intermediateSize =
      reader.getInteger("intermediate_size", 1, limits::kMaxWidth);
  spec.maxTokens =
      reader.getInteger("max_tokens", 1, limits::kMaxTokens, spec.maxTokens);
  spec.numValidTokens = reader.getBoolean("num_valid_tokens", false);
  spec.paddingMask = reader.getBoolean("padding_mask", false);
  spec.recordIds = readIdType(reader, "record_ids");
  spec.replayIds = readIdType(reader, "replay_ids");
  spec.recordLoad = reader.getBoolean("record_load", false);
  spec.batchInvariant = reader.getBoolean("batch_invariant", false);
  spec.roundWeights = reader.getBoolean("round_weights", false);
  if (reader.has("expert_capacity"))
    spec.expertCapacity =
        reader.getInteger("expert_capacity", 1, limits::kMaxTokens);
  spec.output = reader.getEnum<OutputRows>("output", spec.output);
  spec.quantizedInput = reader.getBoolean("quantized_input", false);
  spec.numZeroExperts =
      reader.getInteger("num_zero_experts", 0, limits::kMaxExperts, 0);
  if (reader.has("latent_size"))
    spec.latentSize = reader.getInteger("latent_size", 1, limits::kMaxWidth);
  if (auto norms = enter(reader, "norms"))
    spec.norms = readNorms(*norms);
  if (auto lora = enter(reader, "lora"))
    spec.lora = readLora(*lora);
  spec.gateUpOrder =
      reader.getEnum<GateUpOrder>("gate_up_order", spec.gateUpOrder);
  spec.expertBias = reader.getBoolean("expert_bias", false);
  spec.outputBias = reader.getBoolean("output_bias", false);
  spec.expertColumns = reader.getBoolean("expert_columns", false);
  spec.stridedWeights = reader.getBoolean("strided_weights", false);
  if (auto routing = enter(reader, "routing"))
    spec.routing = spec.entry == Entry::Ids ? readRoutingOfIds(*routing)
                                            : readRouting(*routing);
  if (auto activation = enter(reader, "activation"))
    spec.activation = readActivation(*activation);
  else if (!reader.has("activation"))
    reader.error("activation", "'activation' is missing; it must be an object "
                               "such as {\"kind\": \"silu\"}");
  spec.quantization = readQuantizationField(reader);
  if (auto shared = enter(reader, "shared_experts"))
    spec.sharedExperts = readSharedExperts(*shared, spec.quantization);
  if (auto placement = enter(reader, "placement"))
    spec.placement = readPlacement(*placement);
  if (auto parallel = enter(reader, "parallel")) {
    reader.setOrigin("parallel", "", parallel->getObjectValue());
    spec.parallel = readParallel(*parallel);
  }
  if (auto replicas = enter(reader, "replicas"))
    spec.replicas = readReplicas(*replicas);
  reader.refuseUnknown();
  return spec;
}

} // namespace

ParallelSpec readParallel(const SourceText &text, Diagnostics &diags) {
  FailureOr<json::Value> document = json::parse(text, diags);
  if (failed(document))
    return {};
  if (!document->isObject()) {
    diags.error(text, document->range,
                "'parallel' must be an object such as {\"dp\": 2, "
                "\"experts\": \"linear\"}, not " +
                    describeValue(*document));
    return {};
  }
  ImportContext context{text, diags, {}};
  FieldReader reader(context, *document, "parallel.", Null::IsWrong);
  return readParallel(reader);
}

FailureOr<LayerSpec> parseLayerSpec(const SourceText &text,
                                    const json::Value &document,
                                    const SpecOverrides &overrides,
                                    Diagnostics &diags) {
  unsigned numErrors = diags.getNumErrors();
  if (!document.isObject()) {
    diags.error(text, document.range,
                "a spec must be an object, not " + describeValue(document));
    return failure();
  }
  ImportContext context{text, diags, {}};
  FieldReader reader(context, document, /*path=*/"", Null::IsWrong);
  LayerSpec spec = readLayer(reader);
  return finishImport(std::move(spec), overrides, context, numErrors);
}

} // namespace moec
