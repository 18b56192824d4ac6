//===- PublishedFamiliesTest.cpp - config.json as published -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Keys and values come from published files or from the code that reads them.
// Keys that do not concern experts are left out, and sizes are reduced.
//
//===----------------------------------------------------------------------===//

#include "ImportTesting.h"
#include "moec/Import/TensorSignature.h"

#include <array>
#include <cmath>

using namespace moec;
using namespace moec::testing;

namespace {

/// Hidden size, experts, experts per token, width of an expert.
void expectSizes(const LayerSpec &spec, std::array<int64_t, 4> sizes) {
  EXPECT_EQ(spec.hiddenSize, sizes[0]);
  EXPECT_EQ(spec.numExperts, sizes[1]);
  EXPECT_EQ(spec.topK, sizes[2]);
  EXPECT_EQ(spec.intermediateSize, sizes[3]);
}

/// A softmax router without groups and bias.
void expectSoftmax(const LayerSpec &spec, bool renormalize,
                   double scale = 1.0) {
  EXPECT_EQ(spec.routing.score, Score::Softmax);
  EXPECT_EQ(spec.routing.weight, RouteWeight::Score);
  EXPECT_EQ(spec.routing.select, Select::TopK);
  EXPECT_FALSE(spec.routing.selectionBias);
  EXPECT_FALSE(spec.routing.gateBias);
  EXPECT_EQ(spec.routing.numGroups, 1);
  EXPECT_EQ(spec.routing.renormalize, renormalize);
  EXPECT_EQ(spec.routing.scale, scale);
}

/// A sigmoid router whose weights are divided by their sum.
void expectSigmoid(const LayerSpec &spec, int64_t numGroups, int64_t topkGroups,
                   double scale, bool bias = true) {
  EXPECT_EQ(spec.routing.score, Score::Sigmoid);
  EXPECT_EQ(spec.routing.weight, RouteWeight::Score);
  EXPECT_EQ(spec.routing.select, Select::TopK);
  EXPECT_EQ(spec.routing.selectionBias, bias);
  EXPECT_EQ(spec.routing.numGroups, numGroups);
  EXPECT_EQ(spec.routing.topkGroups, topkGroups);
  if (numGroups > 1) {
    EXPECT_EQ(spec.routing.groupScore, GroupScore::Top2Sum);
  }
  EXPECT_TRUE(spec.routing.renormalize);
  EXPECT_EQ(spec.routing.scale, scale);
}

void expectShared(const LayerSpec &spec, int64_t width,
                  SharedGate gate = SharedGate::None) {
  ASSERT_TRUE(spec.sharedExperts);
  EXPECT_EQ(spec.sharedExperts->intermediateSize, width);
  EXPECT_EQ(spec.sharedExperts->gate, gate);
}

LayerSpec importLayer(std::string text, int64_t layer) {
  SpecOverrides overrides;
  overrides.layer = layer;
  return importOk(std::move(text), overrides);
}

TEST(PublishedFamilies, Grok1) {
  LayerSpec spec = importOk(R"({"architectures": ["Grok1ModelForCausalLM"],
      "model_type": "grok-1", "vocab_size": 131072, "hidden_size": 6144,
      "intermediate_size": 32768, "num_hidden_layers": 64,
      "attn_output_multiplier": 0.08838834764831845,
      "embedding_multiplier_scale": 78.38367176906169,
      "output_multiplier_scale": 0.5773502691896257, "max_attn_value": 30.0,
      "num_experts_per_tok": 2, "num_experts": 8,
      "output_router_logits": false, "router_aux_loss_coef": 0.001,
      "torch_dtype": "bfloat16"})");
  expectSizes(spec, {6144, 8, 2, 32768});
  expectSoftmax(spec, /*renormalize=*/false);
  EXPECT_FALSE(spec.routing.logitSoftcap);
  EXPECT_EQ(spec.activation.kind, Activation::Gelu);
  EXPECT_FALSE(spec.sharedExperts);
  EXPECT_EQ(spec.layerIndex, 0);
}

const char *const kGrok2 = R"({"architectures": ["Grok1ForCausalLM"],
    "embedding_multiplier_scale": 90.50966799187809,
    "output_multiplier_scale": 0.5, "vocab_size": 131072, "hidden_size": 8192,
    "intermediate_size": 32768, "moe_intermediate_size": 16384,
    "num_experts_per_tok": 2, "num_local_experts": 8, "residual_moe": true,
    "num_hidden_layers": 64, "final_logit_softcapping": 50,
    "attn_logit_softcapping": 30.0, "router_logit_softcapping": 30.0,
    "attn_temperature_len": 1024, "sliding_window_size": -1,
    "model_type": "git", "torch_dtype": "bfloat16", "rope_type": "original",
    "scaling_factor": 16.0, "extrapolation_factor": 1.0, "attn_factor": 1.0,
    "beta_fast": 8, "beta_slow": 1)";

TEST(PublishedFamilies, Grok2) {
  LayerSpec spec = importOk(std::string(kGrok2) + "}");
  double half = std::sqrt(0.5);
  expectSizes(spec, {8192, 8, 2, 16384});
  expectSoftmax(spec, /*renormalize=*/false, half);
  EXPECT_EQ(spec.routing.logitSoftcap, 30.0);
  EXPECT_EQ(spec.activation.kind, Activation::Gelu);
  expectShared(spec, 32768);
  EXPECT_EQ(spec.sharedExperts->scale, half);
  EXPECT_FALSE(spec.sharedExperts->activation);
  // A model without experts has the same name.
  EXPECT_NE(importError(R"({"model_type": "git", "hidden_size": 768,
      "architectures": ["GitForCausalLM"], "intermediate_size": 3072})")
                .find("'architectures' must be \"Grok1ForCausalLM\""),
            std::string::npos);
}

TEST(PublishedFamilies, Arctic) {
  const char *config = R"({"architectures": ["ArcticForCausalLM"],
      "model_type": "arctic", "hidden_act": "silu", "hidden_size": 7168,
      "intermediate_size": 4864, "moe_eval_capacity_factor": 1,
      "moe_layer_frequency": 2, "moe_min_capacity": 0,
      "moe_token_dropping": false, "moe_train_capacity_factor": 1,
      "enable_expert_tensor_parallelism": false, "num_experts_per_tok": 2,
      "num_hidden_layers": 35, "num_local_experts": 128,
      "parallel_attn_mlp_res": true, "use_residual": true,
      "router_aux_loss_coef": 0.001, "torch_dtype": "bfloat16"})";
  LayerSpec spec = importOk(config);
  expectSizes(spec, {7168, 128, 2, 4864});
  expectSoftmax(spec, /*renormalize=*/true);
  EXPECT_FALSE(spec.sharedExperts);
  EXPECT_EQ(spec.layerIndex, 1);
  EXPECT_EQ(importLayer(config, 33).layerIndex, 33);
  // With one expert per token the weight is not renormalized.
  spec = importOk(R"({"model_type": "arctic", "hidden_size": 64,
      "intermediate_size": 32, "num_local_experts": 8,
      "num_experts_per_tok": 1})");
  expectSoftmax(spec, /*renormalize=*/false);
}

