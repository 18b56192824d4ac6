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

/// Routers that read other states than the experts do; their logits are an
/// input of the layer.
static void addRoutersOutside(std::vector<Family> &all) {
  {
    Row row =
        Row("smallthinker")
            .sizes("moe_num_primary_experts", "moe_num_active_primary_experts",
                   "moe_ffn_hidden_size")
            .fixedAct(Activation::Relu)
            .renorm()
            .startsFrom(Entry::Logits)
            .rule(LayerRule::Flags, "moe_layer_layout?=null")
            .expect("moe_enable_early_router", {"true"})
            .expect("moe_enable_secondary_experts", {"false"})
            .expect("moe_shared_primary_experts", {"0"})
            .block("block_sparse_moe")
            .gate("primary_router.weight")
            .expertNames("experts.{e}.gate", "experts.{e}.up",
                         "experts.{e}.down")
            .fusedNames("", "")
            .ignore("moe_num_secondary_experts moe_secondary_expert_size "
                    "dense_ffn_hidden_size")
            .says("starts from router logits: the router reads the states "
                  "ahead of attention");
    row.score.key = "moe_primary_router_apply_softmax=false";
    row.scoreWords = {{"true", Score::Softmax}, {"false", Score::Sigmoid}};
    all.push_back(row);
  }
  {
    // The last logit is that of a skip, which adds nothing.
    Row row = Row("zaya")
                  .sizes("num_experts", "num_experts_per_tok=1",
                         "moe_intermediate_size")
                  .act()
                  .softmax()
                  .bias()
                  .startsFrom(Entry::Logits)
                  .gate("gate.router_mlp.out_proj.weight")
                  .biasName("gate.balancing_biases")
                  .ignore("router_hidden_size")
                  .says("starts from router logits: the router reads its own "
                        "states of the layer before");
    row.numSkips = 1;
    all.push_back(row);
  }
}

/// Both stacks of a model of two. Experts of a layer of the encoder have other
/// names, or the stack is in the name.
static void addSwitch(std::vector<Family> &all) {
  auto stack = [](const char *types, const char *gate, const char *first,
                  const char *second) {
    Row row = Row(types)
                  .sizes("num_experts=8", "num_experts_per_tok=1", "d_ff=2048")
                  .act("dense_act_fn=\"relu\"")
                  .softmax()
                  .expect("router_bias", {"false"})
                  .gate(gate)
                  .expertNames("", first, second)
                  .fusedNames("", "")
                  .ignore("router_* encoder_sparse_step decoder_sparse_step "
                          "num_sparse_* add_router_probs");
    row.ungated = true;
    row.hiddenSize = "d_model=768";
    row.capacity = "expert_capacity=64";
    return row;
  };
  Row decoder = stack(
      "switch_transformers", "layer.2.mlp.router.classifier.weight",
      "layer.2.mlp.experts.expert_{e}.wi", "layer.2.mlp.experts.expert_{e}.wo");
  decoder.numLayers = "num_decoder_layers|num_layers=12";
  all.push_back(
      decoder.rule(LayerRule::Period, "decoder_sparse_step")
          .says("the decoder, for calls of no more tokens than an expert may "
                "have; --part=encoder is the other stack"));
  Row encoder = stack(
      "switch_transformers.encoder", "layer.1.mlp.router.classifier.weight",
      "layer.1.mlp.experts.expert_{e}.wi", "layer.1.mlp.experts.expert_{e}.wo");
  encoder.numLayers = "num_layers=12";
  all.push_back(encoder.rule(LayerRule::Period, "encoder_sparse_step")
                    .says("the encoder, for calls of no more tokens than an "
                          "expert may have"));
}

