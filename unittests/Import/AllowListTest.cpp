//===- AllowListTest.cpp - refusal of unread keys -------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Each configuration here was once imported as a layer that its model does not
// have.
//
//===----------------------------------------------------------------------===//

#include "ImportTesting.h"

using namespace moec;
using namespace moec::testing;

namespace {

std::string makeQwen(const std::string &more) {
  return R"({"model_type": "qwen3_moe", "hidden_size": 64, "num_experts": 8,
"num_experts_per_tok": 2, "moe_intermediate_size": 128,
"num_hidden_layers": 8)" +
         (more.empty() ? "" : ",\n" + more) + "}";
}

/// Expects one error that names the key and `--ignore-field`.
void expectRefused(const std::string &config, llvm::StringRef key) {
  std::string messages = importError(config);
  EXPECT_EQ(llvm::StringRef(messages).count(" error: "), 1u) << messages;
  EXPECT_NE(messages.find("'" + key.str() + "'"), std::string::npos)
      << messages;
}

TEST(AllowList, RoutingFieldsOfOtherFamilies) {
  for (const char *field :
       {R"("score_function": "sigmoid")",
        R"("score_func": "sigmoid")",
        R"("scoring_function": "sigmoid")",
        R"("route_scale": 2.5)",
        R"("route_norm": true)",
        R"("router_scaling_factor": 2)",
        R"("routed_scaling_factor": 2.5)",
        R"("use_expert_bias": true)",
        R"("expert_bias": true)",
        R"("use_routing_bias": true)",
        R"("moe_router_enable_expert_bias": true)",
        R"("num_experts_per_token": 4)",
        R"("moe_top_k": 4)",
        R"("moe_topk": 4)",
        R"("moe_k": 4)",
        R"("top_k_experts": 4)",
        R"("num_shared_expert": 1)",
        R"("num_shared_experts": 1)",
        R"("n_shared_experts": 1)",
        R"("moe_num_shared_experts": 1)",
        R"("shared_expert_intermediate_size": 64)",
        R"("shared_intermediate_size": 64)",
        R"("share_expert_dim": 64)",
        R"("router_logit_softcapping": 30)",
        R"("moe_router_logit_softcapping": 30)",
        R"("swiglu_limit": 7)",
        R"("swiglu_limits": [7, 7])",
        R"("swiglu_alpha": 1.7)",
        R"("n_group": 4)",
        R"("n_expert_groups": 4)",
        R"("num_expert_group": 4)",
        R"("n_limited_groups": 2)",
        R"("topk_group": 2)",
        R"("topk_method": "noaux_tc")",
        R"("use_grouped_topk": true)",
        R"("zero_expert_num": 4)",
        R"("zero_expert_type": "identity")",
        R"("moe_latent_size": 32)",
        R"("mlp_bias": true)",
        R"("moe_router_bias": true)",
        R"("router_bias": true)",
        R"("expert_capacity": 64)",
        R"("moe_gate": "topk")",
        R"("moe_gate_act": "sigmoid")",
        R"("moe_renormalize": true)",
        R"("norm_expert_weight": true)",
        R"("moe_apply_router_weight_on_input": true)",
        R"("expert_selection_fn": "sigmoid")",
        R"("shared_expert_combination_strategy": "average")",
        R"("num_hash_layers": 3)"}) {
    std::string key =
        llvm::StringRef(field).drop_front().split('"').first.str();
    expectRefused(makeQwen(field), key);
    // With the key ignored the import succeeds, and the layer records the key.
    SpecOverrides overrides;
    overrides.ignoredFields = {key};
    EXPECT_EQ(importOk(makeQwen(field), overrides).ignoredFields,
              std::vector<std::string>{key});
  }
}

