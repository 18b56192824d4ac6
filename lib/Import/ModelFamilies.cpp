//===- ModelFamilies.cpp - what each config.json means ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One function per family of models, and a table of them at the end. They are
// the table "Model families" of docs/layers.md.
//
//===----------------------------------------------------------------------===//

#include "Internal.h"

using namespace llvm;

namespace moec {

namespace {

/// The epsilon that DeepSeek V3 and its relatives add to the sum of weights.
constexpr double kDeepSeekEpsilon = 1e-20;

//===----------------------------------------------------------------------===//
// Fields that several families share
//===----------------------------------------------------------------------===//

/// Reads E and I under the names a family gives them, and k.
void readExperts(FieldReader &config, LayerSpec &spec, StringRef numExperts,
                 StringRef intermediateSize) {
  spec.numExperts = config.getInteger(numExperts, 1, limits::kMaxExperts,
                                      std::nullopt, "num_experts");
  spec.intermediateSize =
      config.getInteger(intermediateSize, 1, limits::kMaxWidth, std::nullopt,
                        "intermediate_size");
}

void readTopK(FieldReader &config, LayerSpec &spec,
              StringRef name = "num_experts_per_tok",
              std::optional<int64_t> fallback = std::nullopt) {
  spec.topK = config.getInteger(name, 1, limits::kMaxTopK, fallback, "top_k");
}

/// A gated activation by the name that models give it.
void readHiddenAct(FieldReader &config, LayerSpec &spec) {
  StringRef name =
      config.getOneOf("hidden_act", {"silu", "gelu", "gelu_pytorch_tanh"});
  spec.activation =
      getDefaultActivation(name == "silu"   ? Activation::Silu
                           : name == "gelu" ? Activation::Gelu
                                            : Activation::GeluTanh);
}

/// The fields about scores of a family that knows one kind of score.
void expectScore(FieldReader &config, StringRef score) {
  config.getOneOf("scoring_func", {score});
}

void readScale(FieldReader &config, LayerSpec &spec) {
  spec.routing.scale =
      config.getNumber("routed_scaling_factor", 1.0, "routing.scale");
}

void readGroups(FieldReader &config, LayerSpec &spec, GroupScore score) {
  RoutingSpec &routing = spec.routing;
  routing.numGroups = config.getInteger("n_group", 1, limits::kMaxExperts, 1,
                                        "routing.num_groups");
  routing.topkGroups = config.getInteger("topk_group", 1, limits::kMaxExperts,
                                         1, "routing.topk_groups");
  routing.groupScore = score;
}

/// Shared experts given as a number of experts and the width of one.
void readSharedExperts(FieldReader &config, LayerSpec &spec, StringRef number,
                       StringRef width) {
  // Nobody has more shared experts than this; with it the product is bounded.
  constexpr int64_t maxShared = 1024;
  int64_t count = config.getInteger(number, 0, maxShared, 0);
  if (count == 0)
    return;
  int64_t size = config.getInteger(width, 1, limits::kMaxWidth, std::nullopt,
                                   "shared_experts.intermediate_size");
  if (count * size > limits::kMaxWidth)
    config.error(number, config.show(number) + " shared experts of width " +
                             Twine(size) + " are wider than " +
                             Twine(limits::kMaxWidth) + " together");
  spec.sharedExperts = SharedExpertsSpec{count * size, SharedGate::None};
}

/// A shared expert behind a sigmoid gate, as the Qwen models have it.
void readGatedSharedExpert(FieldReader &config, LayerSpec &spec) {
  SharedExpertsSpec shared;
  shared.intermediateSize =
      config.getInteger("shared_expert_intermediate_size", 1, limits::kMaxWidth,
                        std::nullopt, "shared_experts.intermediate_size");
  shared.gate = SharedGate::Sigmoid;
  spec.sharedExperts = shared;
}

//===----------------------------------------------------------------------===//
// Families
//===----------------------------------------------------------------------===//

void readMixtral(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "num_local_experts", "intermediate_size");
  readTopK(config, spec);
  readHiddenAct(config, spec);
  expectScore(config, "softmax");
  config.expectBoolean("norm_topk_prob", true);
  spec.routing.score = Score::Softmax;
  spec.routing.renormalize = true;
}

/// What the Qwen families and OLMoE share.
void readSoftmaxRouting(FieldReader &config, LayerSpec &spec,
                        bool renormalize) {
  readTopK(config, spec);
  readHiddenAct(config, spec);
  expectScore(config, "softmax");
  spec.routing.score = Score::Softmax;
  spec.routing.renormalize = config.getBoolean("norm_topk_prob", renormalize);
}

void readQwen2Moe(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "num_experts", "moe_intermediate_size");
  readSoftmaxRouting(config, spec, /*renormalize=*/false);
  readGatedSharedExpert(config, spec);
}

void readQwen3Moe(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "num_experts", "moe_intermediate_size");
  readSoftmaxRouting(config, spec, /*renormalize=*/false);
}

void readQwen3Next(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "num_experts", "moe_intermediate_size");
  readSoftmaxRouting(config, spec, /*renormalize=*/true);
  readGatedSharedExpert(config, spec);
}

void readOlmoe(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "num_experts", "intermediate_size");
  readSoftmaxRouting(config, spec, /*renormalize=*/false);
}

void readDeepSeekV2(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "n_routed_experts", "moe_intermediate_size");
  readSoftmaxRouting(config, spec, /*renormalize=*/false);
  readGroups(config, spec, GroupScore::Max);
  // Greedy selection does not look at the groups, whatever their number.
  if (config.getOneOf("topk_method", {"greedy", "group_limited_greedy"}) ==
      "greedy")
    spec.routing.numGroups = spec.routing.topkGroups = 1;
  readScale(config, spec);
  readSharedExperts(config, spec, "n_shared_experts", "moe_intermediate_size");
}

