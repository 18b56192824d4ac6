//===- OtherFamilies.cpp - other routers, refused families ----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Routers with other scores, and models whose layers cannot be described.
//
//===----------------------------------------------------------------------===//

#include "Table.h"

using namespace llvm;

namespace moec {

void addOtherFamilies(std::vector<Family> &all) {
  {
    Row row =
        Row("llama4 llama4_text")
            .in("text_config?")
            .sizes("num_local_experts", "num_experts_per_tok=1",
                   "intermediate_size")
            .act()
            .shared("intermediate_size")
            .rule(LayerRule::Listed, "moe_layers?=null")
            .rule(LayerRule::Step, "interleave_moe_layer_step=1")
            .block("feed_forward")
            .gate("router.weight")
            .transposed()
            .sharedNames("shared_expert.gate_proj", "shared_expert.up_proj",
                         "shared_expert.down_proj")
            .ignore("intermediate_size_mlp");
    row.score.value = Score::Identity;
    row.weight.value = RouteWeight::Sigmoid;
    row.weightOnInput = true;
    all.push_back(row);
  }
  {
    Row row =
        Row("deepseek_v4")
            .sizes("n_routed_experts|num_local_experts", "num_experts_per_tok",
                   "moe_intermediate_size|intermediate_size")
            .act()
            .clamp("swiglu_limit=10.0")
            .bias()
            .renorm(1e-20)
            .scaledBy("routed_scaling_factor=1.5")
            .shared("n_shared_experts=1", "moe_intermediate_size")
            .types("mlp_layer_types?=null", "moe hash_moe")
            .expect("n_shared_experts", {"1"})
            .expect("norm_topk_prob", {"true"})
            .expect("topk_method", {"\"noaux_tc\""})
            .expect("mlp_bias", {"false"})
            .biasName("gate.e_score_correction_bias|gate.bias")
            .expertNames("experts.{e}.gate_proj|experts.{e}.w1",
                         "experts.{e}.up_proj|experts.{e}.w3",
                         "experts.{e}.down_proj|experts.{e}.w2")
            .sharedNames("shared_experts.gate_proj|shared_experts.w1",
                         "shared_experts.up_proj|shared_experts.w3",
                         "shared_experts.down_proj|shared_experts.w2")
            .says("the first num_hash_layers (3) take ids from a table "
                  "by the token");
    row.score.key = "scoring_func=\"sqrtsoftplus\"";
    row.scoreWords = {{"sqrtsoftplus", Score::SqrtSoftplus},
                      {"sigmoid", Score::Sigmoid}};
    row.hashWord = "hash_moe";
    row.hashLayers = "num_hash_layers=3";
    row.hashVocabulary = "vocab_size";
    all.push_back(row);

    // Without hash layers; tokens of images have a selection bias of their own.
    row.modelTypes = "deepseek_v41 deepseek_v41_text";
    row.in("text_config?").says("tokens of images choose with another bias");
    row.hashWord = "";
    row.hashLayers = row.hashVocabulary = Key();
    row.expect("gate_temp", {"1"}).expect("num_hash_layers", {"0"});
    row.names.otherRouters = "gate.bias_vl";
    row.remark = "tokens of images choose experts with 'gate.bias_vl' in this "
                 "model; the layer has the bias of text tokens alone";
    row.remarkIf = "^vision_config?=null";
    all.push_back(row);
  }
  {
    // Clamped with tanh after the sigmoid: the kind `situ`.
    Row row =
        Row("inkling2 inkling2_text inkling2_loop inkling2_loop_text")
            .in("text_config?")
            .sizes("n_routed_experts|num_local_experts", "num_experts_per_tok",
                   "moe_intermediate_size|intermediate_size")
            .fixedAct(Activation::Situ)
            .bias()
            .renorm(1e-20)
            .scaledBy("route_scale|routed_scaling_factor=8.0")
            .types()
            .expect("hidden_act", {"\"silu\""})
            .ignore("loop_gate_rank")
            .order(GateUpOrder::Interleaved)
            .expertNames("", "", "")
            .fusedNames("experts.w13_weight", "experts.w2_weight")
            .biasName("gate.bias|gate.e_score_correction_bias");
    row.score.key = "scoring_func=\"sigmoid\"";
    row.scoreWords = {{"sigmoid", Score::Sigmoid},
                      {"sqrtsoftplus", Score::SqrtSoftplus}};
    row.gateSoftcap = "mlp_gate_softcap=4.0";
    row.upSoftcap = "mlp_up_softcap=25.0";
    all.push_back(row);
  }
}

void addRefusedFamilies(std::vector<Family> &all) {
  all.push_back(refuse("axk1", "a norm stands between the experts' sum and the "
                               "block's output"));
  all.push_back(
      refuse("muse_spark muse_spark_text musespark1x_text",
             "norms stand inside the block, ahead of and behind the experts"));
  all.push_back(refuse("inkling inkling_text inkling_model inkling_mm_model",
                       "the shared experts' weights come from the router, in "
                       "one softmax with those of the chosen experts"));
  all.push_back(refuse("grove_moe grovemoe",
                       "experts in pairs share an adjugate expert, which adds "
                       "to a token's output once for both"));
  all.push_back(refuse("smallthinker",
                       "the router reads the states ahead of attention, and "
                       "the activation is relu(gate) * up"));
  all.push_back(refuse("megrez_moe",
                       "the router reads the states of the layer before, and "
                       "layers share their experts"));
  all.push_back(refuse("moondream3 moondream3_text",
                       "the activation is gelu(gate) * (up + 1)"));
  all.push_back(refuse("nomic_bert", "a bias is added to the sum of the "
                                     "experts"));
  all.push_back(refuse("phixtral phi-msft",
                       "no key states the width of an expert; write the layer "
                       "as a spec"));
  all.push_back(refuse("Klear", "a softmax of the token's own weighs the "
                                "experts' sum against the shared experts"));
  all.push_back(refuse("skywork", "the router of Skywork-MoE is two layers "
                                  "with a tanh between them"));
  all.push_back(refuse("zaya", "the router is a network of its own that reads "
                               "the states of the layer before"));
  all.push_back(refuse("jetmoe",
                       "a bias is added to the sum of the experts, and "
                       "attention has experts too"));
  all.push_back(refuse("nllb-moe nllb_moe switch_transformers",
                       "experts have a capacity, so that the result for a "
                       "token depends on the tokens before it"));
  all.push_back(refuse("doge", "experts are rows of embeddings, chosen by "
                               "product keys"));
  all.push_back(refuse("ernie4_5_vl_moe ernie4_5_vl_moe_text ernie4_5_moe_vl",
                       "tokens of text and of images have routers and experts "
                       "of their own; write either part as a spec"));
  all.push_back(refuse(
      "llama mistral ministral qwen2 qwen3 qwen2_vl qwen2_5_vl "
      "qwen3_vl "
      "gemma gemma2 gemma3 gemma3_text phi phi3 falcon gpt2 gpt_neox glm glm4 "
      "olmo olmo2 olmo3 cohere cohere2 granite smollm3 exaone4 lfm2 mamba "
      "mamba2 "
      "stablelm starcoder2 granite_docling granite_docling_text internlm2 "
      "baichuan chatglm nemotron ernie4_5 "
      "hunyuan_v1_dense seed_oss qwen3_5 qwen3_5_text minicpm3 openpangu_vl",
      "it is a dense model, without experts"));
  all.push_back(refuse("vitpose_backbone",
                       "experts are chosen by the data set, not by a router"));
}

} // namespace moec