TEST(PublishedFamilies, Step3) {
  const char *text = R"({"architectures": ["Step3TextForCausalLM"],
      "hidden_size": 7168, "intermediate_size": 18432,
      "num_attention_groups": 1, "num_hidden_layers": 61,
      "moe_intermediate_size": 5120, "moe_num_experts": 48, "moe_top_k": 3,
      "share_expert_dim": 5120, "share_q_dim": 2048,
      "norm_expert_weight": false, "moe_layers_enum": "4,5,6,57,58,59",
      "torch_dtype": "bfloat16")";
  for (const std::string &config :
       {std::string(R"({"model_type": "step3_vl", "projector_bias": false,
            "text_config": )") +
            text + R"(}, "vision_config": {"hidden_act": "quick_gelu"}})",
        text + std::string(R"(, "model_type": "step3_text"})")}) {
    LayerSpec spec = importOk(config);
    expectSizes(spec, {7168, 48, 3, 5120});
    expectSoftmax(spec, /*renormalize=*/false);
    EXPECT_EQ(spec.activation.kind, Activation::Silu);
    expectShared(spec, 5120);
    EXPECT_EQ(spec.layerIndex, 4);
    EXPECT_EQ(spec.dtype, DType::BF16);
  }
}

TEST(PublishedFamilies, Ling) {
  LayerSpec spec = importOk(R"({"architectures": ["BailingMoeForCausalLM"],
      "first_k_dense_replace": 0, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 1408, "model_type": "bailing_moe",
      "moe_intermediate_size": 1408, "num_experts": 64,
      "num_shared_experts": 2, "norm_topk_prob": true,
      "num_experts_per_tok": 6, "num_hidden_layers": 28, "pretraining_tp": 1,
      "rope_scaling": null, "torch_dtype": "bfloat16", "use_bias": false,
      "use_qkv_bias": false, "output_router_logits": false,
      "norm_head": false, "norm_softmax": false, "output_dropout": 0.0})");
  expectSizes(spec, {2048, 64, 6, 1408});
  expectSoftmax(spec, /*renormalize=*/true);
  expectShared(spec, 2816);
  EXPECT_EQ(spec.layerIndex, 0);
}

TEST(PublishedFamilies, Ling2) {
  const std::string keys = R"("first_k_dense_replace": 1, "hidden_act": "silu",
      "hidden_size": 2048, "intermediate_size": 5120,
      "moe_intermediate_size": 512, "moe_router_enable_expert_bias": true,
      "moe_shared_expert_intermediate_size": 512, "n_group": 8,
      "topk_group": 4, "norm_topk_prob": true, "num_experts": 256,
      "num_experts_per_tok": 8, "num_hidden_layers": 20,
      "num_shared_experts": 1, "routed_scaling_factor": 2.5,
      "score_function": "sigmoid", "router_dtype": "fp32",
      "partial_rotary_factor": 0.5, "num_nextn_predict_layers": 0,
      "use_bias": false, "use_qk_norm": true, "use_rmsnorm": true})";
  for (const char *type : {"bailing_moe", "bailing_moe_linear",
                           "bailing_moe_v2", "llada2_moe", "bailing_hybrid"}) {
    LayerSpec spec =
        importOk(std::string(R"({"model_type": ")") + type + "\", " + keys);
    expectSizes(spec, {2048, 256, 8, 512});
    expectSigmoid(spec, 8, 4, 2.5);
    EXPECT_EQ(spec.routing.renormalizeEpsilon, 1e-20);
    expectShared(spec, 512);
    EXPECT_EQ(spec.layerIndex, 1);
  }
  // Separate routers for images and sound.
  auto importMixed = [&](const std::string &router) {
    return importOk(R"({"model_type": "bailingmm_moe_v2_lite",
      "mlp_depth": 2, "llm_config": {"model_type": "bailing_moe_v2", )" +
                    router + keys + "}");
  };
  EXPECT_EQ(importMixed(R"("router_type": "MultiRouter", )").remarks.size(),
            1u);
  EXPECT_TRUE(importMixed(R"("router_type": "topN", )").remarks.empty());
}

// field-bug: vllm#33942, llama.cpp#20275
TEST(PublishedFamilies, Sarvam) {
  LayerSpec spec = importOk(R"({"model_type": "sarvam_mla",
      "hidden_size": 4096, "num_hidden_layers": 32, "num_experts": 128,
      "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
      "num_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1,
      "topk_group": 1, "norm_topk_prob": true, "routed_scaling_factor": 2.5,
      "score_function": "sigmoid", "moe_router_enable_expert_bias": true,
      "router_dtype": "fp32"})");
  expectSizes(spec, {4096, 128, 8, 2048});
  expectSigmoid(spec, 1, 1, 2.5);
  expectShared(spec, 2048);
  EXPECT_EQ(spec.layerIndex, 1);
  spec = importOk(R"({"model_type": "sarvam_moe", "hidden_size": 4096,
      "num_hidden_layers": 19, "num_experts": 128, "num_experts_per_tok": 6,
      "moe_intermediate_size": 1024, "num_shared_experts": 1,
      "moe_shared_expert_intermediate_size": 1024, "first_k_dense_replace": 1,
      "n_group": 1, "topk_group": 1, "norm_topk_prob": true,
      "routed_scaling_factor": 2.5, "score_function": "sigmoid",
      "moe_router_enable_expert_bias": true, "router_dtype": "fp32"})");
  expectSizes(spec, {4096, 128, 6, 1024});
  expectSigmoid(spec, 1, 1, 2.5);
  // The width is that of all shared experts.
  spec = importOk(R"({"model_type": "param2moe", "hidden_size": 2048,
      "num_hidden_layers": 21, "num_experts": 64, "num_experts_per_tok": 6,
      "moe_intermediate_size": 1024, "num_shared_experts": 2,
      "moe_shared_expert_intermediate_size": 2048, "first_k_dense_replace": 1,
      "score_function": "sigmoid", "routed_scaling_factor": 2.5})");
  expectSigmoid(spec, 1, 1, 2.5);
  expectShared(spec, 2048);
}