/// A stack of NLLB-MoE. With a share of 1 an expert has room for all tokens of
/// a call. Transformers 5 takes the mask of chosen experts for their ids;
/// fairseq and Transformers 4 do what is here.
static Row makeNllb(const char *types, Key width, Key count, Key step,
                    const char *gate, const char *first, const char *second) {
  // The part of an expert's output that is not dropped.
  constexpr double kept = 0.8;
  Row row =
      Row(types)
          .sizes("num_experts=128", "num_experts_per_tok=2", std::move(width))
          .act("activation_function=\"relu\"")
          .softmax()
          .renorm()
          .rule(LayerRule::Step, std::move(step))
          .expect("router_bias", {"false"})
          .expect("moe_token_dropout", {"0.2"})
          .expect("second_expert_policy", {"\"all\""})
          .expect("moe_eval_capacity_token_fraction", {"1"},
                  "experts leave out tokens beyond this share of a call's")
          .block("")
          .gate(gate)
          .expertNames("", first, second)
          .fusedNames("", "")
          .ignore("router_* expert_capacity batch_prioritized_routing "
                  "normalize_router_prob_before_dropping "
                  "normalize_before encoder_* decoder_* activation_dropout "
                  "scale_embedding");
  row.ungated = true;
  row.expertBias = true;
  row.fixedScale = kept;
  row.hiddenSize = "d_model=1024";
  row.numLayers = std::move(count);
  row.names.haveBanks = true;
  return row;
}

static void addNllb(std::vector<Family> &all) {
  all.push_back(makeNllb("nllb-moe nllb_moe", "decoder_ffn_dim=4096",
                         "decoder_layers=12", "decoder_sparse_step=4",
                         "decoder.layers.{l}.ffn.router.classifier.weight",
                         "decoder.layers.{l}.ffn.experts.expert_{e}.fc1",
                         "decoder.layers.{l}.ffn.experts.expert_{e}.fc2")
                    .says("the decoder; --part=encoder is the other stack; "
                          "compared without Transformers' loop over experts, "
                          "which takes a mask for ids"));
  all.push_back(makeNllb("nllb-moe.encoder nllb_moe.encoder",
                         "encoder_ffn_dim=4096", "encoder_layers=12",
                         "encoder_sparse_step=4",
                         "encoder.layers.{l}.ffn.router.classifier.weight",
                         "encoder.layers.{l}.ffn.experts.expert_{e}.fc1",
                         "encoder.layers.{l}.ffn.experts.expert_{e}.fc2")
                    .says("the encoder"));
}

