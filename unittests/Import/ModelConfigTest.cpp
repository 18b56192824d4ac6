//===- ModelConfigTest.cpp - config.json of every family --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ImportTesting.h"

using namespace moec;
using namespace moec::testing;

namespace {

/// A configuration with the common fields and those of the family.
std::string makeConfig(const std::string &modelType,
                       const std::string &fields) {
  return "{\"model_type\": \"" + modelType + "\", \"hidden_size\": 64" +
         (fields.empty() ? "" : ",\n") + fields + "}";
}

const char *const kMixtral =
    R"("num_local_experts": 8, "num_experts_per_tok": 2,
"intermediate_size": 128)";
const char *const kQwen3 =
    R"("num_experts": 8, "num_experts_per_tok": 2,
"moe_intermediate_size": 128)";
const char *const kDeepSeekV2 =
    R"("n_routed_experts": 8, "num_experts_per_tok": 2,
"moe_intermediate_size": 128)";
const char *const kDeepSeekV3 =
    R"("n_routed_experts": 8, "num_experts_per_tok": 2,
"moe_intermediate_size": 128, "n_group": 4, "topk_group": 2,
"routed_scaling_factor": 2.5)";

std::string join(const char *fields, const std::string &more) {
  return fields + std::string(",\n") + more;
}

TEST(ModelConfig, KnownTypesAreSorted) {
  std::vector<llvm::StringRef> types = getKnownModelTypes();
  EXPECT_GE(types.size(), 90u);
  EXPECT_TRUE(llvm::is_sorted(types));
  EXPECT_EQ(std::adjacent_find(types.begin(), types.end()), types.end());
}

TEST(ModelConfig, Mixtral) {
  LayerSpec spec = importOk(makeConfig("mixtral", kMixtral));
  EXPECT_EQ(spec.name, "t");
  EXPECT_EQ(spec.modelType, "mixtral");
  EXPECT_EQ(spec.dtype, DType::BF16);
  EXPECT_EQ(spec.hiddenSize, 64);
  EXPECT_EQ(spec.numExperts, 8);
  EXPECT_EQ(spec.topK, 2);
  EXPECT_EQ(spec.intermediateSize, 128);
  EXPECT_EQ(spec.routing.score, Score::Softmax);
  EXPECT_EQ(spec.routing.weight, RouteWeight::Score);
  EXPECT_TRUE(spec.routing.renormalize);
  EXPECT_EQ(spec.routing.renormalizeEpsilon, 0.0);
  EXPECT_EQ(spec.routing.nonfinite, NonFinite::Zero);
  EXPECT_EQ(spec.activation.kind, Activation::Silu);
  EXPECT_FALSE(spec.sharedExperts);
}

TEST(ModelConfig, Qwen) {
  EXPECT_FALSE(importOk(makeConfig("qwen3_moe", kQwen3)).routing.renormalize);
  EXPECT_TRUE(importOk(makeConfig("qwen3_moe",
                                  join(kQwen3, R"("norm_topk_prob": true)")))
                  .routing.renormalize);
  std::string shared =
      join(kQwen3, R"("shared_expert_intermediate_size": 256)");
  LayerSpec spec = importOk(makeConfig("qwen2_moe", shared));
  EXPECT_FALSE(spec.routing.renormalize);
  EXPECT_EQ(spec.sharedExperts->intermediateSize, 256);
  EXPECT_EQ(spec.sharedExperts->gate, SharedGate::Sigmoid);
  spec = importOk(makeConfig("qwen3_next", shared));
  EXPECT_TRUE(spec.routing.renormalize);
  EXPECT_EQ(spec.sharedExperts->gate, SharedGate::Sigmoid);
}