// Limits are lists with a value for each layer.
TEST(PublishedFamilies, Ling3) {
  std::string config = R"({"model_type": "bailing_moe_v3",
      "hidden_size": 2048, "num_hidden_layers": 4, "num_experts": 256,
      "num_experts_per_tok": 8, "moe_intermediate_size": 512,
      "num_shared_experts": 1, "moe_shared_expert_intermediate_size": 512,
      "first_k_dense_replace": 1, "n_group": 8, "topk_group": 4,
      "routed_scaling_factor": 2.5, "hidden_act": "silu",
      "expert_swiglu_limit_list": [null, 0, 7.0, 7.0],
      "share_expert_swiglu_limit_list": [null, 0, 0, 3.5])";
  LayerSpec spec = importLayer(config + "}", 1);
  expectSigmoid(spec, 8, 4, 2.5);
  EXPECT_EQ(spec.activation.kind, Activation::Silu);
  EXPECT_FALSE(spec.sharedExperts->activation);
  spec = importLayer(config + "}", 3);
  EXPECT_EQ(spec.activation.kind, Activation::SwigluStep);
  EXPECT_EQ(spec.activation.limit, 7.0);
  ASSERT_TRUE(spec.sharedExperts->activation);
  EXPECT_EQ(spec.sharedExperts->activation->limit, 3.5);
  EXPECT_TRUE(importOk(config + R"(, "multi_gate": false})").remarks.empty());
  EXPECT_EQ(importOk(config + R"(, "multi_gate": true})").remarks.size(), 1u);
}

TEST(PublishedFamilies, InternS1Pro) {
  LayerSpec spec = importOk(R"({"model_type": "interns1_pro", "text_config": {
      "model_type": "interns1_pro_text", "hidden_size": 4096,
      "num_hidden_layers": 94, "num_experts": 512, "num_experts_per_tok": 8,
      "moe_intermediate_size": 1536, "norm_topk_prob": true,
      "router_n_groups": 8}})");
  expectSizes(spec, {4096, 512, 8, 1536});
  EXPECT_EQ(spec.routing.select, Select::PerGroup);
  EXPECT_EQ(spec.routing.numGroups, 8);
  EXPECT_TRUE(spec.routing.renormalize);
}

TEST(PublishedFamilies, DeepSeekMoe) {
  LayerSpec spec = importOk(R"({"architectures": ["DeepseekForCausalLM"],
      "attention_bias": false, "aux_loss_alpha": 0.001,
      "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 10944, "model_type": "deepseek",
      "moe_intermediate_size": 1408, "moe_layer_freq": 1,
      "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
      "num_experts_per_tok": 6, "num_hidden_layers": 28, "pretraining_tp": 1,
      "rope_scaling": null, "scoring_func": "softmax", "seq_aux": true,
      "torch_dtype": "bfloat16"})");
  expectSizes(spec, {2048, 64, 6, 1408});
  expectSoftmax(spec, /*renormalize=*/false);
  expectShared(spec, 2816);
  EXPECT_EQ(spec.layerIndex, 1);
}

TEST(PublishedFamilies, DeepSeekVl2) {
  auto import = [](const std::string &router) {
    return importOk(R"({"model_type": "deepseek_vl_v2", "tile_tag": "2D",
      "global_view_pos": "head", "projector_config": {"n_embed": 1280},
      "vision_config": {"layers": 27}, "torch_dtype": "bfloat16",
      "language_config": {"architectures": ["DeepseekV2ForCausalLM"],
      "model_type": "deepseek_v2", "hidden_size": 1280,
      "first_k_dense_replace": 1, "intermediate_size": 6848,
      "moe_intermediate_size": 896, "n_group": 1, "n_routed_experts": 64,
      "n_shared_experts": 2, "num_experts_per_tok": 6,
      "num_hidden_layers": 12, "topk_group": 1, "use_mla": false, )" +
                    router + "}}");
  };
  LayerSpec spec = import(R"("topk_method": "greedy")");
  EXPECT_EQ(spec.modelType, "deepseek_vl_v2");
  expectSizes(spec, {1280, 64, 6, 896});
  expectSoftmax(spec, /*renormalize=*/false);
  expectShared(spec, 1792);
  EXPECT_EQ(spec.layerIndex, 1);
  spec = import(R"("topk_method": "noaux_tc", "scoring_func": "sigmoid",
      "norm_topk_prob": true, "routed_scaling_factor": 2.0)");
  expectSigmoid(spec, 1, 1, 2.0);
}

TEST(PublishedFamilies, LikeDeepSeekV3) {
  const std::string keys = R"("first_k_dense_replace": 1, "hidden_act": "silu",
      "hidden_size": 7168, "moe_intermediate_size": 2048, "moe_layer_freq": 1,
      "n_group": 8, "n_routed_experts": 192, "n_shared_experts": 1,
      "norm_topk_prob": true, "num_experts_per_tok": 8,
      "num_hidden_layers": 61, "routed_scaling_factor": 2.5,
      "scoring_func": "sigmoid", "topk_group": 4, "topk_method": "noaux_tc"})";
  for (const char *type : {"AXK1", "dots_vlm", "gigachat3_5"}) {
    LayerSpec spec =
        importOk(std::string(R"({"model_type": ")") + type + "\", " + keys);
    expectSizes(spec, {7168, 192, 8, 2048});
    expectSigmoid(spec, 8, 4, 2.5);
    expectShared(spec, 2048);
    EXPECT_EQ(spec.layerIndex, 1);
  }
}

TEST(PublishedFamilies, MiMoV2) {
  // The file has null for features that the model's code lacks.
  LayerSpec spec = importOk(R"({"model_type": "mimo_v2_flash",
      "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 16384,
      "moe_intermediate_size": 2048, "moe_layer_freq": [0, 1, 1],
      "n_group": 1, "n_routed_experts": 256, "n_shared_experts": null,
      "norm_topk_prob": true, "num_experts_per_tok": 8,
      "num_hidden_layers": 3, "routed_scaling_factor": null,
      "scoring_func": "sigmoid", "topk_group": 1, "topk_method": "noaux_tc"})");
  expectSizes(spec, {4096, 256, 8, 2048});
  expectSigmoid(spec, 1, 1, 1.0);
  EXPECT_FALSE(spec.sharedExperts);
  EXPECT_EQ(spec.layerIndex, 1);
}

const char *const kMiniMax = R"("hidden_act": "silu", "hidden_size": 6144,
    "intermediate_size": 9216, "layernorm_mlp_alpha": 3.5565588200778455,
    "layernorm_mlp_beta": 1.0, "num_experts_per_tok": 2,
    "num_hidden_layers": 80, "num_local_experts": 32,
    "output_router_logits": false, "postnorm": true,
    "router_aux_loss_coef": 0.001, "router_jitter_noise": 0.0,
    "shared_moe_mode": "sigmoid", "shared_intermediate_size": )";

