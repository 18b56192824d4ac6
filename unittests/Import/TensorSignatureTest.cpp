//===- TensorSignatureTest.cpp - the tensors of a layer ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Import/TensorSignature.h"
#include "ImportTesting.h"

#include "llvm/ADT/StringExtras.h"

using namespace moec;
using namespace moec::testing;

namespace {

/// One line per tensor: `input hidden_states ?x64xf32`.
std::vector<std::string> describe(const LayerSpec &spec) {
  std::vector<std::string> lines;
  for (const TensorInfo &tensor : getTensorSignature(spec)) {
    std::string line = (stringify(tensor.role) + " " + tensor.name + " ").str();
    for (int64_t size : tensor.shape)
      line += (size == kTokenDimension ? "?" : std::to_string(size)) + "x";
    lines.push_back(line + stringify(tensor.type).str());
  }
  return lines;
}

/// The checkpoint layouts of a tensor: `name@firstRow+rowStride*numRows`. Parts
/// of a layout are joined by ` & `. `T` marks a transposed part, `max` a part
/// of which the maximum is used.
std::vector<std::string> describeForms(const LayerSpec &spec,
                                       llvm::StringRef name) {
  std::vector<std::string> forms;
  for (const TensorInfo &tensor : getTensorSignature(spec)) {
    if (tensor.name != name)
      continue;
    for (const CheckpointForm &form : tensor.checkpointForms) {
      std::vector<std::string> parts;
      for (const CheckpointPart &part : form)
        parts.push_back(part.name + "@" + std::to_string(part.firstRow) + "+" +
                        std::to_string(part.rowStride) + "*" +
                        std::to_string(part.numRows) +
                        (part.transposed ? "T" : "") +
                        (part.use == PartUse::LargestScale ? "max" : ""));
      forms.push_back(llvm::join(parts, " & "));
    }
  }
  return forms;
}

using Lines = std::vector<std::string>;

TEST(TensorSignature, SmallestLayer) {
  EXPECT_EQ(
      describe(importOk(makeSpec())),
      (Lines{"input hidden_states ?x64xf32", "weight gate.weight 8x64xf32",
             "weight experts.w13 8x64x64xf32", "weight experts.w2 8x64x32xf32",
             "output output ?x64xf32"}));
}

TEST(TensorSignature, EverythingInTheOrderOfTheDocumentation) {
  LayerSpec spec = importOk(R"({
    "moec_spec": 1, "dtype": "bf16", "hidden_size": 64, "num_experts": 6,
    "top_k": 2, "intermediate_size": 32, "num_valid_tokens": true,
    "num_zero_experts": 2, "latent_size": 16, "expert_bias": true,
    "expert_columns": true,
    "routing": {"score": "sigmoid", "gate_bias": true, "selection_bias": true,
      "expert_scale": true},
    "activation": {"kind": "silu"},
    "shared_experts": {"intermediate_size": 24, "gate": "sigmoid",
      "columns": true},
    "placement": {"local_experts": [4, 0]}})");
  EXPECT_EQ(
      describe(spec),
      (Lines{
          "input hidden_states ?x64xbf16", "input num_valid_tokens 1xi32",
          "weight gate.weight 8x64xbf16", "weight gate.bias 8xf32",
          "weight gate.selection_bias 8xf32", "weight gate.expert_scale 8xf32",
          "weight experts.w13 2x64x16xbf16",
          "weight experts.w13_columns 2x16xi32",
          "weight experts.w13_bias 2x64xbf16", "weight experts.w2 2x16x32xbf16",
          "weight experts.w2_bias 2x16xbf16",
          "weight shared_experts.w13 48x64xbf16",
          "weight shared_experts.w13_columns 1x64xi32",
          "weight shared_experts.w2 64x24xbf16",
          "weight shared_experts.gate 1x64xbf16",
          "weight latent.down 16x64xbf16", "weight latent.up 64x16xbf16",
          "output output ?x64xbf16"}));
}

