//===- AllowList.cpp - refusal of unread keys -----------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The importer must not silently ignore a key that changes the results of a
// layer. The keys of future models are unknown, so a key is suspicious by its
// name unless a list clears it.
//
//===----------------------------------------------------------------------===//

#include "AllowList.h"

#include "Families/KeyReader.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;

namespace moec {

namespace {

/// Substrings that make a key suspicious.
constexpr StringLiteral kSuspicious[] = {
    "moe",          "expert",
    "rout",         "gate",
    "scor",         "shared",
    "topk",         "top_k",
    "quant",        "bias",
    "norm_",        "scale",
    "scaling",      "limit",
    "group",        "latent",
    "capac",        "softcap",
    "ffn",          "dense",
    "sparse",       "mlp",
    "ep_size",      "hash",
    "substitut",    "transform_config",
    "glu",          "clamp",
    "feed_forward", "feedforward",
};

/// Words that make a key suspicious if a part of its name between underscores
/// begins with them.
constexpr StringLiteral kSuspiciousWords[] = {"act", "activation", "alpha",
                                              "beta", "load"};

/// Keys that match the above but do not affect a layer's results at inference:
/// attention and positions, norms, vocabulary, training, other modalities and
/// generation. `*` matches any characters.
constexpr StringLiteral kIrrelevant[] = {
    // Attention, positions and state spaces.
    "attention_bias",
    "attention_out_bias",
    "attention_gate*",
    "attention_scal*",
    "attention_value_scale",
    "attn_bias",
    "attn_scale",
    "attn_logit_softcapping",
    "attn_output_gate",
    "attn_temperature*",
    "attn_scal*",
    "floor_scale",
    "use_qkv_bias",
    "qkv_bias",
    "add_qkv_bias",
    "o_bias",
    "out_bias",
    "use_attention_bias",
    "rope_scaling*",
    "rope_parameters*",
    "scale_attn*",
    "query_pre_attn_scalar",
    "num_attention_groups",
    "num_key_value_groups",
    "multi_query_group_num",
    "use_output_gate",
    "add_full_attention_sink_bias",
    "add_swa_attention_sink_bias",
    "attention_projection_bias",
    "o_groups",
    "index_topk*",
    "index_top_k",
    "mamba_*",
    "ssm_*",
    "conv_bias",
    "use_conv_bias",
    "kda_*",
    "linear_*",
    "time_step_limit",
    "layer_group_size",
    "group_norm*",
    "n_groups",
    "partial_rotary_factor",
    "sparse_attention*",
    "sliding_window*",
    "num_kv_shared_layers",
    "dense_attention*",
    "log_scaling_*",
    "use_sparse_attention",
    "sparse_num_index_heads",
    "qk_scale_factor",
    "rotary_scal*",
    "attn_gate*",
    "gated_attention*",
    "use_gated_attention",
    "use_attn_output_gate",
    "swa_attention_sink_bias",
    "mscale*",
    "attention_chunk_size",
    "gating_types",
    "gated_norm*",
    "output_gate_type",
    "*_alpha_factor",
    "*_beta_factor",
    "layernorm_*_alpha",
    "layernorm_*_beta",
    // Norms and residual connections.
    "rms_norm_*",
    "layer_norm_*",
    "norm_eps*",
    "norm_epsilon",
    "norm_type",
    "use_qk_norm",
    "qk_norm_*",
    "residual_multiplier",
    "hc_*",
    "layer_scale_init_value",
    "layerscale*",
    "rescale_prenorm_residual",
    "residual_gate_temperature",
    "layer_scal*",
    "norm_topk_eps",
    // Vocabulary and logits of the model.
    "logit_scale",
    "logits_scaling",
    "lm_head_bias",
    "final_logit_softcap*",
    "scale_emb",
    "scale_depth",
    "scale_embedding",
    "embedding_multiplier",
    "embed_scale",
    "output_multiplier_scale",
    "classifier_bias",
    // Training.
    "router_aux_loss_coef",
    "router_z_loss_coef",
    "output_router_logits",
    "router_jitter_noise",
    "input_jitter_noise",
    "aux_loss_alpha",
    "seq_aux",
    "moe_aux_loss*",
    "moe_loss_weight",
    "moe_jitter_eps",
    "moe_dropout*",
    "activation_dropout",
    "router_bias_update_speed",
    "moe_z_loss*",
    "moe_use_aux_loss*",
    "router_dropout*",
    "load_balance*",
    "load_balanc*",
    "moe_router_enable_expert_bias_update",
    "router_noise*",
    "moe_group_experts_loss",
    "gradient_*",
    "gate_dropout",
    "expert_dropout",
    "mtp_*",
    "num_mtp*",
    "balance_loss*",
    "topk_aux*",
    "moe_orthogonal_loss_lambda",
    "sinkhorn_*",
    // Choice of implementation in other engines.
    "experts_implementation",
    "_experts_implementation",
    "moe_implementation",
    "moe_backend",
    "moe_dispatcher*",
    "moe_token_dispatcher_type",
    "moe_grouped_gemm",
    "use_grouped_gemm",
    "fuse_gate_*",
    "gradient_checkpointing_*",
    "moe_shared_expert_overlap",
    "use_fused_moe*",
    "moe_permute_fusion",
    "chunk_size_feed_forward",
    "enable_expert_parallel",
    // Generation and containers.
    "top_k",
    "top_p",
    "typical_p",
    "num_beam_groups",
    "diversity_penalty",
    "quantization_config",
    "projector_*",
    "multimodal_*bias",
    "vision_*",
    "audio_*",
    "mm_*",
    "image_*",
    "video_*",
    "id2label",
    "label2id",
    "task_specific_params",
    "dense_act_fn_layers",
};

bool matches(StringRef pattern, StringRef key) {
  auto [before, after] = pattern.split('*');
  if (!pattern.contains('*'))
    return pattern == key;
  return key.size() >= before.size() + after.size() &&
         key.starts_with(before) && key.ends_with(after);
}

/// A key of another family, and the value with which it has no effect here.
struct NeutralKey {
  StringLiteral name;
  enum Value {
    Off,        ///< false or 0
    One,        ///< 0, false or 1
    NumExperts, ///< the number of experts read before
    TopK,       ///< the experts per token read before
    On,         ///< true
  } value;
};

constexpr NeutralKey kNeutralKeys[] = {
    {"ep_size", NeutralKey::One},
    {"expert_bias", NeutralKey::Off},
    {"experts_per_token", NeutralKey::TopK},
    {"first_k_dense_replace", NeutralKey::Off},
    {"mlp_bias", NeutralKey::Off},
    {"moe_bias", NeutralKey::Off},
    {"moe_k", NeutralKey::TopK},
    {"moe_layer_freq", NeutralKey::One},
    {"moe_latent_size", NeutralKey::Off},
    {"moe_num_experts", NeutralKey::NumExperts},
    {"moe_num_shared_experts", NeutralKey::Off},
    {"moe_shared_expert_intermediate_size", NeutralKey::Off},
    {"moe_top_k", NeutralKey::TopK},
    {"moe_topk", NeutralKey::TopK},
    {"n_group", NeutralKey::One},
    {"n_routed_experts", NeutralKey::NumExperts},
    {"n_shared_experts", NeutralKey::Off},
    {"num_expert_group", NeutralKey::One},
    {"num_experts", NeutralKey::NumExperts},
    {"num_experts_per_tok", NeutralKey::TopK},
    {"num_experts_per_token", NeutralKey::TopK},
    {"num_hash_layers", NeutralKey::Off},
    {"num_local_experts", NeutralKey::NumExperts},
    {"num_shared_experts", NeutralKey::Off},
    {"pretraining_tp", NeutralKey::One},
    {"routed_scaling_factor", NeutralKey::One},
    {"shared_expert_intermediate_size", NeutralKey::Off},
    {"shared_intermediate_size", NeutralKey::Off},
    {"topk_group", NeutralKey::One},
    {"use_bias", NeutralKey::Off},
    {"use_mlp_bias", NeutralKey::Off},
    {"zero_expert_num", NeutralKey::Off},
};

bool saysNothing(const json::Value &value) {
  using Kind = json::Value::Kind;
  return value.isNull() || (value.kind != Kind::Boolean &&
                            value.kind != Kind::Number && value.text.empty() &&
                            value.elements.empty() && value.members.empty());
}

bool isNeutral(StringRef key, const json::Value &value, const LayerSpec &spec) {
  if (saysNothing(value))
    return true;
  const auto *entry = llvm::find_if(
      kNeutralKeys, [&](const NeutralKey &k) { return k.name == key; });
  if (entry == std::end(kNeutralKeys))
    return false;
  if (value.kind == json::Value::Kind::Boolean)
    return value.boolean == (entry->value == NeutralKey::On);
  std::optional<double> number = value.getDouble();
  switch (entry->value) {
  case NeutralKey::Off:
    return number == 0.0;
  case NeutralKey::One:
    return number == 0.0 || number == 1.0;
  case NeutralKey::NumExperts:
    return number == double(spec.numExperts);
  case NeutralKey::TopK:
    return number == double(spec.topK);
  case NeutralKey::On:
    return false;
  }
  llvm_unreachable("every value is listed");
}

/// Whether the inner object has the same value under the same name.
bool repeats(const json::Value *inner, const json::Member &member) {
  const json::Member *other = inner ? inner->find(member.name) : nullptr;
  return other && other->value.kind == member.value.kind &&
         other->value.text == member.value.text &&
         other->value.boolean == member.value.boolean &&
         member.value.elements.empty() && member.value.members.empty();
}

} // namespace

bool IgnoredFields::take(StringRef path) {
  const auto *name = llvm::find(names, path);
  if (name == names.end())
    return false;
  if (!is_contained(used, path))
    used.push_back(*name);
  return true;
}

bool IgnoredFields::offer(StringRef path) {
  if (is_contained(withheld, path))
    return false;
  if (!is_contained(offered, path))
    offered.push_back(path.str());
  return true;
}

std::vector<std::string> IgnoredFields::getUsed() const {
  std::vector<std::string> result;
  for (const std::string &name : names)
    if (is_contained(used, name))
      result.push_back(name);
  return result;
}

void IgnoredFields::reportUnused(StringRef fileName, Diagnostics &diags) const {
  for (const std::string &name : names)
    if (!is_contained(used, name))
      diags.error(fileName, "--ignore-field=" + name +
                                ": no such key stands in the way; give the "
                                "name of a key that was refused, as the "
                                "message shows it");
}

bool couldMatter(StringRef key) {
  std::string lower = key.lower();
  StringRef name = lower;
  if (llvm::any_of(kSuspicious,
                   [&](StringRef part) { return name.contains(part); }))
    return true;
  SmallVector<StringRef> parts;
  name.split(parts, '_');
  return llvm::any_of(parts, [](StringRef part) {
    return is_contained(kSuspiciousWords, part) || part == "actfn";
  });
}

bool isIrrelevantEverywhere(StringRef key) {
  return llvm::any_of(kIrrelevant,
                      [&](StringRef pattern) { return matches(pattern, key); });
}

void refuseUnreadKeys(FieldReader &config, const Family &family,
                      const LayerSpec &spec, IgnoredFields &ignored,
                      const json::Value *inner) {
  SmallVector<StringRef> irrelevant;
  family.irrelevant.split(irrelevant, ' ', -1, /*KeepEmpty=*/false);
  for (const json::Member &member : config.getObjectValue().members) {
    StringRef key = member.name;
    if (config.isKnown(key) || !couldMatter(key) ||
        isIrrelevantEverywhere(key) ||
        llvm::any_of(
            irrelevant,
            [&](StringRef pattern) { return matches(pattern, key); }) ||
        isNeutral(key, member.value, spec) || repeats(inner, member))
      continue;
    std::string path = config.getPath(key);
    if (ignored.take(path))
      continue;
    config.error(key, config.show(key) + " = " + describeValue(member.value) +
                          " is not supported for model_type \"" +
                          spec.modelType + "\"" +
                          (ignored.offer(path)
                               ? "; if it says nothing of the layer, read past "
                                 "it with --ignore-field=" +
                                     path
                               : std::string()));
  }
}

} // namespace moec