TEST(AllowList, WhatSaysNothingIsReadPast) {
  importOk(makeQwen(R"("n_group": null, "swiglu_limits": [], "moe_gate": "",
      "n_shared_experts": 0, "mlp_bias": false, "router_aux_loss_coef": 0.001,
      "output_router_logits": false, "attention_bias": true,
      "rope_scaling": {"factor": 4}, "rms_norm_eps": 1e-6, "vocab_size": 9,
      "time_step_limit": [0.0, Infinity], "intermediate_size": 6144)"));
}

TEST(AllowList, OnlyKeysThatStandInTheWayCanBeIgnored) {
  SpecOverrides overrides;
  overrides.ignoredFields = {"route_scal"};
  EXPECT_NE(importError(makeQwen(""), overrides)
                .find("--ignore-field=route_scal: no such key stands in the "
                      "way"),
            std::string::npos);
  // A key that is read cannot be ignored.
  overrides.ignoredFields = {"norm_topk_prob"};
  importError(makeQwen(R"("norm_topk_prob": true)"), overrides);
}

// A null disables the model's normalization; an absent key does not.
TEST(AllowList, NullIsAnotherValueThanTheOneExpected) {
  auto dbrx = [](const char *field) {
    return std::string(R"({"model_type": "dbrx", "d_model": 64, "n_layers": 2,
      "ffn_config": {"moe_num_experts": 8, "moe_top_k": 2,
                     "ffn_hidden_size": 48)") +
           field + "}}";
  };
  importOk(dbrx(""));
  importOk(dbrx(R"(, "moe_normalize_expert_weights": 1)"));
  expectRefused(dbrx(R"(, "moe_normalize_expert_weights": null)"),
                "ffn_config.moe_normalize_expert_weights");
  // If false is expected, null has the same meaning.
  importOk(R"({"model_type": "deepseek_v2", "hidden_size": 64,
      "n_routed_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32, "norm_topk_prob": null})");
}

TEST(AllowList, WidthsOfOtherNames) {
  expectRefused(R"({"model_type": "mixtral", "hidden_size": 64,
      "num_local_experts": 8, "num_experts_per_tok": 2,
      "intermediate_size": 128, "moe_intermediate_size": 64})",
                "moe_intermediate_size");
}

TEST(AllowList, Ernie) {
  auto ernie = [](const char *field) {
    return std::string(R"({"model_type": "ernie4_5_moe", "hidden_size": 64,
      "moe_num_experts": 8, "moe_k": 2, "moe_intermediate_size": 32,
      "num_hidden_layers": 4, )") +
           field + "}";
  };
  expectRefused(ernie(R"("moe_gate_act": "sigmoid")"), "moe_gate_act");
  expectRefused(ernie(R"("moe_norm_min": 0.1)"), "moe_norm_min");
  expectRefused(ernie(R"("moe_use_hard_gate": true)"), "moe_use_hard_gate");
  expectRefused(ernie(R"("moe_gate": "switch")"), "moe_gate");
  expectRefused(ernie(R"("use_bias": true)"), "use_bias");
  importOk(ernie(R"("moe_gate": "topk", "moe_use_aux_free": true)"));
}

TEST(AllowList, ValuesThatTheModelsCodeCannotTake) {
  // The limit is required, while 0 means no limit elsewhere.
  for (const char *limit : {"null", "0.0"})
    expectRefused(std::string(R"({"model_type": "gpt_oss", "hidden_size": 64,
      "num_local_experts": 8, "num_experts_per_tok": 2,
      "intermediate_size": 32, "swiglu_limit": )") +
                      limit + "}",
                  "swiglu_limit");
  for (const char *scale : {"0", "-1.5"})
    expectRefused(std::string(R"({"model_type": "glm4_moe", "hidden_size": 64,
      "n_routed_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 4,
      "moe_intermediate_size": 32, "routed_scaling_factor": )") +
                      scale + "}",
                  "routed_scaling_factor");
  expectRefused(R"({"model_type": "minimax_m2", "hidden_size": 64,
      "num_local_experts": 8, "num_experts_per_tok": 2,
      "intermediate_size": 32, "use_routing_bias": false})",
                "use_routing_bias");
}

TEST(AllowList, FieldsBesideTextConfig) {
  auto llama = [](const char *outer) {
    return std::string(R"({"model_type": "llama4", )") + outer +
           R"("text_config": {"model_type": "llama4_text", "hidden_size": 64,
      "num_local_experts": 8, "num_experts_per_tok": 1,
      "intermediate_size": 32}})";
  };
  importOk(llama(""));
  importOk(llama(R"("num_local_experts": 8, )"));
  expectRefused(llama(R"("num_local_experts": 16, )"), "num_local_experts");
  expectRefused(llama(R"("swiglu_limit": 7, )"), "swiglu_limit");
  expectRefused(llama(R"("n_shared_experts": 2, )"), "n_shared_experts");
}

//===----------------------------------------------------------------------===//
// Quantization
//===----------------------------------------------------------------------===//

std::string quantize(const std::string &more) {
  return makeQwen(R"("quantization_config": {"quant_method": "fp8",
      "weight_block_size": [128, 128])" +
                  (more.empty() ? "" : ", " + more) + "}");
}

// field-bug: compressed-tensors#733
TEST(AllowList, ExceptionsThatNameNoExpertsAreHarmless) {
  for (const char *names :
       {R"(["lm_head"])", R"(["model.layers.0.self_attn", "mlp.gate"])",
        R"(["re:.*lm_head", "re:.*self_attn.*", "re:.*mlp\\.gate$"])",
        R"(["model.layers.5.mlp"])", R"(["model.layers.*.self_attn*"])",
        R"(["model.layers.1.", "model.layers.00."])"})
    for (const char *field :
         {"modules_to_not_convert", "ignored_layers", "ignore"})
      EXPECT_EQ(importOk(quantize("\"" + std::string(field) + "\": " + names))
                    .quantization,
                getQuantization("fp8_block128"))
          << names;
}