TEST(PublishedFamilies, MiniMax) {
  auto make = [](const std::string &type, const std::string &shared) {
    return R"({"model_type": ")" + type + "\", " + kMiniMax + shared + "}";
  };
  for (const std::string &config :
       {make("minimax_m1", "0"), make("minimax_text_01", "[0]"),
        R"({"model_type": "minimax_vl_01", "projector_hidden_act": "gelu",
            "text_config": )" +
            make("minimax_text_01", "0") + "}"}) {
    LayerSpec spec = importOk(config);
    expectSizes(spec, {6144, 32, 2, 9216});
    expectSoftmax(spec, /*renormalize=*/true);
    EXPECT_FALSE(spec.sharedExperts);
  }
  // The shared expert has a gate per token.
  EXPECT_NE(importError(make("minimax_m1", "4736"))
                .find("'shared_intermediate_size' must be 0, not 4736"),
            std::string::npos);
}

TEST(PublishedFamilies, Hunyuan) {
  LayerSpec spec = importOk(R"({"architectures": ["HunYuanForCausalLM"],
      "model_type": "hunyuan", "attention_bias": false,
      "attention_head_dim": 128, "capacity_factor": 1.0,
      "cla_share_factor": 2, "hidden_act": "silu", "hidden_size": 6400,
      "intermediate_size": 18304, "mlp_bias": false,
      "moe_drop_tokens": false, "moe_layer_num_skipped": 0,
      "moe_random_routing_dropped_token": false, "moe_topk": 1,
      "norm_type": "rms", "num_experts": 16, "num_hidden_layers": 64,
      "num_shared_expert": 1, "use_cla": true, "use_mixed_mlp_moe": true,
      "torch_dtype": "bfloat16"})");
  expectSizes(spec, {6400, 16, 1, 18304});
  expectSoftmax(spec, /*renormalize=*/false);
  expectShared(spec, 18304);

  spec = importOk(R"({"architectures": ["HunYuanMoEV1ForCausalLM"],
      "model_type": "hunyuan", "attention_bias": false,
      "dense_list": [4096, 0], "group_limited_greedy": false,
      "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 3072,
      "mlp_bias": false, "moe_drop_tokens": false,
      "moe_intermediate_size": [3072, 3072], "moe_layer_num_skipped": 0,
      "moe_random_routing_dropped_token": false, "moe_topk": [8, 8],
      "n_group": false, "norm_topk_prob": true, "norm_type": "hf_rms",
      "num_experts": 64, "num_hidden_layers": 2, "num_shared_expert": [1, 1],
      "routed_scaling_factor": 1.0, "topk_group": false, "use_cla": false,
      "use_mixed_mlp_moe": true, "use_qk_norm": true})");
  expectSizes(spec, {4096, 64, 8, 3072});
  expectSoftmax(spec, /*renormalize=*/true);
  expectShared(spec, 3072);
}

TEST(PublishedFamilies, Pangu) {
  LayerSpec spec = importOk(R"({"architectures": ["PanguProMoEForCausalLM"],
      "model_type": "PanguProMoE", "hidden_act": "silu", "hidden_size": 5120,
      "num_hidden_layers": 48, "moe_intermediate_size": 1344,
      "shared_expert_intermediate_size": 5376, "num_experts_per_tok": 8,
      "num_experts": 64, "output_router_logits": false,
      "router_aux_loss_coef": 0.001})");
  expectSizes(spec, {5120, 64, 8, 1344});
  EXPECT_EQ(spec.routing.score, Score::Softmax);
  EXPECT_EQ(spec.routing.select, Select::PerGroup);
  EXPECT_EQ(spec.routing.numGroups, 8);
  EXPECT_EQ(spec.routing.topkGroups, 1);
  EXPECT_TRUE(spec.routing.expertScale);
  EXPECT_FALSE(spec.routing.renormalize);
  expectShared(spec, 5376);

  spec = importOk(R"({"architectures": ["PanguUltraMoEForCausalLM"],
      "model_type": "pangu_ultra_moe", "hidden_act": "silu",
      "hidden_size": 7680, "first_k_dense_replace": 3,
      "moe_intermediate_size": 2048, "n_routed_experts": 256,
      "n_shared_experts": 1, "norm_topk_prob": true,
      "num_experts_per_tok": 8, "num_hidden_layers": 61,
      "routed_scaling_factor": 2.5, "router_enable_expert_bias": true,
      "sandwich_norm": true})");
  expectSizes(spec, {7680, 256, 8, 2048});
  expectSigmoid(spec, 1, 1, 2.5);
  expectShared(spec, 2048);
  EXPECT_EQ(spec.layerIndex, 3);
}

TEST(PublishedFamilies, LongCat) {
  for (const char *type : {"longcat_flash", "longcat_flash_ngram"}) {
    LayerSpec spec = importOk(std::string(R"({"model_type": ")") + type +
                              R"(", "attention_method": "MLA",
      "zero_expert_num": 256, "zero_expert_type": "identity",
      "hidden_size": 6144, "ffn_hidden_size": 12288, "moe_topk": 12,
      "expert_ffn_hidden_size": 2048, "n_routed_experts": 512,
      "num_layers": 28, "routed_scaling_factor": 6.0,
      "mla_scale_q_lora": true, "mla_scale_kv_lora": true,
      "attention_bias": false})");
    expectSizes(spec, {6144, 512, 12, 2048});
    EXPECT_EQ(spec.numZeroExperts, 256);
    EXPECT_EQ(spec.routing.score, Score::Softmax);
    EXPECT_TRUE(spec.routing.selectionBias);
    EXPECT_FALSE(spec.routing.renormalize);
    EXPECT_EQ(spec.routing.scale, 6.0);
  }
}

TEST(PublishedFamilies, OthersOfEngines) {
  LayerSpec spec = importOk(R"({"model_type": "sdar_moe", "hidden_size": 2048,
      "decoder_sparse_step": 1, "hidden_act": "silu", "mlp_only_layers": [],
      "moe_intermediate_size": 768, "norm_topk_prob": true,
      "num_experts": 128, "num_experts_per_tok": 8,
      "num_hidden_layers": 48})");
  expectSizes(spec, {2048, 128, 8, 768});
  expectSoftmax(spec, /*renormalize=*/true);

  spec = importOk(R"({"model_type": "alice_ai", "hidden_size": 2048,
      "moe_intermediate_size": 512, "shared_expert_intermediate_size": 512,
      "num_experts": 512, "num_experts_per_tok": 10, "num_hidden_layers": 4,
      "router_score_function": "sigmoid", "router_bias_correction": true})");
  expectSigmoid(spec, 1, 1, 1.0);
  expectShared(spec, 512, SharedGate::Sigmoid);

  spec = importOk(R"({"model_type": "k2_horizon", "hidden_size": 64,
      "attention_gate_func": "softplus", "num_hidden_layers": 4,
      "intermediate_size": 48, "moe_intermediate_size": 32, "num_experts": 4,
      "num_experts_per_tok": 2, "num_shared_experts": 1,
      "mova_num_experts": 3, "mova_num_experts_per_tok": 2,
      "mlp_only_layers": [0, 1], "decoder_sparse_step": 1,
      "layernorm_num_groups": 2, "moe_gate_bias": true,
      "router_score_func": "sigmoid", "router_scaling_factor": 2.5,
      "norm_topk_prob": true})");
  expectSizes(spec, {64, 4, 2, 32});
  expectSigmoid(spec, 1, 1, 2.5);
  EXPECT_FALSE(spec.routing.gateBias);
  expectShared(spec, 32);
  EXPECT_EQ(spec.layerIndex, 2);

  spec = importOk(R"({"model_type": "iquest_q1", "hidden_size": 64,
      "dense_intermediate_size": 256, "intermediate_size": 32,
      "num_hidden_layers": 88, "num_experts": 256, "num_experts_per_tok": 8,
      "mlp_only_layers": [0], "moe_router_dtype": "fp32",
      "ffn_out_scale": 0.53881590608, "first_layer_ffn_out_scale": 1.0})");
  expectSizes(spec, {64, 256, 8, 32});
  expectSoftmax(spec, /*renormalize=*/true);
  EXPECT_EQ(spec.layerIndex, 1);
}

