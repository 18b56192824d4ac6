//===- GgufLayerTest.cpp - tests of finding a layer in GGUF -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Runtime/GgufWriter.h"
#include "moec/Checkpoint/LocateLayer.h"
#include "moec/Import/Import.h"

#include "gtest/gtest.h"

#include <cstdio>
#include <fstream>

using namespace moec;

namespace {

/// A key of the metadata and its value, as GGUF writes both.
using Keys = std::vector<std::string>;

std::string makeKey(const std::string &name, uint32_t type,
                    const std::string &value) {
  gguf::Writer key;
  key.text.clear();
  key.string("qwen3moe." + name).number(type);
  return key.text + value;
}
template <typename T>
std::string bytesOf(std::vector<T> values) {
  return {reinterpret_cast<const char *>(values.data()),
          values.size() * sizeof(T)};
}
std::string u32(const std::string &name, uint32_t value) {
  return makeKey(name, 4, bytesOf<uint32_t>({value}));
}
std::string f32(const std::string &name, float value) {
  return makeKey(name, 6, bytesOf<float>({value}));
}
std::string boolean(const std::string &name, bool value) {
  return makeKey(name, 7, bytesOf<uint8_t>({value}));
}
std::string u32s(const std::string &name, const std::vector<uint32_t> &values) {
  return makeKey(name, 9,
                 bytesOf<uint32_t>({4}) + bytesOf<uint64_t>({values.size()}) +
                     bytesOf<uint32_t>(values));
}

/// A layer whose tensors have these names in block 1, and one element each.
moert::Checkpoint makeFile(const std::vector<std::string> &names,
                           const Keys &keys) {
  gguf::Writer writer = gguf::begin(names.size(), keys.size() + 1);
  writer.string("general.architecture").number(uint32_t(8)).string("qwen3moe");
  for (const std::string &key : keys)
    writer.text += key;
  for (size_t i = 0; i < names.size(); ++i)
    writer.tensor("blk.1." + names[i], {1}, 0, i * 32);
  std::string path = ::testing::TempDir() + "moec_gguf_layer.gguf";
  std::ofstream(path, std::ios::binary) << writer.data(names.size() * 32);
  moert::Result<moert::Checkpoint> file = moert::Checkpoint::open(path);
  EXPECT_TRUE(file) << file.status().message();
  std::remove(path.c_str());
  return std::move(*file);
}

/// "" if the layer is found, else the message without the file's name.
std::string locate(const std::string &fields,
                   const std::vector<std::string> &more,
                   const Keys &keys = {}) {
  std::string text =
      R"({"moec_spec": 1, "dtype": "f32", "hidden_size": 8, "num_experts": 8,
          "top_k": 2, "intermediate_size": 4)" +
      std::string(fields.find("\"activation\"") == std::string::npos
                      ? R"(, "activation": {"kind": "silu"})"
                      : "") +
      (fields.empty() ? "" : ", ") + fields + "}";
  Diagnostics diagnostics(llvm::errs());
  auto spec = importJson(SourceText("t.json", text), {}, diagnostics);
  if (failed(spec))
    return "no layer";
  std::vector<std::string> names = {
      "ffn_gate_inp.weight", "ffn_gate_exps.weight", "ffn_up_exps.weight",
      "ffn_down_exps.weight"};
  names.insert(names.end(), more.begin(), more.end());
  moert::Checkpoint file = makeFile(names, keys);
  moert::Result<LocatedLayer> layer = locateLayer(file, makeRequest(*spec));
  return layer ? "" : layer.status().message().substr(file.path().size() + 2);
}

std::string unused(const std::string &name, const std::string &field = "") {
  return "tensor 'blk.1." + name + "' is none of this layer's" +
         (field.empty() ? "" : ", whose description lacks '" + field + "'") +
         "; correct its name or the layer's description, or leave it out "
         "(--signature lists the layer's)";
}

} // namespace