TEST(AllowList, ExceptionsThatNameAllExperts) {
  for (const char *names :
       {R"(["mlp"])", R"(["model.layers.0.mlp"])", R"(["re:.*mlp.*"])",
        R"(["*"])", R"(["experts"])", R"(["model.layers.0.mlp.experts"])",
        R"(["gate_proj", "up_proj", "down_proj"])", R"(["model"])",
        R"(["*.experts.*"])", R"(["model.layers.0."])"})
    EXPECT_FALSE(importOk(quantize("\"ignored_layers\": " + std::string(names)))
                     .quantization)
        << names;
  // An exclusion in another layer leaves this one quantized.
  SpecOverrides overrides;
  overrides.layer = 3;
  std::string config = quantize(R"("ignore": ["model.layers.3.mlp"])");
  EXPECT_TRUE(importOk(config).quantization);
  EXPECT_FALSE(importOk(config, overrides).quantization);
}

// field-bug: sglang#20439
TEST(AllowList, ExceptionsThatNameSomeExperts) {
  for (const char *names : {R"(["gate_proj"])", R"(["mlp.experts.5"])",
                            R"(["re:.*experts\\.[0-3]\\..*"])",
                            R"(["model.layers.0.mlp.experts.3.up_proj"])"}) {
    LayerSpec spec = importOk(quantize("\"ignore\": " + std::string(names)));
    // Such matrices are dequantized at load.
    EXPECT_FALSE(spec.quantization.w13) << names;
    EXPECT_TRUE(spec.findStored("experts.w13")) << names;
  }
  // All modules but those of some experts.
  LayerSpec some =
      importOk(quantize(R"("ignore": ["re:^(?!.*experts\\.[0-3]\\.).*"])"));
  EXPECT_FALSE(some.quantization.w13);
  EXPECT_TRUE(some.findStored("experts.w13"));
  LayerSpec all = importOk(quantize(R"("ignore": ["re:(?!.*experts).*"])"));
  EXPECT_TRUE(all.quantization.w13);
  for (const char *entry : {"re:.*(?!a)", "re:(?i)mlp", "re:.*\\\\bmlp",
                            "re:.*+mlp", "re:[[a]mlp", "re:(mlp"})
    EXPECT_NE(
        importError(quantize(R"("ignore": [")" + std::string(entry) + "\"]"))
            .find("no name of a module that can be understood"),
        std::string::npos)
        << entry;
}

TEST(AllowList, ExceptionsThatNameWholeProducts) {
  auto read = [](const std::string &names) {
    return importOk(R"({"model_type": "kimi_k2", "hidden_size": 64,
        "n_routed_experts": 8, "num_experts_per_tok": 2,
        "moe_intermediate_size": 32, "n_shared_experts": 1, "n_group": 1,
        "topk_group": 1, "routed_scaling_factor": 1.0,
        "scoring_func": "sigmoid", "quantization_config": {
          "quant_method": "fp8", "weight_block_size": [128, 128],
          "ignore": )" +
                    names + "}}");
  };
  ExpertQuantization none, all = getQuantization("fp8_block128");
  ExpertQuantization first = all;
  first.w2.reset();
  struct Case {
    const char *names;
    ExpertQuantization routed, shared;
  } cases[] = {
      {R"(["lm_head", "re:.*self_attn.*"])", all, all},
      {R"(["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"])", all,
       none},
      {R"(["model.layers.0.mlp.shared_experts"])", all, none},
      {R"(["model.layers.0.mlp.shared_experts.gate_proj",
           "model.layers.0.mlp.shared_experts.up_proj",
           "model.layers.0.mlp.shared_experts.down_proj"])",
       all, none},
      {R"(["*.mlp.experts.*"])", none, all},
      {R"(["down_proj"])", first, first},
      {R"(["mlp.shared_experts.down_proj"])", all, first},
      {R"(["mlp"])", none, none},
  };
  for (const Case &test : cases) {
    SCOPED_TRACE(test.names);
    LayerSpec spec = read(test.names);
    EXPECT_EQ(spec.quantization, test.routed);
    EXPECT_EQ(spec.sharedExperts->quantization, test.shared);
  }
}