/// Keys in published files of families of Transformers.
TEST(PublishedFamilies, FilesOfTransformersFamilies) {
  LayerSpec spec = importOk(R"({"model_type": "phimoe",
      "architectures": ["PhiMoEForCausalLM"], "attention_bias": true,
      "hidden_act": "silu", "hidden_size": 4096, "input_jitter_noise": 0.01,
      "intermediate_size": 6400, "lm_head_bias": true,
      "num_experts_per_tok": 2, "num_hidden_layers": 32,
      "num_local_experts": 16, "output_router_logits": false,
      "router_aux_loss_coef": 0.0, "router_jitter_noise": 0.01})");
  expectSizes(spec, {4096, 16, 2, 6400});
  EXPECT_EQ(spec.routing.select, Select::SparseMixer);

  spec = importOk(R"({"model_type": "jamba", "attn_layer_offset": 4,
      "attn_layer_period": 8, "expert_layer_offset": 1,
      "expert_layer_period": 2, "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 14336, "mamba_conv_bias": true,
      "mamba_proj_bias": false, "num_experts": 16, "num_experts_per_tok": 2,
      "num_hidden_layers": 32, "num_logits_to_keep": 1,
      "router_aux_loss_coef": 0.001, "use_mamba_kernels": true})");
  expectSoftmax(spec, /*renormalize=*/false);
  EXPECT_EQ(spec.layerIndex, 1);

  spec = importOk(R"({"model_type": "gpt_oss", "hidden_act": "silu",
      "attention_bias": true, "experts_per_token": 4, "hidden_size": 2880,
      "intermediate_size": 2880, "num_experts_per_tok": 4,
      "num_hidden_layers": 36, "num_local_experts": 128,
      "output_router_logits": false, "router_aux_loss_coef": 0.9,
      "swiglu_limit": 7.0, "quantization_config": {"quant_method": "mxfp4",
      "modules_to_not_convert": ["model.layers.*.self_attn",
      "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}})");
  expectSizes(spec, {2880, 128, 4, 2880});
  EXPECT_EQ(spec.quantization, getQuantization("mxfp4"));

  spec = importOk(R"({"model_type": "granitemoe", "attention_multiplier": 0.1,
      "embedding_multiplier": 12.0, "hidden_act": "silu",
      "hidden_size": 1024, "intermediate_size": 512, "logits_scaling": 6.0,
      "num_experts_per_tok": 8, "num_hidden_layers": 24,
      "num_local_experts": 32, "residual_multiplier": 0.22,
      "output_router_logits": false, "router_aux_loss_coef": 0.0})");
  EXPECT_EQ(spec.routing.weight, RouteWeight::Softmax);
}

//===----------------------------------------------------------------------===//
// Nested objects with their own model_type
//===----------------------------------------------------------------------===//

const char *const kKimi = R"("hidden_act": "silu", "hidden_size": 7168,
    "first_k_dense_replace": 1, "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 384,
    "n_shared_experts": 1, "norm_topk_prob": true, "num_experts_per_tok": 8,
    "num_hidden_layers": 61, "routed_scaling_factor": 2.827, "seq_aux": true,
    "scoring_func": "sigmoid", "topk_group": 1, "topk_method": "noaux_tc"})";

TEST(PublishedFamilies, WithinOtherModels) {
  struct Case {
    const char *type;
    const char *object;
    const char *inner;
  } cases[] = {{"kimi_k25", "text_config", "kimi_k2"},
               {"kimi_vl", "text_config", "deepseek_v3"},
               {"internvl_chat", "llm_config", "kimi_k2"}};
  for (const Case &c : cases) {
    LayerSpec spec = importOk(
        std::string(R"({"model_type": ")") + c.type +
        R"(", "torch_dtype": "float16", "vision_config": {"hidden_act": "x"},
        ")" +
        c.object + R"(": {"model_type": ")" + c.inner + "\", " + kKimi + "}");
    EXPECT_EQ(spec.modelType, c.inner);
    EXPECT_EQ(spec.dtype, DType::F16);
    expectSizes(spec, {7168, 384, 8, 2048});
    expectSigmoid(spec, 1, 1, 2.827);
    expectShared(spec, 2048);
    EXPECT_EQ(spec.layerIndex, 1);
  }
  LayerSpec spec = importOk(R"({"model_type": "interns1",
      "projector_hidden_act": "gelu", "text_config": {
      "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe",
      "decoder_sparse_step": 1, "hidden_size": 4096,
      "intermediate_size": 12288, "mlp_only_layers": [],
      "moe_intermediate_size": 1536, "norm_topk_prob": true,
      "num_experts": 128, "num_experts_per_tok": 8,
      "num_hidden_layers": 94}})");
  expectSizes(spec, {4096, 128, 8, 1536});
  expectSoftmax(spec, /*renormalize=*/true);
}

TEST(PublishedFamilies, WithinOtherModelsErrors) {
  struct Case {
    const char *config;
    const char *message;
  } cases[] = {
      {R"({"model_type": "llava", "text_config": {"model_type": "llama"}})",
       "the layers of model_type \"llama\" cannot be compiled: it is a dense "
       "model"},
      {R"({"model_type": "llava", "text_config": {"model_type": "qwen3_mo"}})",
       "unknown model_type \"qwen3_mo\"; did you mean \"qwen3_moe\"?"},
      {R"({"model_type": "llava", "text_config": {}})",
       "'text_config.model_type' is missing; it must be the name of the "
       "family"},
      {R"({"model_type": "llava"})", "'text_config' is missing"},
      {R"({"model_type": "llava", "text_config": {"model_type": 3}})",
       "'text_config.model_type' must be a string"},
      {R"({"model_type": "llava", "swiglu_limit": 7, "text_config": {
           "model_type": "mixtral", "hidden_size": 64, "num_local_experts": 8,
           "num_experts_per_tok": 2, "intermediate_size": 128}})",
       "'swiglu_limit' = 7 is not supported"},
      {R"({"model_type": "llava", "text_config": {"model_type": "mixtral",
           "hidden_size": 64, "num_local_experts": 0,
           "num_experts_per_tok": 2, "intermediate_size": 128}})",
       "'text_config.num_local_experts' must be an integer"},
  };
  for (const Case &bad : cases) {
    std::string messages = importError(bad.config);
    EXPECT_NE(messages.find(bad.message), std::string::npos)
        << bad.config << "\n"
        << messages;
  }
}