/// Each tensor of the block is part of the layer, or an error names it and the
/// field that would use it.
// field-bug: llama.cpp#22804, ROCmFPX#85, llama.cpp#19139, ik_llama.cpp#1408,
// imp#690
TEST(GgufLayer, TensorsAreUsedOrNamed) {
  EXPECT_EQ(locate("", {}), "");
  const std::string shared = R"("shared_experts": {"intermediate_size": 4})";
  const std::string ungated = R"("activation": {"kind": "relu2_no_mul"})";
  struct Case {
    std::string name, field, fields;
  } cases[] = {
      {"exp_probs_b.bias", "routing.selection_bias", ""},
      {"ffn_gate_inp.bias", "routing.gate_bias", ""},
      {"ffn_gate_tid2eid.weight", "routing.hash_vocab_size", ""},
      {"ffn_up_exps.bias", "expert_bias", ""},
      {"ffn_down_exps.bias", "expert_bias", ""},
      {"ffn_gate_shexp.weight", "shared_experts", ""},
      {"ffn_up_shexp.weight", "shared_experts", ""},
      {"ffn_down_shexp.weight", "shared_experts", ""},
      {"ffn_gate_inp_shexp.weight", "shared_experts", ""},
      {"ffn_latent_down.weight", "latent_size", ""},
      {"ffn_latent_up.weight", "latent_size", ""},
      {"ffn_down_exps.scale", "routing.expert_scale", ""},
      // No field describes these.
      {"ffn_gate_up_exps.weight", "", ""},
      {"ffn_gate_chexps.weight", "", ""},
      {"ffn_norm_exps.weight", "", ""},
      {"ffn_down_exps.input_scale", "", ""},
      {"exp_probs_b.weight", "", ""},
      {"ffn_gate.0.weight", "", ""},
      {"ffn_new_part.weight", "", ""},
      {"expert_norm.weight", "", ""},
      // A layer that gets logits or ids ignores the router's tensors, except
      // those that affect the selection.
      {"exp_probs_b.bias", "routing.selection_bias", R"("entry": "logits")"},
      {"ffn_gate_shexp.weight", "shared_experts", R"("entry": "ids")"},
      {"ffn_latent_up.weight", "latent_size", R"("entry": "ids")"},
  };
  for (const Case &bad : cases)
    EXPECT_EQ(locate(bad.fields, {bad.name}), unused(bad.name, bad.field));
  EXPECT_EQ(
      locate(shared, {"ffn_gate_shexp.weight", "ffn_up_shexp.weight",
                      "ffn_down_shexp.weight", "ffn_gate_inp_shexp.weight"}),
      unused("ffn_gate_inp_shexp.weight", "shared_experts.gate"));
  EXPECT_EQ(locate(ungated, {}),
            unused("ffn_gate_exps.weight", "activation.kind"));

  // With a description they are used.
  EXPECT_EQ(
      locate(R"("routing": {"selection_bias": true})", {"exp_probs_b.bias"}),
      "");
  EXPECT_EQ(locate(R"("latent_size": 8)",
                   {"ffn_latent_down.weight", "ffn_latent_up.weight"}),
            "");
  EXPECT_EQ(locate(R"("routing": {"select": "hash", "hash_vocab_size": 5})",
                   {"ffn_gate_tid2eid.weight"}),
            "");
  EXPECT_EQ(locate(R"("entry": "logits")", {"ffn_gate_inp.bias"}), "");
  EXPECT_EQ(locate(R"("entry": "ids")",
                   {"exp_probs_b.bias", "ffn_gate_tid2eid.weight"}),
            "");
}

/// In files of llama.cpp a decoder layer has other parts beside its experts.
TEST(GgufLayer, OtherPartsOfTheBlockAreLeftAlone) {
  EXPECT_EQ(locate("", {"attn_norm.weight",
                        "attn_q.weight",
                        "attn_q.bias",
                        "attn_sinks.weight",
                        "ffn_norm.weight",
                        "ffn_gate.weight",
                        "ffn_up.weight",
                        "ffn_down.weight",
                        "ffn_sub_norm.weight",
                        "pre_ffw_norm_2.weight",
                        "post_ffw_norm_1.weight",
                        "post_attention_norm.weight",
                        "layer_output_scale.weight",
                        "ssm_a",
                        "ssm_conv1d.weight",
                        "time_mix_key.weight",
                        "channel_mix_key.weight",
                        "shortconv.conv.weight",
                        "indexer.proj.weight",
                        "indexer_compressor_gate.weight",
                        "hc_ffn_fn.weight",
                        "altup_router.weight",
                        "laurel_l.weight",
                        "inp_gate.weight",
                        "proj.weight",
                        "nextn.eh_proj.weight",
                        "vis_gate.weight"}),
            "");
}