/// Sigmoid scores, a selection bias and groups by the sum of their two best.
void readDeepSeekRouting(FieldReader &config, LayerSpec &spec) {
  readTopK(config, spec);
  expectScore(config, "sigmoid");
  config.getOneOf("topk_method", {"noaux_tc"});
  readGroups(config, spec, GroupScore::Top2Sum);
  readScale(config, spec);
  spec.routing.score = Score::Sigmoid;
  spec.routing.selectionBias = true;
  spec.routing.renormalize = config.getBoolean("norm_topk_prob", true);
  if (spec.routing.renormalize)
    spec.routing.renormalizeEpsilon = kDeepSeekEpsilon;
}

void readGlm4Moe(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "n_routed_experts", "moe_intermediate_size");
  readHiddenAct(config, spec);
  readDeepSeekRouting(config, spec);
  readSharedExperts(config, spec, "n_shared_experts", "moe_intermediate_size");
}

/// DeepSeek V3 and Kimi K2: as GLM 4.5, but the model's code assumes values of
/// its own where the file is silent. A file says them.
void readDeepSeekV3(FieldReader &config, LayerSpec &spec) {
  for (StringRef name : {"n_group", "topk_group", "routed_scaling_factor"})
    if (!config.getObjectValue().find(name))
      config.error(name, config.show(name) + " is missing; model_type \"" +
                             spec.modelType + "\" needs it");
  readGlm4Moe(config, spec);
}

void readMiniMaxM2(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "num_local_experts", "intermediate_size");
  readTopK(config, spec);
  readHiddenAct(config, spec);
  expectScore(config, "sigmoid");
  config.expectBoolean("norm_topk_prob", true);
  spec.routing.score = Score::Sigmoid;
  spec.routing.selectionBias = config.getBoolean("use_routing_bias", false);
  spec.routing.renormalize = true;
  spec.routing.renormalizeEpsilon = kDeepSeekEpsilon;
}

void readNemotronH(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "n_routed_experts", "moe_intermediate_size");
  readDeepSeekRouting(config, spec);
  // The experts have no gate: the activation stands between two products.
  StringRef name = config.getOneOf(
      "mlp_hidden_act", {"relu2", "silu", "gelu", "gelu_pytorch_tanh"});
  spec.activation =
      getDefaultActivation(name == "relu2"  ? Activation::Relu2NoMul
                           : name == "silu" ? Activation::SiluNoMul
                           : name == "gelu" ? Activation::GeluNoMul
                                            : Activation::GeluTanhNoMul);
  readSharedExperts(config, spec, "n_shared_experts",
                    "moe_shared_expert_intermediate_size");
  if (config.has("moe_latent_size"))
    spec.latentSize = config.getInteger("moe_latent_size", 1, limits::kMaxWidth,
                                        std::nullopt, "latent_size");
}

void readGptOss(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "num_local_experts", "intermediate_size");
  readTopK(config, spec);
  // The model writes silu, and means its own gated unit built on it.
  config.getOneOf("hidden_act", {"silu"});
  spec.activation = getDefaultActivation(Activation::SwigluOai);
  spec.activation.limit = config.getNumber(
      "swiglu_limit", *spec.activation.limit, "activation.limit");
  spec.gateUpOrder = GateUpOrder::Interleaved;
  spec.expertBias = true;
  spec.routing.score = Score::Identity;
  spec.routing.gateBias = true;
  spec.routing.weight = RouteWeight::Softmax;
}

void readLlama4(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "num_local_experts", "intermediate_size");
  readTopK(config, spec, "num_experts_per_tok", /*fallback=*/1);
  readHiddenAct(config, spec);
  spec.routing.score = Score::Identity;
  spec.routing.weight = RouteWeight::Sigmoid;
  spec.routing.weightOnInput = true;
  spec.sharedExperts =
      SharedExpertsSpec{spec.intermediateSize, SharedGate::None};
}

void readErnie45Moe(FieldReader &config, LayerSpec &spec) {
  readExperts(config, spec, "moe_num_experts", "moe_intermediate_size");
  readTopK(config, spec, "moe_k");
  readHiddenAct(config, spec);
  config.expectBoolean("moe_use_aux_free", true);
  config.expectBoolean("use_bias", false);
  spec.routing.score = Score::Softmax;
  spec.routing.selectionBias = true;
  spec.routing.renormalize = true;
  spec.routing.renormalizeEpsilon = 1e-12;
  readSharedExperts(config, spec, "moe_num_shared_experts",
                    "moe_intermediate_size");
}

constexpr ModelFamily kFamilies[] = {
    {"deepseek_v2", readDeepSeekV2},  {"deepseek_v3", readDeepSeekV3},
    {"ernie4_5_moe", readErnie45Moe}, {"glm4_moe", readGlm4Moe},
    {"gpt_oss", readGptOss},          {"kimi_k2", readDeepSeekV3},
    {"llama4", readLlama4},           {"llama4_text", readLlama4},
    {"minimax_m2", readMiniMaxM2},    {"mixtral", readMixtral},
    {"nemotron_h", readNemotronH},    {"olmoe", readOlmoe},
    {"qwen2_moe", readQwen2Moe},      {"qwen3_moe", readQwen3Moe},
    {"qwen3_next", readQwen3Next},
};

} // namespace

ArrayRef<ModelFamily> getModelFamilies() { return kFamilies; }

} // namespace moec