TEST(PublishedFamilies, KimiK3) {
  auto make = [](const char *norm) {
    return std::string(R"({"model_type": "kimi_k3", "text_config": {
        "model_type": "kimi_linear", "hidden_size": 7168,
        "moe_intermediate_size": 3072, "num_experts": 896,
        "num_experts_per_token": 16, "num_hidden_layers": 93,
        "num_shared_experts": 2, "first_k_dense_replace": 1,
        "hidden_act": "situ", "activation_situ_beta": 4.0,
        "activation_situ_linear_beta": 25.0, "moe_renormalize": true,
        "moe_router_activation_func": "sigmoid", "topk_group": 1,
        "num_expert_group": 1, "routed_scaling_factor": 2.5,
        "routed_expert_hidden_size": 3584, "latent_moe_use_norm": )") +
           norm + "}}";
  };
  LayerSpec spec = importOk(make("false"));
  expectSizes(spec, {7168, 896, 16, 3072});
  expectSigmoid(spec, 1, 1, 2.5);
  expectShared(spec, 6144);
  EXPECT_EQ(spec.latentSize, 3584);
  EXPECT_EQ(spec.activation.kind, Activation::Situ);
  EXPECT_EQ(spec.activation.beta, 4.0);
  EXPECT_EQ(spec.activation.linearBeta, 25.0);
  EXPECT_EQ(spec.layerIndex, 1);
  EXPECT_FALSE(spec.norms);
  spec = importOk(make("true"));
  EXPECT_EQ(spec.norms.latentOut->epsilon, 1e-6);
  EXPECT_FALSE(spec.norms.latentIn || spec.norms.expert);
}

TEST(PublishedFamilies, Step5) {
  const std::string text = R"({"model_type": "step5", "hidden_size": 5120,
      "moe_intermediate_size": 1536, "moe_num_experts": 288, "moe_top_k": 8,
      "share_expert_dim": 1536, "num_hidden_layers": 4,
      "moe_layers_enum": "1,2,3", "moe_router_activation": "sigmoid",
      "moe_router_scaling_factor": 3.0, "norm_expert_weight": true,
      "use_moe_router_bias": true, "need_fp32_gate": true, "use_moe": true,
      "swiglu_limits": [0, 0, 7.0, 7.0], "swiglu_limits_shared": [0, 0, 0, 16],
      "sparse_config": {"topk": 1}})";
  LayerSpec spec = importOk(text);
  expectSizes(spec, {5120, 288, 8, 1536});
  expectSigmoid(spec, 1, 1, 3.0);
  expectShared(spec, 1536);
  EXPECT_EQ(spec.layerIndex, 1);
  EXPECT_EQ(spec.activation.kind, Activation::Silu);
  spec = importLayer(
      R"({"model_type": "step5_vl", "text_config": )" + text + "}", 3);
  EXPECT_EQ(spec.activation.kind, Activation::SwigluStep);
  EXPECT_EQ(spec.activation.limit, 7.0);
  EXPECT_EQ(spec.sharedExperts->activation->limit, 16.0);
}

TEST(PublishedFamilies, OthersOfLlamaCpp) {
  LayerSpec spec = importOk(R"({"model_type": "llada", "hidden_size": 2048,
      "num_experts": 64, "num_experts_per_tok": 8, "num_hidden_layers": 16,
      "expert_intermediate_size": 1024, "dense_intermediate_size": 8192,
      "shared_expert_intermediate_size": null, "hidden_act": "silu",
      "moe_layer_freq": [0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1],
      "router_aux_loss_coef": 0.01})");
  expectSizes(spec, {2048, 64, 8, 1024});
  expectSoftmax(spec, /*renormalize=*/false);
  EXPECT_EQ(spec.layerIndex, 1);

  spec = importOk(R"({"model_type": "rnd1", "hidden_size": 2048,
      "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
      "moe_intermediate_size": 768, "decoder_sparse_step": 1,
      "mlp_only_layers": []})");
  expectSoftmax(spec, /*renormalize=*/true);

  spec = importOk(R"({"model_type": "xverse", "hidden_size": 2560,
      "num_experts": 64, "moe_top_k": 6, "intermediate_size": 1728,
      "num_shared_experts": 2, "num_hidden_layers": 28,
      "hidden_act": "silu"})");
  expectSizes(spec, {2560, 64, 6, 1728});
  expectSoftmax(spec, /*renormalize=*/false);
  expectShared(spec, 3456);

  spec = importOk(R"({"model_type": "minicpm", "hidden_size": 2304,
      "num_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 5760,
      "num_hidden_layers": 40, "scale_depth": 1.4, "hidden_act": "silu"})");
  expectSizes(spec, {2304, 8, 2, 5760});
  expectSoftmax(spec, /*renormalize=*/true);
}

TEST(PublishedFamilies, RoutersOutside) {
  const std::string head = R"({"model_type": "smallthinker",
      "hidden_size": 2560, "moe_num_primary_experts": 64,
      "moe_num_active_primary_experts": 6, "moe_ffn_hidden_size": 768,
      "num_hidden_layers": 3, "moe_layer_layout": [0, 1, 1],
      "moe_enable_early_router": )";
  LayerSpec spec = importOk(head + "true}");
  expectSizes(spec, {2560, 64, 6, 768});
  EXPECT_EQ(spec.entry, Entry::Logits);
  EXPECT_EQ(spec.activation.kind, Activation::Relu);
  EXPECT_EQ(spec.routing.score, Score::Sigmoid);
  EXPECT_EQ(spec.layerIndex, 1);
  spec = importOk(head + R"(true, "moe_primary_router_apply_softmax": true})");
  EXPECT_EQ(spec.routing.score, Score::Softmax);
  EXPECT_NE(importError(head + "false}").find("'moe_enable_early_router'"),
            std::string::npos);
  EXPECT_NE(importError(head + R"(true,
                "moe_primary_router_apply_softmax": 1})")
                .find("'moe_primary_router_apply_softmax' must be"),
            std::string::npos);

  spec = importOk(R"({"model_type": "zaya", "hidden_size": 2048,
      "num_experts": 16, "num_experts_per_tok": 1, "num_hidden_layers": 4,
      "moe_intermediate_size": 2048, "router_hidden_size": 256})");
  // The skip is an expert of no rank.
  expectSizes(spec, {2048, 17, 1, 2048});
  EXPECT_EQ(spec.placement->localExperts->size(), 16u);
  EXPECT_EQ(spec.entry, Entry::Logits);
  EXPECT_TRUE(spec.routing.selectionBias);
}