TEST(ModelConfig, Olmoe) {
  LayerSpec spec = importOk(
      makeConfig("olmoe", R"("num_experts": 64, "num_experts_per_tok": 8,
                  "intermediate_size": 1024)"));
  EXPECT_EQ(spec.intermediateSize, 1024);
  EXPECT_EQ(spec.routing.score, Score::Softmax);
  EXPECT_FALSE(spec.routing.renormalize);
}

TEST(ModelConfig, DeepSeekV2) {
  LayerSpec spec = importOk(makeConfig(
      "deepseek_v2",
      join(kDeepSeekV2, R"("topk_method": "group_limited_greedy", "n_group": 4,
           "topk_group": 2, "routed_scaling_factor": 16,
           "n_shared_experts": 2)")));
  EXPECT_EQ(spec.routing.numGroups, 4);
  EXPECT_EQ(spec.routing.topkGroups, 2);
  EXPECT_EQ(spec.routing.groupScore, GroupScore::Max);
  EXPECT_EQ(spec.routing.nonfinite, NonFinite::NegInf);
  EXPECT_EQ(spec.routing.scale, 16.0);
  EXPECT_FALSE(spec.routing.renormalize);
  EXPECT_FALSE(spec.routing.selectionBias);
  EXPECT_EQ(spec.sharedExperts->intermediateSize, 256);
  EXPECT_EQ(spec.sharedExperts->gate, SharedGate::None);
  // Greedy selection ignores groups.
  spec = importOk(makeConfig(
      "deepseek_v2",
      join(kDeepSeekV2,
           R"("topk_method": "greedy", "n_group": 3, "topk_group": 2)")));
  EXPECT_EQ(spec.routing.numGroups, 1);
  EXPECT_EQ(spec.routing.topkGroups, 1);
  EXPECT_EQ(spec.routing.scale, 1.0);
}

TEST(ModelConfig, DeepSeekV3AndKimi) {
  for (const char *type : {"deepseek_v3", "kimi_k2"}) {
    LayerSpec spec = importOk(
        makeConfig(type, join(kDeepSeekV3, R"("n_shared_experts": 1)")));
    EXPECT_EQ(spec.routing.score, Score::Sigmoid);
    EXPECT_TRUE(spec.routing.selectionBias);
    EXPECT_EQ(spec.routing.numGroups, 4);
    EXPECT_EQ(spec.routing.topkGroups, 2);
    EXPECT_EQ(spec.routing.groupScore, GroupScore::Top2Sum);
    EXPECT_TRUE(spec.routing.renormalize);
    EXPECT_EQ(spec.routing.renormalizeEpsilon, 1e-20);
    EXPECT_EQ(spec.routing.scale, 2.5);
    EXPECT_EQ(spec.routing.nonfinite, NonFinite::NegInf);
    EXPECT_EQ(spec.sharedExperts->intermediateSize, 128);
  }
  LayerSpec spec = importOk(makeConfig(
      "deepseek_v3", join(kDeepSeekV3, R"("norm_topk_prob": false)")));
  EXPECT_FALSE(spec.routing.renormalize);
  EXPECT_EQ(spec.routing.renormalizeEpsilon, 0.0);
}

TEST(ModelConfig, Glm) {
  LayerSpec spec = importOk(makeConfig("glm4_moe", kDeepSeekV2));
  EXPECT_EQ(spec.routing.score, Score::Sigmoid);
  EXPECT_TRUE(spec.routing.selectionBias);
  EXPECT_EQ(spec.routing.numGroups, 1);
  EXPECT_EQ(spec.routing.scale, 1.0);
  EXPECT_EQ(spec.routing.nonfinite, NonFinite::Zero);
}

TEST(ModelConfig, MiniMax) {
  // The model's code always has the bias.
  EXPECT_TRUE(
      importOk(makeConfig("minimax_m2", kMixtral)).routing.selectionBias);
  LayerSpec spec = importOk(
      makeConfig("minimax_m2", join(kMixtral, R"("use_routing_bias": true)")));
  EXPECT_EQ(spec.routing.score, Score::Sigmoid);
  EXPECT_TRUE(spec.routing.selectionBias);
  EXPECT_TRUE(spec.routing.renormalize);
  EXPECT_EQ(spec.routing.renormalizeEpsilon, 1e-20);
}

TEST(ModelConfig, NemotronH) {
  LayerSpec spec = importOk(makeConfig(
      "nemotron_h",
      join(kDeepSeekV3, R"("mlp_hidden_act": "relu2", "moe_latent_size": 32,
           "n_shared_experts": 1,
           "moe_shared_expert_intermediate_size": 96)")));
  EXPECT_EQ(spec.activation.kind, Activation::Relu2NoMul);
  EXPECT_EQ(spec.latentSize, 32);
  EXPECT_EQ(spec.getExpertWidth(), 32);
  EXPECT_EQ(spec.sharedExperts->intermediateSize, 96);
  EXPECT_EQ(spec.routing.score, Score::Sigmoid);
  EXPECT_EQ(importOk(makeConfig("nemotron_h",
                                join(kDeepSeekV3, R"("mlp_hidden_act": "silu",
                                     "moe_shared_expert_intermediate_size": 96,
                                     "moe_latent_size": null)")))
                .activation.kind,
            Activation::SiluNoMul);
}

TEST(ModelConfig, GptOss) {
  LayerSpec spec =
      importOk(makeConfig("gpt_oss", join(kMixtral, R"("swiglu_limit": 6.5,
                      "experts_per_token": 2)")));
  EXPECT_EQ(spec.routing.score, Score::Identity);
  EXPECT_EQ(spec.routing.weight, RouteWeight::Softmax);
  EXPECT_EQ(spec.routing.nonfinite, NonFinite::NegInf);
  EXPECT_TRUE(spec.routing.gateBias);
  EXPECT_TRUE(spec.expertBias);
  EXPECT_EQ(spec.activation.kind, Activation::SwigluOai);
  EXPECT_EQ(spec.activation.alpha, 1.702);
  EXPECT_EQ(spec.activation.limit, 6.5);
  EXPECT_EQ(spec.gateUpOrder, GateUpOrder::Interleaved);
  EXPECT_EQ(importOk(makeConfig("gpt_oss", kMixtral)).activation.limit, 7.0);
}

TEST(ModelConfig, Llama4) {
  std::string fields = R"("num_local_experts": 16, "intermediate_size": 128)";
  for (const std::string &config :
       {makeConfig("llama4_text", fields),
        R"({"model_type": "llama4", "text_config": )" +
            makeConfig("llama4_text", fields) + "}",
        makeConfig("llama4", fields)}) {
    LayerSpec spec = importOk(config);
    EXPECT_EQ(spec.numExperts, 16);
    EXPECT_EQ(spec.topK, 1);
    EXPECT_EQ(spec.routing.score, Score::Identity);
    EXPECT_EQ(spec.routing.weight, RouteWeight::Sigmoid);
    EXPECT_TRUE(spec.routing.weightOnInput);
    EXPECT_EQ(spec.sharedExperts->intermediateSize, 128);
    EXPECT_EQ(spec.dtype, DType::BF16);
  }
}

TEST(ModelConfig, Llama4TakesDTypeAndQuantizationFromEitherLevel) {
  std::string text = makeConfig(
      "llama4_text", R"("num_local_experts": 16, "intermediate_size": 128)");
  LayerSpec spec = importOk(R"({"model_type": "llama4",
      "torch_dtype": "float16", "quantization_config": {"quant_method": "fp8",
      "weight_block_size": [128, 128]}, "text_config": )" +
                            text + "}");
  EXPECT_EQ(spec.dtype, DType::F16);
  EXPECT_EQ(spec.quantization, getQuantization("fp8_block128"));
}

TEST(ModelConfig, Ernie) {
  LayerSpec spec =
      importOk(makeConfig("ernie4_5_moe", R"("moe_num_experts": 64, "moe_k": 6,
      "moe_intermediate_size": 96, "moe_num_shared_experts": 2,
      "moe_use_aux_free": true, "use_bias": false)"));
  EXPECT_EQ(spec.numExperts, 64);
  EXPECT_EQ(spec.topK, 6);
  EXPECT_EQ(spec.routing.score, Score::Softmax);
  EXPECT_TRUE(spec.routing.selectionBias);
  EXPECT_TRUE(spec.routing.renormalize);
  EXPECT_EQ(spec.routing.renormalizeEpsilon, 1e-12);
  EXPECT_EQ(spec.sharedExperts->intermediateSize, 192);
}

TEST(ModelConfig, DTypesAndActivations) {
  auto import = [](const std::string &fields) {
    return importOk(makeConfig("mixtral", join(kMixtral, fields)));
  };
  EXPECT_EQ(import(R"("torch_dtype": "float32")").dtype, DType::F32);
  EXPECT_EQ(import(R"("torch_dtype": "float16")").dtype, DType::F16);
  EXPECT_EQ(import(R"("dtype": "float32")").dtype, DType::F32);
  EXPECT_EQ(import(R"("torch_dtype": null)").dtype, DType::BF16);
  EXPECT_EQ(import(R"("hidden_act": "gelu")").activation.kind,
            Activation::Gelu);
  EXPECT_EQ(import(R"("hidden_act": "gelu_pytorch_tanh")").activation.kind,
            Activation::GeluTanh);
}

TEST(ModelConfig, FieldsThatDescribeNoLayerAreNotRead) {
  importOk(makeConfig(
      "mixtral", join(kMixtral, R"("vocab_size": 3, "rope_scaling": {"a": []},
      "top_k": 50, "router_jitter_noise": 0.1, "n_group": 1,
      "routed_scaling_factor": 1.0, "n_shared_experts": null,
      "shared_intermediate_size": 0, "num_experts": 8, "ep_size": 1,
      "quantization_config": null)")));
}

//===----------------------------------------------------------------------===//
// Refused configurations
//===----------------------------------------------------------------------===//

struct BadConfig {
  const char *modelType;
  const char *base;
  const char *fields;
  const char *message;
};

void expectErrors(llvm::ArrayRef<BadConfig> cases) {
  for (const BadConfig &bad : cases) {
    std::string messages =
        importError(makeConfig(bad.modelType, join(bad.base, bad.fields)));
    EXPECT_NE(messages.find(bad.message), std::string::npos)
        << bad.fields << "\n"
        << messages;
    EXPECT_EQ(llvm::StringRef(messages).count(" error: "), 1u) << messages;
  }
}

// field-bug: llm-compressor#2735, omlx#2326, jjang-ai/vmlx#213
TEST(ModelConfig, LayersBehindTheDecoder) {
  SpecOverrides overrides;
  auto importLayer = [&](const std::string &config, int64_t layer) {
    overrides.layer = layer;
    return importOk(config, overrides);
  };
  std::string config = R"({"model_type": "qwen3_moe", "hidden_size": 64,
      "num_hidden_layers": 2, "num_experts": [8, 6], "num_experts_per_tok": 2,
      "moe_intermediate_size": [32, 16])";
  EXPECT_EQ(importLayer(config + "}", 0).numExperts, 8);
  LayerSpec pruned = importLayer(config + "}", 1);
  EXPECT_EQ(pruned.numExperts, 6);
  EXPECT_EQ(pruned.intermediateSize, 16);
  EXPECT_FALSE(pruned.mtpIndex);
  config = R"({"model_type": "qwen3_next", "hidden_size": 64,
      "num_hidden_layers": 2, "num_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32)";
  LayerSpec spec = importLayer(config + R"(, "mtp_num_hidden_layers": 1})", 2);
  EXPECT_EQ(spec.layerIndex, 2);
  EXPECT_EQ(spec.mtpIndex, 0);
  EXPECT_NE(importError(config + "}", overrides)
                .find("the model has 2 decoder layers"),
            std::string::npos);
}

TEST(ModelConfigError, UnknownModelTypes) {
  EXPECT_EQ(importError("{\"model_type\": \"qwen3moe\"}"),
            "t.json:1:16: error: unknown model_type \"qwen3moe\"; did you "
            "mean \"qwen3_moe\"?\n"
            "  {\"model_type\": \"qwen3moe\"}\n"
            "                 ^~~~~~~~~~\n");
  EXPECT_NE(
      importError("{\"model_type\": \"unheard_of\"}")
          .find(
              "unknown model_type \"unheard_of\"; docs/generated/models.md and "
              "moe-compile --list-models have those that are known"),
      std::string::npos);
  EXPECT_NE(importError("{\"model_type\": \"llama\"}")
                .find("the layers of model_type \"llama\" cannot be compiled: "
                      "it is a dense model"),
            std::string::npos);
  EXPECT_NE(importError("{\"model_type\": \"vitpose_backbone\"}")
                .find("cannot be compiled: the caller chooses the expert"),
            std::string::npos);
  EXPECT_NE(importError("{}").find("neither a spec ('moec_spec' is missing) "
                                   "nor a model's configuration"),
            std::string::npos);
  EXPECT_NE(importError("{\"model_type\": 3}")
                .find("'model_type' must be a string, not 3"),
            std::string::npos);
}

TEST(ModelConfigError, MissingFieldsAreNamed) {
  std::string messages = importError(R"({"model_type": "mixtral"})");
  for (const char *name :
       {"'hidden_size' is missing",
        "'num_local_experts' (or 'num_experts') is missing",
        "'num_experts_per_tok' is missing", "'intermediate_size' is missing"})
    EXPECT_NE(messages.find(name), std::string::npos) << messages;
  messages = importError(makeConfig("deepseek_v3", kDeepSeekV2));
  EXPECT_NE(messages.find("'n_group' is missing; it must be an integer"),
            std::string::npos);
  messages =
      importError(makeConfig("deepseek_v3", R"("n_group": 1, "topk_group": 1,
      "routed_scaling_factor": 1, "n_routed_experts": 8,
      "num_experts_per_tok": 2)"));
  EXPECT_NE(messages.find("'moe_intermediate_size' is missing"),
            std::string::npos);
}

TEST(ModelConfigError, ErrorsUseTheNamesOfTheFile) {
  expectErrors({
      {"deepseek_v3", kDeepSeekV3, R"("n_shared_experts": -1)",
       "'n_shared_experts' must be an integer from 0 to 1024, not -1"},
      {"qwen2_moe", kQwen3, R"("shared_expert_intermediate_size": "x")",
       "'shared_expert_intermediate_size' must be an integer"},
      {"mixtral", kMixtral, R"("torch_dtype": "int8")",
       "'torch_dtype' must be \"bfloat16\", \"float16\" or \"float32\", not "
       "\"int8\""},
      {"mixtral", kMixtral, R"("torch_dtype": "float16", "dtype": "bfloat16")",
       "'dtype' and 'torch_dtype' name different types"},
  });
  EXPECT_NE(importError(makeConfig("mixtral",
                                   R"("num_local_experts": 8,
      "num_experts_per_tok": 9, "intermediate_size": 128)"))
                .find("'num_experts_per_tok' is 9, but there are only 8 "
                      "experts ('num_local_experts')"),
            std::string::npos);
  EXPECT_NE(
      importError(makeConfig("glm4_moe", join(kDeepSeekV2, R"("n_group": 3)")))
          .find("8 experts ('n_routed_experts') cannot be divided into "
                "3 equal groups ('n_group')"),
      std::string::npos);
  EXPECT_NE(importError(R"({"model_type": "llama4", "text_config":
      {"hidden_size": 64, "num_local_experts": 0, "intermediate_size": 8}})")
                .find("'text_config.num_local_experts' must be an integer"),
            std::string::npos);
  EXPECT_NE(importError(R"({"model_type": "llama4", "text_config": 3})")
                .find("'text_config' must be an object, not 3"),
            std::string::npos);
}

TEST(ModelConfigError, UnsupportedRoutingIsNamed) {
  expectErrors({
      {"mixtral", kMixtral, R"("hidden_act": "elu")",
       "'hidden_act' must be \"silu\", \"swish\", \"gelu\", "
       "\"gelu_pytorch_tanh\", \"gelu_new\", \"relu\" or \"relu2\", not "
       "\"elu\""},
      {"nemotron_h", kDeepSeekV3, R"("mlp_hidden_act": "tanh",
       "moe_shared_expert_intermediate_size": 96)",
       "'mlp_hidden_act' must be"},
      {"gpt_oss", kMixtral, R"("hidden_act": "gelu")",
       "'hidden_act' must be \"silu\", not \"gelu\""},
      {"deepseek_v3", kDeepSeekV3, R"("scoring_func": "softmax")",
       "'scoring_func' must be \"sigmoid\", not \"softmax\""},
      {"deepseek_v2", kDeepSeekV2, R"("scoring_func": "sigmoid")",
       "'scoring_func' must be \"softmax\", not \"sigmoid\""},
      {"deepseek_v3", kDeepSeekV3, R"("topk_method": "greedy")",
       "'topk_method' must be \"noaux_tc\", not \"greedy\""},
      {"deepseek_v2", kDeepSeekV2, R"("topk_method": "noaux_tc")",
       "'topk_method' must be \"greedy\" or \"group_limited_greedy\""},
      {"mixtral", kMixtral, R"("norm_topk_prob": false)",
       "'norm_topk_prob' must be true, not false: the other is not supported "
       "for model_type \"mixtral\""},
  });
}

TEST(ModelConfigError, FieldsOfOtherFamiliesAreRefusedByName) {
  expectErrors({
      {"mixtral", kMixtral, R"("n_group": 8)",
       "'n_group' = 8 is not supported for model_type \"mixtral\""},
      {"mixtral", kMixtral, R"("num_experts": 16)",
       "'num_experts' and 'num_local_experts' are names of one value and "
       "differ"},
      {"mixtral", kMixtral, R"("routed_scaling_factor": 2.5)",
       "'routed_scaling_factor' = 2.5 is not supported"},
      {"qwen3_moe", kQwen3, R"("shared_expert_intermediate_size": 512)",
       "'shared_expert_intermediate_size' = 512 is not supported"},
      {"qwen3_moe", kQwen3, R"("zero_expert_type": "identity")",
       "'zero_expert_type' = \"identity\" is not supported"},
      {"deepseek_v3", kDeepSeekV3, R"("swiglu_limit": 10)",
       "'swiglu_limit' = 10 is not supported"},
      {"deepseek_v3", kDeepSeekV3, R"("moe_latent_size": 32)",
       "'moe_latent_size' = 32 is not supported"},
      {"deepseek_v3", kDeepSeekV3, R"("ep_size": 8)",
       "'ep_size' = 8 is not supported"},
      {"nemotron_h", kDeepSeekV3, R"("mlp_bias": true,
       "moe_shared_expert_intermediate_size": 96)",
       "'mlp_bias' must be false, not true"},
      {"gpt_oss", kMixtral, R"("experts_per_token": 3)",
       "'experts_per_token' and 'num_experts_per_tok' are names of one value "
       "and differ"},
      {"llama4_text", kMixtral, R"("scoring_func": "softmax")", "scoring_func"},
  });
  EXPECT_NE(importError(makeConfig("llama4_text", kMixtral))
                .find("one expert per token only, but 'num_experts_per_tok' "
                      "is 2"),
            std::string::npos);
}

TEST(ModelConfigError, Sizes) {
  expectErrors({
      {"deepseek_v3", kDeepSeekV3, R"("n_shared_experts": 1000000)",
       "'n_shared_experts' must be an integer from 0 to 1024"},
  });
  EXPECT_NE(importError(makeConfig("deepseek_v2", R"("n_routed_experts": 8,
      "num_experts_per_tok": 2, "moe_intermediate_size": 1048576,
      "n_shared_experts": 2)"))
                .find("'n_shared_experts' shared experts of width 1048576 are "
                      "wider than 1048576 together"),
            std::string::npos);
}

// field-bug: auto-round#1776, sglang#6226, vllm#17850, vllm#48226, vllm#52263
// field-bug: sglang#38998, sglang#39317, vllm#47972, vllm#48044
TEST(ModelConfigError, QuantizationIsRefusedByName) {
  auto quantized = [](const char *config) {
    return std::string("\"quantization_config\": ") + config;
  };
  struct Case {
    const char *config;
    const char *message;
  } cases[] = {
      {R"({"quant_method": "other", "bits": 4})",
       "quantization \"other\" is not supported; \"fp8\" of tensors and of "
       "blocks, \"compressed-tensors\", \"modelopt\", \"gptq\", "
       "\"awq\", \"auto-round\", \"quark\", \"torchao\", \"bitsandbytes\", "
       "\"mxfp4\", \"hqq\", \"aqlm\", \"bitnet\", \"fbgemm_fp8\", \"gemma\" "
       "and \"metal\", and the object 'quantization' of MLX, are"},
      {R"({"quant_method": "eetq"})",
       "its weights are in the order of a kernel; quantize the model again, as "
       "int8 with torchao or bitsandbytes"},
      {R"({"bits": 4})",
       "'quantization_config.quant_method' is missing; it must be a string"},
      {R"({"quant_method": 8})", "must be a string, not 8"},
      {R"("fp8")", "'quantization_config' must be an object, not \"fp8\""},
      {R"({"quant_method": "fp8", "activation_scheme": "none"})",
       "'quantization_config.activation_scheme' must be \"dynamic\" or "
       "\"static\", not \"none\""},
      {R"({"quant_method": "fp8", "weight_block_size": [64, 24]})",
       "'quantization_config.weight_block_size' must be two numbers, the rows "
       "and columns of a block, columns a multiple of 16"},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128],
           "fmt": "e5m2"})",
       "'quantization_config.fmt' must be \"e4m3\" or \"float8_e4m3fn\", not "
       "\"e5m2\""},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128],
           "activation_scheme": "static"})",
       "'quantization_config.activation_scheme' must be \"dynamic\""},
      {R"({"quant_method": "fp8", "weight_block_size": [128, 128],
           "scale_fmt": "e8m0"})",
       "'quantization_config.scale_fmt' must be \"float\" or \"ue8m0\", "
       "not \"e8m0\""},
      {R"({"quant_method": "mxfp4", "group_size": 16})",
       "'quantization_config.group_size' = 16 is not supported"},
  };
  for (const Case &bad : cases) {
    SCOPED_TRACE(bad.config);
    std::string messages = importError(
        makeConfig("mixtral", join(kMixtral, quantized(bad.config))));
    EXPECT_NE(messages.find(bad.message), std::string::npos)
        << bad.config << "\n"
        << messages;
    EXPECT_EQ(llvm::StringRef(messages).count('^'), 1u) << messages;
  }
  LayerSpec spec = importOk(
      makeConfig("mixtral", join(kMixtral, quantized(R"({"quant_method": "fp8",
      "weight_block_size": [128, 128], "fmt": "e4m3",
      "activation_scheme": "dynamic",
      "modules_to_not_convert": ["lm_head", "mlp.shared_expert_gate"]})"))));
  EXPECT_EQ(spec.quantization, getQuantization("fp8_block128"));
}

/// A compressed-tensors configuration with one group.
std::string compressed(const std::string &weights, const std::string &inputs,
                       const std::string &rest = "") {
  return makeConfig(
      "mixtral",
      join(kMixtral,
           R"("quantization_config": {"quant_method": "compressed-tensors",
  "format": "float-quantized", "quantization_status": "compressed",
  "kv_cache_scheme": null, "version": "0.10.2", "sparsity_config": {},
  "global_compression_ratio": 1.4, "ignore": ["lm_head",
  "re:.*block_sparse_moe.gate$"], "config_groups": {"group_0": {
    "targets": ["Linear"], "output_activations": null,
    "weights": )" +
               weights + R"(, "input_activations": )" + inputs + rest + "}}}"));
}

const char *const kChannels = R"({"num_bits": 8, "type": "float",
  "strategy": "channel", "symmetric": true, "dynamic": false,
  "observer": "minmax", "observer_kwargs": {}, "group_size": null,
  "block_structure": null, "actorder": null})";
const char *const kTensor = R"({"num_bits": 8, "type": "float",
  "strategy": "tensor", "symmetric": true, "dynamic": false})";