/// An error names a key that contradicts the description, with both values.
TEST(GgufLayer, MetadataAreHeldToTheDescription) {
  const std::string sigmoid =
      R"("routing": {"score": "sigmoid", "renormalize": true, "scale": 2.5,
                     "num_groups": 4, "topk_groups": 2})";
  const std::string chosen =
      R"("routing": {"score": "identity", "weight": "softmax"})";
  const std::string shared = R"("shared_experts": {"intermediate_size": 8})";
  const std::vector<std::string> sharedTensors = {
      "ffn_gate_shexp.weight", "ffn_up_shexp.weight", "ffn_down_shexp.weight"};
  const std::vector<std::string> none;
  struct Case {
    std::string fields;
    Keys keys;
    std::string message;
  } cases[] = {
      {"",
       {u32("expert_count", 8), u32("expert_used_count", 2),
        u32("embedding_length", 8), u32("expert_feed_forward_length", 4),
        u32("expert_gating_func", 1), boolean("expert_weights_norm", false),
        f32("expert_weights_scale", 1), u32("expert_group_count", 1),
        u32("expert_group_used_count", 1), u32("expert_shared_count", 0),
        u32("moe_latent_size", 0)},
       ""},
      {sigmoid,
       {u32("expert_gating_func", 2), boolean("expert_weights_norm", true),
        f32("expert_weights_scale", 2.5F), u32("expert_group_count", 4),
        u32("expert_group_used_count", 2)},
       ""},
      {"",
       {u32("expert_count", 16)},
       "expert_count' is 16 in layer 1, but the description says "
       "'num_experts': 8; correct the one that is wrong"},
      {"",
       {u32("expert_used_count", 3)},
       "is 3 in layer 1, but the "
       "description says 'top_k': 2"},
      {"", {u32("embedding_length", 16)}, "'hidden_size': 8"},
      {"", {u32("expert_feed_forward_length", 8)}, "'intermediate_size': 4"},
      {"", {u32("moe_latent_size", 8)}, "nothing of 'latent_size'"},
      // Softmax of all experts, of the chosen ones, and sigmoid.
      {"",
       {u32("expert_gating_func", 2)},
       "expert_gating_func' is 2 (sigmoid) in layer 1, but the description "
       "says 'routing.score': \"softmax\", 'routing.weight': \"score\", "
       "'routing.renormalize': false"},
      {"", {u32("expert_gating_func", 3)}, "is 3 (softmax of the chosen)"},
      {"", {u32("expert_gating_func", 4)}, "is 4 (sqrtsoftplus)"},
      {"", {u32("expert_gating_func", 9)}, "is 9 in layer 1"},
      {"", {u32("expert_gating_func", 0)}, ""},
      {R"("routing": {"renormalize": true})",
       {u32("expert_gating_func", 3)},
       ""},
      {chosen, {u32("expert_gating_func", 3)}, ""},
      {chosen,
       {u32("expert_gating_func", 1), boolean("expert_weights_norm", true)},
       ""},
      {chosen,
       {u32("expert_gating_func", 1), boolean("expert_weights_norm", false)},
       "expert_weights_norm' is false"},
      {chosen, {u32("expert_gating_func", 2)}, "is 2 (sigmoid)"},
      {R"("routing": {"score": "identity", "weight": "sigmoid"})",
       {u32("expert_gating_func", 2)},
       ""},
      {sigmoid, {u32("expert_gating_func", 1)}, "is 1 (softmax)"},
      {"",
       {boolean("expert_weights_norm", true)},
       "expert_weights_norm' is true in layer 1, but the description says "
       "'routing.renormalize': false"},
      {"",
       {f32("expert_weights_scale", 2.5F)},
       "expert_weights_scale' is 2.5 in layer 1, but the description says "
       "'routing.scale': 1"},
      {"", {f32("expert_weights_scale", 0)}, ""},
      {sigmoid, {f32("expert_weights_scale", 0)}, "'routing.scale': 2.5"},
      // A number of 32 bits in the file.
      {R"("routing": {"scale": 16.1})",
       {f32("expert_weights_scale", 16.1F)},
       ""},
      {R"("routing": {"scale": 16.1})",
       {f32("expert_weights_scale", 16.2F)},
       "'routing.scale': 16.1"},
      {"",
       {u32("expert_group_count", 4), u32("expert_group_used_count", 2)},
       "expert_group_count' is 4 in layer 1, but the description says "
       "'routing.num_groups': 1"},
      // Selecting all groups means no grouping.
      {"",
       {u32("expert_group_count", 4), u32("expert_group_used_count", 4)},
       ""},
      {sigmoid,
       {u32("expert_group_count", 4), u32("expert_group_used_count", 1)},
       "'routing.topk_groups': 2"},
      {sigmoid, {u32("expert_group_count", 1)}, "'routing.num_groups': 4"},
      {"", {u32("expert_shared_count", 1)}, "nothing of 'shared_experts'"},
      {shared,
       {u32("expert_shared_count", 0)},
       "that there are 'shared_experts'"},
      {shared, {u32("expert_shared_count", 2)}, ""},
      {shared, {u32("expert_shared_feed_forward_length", 8)}, ""},
      {shared,
       {u32("expert_shared_count", 2),
        u32("expert_shared_feed_forward_length", 4)},
       ""},
      {shared,
       {u32("expert_shared_feed_forward_length", 4)},
       "'shared_experts.intermediate_size': 8"},
      // One value for each layer.
      {"", {u32s("expert_used_count", {9, 2, 9})}, ""},
      {"", {u32s("expert_used_count", {2, 3})}, "is 3 in layer 1"},
      {"", {u32s("expert_used_count", {9})}, ""},
      {"",
       {makeKey("expert_count", 8, bytesOf<uint64_t>({2}) + "ab")},
       "expert_count' is no number"},
      // The caller gives ids, so keys about routing do not matter.
      {R"("entry": "ids")",
       {u32("expert_used_count", 3), u32("expert_gating_func", 2)},
       ""},
      {R"("entry": "ids")", {u32("embedding_length", 16)}, "'hidden_size': 8"},
  };
  for (const Case &each : cases) {
    std::string message = locate(
        each.fields, each.fields == shared ? sharedTensors : none, each.keys);
    if (each.message.empty())
      EXPECT_EQ(message, "") << each.fields << each.keys.front();
    else
      EXPECT_NE(message.find(each.message), std::string::npos)
          << message << "\nexpected: " << each.message;
  }
}