/// The router's two halves have the logits of rows and columns of a square of
/// experts; an expert is a row of two tables, whose logit is the sum of both.
/// The model splits the halves of all tokens of a call at once, so its logits
/// are an input.
static void addDoge(std::vector<Family> &all) {
  Row row = Row("doge")
                .sizes("num_experts=16384", "num_experts_per_tok=64",
                       "expert_intermediate_size=1")
                .act()
                .softmaxOfChosen()
                .startsFrom(Entry::Logits)
                .rule(LayerRule::Enabled, "is_moe=false")
                .expect("mlp_bias", {"false"})
                .expect("norm_topk_prob", {"false", "true"})
                .expertNames("", "", "")
                .fusedNames("", "")
                .ignore("intermediate_size")
                .says("starts from router logits: the model's router mixes the "
                      "tokens of a call; without the MLP beside the experts");
  row.ungated = true;
  row.names.stacked[1] = "down_embed.weight";
  row.names.stacked[2] = "up_embed.weight";
  row.names.otherRouters = "router_gate.weight";
  all.push_back(row);
}

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
  {
    // Shared experts are experts that every token has: their weights come from
    // the router, whose last rows are theirs.
    Row row =
        Row("inkling inkling_text inkling_model inkling_mm_model")
            .in("text_config?")
            .sizes("n_routed_experts|num_local_experts",
                   "num_experts_per_tok=6", "moe_intermediate_size?=null")
            .fixedAct(Activation::Silu)
            .sigmoid()
            .bias()
            .renorm()
            .scaledBy("route_scale=8.0")
            .types()
            .from("dense_mlp_idx=0")
            .expect("hidden_act", {"\"silu\""})
            .expect("gate_activation", {"\"sigmoid\""})
            .expect("norm_after_topk", {"true"})
            .expect("shared_expert_sink", {"true"})
            .expect("shared_experts_size", {"1"})
            .expect("use_gate_bias", {"true"})
            .expect("use_global_scale", {"true"})
            .expect("inference_moe_w13_interleaved", {"true"})
            .ignore("dense_intermediate_size rms_norm_eps_moe_gate "
                    "final_logit_softcapping logits_mup_width_multiplier")
            .order(GateUpOrder::Interleaved)
            .expertNames("", "", "")
            .fusedNames("experts.w13_weight", "experts.w2_weight")
            .biasName("gate.bias|gate.e_score_correction_bias")
            .says("shared experts are routed experts that every token has");
    row.widthOtherwise = "intermediate_size";
    row.alwaysChosen = "n_shared_experts=2";
    row.expertScale = true;
    row.names.expertScale = "gate.global_scale";
    row.names.isOneScale = true;
    row.names.always[0] = "shared_experts.shared_w13_weight";
    row.names.always[1] = "shared_experts.shared_w2_weight";
    all.push_back(row);
  }
  {
    // Experts between projections and norms of their own.
    Row row = Row("muse_spark muse_spark_text musespark1x_text musespark1x")
                  .in("text_config?")
                  .sizes("num_local_experts", "num_experts_per_tok",
                         "moe_intermediate_size")
                  .act()
                  .sigmoid()
                  .bias()
                  .renorm(1e-15)
                  .scaledBy("routed_scaling_factor=1.0")
                  .types()
                  .ignore("final_logit_softcapping residual_gate_temperature");
    row.logitScale = "output_multiplier=0.1767766952966369";
    row.latentSize = "moe_hidden_size=4096";
    row.normLatentIn = {"rms_norm_eps=1e-5", Key(), /*offset=*/1.0};
    row.normExpert = {"post_norm_eps=1e-8", Key(), /*offset=*/1.0,
                      /*weightFirst=*/true};
    row.names.latent[0] = "pre_expert_proj.weight";
    row.names.latent[1] = "post_expert_proj.weight";
    row.names.norms[0] = "pre_expert_norm.weight";
    row.names.norms[1] = "experts.post_expert_norm.weight";
    all.push_back(row);
  }
  {
    // Sizes that the file leaves out are those of the only model.
    Row row = Row("moondream3 moondream3_text")
                  .in("text_config?")
                  .sizes("moe.n_experts|moe.num_experts=64",
                         "moe.n_experts_per_tok|moe.experts_per_token=8",
                         "moe.expert_inner_dim=1024")
                  .fixedAct(Activation::Gelu)
                  .softmaxOfChosen()
                  .from("moe.start_layer=4")
                  .gate("router.weight")
                  .expertNames("", "", "")
                  .fusedNames("fc1.weight", "fc2.weight");
    row.hiddenSize = "dim=2048";
    row.numLayers = "n_layers=24";
    row.fixedBeta = 1.0;
    row.gateBias.value = true;
    row.names.gateBias = "router.bias";
    all.push_back(row);
  }
  {
    Row row = Row("phixtral phi-msft")
                  .sizes("num_local_experts", "num_experts_per_tok=2",
                         "n_inner?=null")
                  .act("activation_function=\"gelu_new\"")
                  .softmaxOfChosen()
                  .block("moe")
                  .expertNames("", "mlp.{e}.fc1", "mlp.{e}.fc2")
                  .fusedNames("", "")
                  .ignore("resid_pdrop");
    row.ungated = true;
    row.expertBias = true;
    row.hiddenSize = "n_embd";
    row.numLayers = "n_layer?=null";
    row.hiddenSizesPerWidth = 4;
    all.push_back(row);
  }
  addSwitch(all);
  addNllb(all);
  addDoge(all);
  addRoutersOutside(all);
}

void addRefusedFamilies(std::vector<Family> &all) {
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
                       "the caller chooses the expert by the data set, and "
                       "experts share all but a few rows of one MLP: write a "
                       "spec of entry \"ids\" whose experts have these rows "
                       "too"));
}

} // namespace moec
