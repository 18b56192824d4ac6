//===- PublishedFamilies.cpp - models with their own code -----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models published with their own modelling code, or implemented only in
// engines. Meanings of keys come from that code. If engines differ from the
// code published with the weights, the latter is followed.
//
//===----------------------------------------------------------------------===//

#include "Table.h"

using namespace llvm;

namespace moec {

namespace {

/// Keys of the Ling models and their derivatives. Shared experts are as wide as
/// the routed ones, regardless of any key.
Row bailing(const char *types) {
  return Row(types)
      .sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size")
      .act()
      .renormIf("norm_topk_prob=true", 1e-20)
      .renormOfSeveral()
      .shared("num_shared_experts?=0",
              "moe_shared_expert_intermediate_size|moe_intermediate_size")
      .from("first_k_dense_replace=0")
      .expect("use_bias", {"false"})
      .expect("moe_router_enable_routed_scaling", {"true"})
      .expect("moe_router_enable_shared_expert", {"true"})
      .biasName("gate.expert_bias")
      .ignore("norm_head norm_softmax router_dtype");
}

/// The second generation: DeepSeek V3 under other names.
Row bailingV2(const char *types) {
  return takeTextRouter(bailing(types))
      .sigmoid()
      .bias()
      .groups("n_group=8", "topk_group=4", GroupScore::Top2Sum)
      .scaledBy("routed_scaling_factor=2.5")
      .expect("norm_topk_prob", {"true"})
      .expect("score_function", {"\"sigmoid\""})
      .expect("moe_router_enable_expert_bias", {"true"});
}

void addGrok(std::vector<Family> &all) {
  {
    Row row =
        Row("grok-1")
            .sizes("num_experts", "num_experts_per_tok", "intermediate_size")
            .fixedAct(Activation::Gelu)
            .softmax()
            .block("moe_block")
            .expertNames("experts.{e}.linear", "experts.{e}.linear_v",
                         "experts.{e}.linear_1")
            .ignore("embedding_multiplier_scale")
            .says("engines bound the logits by 30 where the file is silent; "
                  "the code that came with the weights does not");
    row.softcap = "router_logit_softcapping=0.0";
    all.push_back(row);
  }
  {
    // The dense part beside the experts is described as a shared expert; the
    // sum of both is divided by the square root of 2.
    constexpr double half = 0.70710678118654752440;
    Row row = Row("git")
                  .sizes("num_local_experts", "num_experts_per_tok",
                         "moe_intermediate_size")
                  .fixedAct(Activation::Gelu)
                  .softmax()
                  .shared("intermediate_size")
                  .expect("architectures@0", {"\"Grok1ForCausalLM\""})
                  .expect("residual_moe", {"true"})
                  .expect("router_logit_softcapping", {"30"})
                  .expect("hidden_act", {"\"gelu\""})
                  .block("")
                  .gate("block_sparse_moe.gate.weight")
                  .expertNames("block_sparse_moe.experts.{e}.w1",
                               "block_sparse_moe.experts.{e}.w3",
                               "block_sparse_moe.experts.{e}.w2")
                  .sharedNames("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
                  .ignore("embedding_multiplier_scale scaling_factor beta_fast "
                          "beta_slow")
                  .says("Grok-2, whose files call it so");
    row.softcap = "router_logit_softcapping=30.0";
    row.fixedScale = row.sharedScale = half;
    all.push_back(row);
  }
}

void addDeepSeek(std::vector<Family> &all) {
  all.push_back(Row("deepseek")
                    .sizes("n_routed_experts", "num_experts_per_tok",
                           "moe_intermediate_size")
                    .act()
                    .softmax()
                    .renormIf("norm_topk_prob=false", 1e-20)
                    .renormOfSeveral()
                    .shared("n_shared_experts?=null", "moe_intermediate_size")
                    .from("first_k_dense_replace=0")
                    .rule(LayerRule::Frequency, "moe_layer_freq=1")
                    .expect("scoring_func", {"\"softmax\""})
                    .expect("mlp_bias", {"false"}));
  {
    // The small models are DeepSeek V2; the largest has the router of V3.
    Row row =
        Row("deepseek_vl_v2 deepseek_ocr deepseek-ocr")
            .in("language_config")
            .sizes("n_routed_experts", "num_experts_per_tok",
                   "moe_intermediate_size")
            .act()
            .groups("n_group?=null", "topk_group?=null", GroupScore::Top2Sum)
            .renormIf("norm_topk_prob=false", 1e-20)
            .renormOfSeveral()
            .scaledBy("routed_scaling_factor=1.0")
            .shared("n_shared_experts?=null", "moe_intermediate_size")
            .from("first_k_dense_replace=0")
            .rule(LayerRule::Frequency, "moe_layer_freq=1");
    row.score.key = "scoring_func=\"softmax\"";
    row.scoreWords = {{"softmax", Score::Softmax}, {"sigmoid", Score::Sigmoid}};
    row.selectionBias.key = row.groupsIf = "topk_method=\"greedy\"";
    row.selectionBiasWord = row.groupsIfWord = "noaux_tc";
    all.push_back(row);
  }
  all.push_back(
      Row("gigachat3_5")
          .sizes("n_routed_experts", "num_experts_per_tok",
                 "moe_intermediate_size")
          .act()
          .sigmoid()
          .bias()
          .groups("n_group=1", "topk_group=1", GroupScore::Top2Sum)
          .renormIf("norm_topk_prob=true", 1e-20)
          .scaledBy("routed_scaling_factor=2.5")
          .shared("n_shared_experts=2", "moe_intermediate_size")
          .from("first_k_dense_replace=1")
          .rule(LayerRule::Frequency, "moe_layer_freq=1")
          .expect("topk_method", {"\"noaux_tc\""})
          .expect("scoring_func", {"\"sigmoid\""})
          .expect("swiglu_limit", {"0"})
          .ignore(
              "full_attention_layers layernorm_type layernorm_gating_weight "
              "use_mla_scaling_factor use_shared_expert_sigmoid"));
  // The norm after the block belongs to the decoder layer.
  all.push_back(
      Row("AXK1 axk1")
          .sizes("n_routed_experts", "num_experts_per_tok",
                 "moe_intermediate_size")
          .act()
          .sigmoid()
          .bias()
          .groups("n_group=8", "topk_group=4", GroupScore::Top2Sum)
          .renormIf("norm_topk_prob=true", 1e-20)
          .scaledBy("routed_scaling_factor=2.5")
          .shared("n_shared_experts?=1", "moe_intermediate_size")
          .types()
          .from("first_k_dense_replace=1")
          .rule(LayerRule::Frequency, "moe_layer_freq=1")
          .expect("topk_method", {"\"noaux_tc\""})
          .expect("scoring_func", {"\"sigmoid\""})
          .says("the layer without the norm that its decoder layer has behind "
                "it"));
}

void addPangu(std::vector<Family> &all) {
  {
    // As many groups as experts per token, with one expert from each.
    Row row =
        Row("PanguProMoE")
            .sizes("num_experts", "num_experts_per_tok",
                   "moe_intermediate_size")
            .act()
            .softmax()
            .shared("shared_expert_intermediate_size")
            .rule(LayerRule::Except, "mlp_only_layers?=[]")
            .sharedNames("shared_expert.gate_proj", "shared_expert.up_proj",
                         "shared_expert.down_proj");
    row.select = Select::PerGroup;
    row.numGroups = "num_experts_per_tok";
    row.expertScale = true;
    row.names.expertScale = "router_scale";
    all.push_back(row);
  }
  // `router_sliding_window` is the width of convolutions in attention.
  Row row =
      Row("pangu_ultra_moe pangu_pro_moe_v2 pangu_v2_moe openpangu_v2")
          .sizes("n_routed_experts", "num_experts_per_tok",
                 "moe_intermediate_size")
          .act()
          .sigmoid()
          .biasIf("router_enable_expert_bias=false")
          .renormIf("norm_topk_prob", 1e-20)
          .scaledBy("routed_scaling_factor")
          .shared("n_shared_experts?=null", "moe_intermediate_size")
          .from("first_k_dense_replace")
          .expect("mlp_bias", {"false"})
          .biasName("gate.e_score_correction_bias|e_score_correction_bias")
          .ignore("sandwich_norm num_experts router_sliding_window "
                  "router_sliding_windows");
  all.push_back(row);
  row.modelTypes = "openpangu_v2_vl_moe openpangu_v2_omni_moe";
  all.push_back(row.in("text_config?"));
}

/// Models whose language model is a nested object.
void addWrappers(std::vector<Family> &all) {
  Row text = wrapper(
      "interns1 internvl kimi_vl kimi_k25 lfm2_vl lfm2-vl llava llava_next "
      "llava_next_video llava_onevision minicpmv4_6 minicpmv4_7 minimax_vl_01 "
      "mistral3 nemotron_h_omni ovis2 video_llava vipllava",
      "text_config");
  all.push_back(text);
  all.push_back(wrapper("internvl_chat ovis bailingmm_moe_v2_lite "
                        "NemotronH_Nano_VL_V2 "
                        "NemotronH_Nano_Omni_Reasoning_V3",
                        "llm_config")
                    .ignore("mlp_depth"));
}

/// Kimi K3: Kimi-Linear's router, experts of a latent width.
Row kimiK3() {
  Row row =
      Row("kimi_k3")
          .in("text_config?")
          .sizes("num_experts", "num_experts_per_token|num_experts_per_tok",
                 "moe_intermediate_size")
          .fixedAct(Activation::Situ)
          .expect("hidden_act", {"\"situ\""})
          .sigmoid()
          .bias()
          .groups("num_expert_group|n_group=1", "topk_group=1",
                  GroupScore::Top2Sum)
          .renormIf("moe_renormalize|norm_topk_prob=true", 1e-20)
          .renormOfSeveral()
          .scaledBy("routed_scaling_factor=1.0")
          .shared("num_shared_experts=0", "moe_intermediate_size")
          .from("first_k_dense_replace=0")
          .rule(LayerRule::Frequency, "moe_layer_freq=1")
          .expect("moe_router_activation_func", {"\"sigmoid\""})
          .expect("use_grouped_topk", {"true"})
          .expect("topk_method", {"\"noaux_tc\""})
          .block("block_sparse_moe")
          .expertNames("experts.{e}.w1|experts.{e}.gate_proj",
                       "experts.{e}.w3|experts.{e}.up_proj",
                       "experts.{e}.w2|experts.{e}.down_proj");
  row.gateSoftcap = "activation_situ_beta?=1.0";
  row.upSoftcap = "activation_situ_linear_beta?=0.0";
  row.latentSize = "routed_expert_hidden_size?=null";
  row.normLatentOut = {"rms_norm_eps=1e-6", "latent_moe_use_norm=false"};
  row.names.latent[0] = "routed_expert_down_proj.weight";
  row.names.latent[1] = "routed_expert_up_proj.weight";
  row.names.norms[2] = "routed_expert_norm.weight";
  return row;
}

/// Models of llama.cpp and engines with a plain softmax.
void addSoftmaxes(std::vector<Family> &all) {
  // Every layer but those marked 0 has experts, without any shared.
  all.push_back(Row("llada llada_moe")
                    .sizes("num_experts", "num_experts_per_tok",
                           "expert_intermediate_size")
                    .act()
                    .softmax()
                    .rule(LayerRule::Frequency, "moe_layer_freq=1")
                    .expect("norm_topk_prob", {"false"})
                    .expect("moe_router_score_function", {"\"softmax\""})
                    .expect("moe_router_enable_expert_bias", {"false"})
                    .expect("shared_expert_intermediate_size", {"0"})
                    .ignore("dense_intermediate_size"));
  all.push_back(Row("xverse")
                    .sizes("num_experts", "moe_top_k", "intermediate_size")
                    .fixedAct(Activation::Silu)
                    .softmax()
                    .renormIf("norm_topk_prob=false")
                    .shared("num_shared_experts?=null", "intermediate_size")
                    .expect("hidden_act", {"\"silu\""})
                    .gate("router.weight"));
  all.push_back(
      Row("minicpm")
          .sizes("num_experts", "num_experts_per_tok", "intermediate_size")
          .fixedAct(Activation::Silu)
          .softmax()
          .renorm()
          .expect("hidden_act", {"\"silu\""})
          .expertNames("experts.{e}.w1", "experts.{e}.w3", "experts.{e}.w2"));
}

} // namespace

void addPublishedFamilies(std::vector<Family> &all) {
  addSoftmaxes(all);
  all.push_back(kimiK3());
  addGrok(all);
  addDeepSeek(all);
  addPangu(all);
  addWrappers(all);

  {
    // Both generations of Ling use this name.
    Row row = takeTextRouter(bailing("bailing_moe bailing_moe_linear"))
                  .biasIf("moe_router_enable_expert_bias=false")
                  .groups("n_group=1", "topk_group=1", GroupScore::Top2Sum)
                  .scaledBy("routed_scaling_factor=1.0");
    row.score.key = "score_function=\"softmax\"";
    row.scoreWords = {{"softmax", Score::Softmax}, {"sigmoid", Score::Sigmoid}};
    all.push_back(row);
  }
  all.push_back(bailingV2("bailing_moe_v2 llada2_moe"));
  {
    // Limits differ by layer; 0 or null means none.
    Row row = takeTextRouter(bailing("bailing_moe_v3 bailing_moe_v3_text"))
                  .fixedAct(Activation::SwigluStep)
                  .expect("hidden_act", {"\"silu\""})
                  .sigmoid()
                  .bias()
                  .groups("n_group", "topk_group", GroupScore::Top2Sum)
                  .scaledBy("routed_scaling_factor=1.0")
                  .clamp("expert_swiglu_limit_list@layer?=0")
                  .expect("norm_topk_prob", {"true"})
                  .expect("score_function", {"\"sigmoid\""})
                  .expect("moe_router_enable_expert_bias", {"true"});
    row.sharedLimit = "share_expert_swiglu_limit_list@layer?=0";
    all.push_back(row);
    row.modelTypes = "bailing_moe_v3_vl";
    all.push_back(row.in("text_config"));
  }
  all.push_back(
      bailing("sarvam_moe")
          .sigmoid()
          .bias()
          .groups("n_group=1", "topk_group=1", GroupScore::Top2Sum)
          .scaledBy("routed_scaling_factor=1.0")
          .expect("norm_topk_prob", {"true"})
          .expect("score_function", {"\"sigmoid\""})
          .expect("moe_router_enable_expert_bias", {"true"})
          .says(
              "engines subtract the mean of the selection bias, which chooses "
              "the same experts"));
  all.push_back(
      Row("param2moe")
          .sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size")
          .act()
          .sigmoid()
          .bias()
          .groups("n_group=1", "topk_group=1", GroupScore::Top2Sum)
          .renormIf("norm_topk_prob=true", 1e-20)
          .scaledBy("routed_scaling_factor=1.0")
          .shared("moe_shared_expert_intermediate_size")
          .from("first_k_dense_replace=1")
          .expect("use_bias", {"false"})
          .expect("score_function", {"\"sigmoid\""})
          .expect("moe_router_enable_expert_bias", {"true"})
          .biasName("gate.expert_bias|gate.e_score_correction_bias")
          .ignore("num_shared_experts router_dtype")
          .says(
              "the shared experts' width is that of all; engines subtract the "
              "mean of the selection bias, which chooses the same experts"));
  {
    Row row = Row("interns1_pro interns1_pro_text intern_s1_pro")
                  .in("text_config?")
                  .sizes("num_experts", "num_experts_per_tok",
                         "moe_intermediate_size")
                  .act()
                  .softmax()
                  .renormIf("norm_topk_prob=true")
                  .step()
                  .transposed();
    row.select = Select::PerGroup;
    row.numGroups = "router_n_groups=1";
    all.push_back(row);
  }

  all.push_back(
      Row("arctic")
          .sizes("num_local_experts", "num_experts_per_tok",
                 "intermediate_size")
          .act()
          .softmax()
          .renorm()
          .renormOfSeveral()
          .rule(LayerRule::Step, "moe_layer_frequency=2")
          .expect("moe_token_dropping", {"false"})
          .block("block_sparse_moe")
          .expertNames("experts.{e}.w1", "experts.{e}.w3", "experts.{e}.w2")
          .ignore("moe_eval_capacity_factor moe_min_capacity "
                  "moe_train_capacity_factor "
                  "enable_expert_tensor_parallelism "
                  "parallel_attn_mlp_res")
          .says("the experts alone; the residual MLP beside them "
                "reads other states"));

  all.push_back(
      Row("minimax_text_01 minimax_m1")
          .sizes("num_local_experts@layer", "num_experts_per_tok",
                 "intermediate_size")
          .fixedAct(Activation::Silu)
          .softmax()
          .renorm()
          .expect("hidden_act", {"\"silu\""})
          .expect("shared_intermediate_size@0", {"0"})
          .block("block_sparse_moe")
          .expertNames("experts.{e}.w1", "experts.{e}.w3", "experts.{e}.w2")
          .ignore("shared_moe_mode"));

  {
    Row row =
        Row("step3_vl step3_text")
            .in("text_config?")
            .sizes("moe_num_experts", "moe_top_k", "moe_intermediate_size")
            .fixedAct(Activation::Silu)
            .softmax()
            .renormIf("norm_expert_weight=false")
            .shared("share_expert_dim")
            .rule(LayerRule::Listed, "moe_layers_enum?=null")
            .from("first_k_dense_replace=1")
            .expect("hidden_act", {"\"silu\""})
            .block("")
            .gate("moe.gate.weight")
            .expertNames("", "", "")
            .fusedNames("", "moe.down_proj.weight")
            .sharedNames("share_expert.gate_proj", "share_expert.up_proj",
                         "share_expert.down_proj");
    row.names.fusedHalves[0] = "moe.gate_proj.weight";
    row.names.fusedHalves[1] = "moe.up_proj.weight";
    all.push_back(row);
  }

  all.push_back(
      Row("sdar_moe")
          .sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size")
          .act()
          .softmax()
          .renormIf("norm_topk_prob=false")
          .expect("decoder_sparse_step", {"1"})
          .expect("mlp_only_layers", {"[]"}));

  all.push_back(
      Row("alice_ai")
          .sizes("num_experts", "num_experts_per_tok", "moe_intermediate_size")
          .act()
          .sigmoid()
          .bias()
          .renormIf("norm_topk_prob=true")
          .shared("shared_expert_intermediate_size", SharedGate::Sigmoid)
          .expect("router_score_function", {"\"sigmoid\""})
          .expect("router_bias_correction", {"true"})
          .expect("decoder_sparse_step", {"1"})
          .expect("mlp_only_layers", {"[]"})
          .sharedNames("shared_expert.gate_proj", "shared_expert.up_proj",
                       "shared_expert.down_proj"));

  {
    // The bias of the router's matrix is used only for selection.
    Row row = Row("k2_horizon xllm")
                  .sizes("num_experts", "num_experts_per_tok",
                         "moe_intermediate_size")
                  .act()
                  .biasIf("moe_gate_bias")
                  .renormIf("norm_topk_prob")
                  .scaledBy("router_scaling_factor")
                  .shared("num_shared_experts=0", "moe_intermediate_size")
                  .step()
                  .biasName("gate.bias")
                  .ignore("mova_* layernorm_num_groups");
    row.score.key = "router_score_func";
    row.scoreWords = {{"softmax", Score::Softmax}, {"sigmoid", Score::Sigmoid}};
    all.push_back(row);
  }

  // Norms before and after the block, and its factor, belong to the decoder
  // layer.
  all.push_back(
      Row("iquest_q1")
          .sizes("num_experts", "num_experts_per_tok", "intermediate_size")
          .act()
          .softmax()
          .renorm()
          .rule(LayerRule::Except, "mlp_only_layers?=[]")
          .ignore("dense_intermediate_size moe_router_dtype attn_out_scale "
                  "ffn_out_scale first_layer_*_out_scale softmax_scale"));
}

} // namespace moec
