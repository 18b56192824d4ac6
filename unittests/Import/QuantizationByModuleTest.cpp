//===- QuantizationByModuleTest.cpp - which module has which scheme -- ===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "QuantizationTesting.h"

using namespace moec;
using namespace moec::testing;

namespace {

/// A compressed-tensors configuration with these groups, each targets and
/// weights.
std::string
group(std::initializer_list<std::pair<const char *, const char *>> groups) {
  std::string text;
  for (auto [targets, weights] : groups)
    text += (text.empty() ? "\"group_" : ", \"group_") +
            std::to_string(text.size()) +
            R"(": {"format": "pack-quantized", "targets": [)" + targets +
            R"(], "weights": {)" + weights + "}}";
  return R"("quant_method": "compressed-tensors", "format": "mixed-precision",
      "config_groups": {)" +
         text + "}";
}

// field-bug: sglang#29761, sglang#32736, sglang#37207, vllm#22468, vllm#49893
// field-bug: FreeToken#343, FreeToken#390, TensorRT-LLM#17725
// field-bug: llm-compressor#3069
TEST(QuantizationByModule, GroupsAndTargets) {
  QuantizationSpec int4 = read(compressed("pack-quantized", kInt4));
  QuantizationSpec int8 = read(compressed("pack-quantized", kInt8));
  std::optional<QuantizationSpec> none;
  using Weights = std::array<std::optional<QuantizationSpec>, 4>;
  EXPECT_EQ(readWeights(group({{"\"Linear\"", kInt4}})),
            (Weights{int4, int4, int4, int4}));
  EXPECT_EQ(readWeights(group({{"\"re:.*experts\\\\..*\"", kInt4}})),
            (Weights{int4, int4, none, none}));
  EXPECT_EQ(readWeights(group({{"\"RoutedExperts\"", kInt4}})),
            (Weights{int4, int4, none, none}));
  // Expressions come before classes, whatever the order of groups.
  EXPECT_EQ(readWeights(
                group({{"\"Linear\"", kInt8}, {"\"re:.*down_proj$\"", kInt4}})),
            (Weights{int8, int4, int8, int4}));
  // A group that no module of the layer has is not read.
  EXPECT_EQ(readWeights(group({{"\"re:.*self_attn.*\"", "\"num_bits\": 3"},
                               {"\"re:.*mlp.*\"", kInt4}})),
            (Weights{int4, int4, int4, int4}));
  expectRefused(R"("quant_method": "compressed-tensors", "config_groups": {})",
                "'quantization_config.config_groups' is missing");
  // An expression looks ahead from the start of a name.
  const std::pair<const char *, Weights> cases[] = {
      {R"("re:(?!.*shared_expert).*down_proj")", {none, int4, none, none}},
      {R"("re:^(?!.*shared_expert\\.).*mlp.*")", {int4, int4, none, none}},
      {R"("re:(?=.*shared)^(?!.*(gate|up)_).*")", {none, none, none, int4}},
      {R"("re:(?!model).*|.*\\.down_proj$")", {none, int4, none, int4}},
      {R"("re:(?!model\\.layers\\.0\\.).*|.*experts.*up.*")",
       {int4, none, none, none}},
      {R"("re:.*experts.*|(?!.*down).*shared_expert.*")",
       {int4, int4, int4, none}},
      {"\"re:(?![^)|]*shared_expert)\"", {int4, int4, none, none}},
  };
  for (const auto &[target, weights] : cases)
    EXPECT_EQ(readWeights(group({{target, kInt4}})), weights) << target;
  for (const char *target :
       {"re:.*(?!a)", "re:(?:(?!a).*)", "re:(?!a)*b", "re:(?!a", "re:(?<!a)b"})
    expectRefused(group({{("\"" + std::string(target) + "\"").c_str(), kInt4}}),
                  "the target \"" + std::string(target) +
                      "\" cannot be understood; write expressions without "
                      "flags, back-references and \\b, and with (?!...) and "
                      "(?=...) only at their start");
}

// field-bug: GPTQModel#1455, GPTQModel#1680, vllm#25029
TEST(QuantizationByModule, DynamicOverrides) {
  auto gptq = [](const std::string &dynamic) {
    return R"("quant_method": "gptq", "method": "gptq", "bits": 4,
        "group_size": 128, "desc_act": false, "sym": true, "format": "gptq",
        "checkpoint_format": "gptq", "pack_dtype": "int32",
        "meta": {"quantizer": ["gptqmodel:7.7.0"]}, "dynamic": {)" +
           dynamic + "}";
  };
  QuantizationSpec int4 = read(gptq(""));
  std::optional<QuantizationSpec> none;
  using Weights = std::array<std::optional<QuantizationSpec>, 4>;
  EXPECT_EQ(readWeights(gptq(R"("-:.*mlp\\.gate.*": {})")),
            (Weights{int4, int4, int4, int4}));
  EXPECT_EQ(readWeights(gptq(R"("-:.*shared_expert.*": {})")),
            (Weights{int4, int4, none, none}));
  // The first rule that matches decides.
  QuantizationSpec int8 = int4;
  int8.weight = makeIntegers(StorageType::Int8, 64, ScaleType::F16, true);
  EXPECT_EQ(readWeights(gptq(R"("+:.*shared_expert.*down.*": {"bits": 8,
          "group_size": 64, "sym": false}, "-:.*shared_expert.*": {},
          ".*down_proj": {"bits": 8, "group_size": 64, "sym": false})")),
            (Weights{int4, int8, none, int8}));
  EXPECT_EQ(readWeights(gptq(R"("-:(?!.*shared_expert).*": {})")),
            (Weights{none, none, int4, int4}));
  expectRefused(gptq("\"-:.*(?!a)\": {}"),
                "'quantization_config.dynamic' has the expression "
                "\"-:.*(?!a)\", which cannot be understood");
  expectRefused(gptq(R"(".*down_proj": {"bits": 5})"),
                "'quantization_config.dynamic..*down_proj.bits' = 5 is not "
                "supported; 2, 3, 4 or 8 is");
}

// field-bug: vllm#47318, Model-Optimizer#929, Model-Optimizer#1363
// field-bug: TensorRT-LLM#15485, TensorRT-LLM#18393, tokenspeed#749
TEST(QuantizationByModule, MixedPrecision) {
  auto mixed = [](const std::string &layers) {
    return R"("quant_method": "modelopt", "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {)" +
           layers + "}";
  };
  std::optional<QuantizationSpec> none;
  QuantizationSpec nvfp4 = getQuantization("nvfp4");
  QuantizationSpec blocks =
      read(R"("quant_method": "modelopt", "quant_algo": "FP8_BLOCK_SCALES")");
  EXPECT_EQ(blocks.weight, getQuantization("fp8_block128").weight);
  using Weights = std::array<std::optional<QuantizationSpec>, 4>;
  // A parent stands for its modules.
  EXPECT_EQ(readWeights(mixed(
                R"("model.layers.0.mlp.experts": {"quant_algo": "NVFP4",
          "group_size": 16}, "model.layers.0.self_attn.q_proj": {
          "quant_algo": "UNKNOWN"}, "model.layers.1.mlp.shared_expert": {
          "quant_algo": "FP8"})")),
            (Weights{nvfp4, nvfp4, none, none}));
  EXPECT_EQ(readWeights(mixed(
                R"("model.layers.0.mlp.shared_expert.down_proj": {
          "quant_algo": "FP8_PB_WO", "group_size": 128})")),
            (Weights{none, none, none, blocks}));
  // Patterns come after names, whatever their order.
  EXPECT_EQ(readWeights(mixed(
                R"("*.mlp.*expert*": {"quant_algo": "FP8_PB_WO"},
          "model.layers.0.mlp.experts": {"quant_algo": "NVFP4"})")),
            (Weights{nvfp4, nvfp4, blocks, blocks}));
  EXPECT_EQ(readWeights(mixed(
                R"("model.layers.*.shared_expert": {"quant_algo": "NVFP4"},
          "*experts": {"quant_algo": "FP8_PB_WO"},
          "*.self_attn*": {"quant_algo": "UNKNOWN"})")),
            (Weights{blocks, blocks, nvfp4, nvfp4}));
  expectRefused(mixed(R"("model.layers.0.mlp": {"quant_algo": "UNKNOWN"})"),
                "'quantization_config.quantized_layers.model.lay....quant_algo'"
                " must be");
}

// Names go ahead of expressions, whatever their order.
TEST(QuantizationByModule, TorchAoByName) {
  auto import = [](const std::string &byName) {
    return importOk(makeModel(
        R"("quant_method": "torchao", "quant_type": {"default": {"_type":
"FqnToConfig", "_version": 1, "_data": {"fqn_to_config": {)" +
        byName + "}}}}"));
  };
  const std::string eight =
      R"({"_type": "Int8WeightOnlyConfig", "_version": 2, "_data": {}})";
  const std::string down = R"("model.layers.0.mlp.experts.1.down_proj)";
  LayerSpec spec = import(R"("re:.*experts.*|.*never": )" + eight + ", " +
                          down + "\": null");
  EXPECT_TRUE(spec.quantization.w13);
  // One expert differs.
  EXPECT_FALSE(spec.quantization.w2);
  EXPECT_TRUE(spec.findStored("experts.w2"));
  for (const char *text : {R"("re:.*\\.(gate|up)_proj\\.weight": )",
                           R"("re:.*(gate|up)_proj.weight": )"}) {
    spec = import(text + eight);
    EXPECT_TRUE(spec.quantization.w13) << text;
    EXPECT_FALSE(spec.quantization.w2) << text;
  }
  spec = import(R"("re:(?!.*down_proj).*experts.*": )" + eight);
  EXPECT_TRUE(spec.quantization.w13);
  EXPECT_FALSE(spec.quantization.w2);
  expectRefused(R"("quant_method": "torchao", "quant_type": {"default": {
"_type": "FqnToConfig", "_version": 1, "_data": {"fqn_to_config": {)"
                "\"re:.*(?<!a)\": " +
                    eight + "}}}}",
                "the expression \"re:.*(?<!a)\" cannot be understood");
  spec = import(down + ".weight\": " + eight);
  EXPECT_FALSE(spec.quantization.w13);
  EXPECT_TRUE(spec.findStored("experts.w2"));
}

/// Imports a model whose checkpoint has these tensors, all of f32.
LayerSpec importWith(const std::string &config,
                     std::vector<std::string> tensors) {
  SpecOverrides overrides;
  auto stored = std::make_shared<StoredTensors>();
  stored->names = std::move(tensors);
  stored->findDType = [names = stored->names](llvm::StringRef name) {
    return llvm::is_contained(names, name) ? std::optional(DType::F32)
                                           : std::nullopt;
  };
  overrides.tensors = stored;
  return importOk(config, overrides);
}

// field-bug: Automodel#3674, Automodel#3818, Automodel#3650
TEST(QuantizationByModule, RouterOfF32) {
  std::string model = makeModel(R"("quant_method": "fp8")");
  EXPECT_TRUE(
      importWith(model, {"model.layers.0.mlp.gate.weight"}).routing.splitGate);
  EXPECT_FALSE(
      importWith(model, {"model.layers.1.mlp.gate.weight"}).routing.splitGate);
  EXPECT_FALSE(importWith(replace(model, "bfloat16", "float32"),
                          {"model.layers.0.mlp.gate.weight"})
                   .routing.splitGate);
}

// Scales of fp8 under the names that the checkpoint has; a group of which a row
// has a part; experts of fp4 among modules of fp8.
TEST(QuantizationByModule, SchemesThatTheCheckpointCompletes) {
  std::string fp8 = R"("quant_method": "fp8", "weight_block_size": [128, 128])";
  auto getPacking = [&](const char *suffix) {
    std::vector<std::string> names;
    for (const char *expert : {"0.", "1.", "2.", "3."})
      for (const char *name : {"gate_proj", "up_proj", "down_proj"})
        names.push_back(std::string("model.layers.0.mlp.experts.") + expert +
                        name + suffix);
    return importWith(makeModel(fp8), std::move(names))
        .quantization.w13->packing;
  };
  EXPECT_EQ(getPacking(".weight_scale_inv"), Packing::Unstated);
  EXPECT_EQ(getPacking(".weight_scale"), Packing::Modules);
  EXPECT_EQ(getPacking(".scale"), Packing::ShortNames);
  QuantizationSpec four = read(fp8 + R"(, "expert_dtype": "fp4")");
  EXPECT_EQ(four.weight, getQuantization("mxfp4").weight);
  EXPECT_EQ(four.packing, Packing::ShortNames);
  LayerSpec spec = importOk(makeModel(
      compressed("pack-quantized",
                 replace(kInt4, "\"group_size\": 32", "\"group_size\": 96"))));
  ASSERT_TRUE(spec.findStored("experts.w13"));
  EXPECT_FALSE(spec.quantization.w13);
}

// field-bug: GPTQModel#2271, tokenspeed#527, sglang#20439, bitsandbytes#1849
// field-bug: unsloth#4032, unsloth-zoo#850, tinker-cookbook#587
TEST(QuantizationByModule, WhatTheCheckpointHas) {
  auto import = [](const std::string &fields,
                   std::vector<std::string> tensors) {
    return importWith(makeModel(fields), std::move(tensors));
  };
  auto expert = [](int e, const std::string &suffix) {
    std::vector<std::string> names;
    for (const char *name : {"gate_proj", "up_proj", "down_proj"})
      names.push_back("model.layers.0.mlp.experts." + std::to_string(e) + "." +
                      name + suffix);
    return names;
  };
  auto append = [](std::vector<std::string> a, std::vector<std::string> b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  };
  std::string int4 = compressed("pack-quantized", kInt4);
  std::vector<std::string> scales = expert(0, ".weight_scale");
  for (int e : {1, 3})
    scales = append(scales, expert(e, ".weight_scale"));
  LayerSpec spec = import(int4, append(scales, expert(2, ".weight")));
  EXPECT_FALSE(spec.quantization);
  ASSERT_TRUE(spec.findStored("experts.w13"));
  EXPECT_EQ(spec.findStored("experts.w13")->schemes.size(), 8u);
  EXPECT_FALSE(spec.findStored("experts.w2")->schemes[2]);
  ASSERT_EQ(spec.remarks.size(), 2u);
  EXPECT_EQ(spec.remarks[1],
            "'model.layers.0.mlp.experts.0.down_proj' is int4 by group of 32, "
            "scales bf16 and 'model.layers.0.mlp.experts.2.down_proj' is not "
            "quantized; 'experts.w2' is dequantized to bf16 when it is loaded");
  // All scales are there, or the checkpoint is that of another layer.
  EXPECT_TRUE(
      import(int4, append(scales, expert(2, ".weight_scale"))).quantization);
  EXPECT_TRUE(import(int4, {"model.layers.1.mlp.gate.weight"}).quantization);
  // Parameters of all experts are no linear modules.
  spec = import(R"("quant_method": "bitsandbytes", "load_in_4bit": true,
                   "bnb_4bit_quant_type": "nf4")",
                {"model.layers.0.mlp.experts.gate_up_proj",
                 "model.layers.0.mlp.experts.down_proj"});
  EXPECT_FALSE(spec.quantization);
  EXPECT_FALSE(spec.findStored("experts.w13"));
  ASSERT_EQ(spec.remarks.size(), 2u);
  EXPECT_EQ(spec.remarks[0], "'experts.w13' is not quantized in the "
                             "checkpoint, although 'quantization_config' says "
                             "so");
}

TEST(QuantizationByModule, StatedTwice) {
  std::string statement = R"("quantization_config": {"quant_method": "fp8",
      "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head"]})";
  auto model = [&](const std::string &other) {
    return R"({"model_type": "qwen3_vl_moe", )" + other +
           R"(, "text_config": {"hidden_size": 256, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 128, )" +
           statement + "}}";
  };
  EXPECT_EQ(importOk(model(statement)).quantization,
            getQuantization("fp8_block128"));
  EXPECT_NE(importError(model(replace(statement, "lm_head", "visual")))
                .find("and the two differ; keep one"),
            std::string::npos);
}

} // namespace