TEST(PublishedFamilies, WidthsThatKeysLeaveOut) {
  const std::string head = R"({"model_type": "phixtral", "n_embd": 2560,
      "num_local_experts": 4, "num_experts_per_tok": 2, "n_layer": 32,
      "activation_function": "gelu_new")";
  expectSizes(importOk(head + "}"), {2560, 4, 2, 10240});
  LayerSpec spec = importOk(head + R"(, "n_inner": 512})");
  expectSizes(spec, {2560, 4, 2, 512});
  EXPECT_EQ(spec.activation.kind, Activation::GeluTanhNoMul);
  EXPECT_TRUE(spec.expertBias);
}

TEST(PublishedFamilies, ExpertsThatEveryTokenHas) {
  const std::string head = R"({"model_type": "inkling_model",
      "hidden_size": 6144, "n_routed_experts": 256, "n_shared_experts": 2,
      "num_experts_per_tok": 6, "num_hidden_layers": 66, "dense_mlp_idx": 2,
      "intermediate_size": )";
  LayerSpec spec =
      importOk(head + R"(3072, "dense_intermediate_size": 24576})");
  expectSizes(spec, {6144, 258, 8, 3072});
  EXPECT_EQ(spec.numAlwaysChosen, 2);
  EXPECT_EQ(spec.layerIndex, 2);
  spec = importOk(head + R"(24576, "moe_intermediate_size": 3072})");
  expectSizes(spec, {6144, 258, 8, 3072});
  EXPECT_NE(importError(head + R"(3072, "shared_expert_sink": false})")
                .find("'shared_expert_sink'"),
            std::string::npos);
}

TEST(PublishedFamilies, MuseSpark) {
  LayerSpec spec = importOk(R"({"model_type": "muse_spark", "text_config": {
      "model_type": "muse_spark_text", "hidden_size": 8192,
      "moe_intermediate_size": 4096, "num_local_experts": 256,
      "num_experts_per_tok": 8, "num_hidden_layers": 62,
      "moe_hidden_size": 4096, "output_multiplier": 0.25,
      "post_norm_eps": 1e-8, "rms_norm_eps": 1e-5}})");
  expectSizes(spec, {8192, 256, 8, 4096});
  EXPECT_EQ(spec.latentSize, 4096);
  EXPECT_EQ(spec.routing.logitScale, 0.25);
  EXPECT_EQ(spec.norms.latentIn->epsilon, 1e-5);
  EXPECT_EQ(spec.norms.latentIn->offset, 1.0);
  EXPECT_TRUE(spec.norms.expert->weightFirst);
  EXPECT_FALSE(spec.norms.latentOut);
}

// field-bug: vllm#57274
TEST(PublishedFamilies, EmptyExperts) {
  LayerSpec spec = importOk(R"({"model_type": "glm4_moe_lite_plus_plus",
      "hidden_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32, "hidden_act": "silu", "zce_nums": [2],
      "zce_types": ["copy"], "num_hidden_layers": 2})");
  expectSizes(spec, {64, 8, 2, 32});
  EXPECT_EQ(spec.numZeroExperts, 2);
}

TEST(PublishedFamilies, Capacity) {
  const std::string config = R"({"model_type": "switch_transformers",
      "d_model": 64, "d_ff": 96, "num_experts": 4, "expert_capacity": 32,
      "decoder_sparse_step": 2, "num_decoder_layers": 4, "num_layers": 4})";
  SpecOverrides overrides;
  overrides.maxTokens = 32;
  LayerSpec spec = importOk(config, overrides);
  expectSizes(spec, {64, 4, 1, 96});
  EXPECT_EQ(spec.activation.kind, Activation::ReluNoMul);
  EXPECT_FALSE(spec.routing.renormalize);
  EXPECT_EQ(spec.layerIndex, 1);
  EXPECT_NE(importError(config).find(
                "'expert_capacity' is 32, and a call may have 16384 tokens "
                "(max_tokens)"),
            std::string::npos);
}

// field-bug: vllm#32549
TEST(PublishedFamilies, ObjectsOfLayers) {
  const std::string head = R"({"model_type": "nemotron_h_puzzle",
      "hidden_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32, "moe_shared_expert_intermediate_size": 0)";
  for (const auto &[rest, message] :
       {std::pair("", "'block_configs' is missing"),
        std::pair(R"(, "block_configs": [3])", "'block_configs'"),
        std::pair(R"(, "block_configs": [{"block_type": "mamba"}])",
                  "no decoder layer of this model has experts"),
        std::pair(R"(, "block_configs": [{"block_type": "moe",
                  "moe_new_key": 1}])",
                  "'block_configs.moe_new_key' = 1 is not supported")})
    EXPECT_NE(importError(head + rest + "}").find(message), std::string::npos)
        << rest;
  SpecOverrides overrides;
  for (int64_t layer : {1, 2}) {
    overrides.layer = layer;
    expectSizes(importOk(head + R"(, "block_configs": [{"block_type": "mamba"},
                    {"block_type": "moe", "n_routed_experts": 4},
                    {"block_type": "moe", "n_routed_experts": 6,
                     "moe_intermediate_size": 16}]})",
                         overrides),
                {64, layer == 1 ? 4 : 6, 2, layer == 1 ? 32 : 16});
  }
}

TEST(PublishedFamilies, SharedNarrowExperts) {
  LayerSpec spec = importOk(R"({"architectures": ["GroveMoeForCausalLM"],
      "decoder_sparse_step": 1, "head_dim": 128, "hidden_act": "silu",
      "hidden_size": 2048, "intermediate_size": 6144, "mlp_only_layers": [],
      "model_type": "grove_moe", "moe_intermediate_size": 768,
      "norm_topk_prob": true, "num_experts": 128, "num_experts_per_tok": 8,
      "num_hidden_layers": 48, "router_aux_loss_coef": 0.001})");
  // An expert's own columns and those of the pair's.
  expectSizes(spec, {2048, 128, 8, 768 + 128});
  expectSoftmax(spec, /*renormalize=*/true);
  ASSERT_TRUE(spec.adjugate);
  EXPECT_EQ(spec.adjugate->numExperts, 2);
  EXPECT_EQ(spec.adjugate->width, 128);
  EXPECT_EQ(spec.adjugate->factor, 0.05);
}

TEST(PublishedFamilies, Klear) {
  LayerSpec spec = importOk(R"({"model_type": "Klear", "hidden_size": 2048,
      "num_experts": 256, "num_experts_per_tok": 8,
      "moe_intermediate_size": 896, "n_shared_experts": 1,
      "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
      "num_hidden_layers": 32, "intermediate_size": 9216})");
  expectSizes(spec, {2048, 256, 8, 896});
  expectSigmoid(spec, 1, 1, 1.0);
  expectShared(spec, 896, SharedGate::Softmax);
  EXPECT_TRUE(spec.sharedExperts->gateBias);
}

