//===- SoftmaxFamilies.cpp - routers of softmax scores ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Models with softmax weights: over all experts, or over the experts selected
// by their logits.
//
//===----------------------------------------------------------------------===//

#include "Table.h"

using namespace llvm;

namespace moec {

namespace {

/// Softmax over all experts, weights divided by their sum.
Row mixtral(const char *types) {
  return Row(types)
      .sizes("num_local_experts|num_experts", "num_experts_per_tok",
             "intermediate_size")
      .act()
      .softmax()
      .renorm()
      .expect("norm_topk_prob", {"true"})
      .expect("scoring_func", {"\"softmax\""})
      .block("block_sparse_moe")
      .expertNames("experts.{e}.w1", "experts.{e}.w3", "experts.{e}.w2");
}

/// Softmax over all experts; `norm_topk_prob` controls the division by the sum
/// of weights.
Row qwen(const char *types, const char *norm) {
  return Row(types)
      .sizes("num_experts|num_local_experts", "num_experts_per_tok",
             "moe_intermediate_size")
      .act()
      .softmax()
      .renormIf(norm)
      .step()
      .expect("scoring_func", {"\"softmax\""})
      .sharedNames("shared_expert.gate_proj", "shared_expert.up_proj",
                   "shared_expert.down_proj");
}

/// As `qwen`, for models whose code always divides.
Row qwenNormalized(const char *types) {
  return qwen(types, "norm_topk_prob=true").expect("norm_topk_prob", {"true"});
}

Row qwenShared(Row row) {
  return row.shared("shared_expert_intermediate_size", SharedGate::Sigmoid);
}

Row olmoe(const char *types) {
  return qwen(types, "norm_topk_prob=false")
      .sizes("num_experts|num_local_experts", "num_experts_per_tok",
             "intermediate_size");
}

Row deepSeekV2(const char *types) {
  Row row = Row(types)
                .sizes("n_routed_experts|num_experts", "num_experts_per_tok",
                       "moe_intermediate_size")
                .act()
                .softmax()
                .groups("n_group?=null", "topk_group?=null", GroupScore::Max)
                .scaledBy("routed_scaling_factor=1.0")
                .shared("n_shared_experts?=2", "moe_intermediate_size")
                .types()
                .from("first_k_dense_replace=0")
                .rule(LayerRule::Frequency, "moe_layer_freq=1")
                .expect("scoring_func", {"\"softmax\""})
                .expect("norm_topk_prob", {"false"})
                .expect("mlp_bias", {"false"});
  row.groupsIf = "topk_method=\"greedy\"";
  row.groupsIfWord = "group_limited_greedy";
  return row;
}

/// Selection by logits, softmax over the selected experts.
Row granite(const char *types) {
  Row row = Row(types)
                .sizes("num_local_experts", "num_experts_per_tok",
                       "intermediate_size")
                .act()
                .softmaxOfChosen()
                .block("")
                .gate("block_sparse_moe.router.layer.weight|"
                      "block_sparse_moe.router.weight")
                // Tools that quantize modules split the experts.
                .expertNames("block_sparse_moe.experts.{e}.gate_proj",
                             "block_sparse_moe.experts.{e}.up_proj",
                             "block_sparse_moe.experts.{e}.down_proj")
                .fusedNames("block_sparse_moe.input_linear.weight|"
                            "block_sparse_moe.experts.gate_up_proj",
                            "block_sparse_moe.output_linear.weight|"
                            "block_sparse_moe.experts.down_proj")
                .sharedNames("", "", "shared_mlp.output_linear");
  row.names.sharedFused = "shared_mlp.input_linear";
  return row;
}

/// Shared experts are as wide as the routed ones, concatenated.
Row hunyuan(const char *types) {
  Row row =
      Row(types)
          .sizes("num_experts|num_local_experts@layer",
                 "moe_topk|num_experts_per_tok@layer", "intermediate_size")
          .act()
          .softmax()
          .renorm()
          .shared("num_shared_expert@layer=1", "intermediate_size")
          .from("moe_layer_num_skipped=0")
          .expect("use_mixed_mlp_moe", {"true"})
          .expect("mlp_bias", {"false"})
          .expect("norm_topk_prob", {"true"})
          .gate("gate.wg.weight")
          .sharedNames("shared_mlp.gate_proj", "shared_mlp.up_proj",
                       "shared_mlp.down_proj")
          .ignore("moe_drop_tokens moe_random_routing_dropped_token");
  row.sameAsIntermediate = "moe_intermediate_size@layer";
  return row;
}

Row gptOss(const char *types) {
  Row row =
      Row(types)
          .sizes("num_local_experts|num_experts",
                 "num_experts_per_tok|experts_per_token", "intermediate_size")
          .fixedAct(Activation::SwigluOai)
          .clamp("swiglu_limit=7.0")
          .softmaxOfChosen()
          .expect("norm_topk_prob", {"true"})
          .gate("router.weight")
          .transposed();
  row.alpha = "swiglu_alpha=1.702";
  row.expertBias = true;
  row.gateBias.value = true;
  row.names.gateBias = "router.bias";
  return row;
}

/// The router has its own norm and scale and reads the states before the norm
/// of the experts, so its logits are an input of the layer.
Row gemma4(const char *types) {
  Row row = Row(types)
                .in("text_config?")
                .sizes("num_experts", "top_k_experts", "moe_intermediate_size")
                .act("hidden_activation=\"gelu_pytorch_tanh\"")
                .softmax()
                .renorm()
                .startsFrom(Entry::Logits)
                .says("starts from router logits: the router normalizes and "
                      "scales states of its own")
                .block("")
                .expertNames("experts.{e}.gate_proj", "experts.{e}.up_proj",
                             "experts.{e}.down_proj")
                .fusedNames("experts.gate_up_proj|moe.gate_up_proj",
                            "experts.down_proj|moe.down_proj")
                .ignore("use_double_wide_mlp");
  row.expertScale = true;
  row.names.expertScale = "router.per_expert_scale|moe.per_expert_scale";
  return row;
}

} // namespace

void addSoftmaxFamilies(std::vector<Family> &all) {
  all.push_back(mixtral("mixtral minimax"));
  all.push_back(olmoe("olmoe flex_olmo"));
  all.push_back(qwenShared(qwen("qwen2_moe", "norm_topk_prob=false")));
  all.push_back(qwen("qwen3_moe", "norm_topk_prob=false"));
  all.push_back(qwen("rnd1", "norm_topk_prob=true"));
  all.push_back(qwenShared(qwen("qwen3_next", "norm_topk_prob=true")));
  all.push_back(
      qwenNormalized("qwen3_vl_moe qwen3_vl_moe_text").in("text_config?"));
  all.push_back(qwenShared(qwenNormalized("qwen3_5_moe qwen3_5_moe_text "
                                          "intern_s2_preview"))
                    .in("text_config?"));
  {
    // Layers take the banks in turn; each has a shared expert of its own.
    Row row = qwenShared(qwen("interns2_mobius interns2_mobius_text",
                              "norm_topk_prob=true"))
                  .in("text_config?")
                  .block("")
                  .gate("meta_mlp.{b}.gate.weight")
                  .expertNames("meta_mlp.{b}.experts.{e}.gate_proj",
                               "meta_mlp.{b}.experts.{e}.up_proj",
                               "meta_mlp.{b}.experts.{e}.down_proj")
                  .fusedNames("meta_mlp.{b}.experts.gate_up_proj",
                              "meta_mlp.{b}.experts.down_proj")
                  .sharedNames("layers.{l}.mlp.shared_expert.gate_proj",
                               "layers.{l}.mlp.shared_expert.up_proj",
                               "layers.{l}.mlp.shared_expert.down_proj")
                  .says("without the factor of the layer behind it");
    row.names.sharedGate = "layers.{l}.mlp.shared_expert_gate.weight";
    row.names.haveBanks = true;
    row.numBanks = "num_blocks=4";
    all.push_back(row);
  }
  all.push_back(
      qwenShared(qwen("qwen4_exp qwen4_exp_text", "norm_topk_prob=true"))
          .in("text_config?"));
  all.push_back(qwen("qwen3_omni_moe", "norm_topk_prob=true")
                    .in("thinker_config.text_config")
                    .says("the thinker; the talker's own configuration is "
                          "qwen3_omni_moe_talker_text"));
  all.push_back(
      qwen("qwen3_omni_moe_thinker qwen3_omni_moe_text", "norm_topk_prob=true")
          .in("text_config?"));
  {
    // Every layer of the talker has experts, regardless of the two keys.
    Row row =
        qwenShared(qwen("qwen3_omni_moe_talker_text", "norm_topk_prob=false"));
    row.layers.clear();
    all.push_back(row.expect("decoder_sparse_step", {"1"})
                      .expect("mlp_only_layers", {"[]"}));
  }
  all.push_back(qwen("mellum", "norm_topk_prob=true").types());
  all.push_back(qwen("lara_mini", "norm_topk_prob=true")
                    .shared("shared_expert_intermediate_size"));
  all.push_back(deepSeekV2("deepseek_v2"));
  all.push_back(deepSeekV2("deepseek_ocr2 deepseek_ocr2_text unlimited_ocr "
                           "unlimited_ocr_text unlimited-ocr")
                    .in("text_config?"));

  // Jamba does not renormalize the softmax of the selected experts.
  all.push_back(Row("jamba")
                    .sizes("num_experts|num_local_experts",
                           "num_experts_per_tok", "intermediate_size")
                    .act()
                    .softmax()
                    .rule(LayerRule::Period, "expert_layer_period=2",
                          Key("expert_layer_offset=1"))
                    .block("feed_forward")
                    .gate("router.weight"));

  all.push_back(hunyuan("hunyuan_v1_moe"));
  all.push_back(hunyuan("hunyuan")
                    .renormOfSeveral()
                    .expect("group_limited_greedy", {"false"})
                    .expect("moe_drop_tokens", {"false"})
                    .ignore("moe_random_routing_dropped_token capacity_factor "
                            "dense_list"));

  {
    Row row =
        Row("ernie4_5_moe")
            .sizes("moe_num_experts|num_experts", "moe_k|num_experts_per_tok",
                   "moe_intermediate_size")
            .act()
            .softmax()
            .bias()
            .renorm(1e-12)
            .shared("moe_num_shared_experts=2", "moe_intermediate_size")
            .rule(LayerRule::Step, "moe_layer_interval=1")
            .rule(LayerRule::Range, "moe_layer_start_index=1",
                  Key("moe_layer_end_index=-1"))
            .expect("moe_norm_min", {"1e-12"})
            .expect("use_bias", {"false"})
            .expect("moe_use_aux_free", {"true"})
            .expect("moe_gate", {"\"topk\"", "\"top2_fused\""})
            .expect("moe_gate_act", {"\"softmax\""})
            .expect("moe_use_hard_gate", {"false"})
            .expect("moe_norm_gate_logits", {"true"})
            .expect("moe_multimodal_dispatch_use_allgather", {"\"\""})
            .biasName("moe_statics.e_score_correction_bias|"
                      "gate.moe_statics.e_score_correction_bias")
            .says("weights are divided by their sum + 1e-12; the model's "
                  "code keeps that sum above 1e-12")
            .ignore("moe_capacity moe_layer_end_index moe_num_attn_experts");
    all.push_back(row);
  }

  {
    Row row = Row("longcat_flash longcat_flash_ngram")
                  .sizes("n_routed_experts|num_local_experts",
                         "moe_topk|num_experts_per_tok",
                         "expert_ffn_hidden_size|moe_intermediate_size")
                  .act()
                  .softmax()
                  .bias()
                  .scaledBy("routed_scaling_factor=6.0")
                  .expect("zero_expert_type", {"\"identity\""})
                  .expect("router_bias", {"false"})
                  .expect("norm_topk_prob", {"false"})
                  .gate("router.classifier.weight")
                  .biasName("router.e_score_correction_bias")
                  .ignore("ffn_hidden_size intermediate_size mla_scale_* "
                          "nextn_use_scmoe");
    row.zeroExperts = "zero_expert_num?=256";
    row.numLayers = "num_layers?=null";
    all.push_back(row);
  }

  {
    Row row = Row("dbrx")
                  .in("ffn_config")
                  .sizes("moe_num_experts", "moe_top_k", "ffn_hidden_size")
                  .act("ffn_act_fn.name=\"silu\"")
                  .softmax()
                  .expect("moe_normalize_expert_weights", {"1"})
                  .renorm()
                  .block("ffn")
                  .gate("router.layer.weight")
                  .expertNames("", "", "");
    row.hiddenSize = "^d_model|^hidden_size";
    row.numLayers = "^n_layers|^num_hidden_layers?=null";
    row.names.stacked[0] = "experts.mlp.w1";
    row.names.stacked[1] = "experts.mlp.v1";
    row.names.stacked[2] = "experts.mlp.w2";
    row.names.fused[0] = row.names.fused[1] = "";
    row.irrelevant = "hidden_size uniform_expert_assignment";
    all.push_back(row);
  }

  {
    // Groups ranked by the sum of their two best keys, as with sigmoid scores.
    auto mistral = [](const char *types) {
      return Row(types)
          .sizes("n_routed_experts|num_local_experts", "num_experts_per_tok",
                 "moe_intermediate_size")
          .act()
          .softmax()
          .groups("n_group=1", "topk_group=1", GroupScore::Top2Sum)
          .scaledBy("routed_scaling_factor=1.0")
          .shared("n_shared_experts=1", "moe_intermediate_size")
          .types()
          .expect("scoring_func", {"\"softmax\""});
    };
    all.push_back(mistral("mistral4")
                      .renormIf("norm_topk_prob=true", 1e-20)
                      .from("first_k_dense_replace=0"));
    all.push_back(mistral("mistral_large4 mistral_large4_text")
                      .in("text_config?")
                      .renorm(1e-20)
                      .from("first_k_dense_replace=1")
                      .expect("norm_topk_prob", {"true"})
                      .expertNames("experts.{e}.gate_proj|experts.{e}.w1",
                                   "experts.{e}.up_proj|experts.{e}.w3",
                                   "experts.{e}.down_proj|experts.{e}.w2"));
  }

  all.push_back(granite("granitemoe"));
  all.push_back(granite("granitemoeshared granitemoe_swa")
                    .shared("shared_intermediate_size=0"));
  all.push_back(
      granite("granitemoehybrid").shared("shared_intermediate_size=1024"));
  all.push_back(Row("aria aria_text")
                    .in("text_config?")
                    .sizes("moe_num_experts", "moe_topk", "intermediate_size")
                    .fixedAct(Activation::Silu)
                    .softmaxOfChosen()
                    .shared("moe_num_shared_experts=2", "intermediate_size")
                    .expect("hidden_act", {"\"silu\""})
                    .expect("mlp_bias", {"false"})
                    .gate("router.weight")
                    .expertNames("", "", "")
                    .fusedNames("experts.fc1.weight|experts.gate_up_proj",
                                "experts.fc2.weight|experts.down_proj")
                    .transposed());
  all.push_back(gptOss("gpt_oss")
                    .order(GateUpOrder::Interleaved)
                    .expect("hidden_act", {"\"silu\""}));
  all.push_back(gptOss("openai_privacy_filter"));
  all.push_back(gemma4("gemma4 gemma4_text diffusion_gemma "
                       "diffusion_gemma_text"));
  all.back().layers.push_back(
      {LayerRule::Enabled, "enable_moe_block=true", Key(), ""});

  {
    Row row =
        Row("phimoe")
            .sizes("num_local_experts", "num_experts_per_tok",
                   "intermediate_size")
            .act()
            .expect("router_jitter_noise", {"0.01"})
            .expect("norm_topk_prob", {"false"})
            .block("block_sparse_moe")
            .gate("gate.weight|router.weight")
            .expertNames("experts.{e}.w1", "experts.{e}.w3", "experts.{e}.w2")
            .says("router_jitter_noise is the width of the sparse mixer, "
                  "0.01 in the formula");
    row.score.value = Score::Identity;
    row.select = Select::SparseMixer;
    all.push_back(row);
  }

  {
    Row row =
        Row("cohere2_moe")
            .sizes("num_experts", "num_experts_per_tok", "intermediate_size")
            .act()
            .renormIf("norm_topk_prob=true")
            .shared("num_shared_experts=0", "intermediate_size")
            .types()
            .from("first_k_dense_replace=0")
            .ignore("prefix_dense_*");
    row.score.value = Score::Identity;
    row.weight.key = "expert_selection_fn=\"softmax\"";
    row.weightWords = {{"softmax", RouteWeight::Softmax},
                       {"sigmoid", RouteWeight::Sigmoid}};
    row.combination = "shared_expert_combination_strategy=\"average\"";
    all.push_back(row);
  }
}

} // namespace moec