const char *const kTokens = R"({"num_bits": 8, "type": "float",
  "strategy": "token", "symmetric": true, "dynamic": true, "observer": null})";

TEST(ModelConfig, Fp8OfTensors) {
  for (bool isStatic : {false, true}) {
    std::string scheme = isStatic ? "static" : "dynamic";
    LayerSpec spec = importOk(makeConfig(
        "mixtral",
        join(kMixtral, R"("quantization_config": {
        "quant_method": "fp8", "activation_scheme": ")" +
                           scheme + R"(", "kv_cache_scheme": "static"})")));
    EXPECT_EQ(spec.quantization,
              (QuantizationSpec{makeFp8(Granularity::Tensor),
                                makeFp8(Granularity::Tensor, isStatic)}));
  }
}

TEST(ModelConfig, CompressedTensors) {
  EXPECT_EQ(importOk(compressed(kChannels, kTokens)).quantization,
            (QuantizationSpec{makeFp8(Granularity::Channel),
                              makeFp8(Granularity::Token)}));
  EXPECT_EQ(importOk(compressed(kTensor, kTensor)).quantization,
            (QuantizationSpec{makeFp8(Granularity::Tensor),
                              makeFp8(Granularity::Tensor, true)}));
  EXPECT_EQ(importOk(compressed(kChannels, "null")).quantization,
            (QuantizationSpec{makeFp8(Granularity::Channel), std::nullopt}));
}

// field-bug: sglang#29761, llm-compressor#3069, sglang#37207, vllm#22468
// field-bug: vllm#49893, FreeToken#343, FreeToken#390, TensorRT-LLM#17725
TEST(ModelConfigError, CompressedTensorsOfOtherSchemes) {
  auto replace = [](std::string text, const char *from, const char *to) {
    return text.replace(text.find(from), strlen(from), to);
  };
  std::string path = "'quantization_config.config_groups.group_0.";
  struct Case {
    std::string config, message;
  } cases[] = {
      {compressed(replace(kChannels, "8", "4"), kTokens),
       path + "weights.num_bits' = 4 is not supported; 8 is"},
      {compressed(replace(kChannels, "float", "int"), kTokens),
       path + "weights.type' must be \"float\", not \"int\""},
      {compressed(replace(kChannels, "\"channel", "\"group"), kTokens),
       path + "weights.strategy' must be \"tensor\", \"channel\" or \"block\""},
      {compressed(
           replace(kChannels, "\"group_size\": null", "\"group_size\": 128"),
           kTokens),
       path + "weights.group_size' = 128 is not supported; null with"},
      {compressed(kChannels, replace(kTokens, "true, \"obs", "false, \"obs")),
       "must be true with strategy \"token\"; scales that are stored belong"},
      {compressed(kChannels, kTokens, R"(, "colour": 1)"),
       path + "colour' = 1 is not supported"},
      {replace(compressed(kChannels, kTokens), "float-quantized", "marlin-24"),
       "'quantization_config.format' must be \"pack-quantized\", "
       "\"int-quantized\", \"float-quantized\", \"naive-quantized\", "
       "\"mxfp8-quantized\", \"nvfp4-pack-quantized\" or "
       "\"mxfp4-pack-quantized\", not "
       "\"marlin-24\""},
      {replace(compressed(kChannels, kTokens), "[\"Linear\"]", "\"Linear\""),
       path + "targets' must be a list"},
      {replace(compressed(kChannels, kTokens), "\"sparsity_config\": {}",
               "\"sparsity_config\": {\"format\": \"dense\"}"),
       "'quantization_config.sparsity_config' is not supported"},
      {replace(compressed(kChannels, kTokens), "\"config_groups\": {",
               "\"config_groups\": {\"group_1\": {}, "),
       "'quantization_config.config_groups.group_1.targets' is missing"},
  };
  for (const Case &bad : cases) {
    std::string messages = importError(bad.config);
    EXPECT_NE(messages.find(bad.message), std::string::npos)
        << bad.message << "\n"
        << messages;
  }
}

} // namespace