TEST(AllowList, QuantizationThatIsStatedElsewhere) {
  for (const char *field :
       {R"("quantization": {"bits": 4})", R"("quant_config": {"bits": 4})",
        R"("load_in_4bit": true)", R"("load_in_8bit": true)",
        R"("expert_dtype": "fp4")",
        R"("compression_config": {"format": "pack-quantized"})"}) {
    std::string key =
        llvm::StringRef(field).drop_front().split('"').first.str();
    expectRefused(makeQwen(field), key);
  }
  importOk(makeQwen(R"("load_in_4bit": false, "quantization": null,
      "expert_dtype": "bfloat16")"));
  expectRefused(quantize(R"("scale_dtype": "ue8m0")"),
                "quantization_config.scale_dtype");
  EXPECT_TRUE(importOk(R"({"model_type": "qwen3_vl_moe", "text_config": )" +
                       quantize("") + "}")
                  .quantization);
}

TEST(AllowList, TheFileOfModelOpt) {
  SpecOverrides overrides;
  overrides.quantConfig = SourceText("hf_quant_config.json", R"({
      "producer": {"name": "modelopt"},
      "quantization": {"quant_algo": "NVFP4", "group_size": 16,
                       "exclude_modules": ["lm_head"]}})");
  EXPECT_EQ(importOk(makeQwen(""), overrides).remarks,
            std::vector<std::string>{
                "'quantization.quant_algo' quantizes activations to 4 bits, "
                "which no target multiplies; they stay in bf16"});
  SpecOverrides weightOnly = overrides;
  weightOnly.ignoredFields = {"quantization.input_activations"};
  LayerSpec nvfp4 = importOk(makeQwen(""), weightOnly);
  EXPECT_EQ(nvfp4.quantization, getQuantization("nvfp4"));
  EXPECT_EQ(nvfp4.quantization.w13->packing, Packing::ModelOpt);
  overrides.quantConfig = SourceText("hf_quant_config.json", R"({
      "quantization": {"quant_algo": "NVFP4",
                       "exclude_modules": ["*mlp.experts*"]}})");
  EXPECT_FALSE(importOk(makeQwen(""), overrides).quantization);
  overrides.quantConfig = SourceText("hf_quant_config.json", "[]");
  importError(makeQwen(""), overrides);
}

TEST(AllowList, FormsOfTheMlp) {
  for (const char *key : {"use_glu", "glu_type", "hidden_clamp",
                          "feed_forward_type", "feedforward_multiplier"})
    EXPECT_NE(importError(makeQwen("\"" + std::string(key) + "\": 2"))
                  .find(std::string("'") + key + "' = 2 is not supported"),
              std::string::npos)
        << key;
  // The number of rows that the model's code takes at once.
  importOk(makeQwen(R"("chunk_size_feed_forward": 4)"));
}

//===----------------------------------------------------------------------===//
// Decoder layers
//===----------------------------------------------------------------------===//

TEST(AllowList, ListsAreOfAllLayers) {
  auto import = [](const std::string &fields) {
    return importError(R"({"model_type": "deepseek_v3", "hidden_size": 256,
        "n_routed_experts": 8, "num_experts_per_tok": 2, "n_group": 1,
        "topk_group": 1, "routed_scaling_factor": 1.0,
        "moe_intermediate_size": 128, "num_hidden_layers": 4, )" +
                       fields + "}");
  };
  EXPECT_NE(import(R"("moe_layer_freq": [0, 1, 1])")
                .find("'moe_layer_freq' has 3 elements for 4 decoder layers; "
                      "give one for each"),
            std::string::npos);
  EXPECT_NE(import(R"("first_k_dense_replace": 4, "moe_layer_freq": 2)")
                .find("no decoder layer of this model has experts, by "
                      "'first_k_dense_replace' and 'moe_layer_freq'; there is "
                      "nothing to compile"),
            std::string::npos);
  EXPECT_NE(importError(R"({"model_type": "jamba", "hidden_size": 256,
      "num_experts": 8, "num_experts_per_tok": 2, "intermediate_size": 128,
      "expert_layer_period": 2, "expert_layer_offset": 2})")
                .find("'expert_layer_offset' must be an integer from 0 to 1, "
                      "not 2"),
            std::string::npos);
}

// field-bug: vllm-ascend#5794
TEST(AllowList, LayersWithoutExperts) {
  SpecOverrides overrides;
  overrides.layer = 1;
  std::string config =
      makeQwen(R"("mlp_only_layers": [1], "decoder_sparse_step": 1)");
  EXPECT_NE(importError(config, overrides)
                .find("--layer=1: this decoder layer has no experts; those "
                      "with experts are 0, 2 to 7"),
            std::string::npos);
  overrides.layer = 8;
  EXPECT_NE(importError(config, overrides)
                .find("--layer=8: the model has 8 decoder layers"),
            std::string::npos);
  overrides.layer = 7;
  EXPECT_EQ(importOk(config, overrides).layerIndex, 7);
  EXPECT_EQ(importOk(makeQwen(R"("decoder_sparse_step": 2)")).layerIndex, 1);
  EXPECT_NE(importError(makeQwen(R"("decoder_sparse_step": 0)"))
                .find("no decoder layer of this model has experts"),
            std::string::npos);
}

} // namespace
