//===- SigmoidFamilies.cpp - routers of sigmoid scores ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// DeepSeek V3 and its successors: sigmoid scores, a bias for selection only,
// groups ranked by the sum of their two best keys, weights divided by their sum
// and multiplied by a factor.
//
//===----------------------------------------------------------------------===//

#include "Table.h"

using namespace llvm;

namespace moec {

namespace {

/// Epsilon added to the sum of weights in these models.
constexpr double kEpsilon = 1e-20;

/// Keys of DeepSeek V3. Groups and factor have no common default, so each model
/// states its own.
Row deepSeek(const char *types, const char *numGroups = "n_group=1",
             const char *topkGroups = "topk_group=1",
             const char *scale = "routed_scaling_factor=1.0",
             const char *norm = "norm_topk_prob=true") {
  return Row(types)
      .sizes("n_routed_experts|num_local_experts", "num_experts_per_tok",
             "moe_intermediate_size")
      .act()
      .sigmoid()
      .bias()
      .groups(numGroups, topkGroups, GroupScore::Top2Sum)
      .renormIf(norm, kEpsilon)
      .scaledBy(scale)
      .types()
      .expect("scoring_func", {"\"sigmoid\""})
      .expect("topk_method", {"\"noaux_tc\""})
      .expect("mlp_bias", {"false"});
}

/// With the shared expert that most of these models have.
Row deepSeekShared(const char *types, const char *numShared,
                   const char *numGroups = "n_group=1",
                   const char *topkGroups = "topk_group=1",
                   const char *scale = "routed_scaling_factor=1.0",
                   const char *norm = "norm_topk_prob=true") {
  return deepSeek(types, numGroups, topkGroups, scale, norm)
      .shared(numShared, "moe_intermediate_size");
}

/// Kimi-Linear and Ling models: the shared-expert layer under other key names.
Row kimiLinear(const char *types) {
  return deepSeekShared(types, "num_shared_experts|n_shared_experts=1",
                        "num_expert_group|n_group=1", "topk_group=1",
                        "routed_scaling_factor=1.0",
                        "moe_renormalize|norm_topk_prob=true")
      .sizes("num_experts|num_local_experts",
             "num_experts_per_token|num_experts_per_tok",
             "moe_intermediate_size")
      .expect("moe_router_activation_func", {"\"sigmoid\""})
      .expect("use_grouped_topk", {"true"})
      .expect("score_function", {"\"sigmoid\""})
      .biasName("gate.e_score_correction_bias|gate.expert_bias");
}

Row minimaxM2(const char *types) {
  return Row(types)
      .sizes("num_local_experts|num_experts", "num_experts_per_tok",
             "intermediate_size")
      .act()
      .sigmoid()
      .bias()
      .renorm(kEpsilon)
      .expect("scoring_func", {"\"sigmoid\""})
      .expect("norm_topk_prob", {"true"})
      .expect("use_routing_bias", {"true"})
      .block("block_sparse_moe")
      .biasName("gate.e_score_correction_bias|e_score_correction_bias")
      .expertNames("experts.{e}.w1", "experts.{e}.w3", "experts.{e}.w2");
}

} // namespace

void addSigmoidFamilies(std::vector<Family> &all) {
  // Defaults of the models' code are not used: the file must state these
  // values.
  all.push_back(deepSeekShared("deepseek_v3 kimi_k2 dots_vlm",
                               "n_shared_experts?=1", "n_group", "topk_group",
                               "routed_scaling_factor")
                    .from("first_k_dense_replace=3")
                    .rule(LayerRule::Frequency, "moe_layer_freq=1"));
  all.push_back(deepSeekShared("deepseek_v32", "n_shared_experts?=1",
                               "n_group=8", "topk_group=4",
                               "routed_scaling_factor=2.5")
                    .from("first_k_dense_replace=3")
                    .rule(LayerRule::Frequency, "moe_layer_freq=1"));
  // The files of the first release have names of their own for some keys.
  all.push_back(
      deepSeekShared("sarvam_mla", "n_shared_experts|num_shared_experts=1",
                     "n_group=1", "topk_group=1", "routed_scaling_factor=2.5")
          .sizes("n_routed_experts|num_experts|num_local_experts",
                 "num_experts_per_tok", "moe_intermediate_size")
          .from("first_k_dense_replace=1")
          .expect("moe_layer_freq", {"1"})
          .expect("score_function", {"\"sigmoid\""})
          .expect("moe_router_enable_expert_bias", {"true"})
          .biasName("gate.e_score_correction_bias|gate.expert_bias")
          .ignore("router_dtype")
          .says(
              "engines subtract the mean of the selection bias, which chooses "
              "the same experts"));
  all.push_back(deepSeekShared("glm4_moe glm4v_moe_text", "n_shared_experts=1")
                    .from("first_k_dense_replace=1")
                    .rule(LayerRule::Frequency, "moe_layer_freq=1"));
  all.push_back(deepSeekShared("glm4v_moe", "n_shared_experts=1")
                    .in("text_config?")
                    .from("first_k_dense_replace=1"));
  all.push_back(deepSeekShared("glm4_moe_lite", "n_shared_experts=1",
                               "n_group=1", "topk_group=1",
                               "routed_scaling_factor=1.8")
                    .from("first_k_dense_replace=1")
                    .rule(LayerRule::Frequency, "moe_layer_freq=1"));
  {
    // Experts without weights follow the others.
    Row row =
        deepSeekShared("glm4_moe_lite_plus_plus", "n_shared_experts=1",
                       "n_group=1", "topk_group=1", "routed_scaling_factor=1.8")
            .from("first_k_dense_replace=1")
            .rule(LayerRule::Frequency, "moe_layer_freq=1")
            .expect("use_zce_mask", {"false"},
                    "a mask of experts without weights would leave them "
                    "their bias alone");
    row.emptyExperts = "zce_nums@0";
    row.emptyKind = "zce_types@0";
    all.push_back(row);
  }
  all.push_back(deepSeekShared("glm_moe_dsa", "n_shared_experts=1", "n_group=1",
                               "topk_group=1", "routed_scaling_factor=2.5")
                    .from("first_k_dense_replace=3")
                    .rule(LayerRule::Frequency, "moe_layer_freq=1"));
  all.push_back(deepSeekShared("glm5_next glm5_next_text", "n_shared_experts=1",
                               "n_group=1", "topk_group=1",
                               "routed_scaling_factor=2.5")
                    .in("text_config?")
                    .fixedAct(Activation::Silu)
                    .expect("hidden_act", {"\"silu\""})
                    .clamp("swiglu_limit=10.0")
                    .from("first_k_dense_replace=3"));
  all.push_back(deepSeekShared("dots1", "n_shared_experts?=null", "n_group=1",
                               "topk_group=1", "routed_scaling_factor=1.0",
                               "norm_topk_prob=false")
                    .from("first_k_dense_replace=0")
                    .rule(LayerRule::Frequency, "moe_layer_freq=1"));
  all.push_back(
      deepSeek("dots3_note dots3_note_text")
          .in("text_config?")
          .shared("n_shared_experts=1", "shared_experts_intermediate_size=1536")
          .from("first_k_dense_replace=1")
          .says("the language model; the vision tower's experts are "
                "not imported"));
  all.push_back(deepSeekShared("solar_open", "n_shared_experts=1")
                    .from("first_k_dense_replace=0"));
  all.push_back(
      deepSeekShared("exaone_moe", "num_shared_experts=1", "n_group=1",
                     "topk_group=1", "routed_scaling_factor=2.5")
          .sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size")
          .rule(LayerRule::Flags, "is_moe_layer?=null")
          .from("first_k_dense_replace=1")
          .biasName("gate.e_score_correction_bias|"
                    "e_score_correction_bias"));
  all.push_back(deepSeek("mimo_v2_flash mimo_v2", "n_group=1", "topk_group=1",
                         "routed_scaling_factor?=1.0")
                    .rule(LayerRule::Frequency, "moe_layer_freq?=null")
                    .from("first_k_dense_replace=1")
                    .expect("n_shared_experts", {"0"}));
  all.push_back(
      deepSeek("beam", "n_group=8", "topk_group=4", "routed_scaling_factor=2.5")
          .sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size")
          .from("num_dense_layers=3"));
  {
    Row row =
        deepSeekShared("hy_v4 hy_v4_vl hy_v4_vl_text", "n_shared_experts=1",
                       "n_group=1", "topk_group=1",
                       "routed_scaling_factor=2.827")
            .in("text_config?")
            .fixedAct(Activation::Silu)
            .expect("hidden_act", {"\"silu\""})
            .clamp("swiglu_limit=10.0")
            .from("first_k_dense_replace=1")
            .sharedNames("shared_experts.gate_proj|shared_experts.linear_gate",
                         "shared_experts.up_proj|shared_experts.up_proj",
                         "shared_experts.down_proj");
    row.sharedUnlimited = true;
    all.push_back(row);
  }
  {
    // A masked group keeps the key 0, which can beat negative keys. Without
    // groups this cannot happen, so only that case is accepted.
    all.push_back(deepSeekShared("axk2", "n_shared_experts=1", "n_group?=null",
                                 "topk_group?=null",
                                 "routed_scaling_factor=2.5")
                      .expect("n_group?", {"1"})
                      .expect("topk_group?", {"1"})
                      .from("first_k_dense_replace=1"));
  }
  all.push_back(kimiLinear("kimi_linear")
                    .block("block_sparse_moe")
                    .expertNames("experts.{e}.w1|experts.{e}.gate_proj",
                                 "experts.{e}.w3|experts.{e}.up_proj",
                                 "experts.{e}.w2|experts.{e}.down_proj")
                    .from("first_k_dense_replace=1")
                    .rule(LayerRule::Frequency, "moe_layer_freq=1"));
  all.push_back(
      takeTextRouter(kimiLinear("bailing_hybrid"))
          .shared("num_shared_experts|n_shared_experts=1",
                  "moe_shared_expert_intermediate_size|moe_intermediate_size")
          .expect("moe_router_enable_expert_bias", {"true"})
          .ignore("norm_head norm_softmax router_dtype")
          .from("first_k_dense_replace=2"));
  {
    // The width is the total over all shared experts.
    Row row = deepSeek("nemotron_h", "n_group=1", "topk_group=1",
                       "routed_scaling_factor=1.0")
                  .act("mlp_hidden_act=\"relu2\"")
                  .shared("moe_shared_expert_intermediate_size")
                  .expect("n_shared_experts", {"1"})
                  .block("mixer");
    row.ungated = true;
    row.latentSize = "moe_latent_size?=null";
    row.layers.clear();
    row.rule(LayerRule::Types, "layers_block_type|layer_types?=null", "moe");
    row.rule(LayerRule::Pattern, "hybrid_override_pattern?=null", "E");
    all.push_back(row);
    // Counts and widths differ by layer.
    row.modelTypes = "nemotron_h_puzzle";
    row.layerObjects = "block_configs";
    row.layers.clear();
    all.push_back(row.types("block_configs.block_type", "moe"));
  }
  all.push_back(
      Row("afmoe")
          .sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size")
          .act()
          .sigmoid()
          .bias()
          .renorm(kEpsilon)
          .scaledBy("route_scale=1.0")
          .shared("num_shared_experts=2", "moe_intermediate_size")
          .from("num_dense_layers=1")
          .expect("score_func", {"\"sigmoid\""})
          .expect("route_norm", {"true"})
          .expect("n_group", {"1"})
          .expect("topk_group", {"1"})
          .gate("router.gate.weight")
          .biasName("expert_bias"));
  all.push_back(
      Row("lfm2_moe")
          .sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size")
          .fixedAct(Activation::Silu)
          .sigmoid()
          .biasIf("use_expert_bias=true")
          .renormIf("norm_topk_prob=true", 1e-6)
          .scaledBy("routed_scaling_factor=1.0")
          .from("num_dense_layers=2")
          .block("feed_forward")
          .biasName("expert_bias")
          .expertNames("experts.{e}.w1", "experts.{e}.w3", "experts.{e}.w2"));
  {
    Row row =
        Row("laguna")
            .sizes("num_experts", "num_experts_per_tok",
                   "moe_intermediate_size")
            .act()
            .sigmoid()
            .bias()
            .renorm()
            .scaledBy("moe_routed_scaling_factor=1.0")
            .shared("shared_expert_intermediate_size")
            .types()
            .from("num_dense_layers=1")
            .expect("moe_apply_router_weight_on_input", {"false"})
            .expect("norm_topk_prob", {"true"})
            .biasName("experts.e_score_correction_bias|"
                      "gate.e_score_correction_bias")
            .sharedNames("shared_expert.gate_proj|shared_experts.gate_proj",
                         "shared_expert.up_proj|shared_experts.up_proj",
                         "shared_expert.down_proj|shared_experts.down_proj");
    row.softcap = "moe_router_logit_softcapping=0.0";
    all.push_back(row);
  }
  all.push_back(
      Row("flint")
          .sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size")
          .act()
          .sigmoid()
          .renormIf("norm_topk_prob=true")
          .shared("shared_expert_intermediate_size")
          .step()
          .sharedNames("shared_expert.gate_proj", "shared_expert.up_proj",
                       "shared_expert.down_proj"));
  {
    // Selection by logits plus bias; the sigmoid is applied to the selected
    // ones only.
    Row row =
        Row("kolibri1")
            .sizes("num_local_experts|num_experts", "num_experts_per_tok",
                   "moe_intermediate_size")
            .act()
            .bias()
            .renormIf("norm_topk_prob=false")
            .shared("shared_expert_intermediate_size")
            .block("")
            .gate("mlp.gate.weight")
            .biasName("moe.router.expert_bias|"
                      "mlp.gate.e_score_correction_bias")
            .expertNames("mlp.experts.{e}.gate_proj", "mlp.experts.{e}.up_proj",
                         "mlp.experts.{e}.down_proj")
            .fusedNames("mlp.experts.gate_up_proj", "mlp.experts.down_proj")
            .sharedNames("mlp.shared_experts.gate_proj",
                         "mlp.shared_experts.up_proj",
                         "mlp.shared_experts.down_proj");
    row.score.value = Score::Identity;
    row.weight.value = RouteWeight::Sigmoid;
    all.push_back(row);
  }
  all.push_back(
      Row("hy_v3")
          .sizes("num_experts|num_local_experts", "num_experts_per_tok",
                 "moe_intermediate_size")
          .act()
          .sigmoid()
          .bias()
          .renorm(kEpsilon)
          .scaledBy("router_scaling_factor=2.826")
          .shared("num_shared_experts=1", "moe_intermediate_size")
          .types()
          .from("first_k_dense_replace=1")
          .expect("mlp_bias", {"false"})
          .biasName("e_score_correction_bias|"
                    "gate.e_score_correction_bias|expert_bias")
          .gate("router.gate.weight|gate.weight")
          .sharedNames("shared_experts.gate_proj|shared_mlp.gate_proj",
                       "shared_experts.up_proj|shared_mlp.up_proj",
                       "shared_experts.down_proj|shared_mlp.down_proj")
          .ignore("enable_moe_fp32_combine"));
  all.push_back(minimaxM2("minimax_m2"));
  {
    Row row = minimaxM2("minimax_m3_vl minimax_m3_vl_text minimax_m3 "
                        "minimax_m3_text")
                  .in("text_config?")
                  .fixedAct(Activation::SwigluOaiUninterleave)
                  .clamp("swiglu_limit=7.0")
                  .scaledBy("routed_scaling_factor=2.0")
                  .shared("shared_intermediate_size=3072")
                  .types()
                  .rule(LayerRule::Flags, "moe_layer_freq?=null")
                  .expect("hidden_act", {"\"swigluoai\"", "\"silu\""})
                  .ignore("dense_intermediate_size");
    row.alpha = "swiglu_alpha=1.702";
    row.fixedBeta = 1.0;
    row.names.sharedFused = "shared_experts.gate_up_proj";
    all.push_back(row);
  }
  {
    Row row =
        Row("step3p5 step3p7 step3p7_text step5 step5_vl")
            .in("text_config?")
            .sizes("n_routed_experts|moe_num_experts|num_local_experts",
                   "num_experts_per_tok|moe_top_k", "moe_intermediate_size")
            .fixedAct(Activation::SwigluStep)
            .clamp("swiglu_limits@layer?=null")
            .sigmoid()
            .bias()
            .renorm()
            .scaledBy("moe_router_scaling_factor|routed_scaling_factor=1.0")
            .shared("share_expert_dim|share_expert_dims")
            .types()
            .rule(LayerRule::Listed, "moe_layers_enum?=null")
            .from("first_k_dense_replace=3")
            .expect("hidden_act", {"\"silu\""})
            .expect("mlp_bias", {"false"})
            .expect("moe_router_activation", {"\"sigmoid\""})
            .expect("norm_expert_weight", {"true"})
            .expect("use_moe_router_bias", {"true"})
            .expect("need_fp32_gate", {"true"})
            .ignore("use_moe sparse_config")
            .block("")
            .gate("moe.gate.weight|mlp.gate.weight")
            .biasName("moe.router_bias|mlp.gate.e_score_correction_bias")
            .expertNames("", "", "")
            .fusedNames("mlp.experts.gate_up_proj",
                        "moe.down_proj.weight|mlp.experts.down_proj")
            .sharedNames("share_expert.gate_proj|mlp.shared_experts.gate_proj",
                         "share_expert.up_proj|mlp.shared_experts.up_proj",
                         "share_expert.down_proj|mlp.shared_experts.down_proj");
    row.sharedLimit = "swiglu_limits_shared@layer?=null";
    row.names.fusedHalves[0] = "moe.gate_proj.weight";
    row.names.fusedHalves[1] = "moe.up_proj.weight";
    all.push_back(row);
  }
}

} // namespace moec