TEST(TensorSignature, PaddingRecordsAndReplicas) {
  EXPECT_EQ(
      describe(importOk(makeSpec(
          R"("entry": "logits", "padding_mask": true, "num_valid_tokens": true,
             "record_ids": true, "record_load": true,
             "replicas": {"num_physical_experts": 11, "max_replicas": 3})"))),
      (Lines{"input hidden_states ?x64xf32", "input router_logits ?x8xf32",
             "input num_valid_tokens 1xi32", "input is_padding ?xi8",
             "weight experts.w13 11x64x64xf32",
             "weight experts.w2 11x64x32xf32",
             "weight replicas.physical_ids 8x3xi32",
             "weight replicas.counts 8xi32", "output output ?x64xf32",
             "output topk_ids ?x2xi32", "output topk_weights ?x2xf32",
             "output expert_offsets 12xi32"}));
}

TEST(TensorSignature, Entries) {
  EXPECT_EQ(
      describe(importOk(makeSpec(
          R"("entry": "logits", "num_zero_experts": 1,
                   "routing": {"select": "hash", "hash_vocab_size": 100})"))),
      (Lines{"input hidden_states ?x64xf32", "input router_logits ?x9xf32",
             "input input_ids ?xi32", "weight gate.hash_table 100x2xi32",
             "weight experts.w13 8x64x64xf32", "weight experts.w2 8x64x32xf32",
             "output output ?x64xf32"}));
  EXPECT_EQ(describe(importOk(makeSpec(R"("entry": "logits",
                   "routing": {"logits_dtype": "bf16"})")))[1],
            "input router_logits ?x8xbf16");
  EXPECT_EQ(
      describe(importOk(makeSpec(
          R"("entry": "ids", "activation": {"kind": "relu2_no_mul"})"))),
      (Lines{"input hidden_states ?x64xf32", "input topk_ids ?x2xi32",
             "input topk_weights ?x2xf32", "weight experts.w13 8x32x64xf32",
             "weight experts.w2 8x64x32xf32", "output output ?x64xf32"}));
}

TEST(TensorSignature, Ids) {
  Lines recorded = describe(importOk(makeSpec(R"("record_ids": "uint8")")));
  EXPECT_EQ(recorded[recorded.size() - 2], "output topk_ids ?x2xi8");
  EXPECT_EQ(describe(importOk(
                makeSpec(R"("entry": "logits", "replay_ids": "int16")")))[2],
            "input topk_ids ?x2xi16");
  EXPECT_EQ(describe(importOk(makeSpec(R"("replay_ids": true)")))[1],
            "input topk_ids ?x2xi32");
}

TEST(TensorSignature, ScalesFollowQuantizedWeights) {
  LayerSpec spec = importOk(R"({
    "moec_spec": 1, "dtype": "bf16", "hidden_size": 192, "num_experts": 4,
    "top_k": 1, "intermediate_size": 128, "activation": {"kind": "silu"},
    "shared_experts": {"intermediate_size": 128},
    "quantization": {"weight": "fp8_block128"}})");
  EXPECT_EQ(describe(spec), (Lines{"input hidden_states ?x192xbf16",
                                   "weight gate.weight 4x192xbf16",
                                   "weight experts.w13 4x256x192xf8E4M3FN",
                                   "weight experts.w13_scale 4x2x2xf32",
                                   "weight experts.w2 4x192x128xf8E4M3FN",
                                   "weight experts.w2_scale 4x2x1xf32",
                                   "weight shared_experts.w13 256x192xf8E4M3FN",
                                   "weight shared_experts.w13_scale 2x2xf32",
                                   "weight shared_experts.w2 192x128xf8E4M3FN",
                                   "weight shared_experts.w2_scale 2x1xf32",
                                   "output output ?x192xbf16"}));
  // Gate and up halves have separate blocks.
  for (auto [order, scales] : {std::pair(GateUpOrder::GateUp, "4x4x2"),
                               std::pair(GateUpOrder::UpGate, "4x4x2"),
                               std::pair(GateUpOrder::Interleaved, "4x3x2")}) {
    LayerSpec tails = spec;
    tails.intermediateSize = 136;
    tails.gateUpOrder = order;
    EXPECT_EQ(describe(tails)[3],
              std::string("weight experts.w13_scale ") + scales + "xf32");
  }
  EXPECT_EQ(describeForms(spec, "experts.w13_scale"),
            (Lines{"experts.{e}.gate_proj.weight_scale_inv@0+1*1 & "
                   "experts.{e}.up_proj.weight_scale_inv@1+1*1",
                   "experts.{e}.w1.weight_scale_inv@0+1*1 & "
                   "experts.{e}.w3.weight_scale_inv@1+1*1"}));
}

TEST(TensorSignature, ScalesOfOtherGranularities) {
  LayerSpec spec = importOk(R"({
    "moec_spec": 1, "dtype": "bf16", "hidden_size": 192, "num_experts": 4,
    "top_k": 1, "intermediate_size": 128, "activation": {"kind": "silu"},
    "shared_experts": {"intermediate_size": 64},
    "quantization": {"weight": {"dtype": "fp8_e4m3", "scale": "tensor"},
      "activation": {"dtype": "fp8_e4m3", "scale": "tensor",
                     "static": true}}})");
  EXPECT_EQ(
      describe(spec),
      (Lines{"input hidden_states ?x192xbf16", "weight gate.weight 4x192xbf16",
             "weight experts.w13 4x256x192xf8E4M3FN",
             "weight experts.w13_scale 4x2x1xf32",
             "weight experts.w13_input_scale 1xf32",
             "weight experts.w2 4x192x128xf8E4M3FN",
             "weight experts.w2_scale 4x1x1xf32",
             "weight experts.w2_input_scale 1xf32",
             "weight shared_experts.w13 128x192xf8E4M3FN",
             "weight shared_experts.w13_scale 2x1xf32",
             "weight shared_experts.w13_input_scale 1xf32",
             "weight shared_experts.w2 192x64xf8E4M3FN",
             "weight shared_experts.w2_scale 1x1xf32",
             "weight shared_experts.w2_input_scale 1xf32",
             "output output ?x192xbf16"}));
  EXPECT_EQ(describeForms(spec, "experts.w13_scale"),
            (Lines{"experts.{e}.gate_proj.weight_scale@0+1*1 & "
                   "experts.{e}.up_proj.weight_scale@1+1*1",
                   "experts.{e}.w1.weight_scale@0+1*1 & "
                   "experts.{e}.w3.weight_scale@1+1*1"}));
  EXPECT_EQ(describeForms(spec, "experts.w13_input_scale"),
            (Lines{"experts.{e}.gate_proj.input_scale@0+1*1max & "
                   "experts.{e}.up_proj.input_scale@0+1*1max",
                   "experts.{e}.w1.input_scale@0+1*1max & "
                   "experts.{e}.w3.input_scale@0+1*1max"}));
  EXPECT_EQ(describeForms(spec, "experts.w2_input_scale"),
            (Lines{"experts.{e}.down_proj.input_scale@0+1*1max",
                   "experts.{e}.w2.input_scale@0+1*1max"}));
  spec.gateUpOrder = GateUpOrder::Interleaved;
  // Gate and up share one scale; no checkpoint has that for separate matrices.
  EXPECT_EQ(describe(spec)[3], "weight experts.w13_scale 4x1x1xf32");
  EXPECT_EQ(describeForms(spec, "experts.w13_scale"), Lines());
  spec.quantization = QuantizationSpec{makeFp8(Granularity::Channel),
                                       makeFp8(Granularity::Token)};
  EXPECT_EQ(describe(spec)[3], "weight experts.w13_scale 4x256x1xf32");
  EXPECT_EQ(describe(spec)[5], "weight experts.w2_scale 4x192x1xf32");
  EXPECT_EQ(describeForms(spec, "experts.w13_scale")[0],
            "experts.{e}.gate_proj.weight_scale@0+2*128 & "
            "experts.{e}.up_proj.weight_scale@1+2*128");
}

TEST(TensorSignature, ProductsQuantizedByThemselves) {
  LayerSpec spec = importOk(R"({
    "moec_spec": 1, "dtype": "bf16", "hidden_size": 192, "num_experts": 4,
    "top_k": 1, "intermediate_size": 128, "activation": {"kind": "silu"},
    "shared_experts": {"intermediate_size": 64, "quantization": {
      "weight": {"dtype": "fp8_e4m3", "scale": "channel"}, "w13": null}},
    "quantization": {"weight": "nvfp4",
      "w2": {"weight": {"dtype": "int8", "scale": "tensor"},
             "activation": {"dtype": "int8", "scale": "tensor",
                            "static": true}}}})");
  EXPECT_EQ(describe(spec), (Lines{"input hidden_states ?x192xbf16",
                                   "weight gate.weight 4x192xbf16",
                                   "weight experts.w13 4x256x96xi8",
                                   "weight experts.w13_scale 4x256x12xf8E4M3FN",
                                   "weight experts.w13_global_scale 4x2xf32",
                                   "weight experts.w2 4x192x128xi8",
                                   "weight experts.w2_scale 4x1x1xf32",
                                   "weight experts.w2_input_scale 1xf32",
                                   "weight shared_experts.w13 128x192xbf16",
                                   "weight shared_experts.w2 192x64xf8E4M3FN",
                                   "weight shared_experts.w2_scale 192x1xf32",
                                   "output output ?x192xbf16"}));
  // Names in checkpoints depend on the quantization of each gemm.
  EXPECT_EQ(describeForms(spec, "experts.w13"), Lines());
  EXPECT_EQ(describeForms(spec, "experts.w2_scale")[0],
            "experts.{e}.down_proj.weight_scale@0+1*1");
  EXPECT_EQ(describeForms(spec, "shared_experts.w13")[0],
            "shared_expert.gate_proj.weight@0+1*64 & "
            "shared_expert.up_proj.weight@64+1*64");
  EXPECT_EQ(describeForms(spec, "shared_experts.w2_scale")[0],
            "shared_expert.down_proj.weight_scale@0+1*192");
}

TEST(TensorSignature, RowsOfGateAndUpFollowTheOrder) {
  auto forms = [](const char *order) {
    LayerSpec spec =
        importOk(makeSpec(std::string("\"gate_up_order\": ") + order));
    return describeForms(spec, "experts.w13").front();
  };
  EXPECT_EQ(forms("\"gate_up\""), "experts.{e}.gate_proj.weight@0+1*32 & "
                                  "experts.{e}.up_proj.weight@32+1*32");
  EXPECT_EQ(forms("\"up_gate\""), "experts.{e}.gate_proj.weight@32+1*32 & "
                                  "experts.{e}.up_proj.weight@0+1*32");
  EXPECT_EQ(forms("\"interleaved\""), "experts.{e}.gate_proj.weight@0+2*32 & "
                                      "experts.{e}.up_proj.weight@1+2*32");
}

TEST(TensorSignature, FusedTensorsAreTransposed) {
  LayerSpec spec = importOk(R"({"model_type": "gpt_oss", "hidden_size": 64,
      "num_local_experts": 8, "num_experts_per_tok": 2,
      "intermediate_size": 32})");
  EXPECT_EQ(describeForms(spec, "gate.weight"), Lines{"router.weight@0+1*8"});
  EXPECT_EQ(describeForms(spec, "gate.bias"), Lines{"router.bias@0+1*8"});
  EXPECT_EQ(describeForms(spec, "experts.w13"),
            (Lines{"experts.{e}.gate_proj.weight@0+2*32 & "
                   "experts.{e}.up_proj.weight@1+2*32",
                   "experts.gate_proj.{e}.weight@0+2*32 & "
                   "experts.up_proj.{e}.weight@1+2*32",
                   "experts.gate_proj@0+2*32T & experts.up_proj@1+2*32T",
                   "experts.gate_up_proj@0+1*64T",
                   "switch_mlp.gate_proj.weight@0+2*32 & "
                   "switch_mlp.up_proj.weight@1+2*32",
                   "experts.gate_proj.weight@0+2*32 & "
                   "experts.up_proj.weight@1+2*32"}));
  EXPECT_EQ(describeForms(spec, "experts.w13_bias"),
            (Lines{"experts.{e}.gate_proj.bias@0+2*32 & "
                   "experts.{e}.up_proj.bias@1+2*32",
                   "experts.gate_proj.{e}.bias@0+2*32 & "
                   "experts.up_proj.{e}.bias@1+2*32",
                   "experts.gate_proj_bias@0+2*32 & "
                   "experts.up_proj_bias@1+2*32",
                   "experts.gate_up_proj_bias@0+1*64",
                   "switch_mlp.gate_proj.bias@0+2*32 & "
                   "switch_mlp.up_proj.bias@1+2*32",
                   "experts.gate_proj.bias@0+2*32 & "
                   "experts.up_proj.bias@1+2*32"}));
  EXPECT_EQ(
      describeForms(spec, "experts.w2"),
      (Lines{"experts.{e}.down_proj.weight@0+1*64",
             "experts.down_proj.{e}.weight@0+1*64", "experts.down_proj@0+1*64T",
             "switch_mlp.down_proj.weight@0+1*64",
             "experts.down_proj.weight@0+1*64",
             "switch_mlp.fc2.weight@0+1*64"}));
}

TEST(TensorSignature, OrdersOfColumnsAreBesideTheirWeights) {
  LayerSpec spec = importOk(R"({"model_type": "minimax_m3", "hidden_size": 64,
      "num_local_experts": 8, "num_experts_per_tok": 2,
      "intermediate_size": 32, "shared_intermediate_size": 96,
      "quantization_config": {"quant_method": "gptq", "bits": 4,
      "group_size": 32, "desc_act": true}})");
  EXPECT_EQ(describeForms(spec, "experts.w13_columns"),
            Lines{"experts.{e}.w1.qweight@0+1*32T & "
                  "experts.{e}.w1.g_idx@0+1*32 & "
                  "experts.{e}.w3.qweight@32+1*32T & "
                  "experts.{e}.w3.g_idx@32+1*32"});
  EXPECT_EQ(describeForms(spec, "shared_experts.w13_columns"),
            (Lines{"shared_experts.gate_proj.qweight@0+1*96T & "
                   "shared_experts.gate_proj.g_idx@0+1*96 & "
                   "shared_experts.up_proj.qweight@96+1*96T & "
                   "shared_experts.up_proj.g_idx@96+1*96",
                   "shared_experts.gate_up_proj.qweight@0+1*192T & "
                   "shared_experts.gate_up_proj.g_idx@0+1*192"}));
  for (const TensorInfo &tensor : getTensorSignature(spec))
    for (const CheckpointForm &form : tensor.checkpointForms)
      for (const CheckpointPart &part : form)
        if (llvm::StringRef(part.name).ends_with(".g_idx")) {
          EXPECT_EQ(part.use, PartUse::ColumnOrder) << tensor.name;
          EXPECT_EQ(part.groupColumns, 32);
          EXPECT_TRUE(part.isOptional);
        }
}

// field-bug: 1Cat-vLLM#21, sglang#29659
TEST(TensorSignature, NamesOfFamilies) {
  LayerSpec spec = importOk(R"({"model_type": "nemotron_h", "hidden_size": 64,
      "n_routed_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32, "moe_latent_size": 16,
      "n_shared_experts": 1, "moe_shared_expert_intermediate_size": 48})");
  EXPECT_EQ(describeForms(spec, "gate.selection_bias"),
            Lines{"gate.e_score_correction_bias@0+1*8"});
  EXPECT_EQ(
      describeForms(spec, "experts.w13"),
      (Lines{"experts.{e}.up_proj.weight@0+1*32",
             "experts.up_proj.{e}.weight@0+1*32", "experts.up_proj@0+1*32",
             "switch_mlp.up_proj.weight@0+1*32",
             "experts.up_proj.weight@0+1*32", "switch_mlp.fc1.weight@0+1*32"}));
  EXPECT_EQ(describeForms(spec, "shared_experts.w13"),
            Lines{"shared_experts.up_proj.weight@0+1*48"});
  EXPECT_EQ(describeForms(spec, "latent.down"),
            Lines{"fc1_latent_proj.weight@0+1*16"});
  spec = importOk(R"({"model_type": "llama4_text", "hidden_size": 64,
      "num_local_experts": 8, "intermediate_size": 32})");
  EXPECT_EQ(describeForms(spec, "shared_experts.w13"),
            Lines{"shared_expert.gate_proj.weight@0+1*32 & "
                  "shared_expert.up_proj.weight@32+1*32"});
  spec = importOk(R"({"model_type": "qwen2_moe", "hidden_size": 64,
      "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
      "shared_expert_intermediate_size": 32})");
  EXPECT_EQ(describeForms(spec, "shared_experts.gate"),
            Lines{"shared_expert_gate.weight@0+1*1"});
}

TEST(CheckpointPart, MatchesWholeNamesOnly) {
  CheckpointPart part{"experts.{e}.w1.weight", 0, 1, 4, false};
  EXPECT_TRUE(part.isPerExpert());
  EXPECT_EQ(part.getName(12), "experts.12.w1.weight");
  EXPECT_TRUE(part.matches("experts.12.w1.weight", 12));
  EXPECT_TRUE(
      part.matches("model.layers.3.block_sparse_moe.experts.12.w1.weight", 12));
  EXPECT_FALSE(part.matches("model.shared_experts.12.w1.weight", 12));
  EXPECT_FALSE(part.matches("experts.12.w1.weight", 2));
  CheckpointPart gate{"gate.weight", 0, 1, 4, false};
  EXPECT_FALSE(gate.isPerExpert());
  EXPECT_FALSE(gate.matches("mlp.shared_expert_gate.weight", 0));
}

} // namespace
