//===- UncommonFamilies.cpp - layers with more than experts ---------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Biases of the experts' sum, routers of two gemms, experts that share a narrow
// one or a bank, and parts for kinds of tokens.
//
//===----------------------------------------------------------------------===//

#include "Table.h"

namespace moec {

namespace {

void addBiasesOfSums(std::vector<Family> &all) {
  {
    // Attention has experts too, which are no part of the layer.
    Row row =
        Row("jetmoe")
            .sizes("num_local_experts", "num_experts_per_tok",
                   "intermediate_size")
            .act("activation_function=\"silu\"")
            .softmaxOfChosen()
            .block("")
            .gate("mlp.router.layer.weight")
            .expertNames("", "", "")
            .fusedNames("mlp.input_linear.weight", "mlp.output_linear.weight")
            .ignore("kv_channels")
            .says("the experts of its attention are no part of the layer");
    row.outputBias = true;
    row.names.outputBias = "mlp.bias";
    all.push_back(row);
  }
  // The files without 'num_experts' are of dense models.
  Row row = Row("nomic_bert")
                .sizes("num_experts", "moe_top_k", "n_inner|intermediate_size")
                .act("activation_function|hidden_act=\"gelu\"")
                .softmax()
                .renormIf("moe_normalize_expert_weights=false")
                .rule(LayerRule::Step, "moe_every_n_layers")
                .expect("moe_every_n_layers", {"2"})
                .expect("num_shared_experts", {"0"})
                .expect("expert_choice_router", {"false"})
                .expect("ffn_div", {"1"})
                .gate("router.layer.weight")
                .expertNames("", "", "")
                .fusedNames("", "")
                .ignore("moe_impl moe_resid_pdrop activation_function "
                        "mlp_fc1_bias mlp_fc2_bias qkv_proj_bias router_*");
  row.hiddenSize = "n_embd|hidden_size";
  row.numLayers = "n_layer|num_hidden_layers?=null";
  row.ungated = true;
  row.outputBias = true;
  row.names.outputBias = "experts.bias";
  row.names.stacked[1] = "experts.mlp.w1";
  row.names.stacked[2] = "experts.mlp.w2";
  all.push_back(row);
}

void addOtherRouters(std::vector<Family> &all) {
  {
    Row row = Row("Klear")
                  .sizes("num_experts", "num_experts_per_tok",
                         "moe_intermediate_size")
                  .act()
                  .sigmoid()
                  .bias()
                  .renormIf("norm_topk_prob")
                  .shared("n_shared_experts", "moe_intermediate_size")
                  .step()
                  .biasName("expert_bias")
                  .says("a softmax of the token's own weighs the experts' sum "
                        "and the shared experts");
    row.sharedGate = SharedGate::Softmax;
    row.sharedGateBias = true;
    row.names.sharedGate = "coefficient.weight";
    row.names.sharedGateBias = "coefficient.bias";
    all.push_back(row);
  }
  {
    Row row = Row("skywork")
                  .sizes("num_experts@0", "num_experts_per_tok=2",
                         "intermediate_size")
                  .act()
                  .softmax()
                  .renorm()
                  .rule(LayerRule::Step, "moe_expert_interval=1")
                  .ignore("moe_gate_norm_std")
                  .block("mlp.moe")
                  .gate("gate.wg.weight|gate.wg.2.weight")
                  .expertNames("experts.experts.{e}.gate_proj|experts.{e}.w1",
                               "experts.experts.{e}.up_proj|experts.{e}.w3",
                               "experts.experts.{e}.down_proj|experts.{e}.w2")
                  .says("experts read twice the states unless a key says "
                        "otherwise: their first weights are doubled at load; "
                        "with moe_use_logits_norm the layer starts from router "
                        "logits");
    row.logitsIf = "moe_use_logits_norm=false";
    row.remark = "the model divides a token's logits by their standard "
                 "deviation over 'moe_gate_norm_std'; give logits that are "
                 "divided (entry \"logits\")";
    row.remarkIf = "moe_use_logits_norm?=null";
    row.hasGateHidden = "moe_2layer_gate=true";
    row.gateHiddenPerExpert = 8;
    row.names.gateHidden = "gate.wg.0.weight";
    row.inputFactor = 2.0;
    row.names.haveInputFactor = true;
    row.inputFactorUnless[0] = "moe_use_mixtral_gating=false";
    row.inputFactorUnless[1] = "moe_feature_no_mul_topk=false";
    all.push_back(row);
  }
  {
    // The order by sigmoid, which the model's code takes, is that of logits.
    Row row = Row("grove_moe grovemoe")
                  .sizes("num_experts", "num_experts_per_tok",
                         "moe_intermediate_size")
                  .act()
                  .softmax()
                  .renorm()
                  .step()
                  .expect("norm_topk_prob", {"true"})
                  .says("an expert and the narrow one that its pair shares are "
                        "one expert; the factor is in the weights");
    row.adjugateSharing = "num_experts_per_group=2";
    row.adjugateWidth = "parallel_expert_intermediate_size=128";
    row.adjugateFactor = 0.05;
    row.names.adjugate[0] = "chunk_experts.{e}.gate_proj";
    row.names.adjugate[1] = "chunk_experts.{e}.up_proj";
    row.names.adjugate[2] = "chunk_experts.{e}.down_proj";
    row.names.otherRouters = "expert_bias";
    all.push_back(row);
  }
  {
    Row row =
        Row("megrez_moe")
            .sizes("n_routed_experts", "num_experts_per_tok",
                   "moe_intermediate_size")
            .act()
            .groups("n_group?=null", "topk_group?=null", GroupScore::Top2Sum)
            .renormIf("norm_topk_prob", 1e-20)
            .scaledBy("routed_scaling_factor=1.0")
            .shared("n_shared_experts?=null", "moe_intermediate_size")
            .startsFrom(Entry::Logits)
            .from("first_k_dense_replace=0")
            .rule(LayerRule::Frequency, "moe_layer_freq=1")
            .expect("pre_gate", {"true"})
            .block("")
            .biasName("layers.{l}.mlp.gate.e_score_correction_bias")
            .expertNames("layers.{b}.mlp.experts.{e}.gate_proj",
                         "layers.{b}.mlp.experts.{e}.up_proj",
                         "layers.{b}.mlp.experts.{e}.down_proj")
            .fusedNames("", "")
            .sharedNames("layers.{l}.mlp.shared_experts.gate_proj",
                         "layers.{l}.mlp.shared_experts.up_proj",
                         "layers.{l}.mlp.shared_experts.down_proj")
            .says("starts from router logits: the router reads the "
                  "states of the layer before; layers share experts");
    row.score.key = "scoring_func";
    row.scoreWords = {{"softmax", Score::Softmax}, {"sigmoid", Score::Sigmoid}};
    row.selectionBias.key = "topk_method";
    row.selectionBiasWord = "noaux_tc";
    row.names.haveBanks = true;
    row.layersPerBank = "experts_shared_frequency=1";
    row.firstBank = "first_k_dense_replace=0";
    all.push_back(row);
  }
}

/// Tokens of text (part 0) and of images have routers and experts of their own,
/// and share the shared experts.
Row ernieOfTwo(const char *types, int64_t part) {
  Row row(types);
  Key width = part ? "moe_intermediate_size@1" : "moe_intermediate_size@0";
  row.in("text_config?")
      .sizes(part ? "moe_num_experts@1" : "moe_num_experts@0", "moe_k=6", width)
      .act()
      .softmax()
      .bias()
      .renorm(1e-12)
      .shared("moe_num_shared_experts=2", "moe_intermediate_size@0")
      .types()
      .rule(LayerRule::Step, "moe_layer_interval=1")
      .rule(LayerRule::Range,
            part ? "moe_layer_start_index@1=1" : "moe_layer_start_index@0=1",
            Key(part ? "moe_layer_end_index@1=-1" : "moe_layer_end_index@0=-1"))
      .expect("moe_norm_min", {"1e-12"})
      .expect("use_bias", {"false"})
      .expect("moe_use_aux_free", {"true"})
      .expect("moe_gate", {"\"topk\"", "\"top2_fused\""})
      .expect("moe_gate_act", {"\"softmax\""})
      .expect("moe_use_hard_gate", {"false"})
      .expect("moe_norm_gate_logits", {"true"})
      .ignore("moe_capacity moe_num_attn_experts moe_multimodal_dispatch_*");
  row.block("")
      .expertNames("mlp.experts.{e}.gate_proj", "mlp.experts.{e}.up_proj",
                   "mlp.experts.{e}.down_proj")
      .sharedNames("mlp.shared_experts.gate_proj", "mlp.shared_experts.up_proj",
                   "mlp.shared_experts.down_proj");
  row.names.gateTransposed = true;
  row.names.partOfTwo = part;
  if (part == 0) {
    row.gate("mlp.gate.weight|mlp.text_moe.gate.weight")
        .biasName("mlp.moe_statics.e_score_correction_bias|"
                  "mlp.text_moe.gate.moe_statics.e_score_correction_bias")
        .fusedNames("mlp.text_moe.experts.gate_up_proj",
                    "mlp.text_moe.experts.down_proj");
    row.names.otherRouters =
        "mlp.gate.weight_1 mlp.vision_moe.gate.weight "
        "mlp.vision_moe.gate.moe_statics.e_score_correction_bias "
        "mlp.vision_moe.experts.gate_up_proj mlp.vision_moe.experts.down_proj";
    row.says("the part of text tokens; --part=vision is that of images");
    row.remark = "tokens of images have a router and experts of their own in "
                 "this model: --part=vision is their layer. Give each layer "
                 "the tokens of the other as padding ('padding_mask') and add "
                 "the outputs";
    row.remarkIf = "moe_num_experts";
    return row;
  }
  row.gate("mlp.gate.weight_1|mlp.vision_moe.gate.weight")
      .biasName("mlp.moe_statics.e_score_correction_bias|"
                "mlp.vision_moe.gate.moe_statics.e_score_correction_bias")
      .fusedNames("mlp.vision_moe.experts.gate_up_proj",
                  "mlp.vision_moe.experts.down_proj");
  row.names.otherRouters =
      "mlp.gate.weight mlp.text_moe.gate.weight "
      "mlp.text_moe.gate.moe_statics.e_score_correction_bias "
      "mlp.text_moe.experts.gate_up_proj mlp.text_moe.experts.down_proj";
  row.says("the part of tokens of images");
  return row;
}

void addErnieOfTwo(std::vector<Family> &all) {
  all.push_back(ernieOfTwo(
      "ernie4_5_vl_moe ernie4_5_vl_moe_text ernie4_5_moe_vl", /*part=*/0));
  all.push_back(ernieOfTwo("ernie4_5_vl_moe.vision ernie4_5_vl_moe_text.vision "
                           "ernie4_5_moe_vl.vision",
                           /*part=*/1));
}

} // namespace

void addUncommonFamilies(std::vector<Family> &all) {
  addBiasesOfSums(all);
  addOtherRouters(all);
  addErnieOfTwo(all);
}

} // namespace moec