TEST(PublishedFamilies, Skywork) {
  const std::string head = R"({"model_type": "skywork", "hidden_size": 4608,
      "intermediate_size": 12288, "num_experts": [16], "num_hidden_layers": 52,
      "moe_expert_interval": 1, "moe_use_mixtral_gating": false)";
  LayerSpec spec = importOk(head + "}");
  expectSizes(spec, {4608, 16, 2, 12288});
  expectSoftmax(spec, /*renormalize=*/true);
  EXPECT_EQ(spec.routing.gateHiddenSize, 8 * 16);
  EXPECT_EQ(spec.inputFactor, 2.0);
  auto getFactors = [&] {
    std::vector<double> factors;
    for (const TensorInfo &tensor : getTensorSignature(spec))
      if (tensor.name == "experts.w13")
        for (const CheckpointForm &form : tensor.checkpointForms)
          for (const CheckpointPart &part : form)
            factors.push_back(part.factor);
    return factors;
  };
  std::vector<double> factors = getFactors();
  EXPECT_FALSE(factors.empty());
  EXPECT_EQ(factors, std::vector<double>(factors.size(), 2.0));
  // A package keeps the spec alone: its layer takes no checkpoint by itself.
  spec.inputFactor.reset();
  EXPECT_TRUE(getFactors().empty());
  spec = importOk(
      head + R"(, "moe_2layer_gate": false, "moe_feature_no_mul_topk": true})");
  EXPECT_FALSE(spec.routing.gateHiddenSize);
  EXPECT_EQ(spec.inputFactor, 1.0);
  spec = importOk(head + R"(, "moe_use_logits_norm": true})");
  EXPECT_EQ(spec.entry, Entry::Logits);
  EXPECT_FALSE(spec.routing.gateHiddenSize);
  EXPECT_EQ(spec.remarks.size(), 1u);
}

TEST(PublishedFamilies, BiasOfTheSum) {
  LayerSpec spec = importOk(R"({"model_type": "nomic_bert", "n_embd": 768,
      "n_inner": 3072, "n_layer": 12, "num_experts": 8, "moe_top_k": 2,
      "moe_every_n_layers": 2, "moe_normalize_expert_weights": false,
      "activation_function": "gelu", "num_shared_experts": 0,
      "expert_choice_router": false, "ffn_div": 1, "moe_resid_pdrop": 0.0})");
  expectSizes(spec, {768, 8, 2, 3072});
  expectSoftmax(spec, /*renormalize=*/false);
  EXPECT_TRUE(spec.outputBias);
  EXPECT_EQ(spec.layerIndex, 1);
  EXPECT_EQ(spec.activation.kind, Activation::GeluNoMul);
}

TEST(PublishedFamilies, BanksOfConsecutiveLayers) {
  const std::string text = R"({"model_type": "megrez_moe", "hidden_size": 2048,
      "n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 4,
      "moe_intermediate_size": 1408, "n_group": 1, "topk_group": 1,
      "norm_topk_prob": true, "scoring_func": "sigmoid", "pre_gate": true,
      "topk_method": "noaux_tc", "routed_scaling_factor": 2.5,
      "first_k_dense_replace": 1, "experts_shared_frequency": 3,
      "num_hidden_layers": 31})";
  EXPECT_EQ(importOk(text).entry, Entry::Logits);
  for (auto [layer, bank] : {std::pair(1, 1), {2, 1}, {3, 1}, {4, 4}, {30, 28}})
    EXPECT_EQ(importLayer(text, layer).bank, bank) << layer;
}

TEST(PublishedFamilies, PartsOfALayer) {
  const std::string text = R"({"model_type": "ernie4_5_moe_vl",
      "hidden_size": 2560, "moe_num_experts": [64, 64],
      "moe_intermediate_size": [1536, 512], "moe_k": 6,
      "moe_num_shared_experts": 2, "moe_layer_start_index": [1, 1],
      "moe_layer_end_index": [29, 28], "moe_layer_interval": 1,
      "num_hidden_layers": 28, "use_bias": false})";
  LayerSpec spec = importOk(text);
  expectSizes(spec, {2560, 64, 6, 1536});
  expectShared(spec, 2 * 1536);
  EXPECT_EQ(spec.remarks.size(), 1u);
  SpecOverrides overrides;
  overrides.part = "vision";
  spec = importOk(text, overrides);
  expectSizes(spec, {2560, 64, 6, 512});
  expectShared(spec, 2 * 1536);
  EXPECT_TRUE(spec.remarks.empty());
}

TEST(PublishedFamilies, TwoStacks) {
  SpecOverrides encoder;
  encoder.part = "encoder";
  const std::string nllb = R"({"model_type": "nllb-moe", "d_model": 2048,
      "encoder_ffn_dim": 8192, "decoder_ffn_dim": 4096, "encoder_layers": 24,
      "decoder_layers": 12, "activation_function": "relu")";
  for (bool isEncoder : {false, true}) {
    LayerSpec spec =
        importOk(nllb + "}", isEncoder ? encoder : SpecOverrides());
    expectSizes(spec, {2048, 128, 2, isEncoder ? 8192 : 4096});
    expectSoftmax(spec, /*renormalize=*/true, /*scale=*/0.8);
    EXPECT_EQ(spec.layerIndex, 3);
    EXPECT_TRUE(spec.expertBias);
  }
  EXPECT_NE(importError(nllb + R"(, "moe_eval_capacity_token_fraction": 0.5})")
                .find("'moe_eval_capacity_token_fraction' must be 1, not 0.5"),
            std::string::npos);
  const std::string text = R"({"model_type": "switch_transformers",
      "encoder_sparse_step": 3, "decoder_sparse_step": 2})";
  SpecOverrides few;
  few.maxTokens = encoder.maxTokens = 64;
  EXPECT_EQ(importOk(text, few).layerIndex, 1);
  EXPECT_EQ(importOk(text, encoder).expertCapacity, 64);
  EXPECT_NE(importError(text).find("'expert_capacity' is 64, and a call may "
                                   "have 16384 tokens (max_tokens)"),
            std::string::npos);
}

TEST(PublishedFamilies, ExpertsOfOneColumn) {
  LayerSpec spec = importOk(R"({"model_type": "doge", "hidden_size": 256,
      "num_hidden_layers": 8, "is_moe": true, "num_experts": 4096})");
  expectSizes(spec, {256, 4096, 64, 1});
  EXPECT_EQ(spec.entry, Entry::Logits);
  EXPECT_EQ(spec.routing.weight, RouteWeight::Softmax);
}

} // namespace
