//===- QuantizationValuesTest.cpp - values of the wrong kind -----*- C++
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A value that a tool's object cannot have is refused by name. Read past, it
// would leave the layer another quantization than its file has.
//
//===----------------------------------------------------------------------===//

#include "QuantizationTesting.h"

using namespace moec;
using namespace moec::testing;

namespace {

TEST(QuantizationValues, SchemesOfModulesAreObjects) {
  std::string gptq = R"("quant_method": "gptq", "bits": 4, "group_size": 32,
      "dynamic": {".*experts.*": )";
  std::string mixed = R"("quant_method": "modelopt",
      "quant_algo": "MIXED_PRECISION",
      "quantized_layers": {"model.layers.0.mlp": )";
  std::string groups = R"("quant_method": "compressed-tensors",
      "format": "pack-quantized", "config_groups": {"group_0": )";
  std::string quark = R"("quant_method": "quark", "global_quant_config": null,
      "layer_quant_config": {"*": )";
  std::string torchao = R"("quant_method": "torchao", "quant_type": {
      "default": {"_type": "FqnToConfig", "_data": {"fqn_to_config": {
      "_default": )";
  for (auto [value, shown] : {std::pair("5", "5"),
                              {"\"FP8\"", "\"FP8\""},
                              {"[{}]", "a list"},
                              {"null", "null"}}) {
    std::string end = std::string(value) + "}",
                message = std::string("' must be an object, not ") + shown;
    expectRefused(gptq + end,
                  "'quantization_config.dynamic..*experts.*" + message);
    expectRefused(mixed + end,
                  "'quantization_config.quantized_layers.model.layers.0.mlp" +
                      message);
    expectRefused(groups + end,
                  "'quantization_config.config_groups.group_0" + message);
    expectRefused(quark + end,
                  "'quantization_config.layer_quant_config.*" + message);
    // Null is torchao's word for a module that stays as it is.
    if (value != std::string_view("null"))
      expectRefused(torchao + end + "}}}", message);
  }
}

TEST(QuantizationValues, NamesAreStrings) {
  std::string group = compressed("pack-quantized", kInt4);
  expectRefused(replace(group, "[\"Linear\"]", "[\"Linear\", 5]"),
                "'quantization_config.config_groups.group_0.targets' must be a "
                "list of strings, but has 5");
  expectRefused(replace(group, "[\"Linear\"]", "\"Linear\""),
                "targets' must be a list, not \"Linear\"");
  auto gptq = [](const std::string &modules) {
    return R"("quant_method": "gptq", "bits": 4, "group_size": 32,
        "modules_in_block_to_quantize": )" +
           modules;
  };
  std::optional<QuantizationSpec> int4 = read(gptq("null")), none;
  using Weights = std::array<std::optional<QuantizationSpec>, 4>;
  for (const char *modules :
       {R"(["down_proj"])", R"([["down_proj"], ["q_proj"]])"})
    EXPECT_EQ(readWeights(gptq(modules)), (Weights{none, int4, none, int4}));
  for (const char *modules : {"[5]", "[[5]]", "{}", "true", "[null]"})
    expectRefused(gptq(modules),
                  "'quantization_config.modules_in_block_to_quantize' must be "
                  "a list of names of modules, or of lists of names, not");
  // AutoRound has a list for each part of a model.
  auto autoRound = [](const std::string &blocks) {
    return R"("quant_method": "auto-round", "bits": 4, "group_size": 32,
        "sym": true, "data_type": "int",
        "packing_format": "auto_round:auto_gptq",
        "to_quant_block_names": )" +
           blocks;
  };
  EXPECT_EQ(read(autoRound(R"([["model.layers.0"], ["model.layers.1"]])")),
            read(autoRound("\"model.layers.0,model.layers.1\"")));
  expectRefused(autoRound("[0]"), "to_quant_block_names' must be a list");
}

// With the KV cache alone quantized, weights are as in the file.
TEST(QuantizationValues, ModelOptWithoutWeights) {
  for (const char *fields :
       {R"("quant_method": "modelopt", "quant_algo": null,
           "kv_cache_quant_algo": "FP8")",
        R"("quant_method": "modelopt", "quantization": {"quant_algo": null,
           "kv_cache_quant_algo": "FP8"})"})
    EXPECT_FALSE(importOk(makeModel(fields)).quantization.w13);
  expectRefused(R"("quant_method": "modelopt")",
                "'quantization_config.quant_algo' is missing");
  SpecOverrides overrides;
  overrides.quantConfig =
      SourceText("hf_quant_config.json", R"({"quant_algo": "FP8"})");
  std::string messages = importError(
      R"({"model_type": "qwen3_moe", "hidden_size": 256, "num_experts": 4,
"num_experts_per_tok": 2, "moe_intermediate_size": 128})",
      overrides);
  EXPECT_NE(messages.find("hf_quant_config.json:1:1: error: 'quantization' is "
                          "missing; it must be the object that ModelOpt "
                          "writes"),
            std::string::npos)
      << messages;
}

// Transformers' code computes in the layer's dtype then.
TEST(QuantizationValues, DequantizedFp8HasNoRoundedActivations) {
  std::string fp8 = R"("quant_method": "fp8", "activation_scheme": "dynamic",
      "weight_block_size": [128, 128], "dequantize": )";
  EXPECT_EQ(read(fp8 + "false"), getQuantization("fp8_block128"));
  QuantizationSpec quantization = read(fp8 + "true");
  EXPECT_EQ(quantization.weight, getQuantization("fp8_block128").weight);
  EXPECT_FALSE(quantization.activation);
  EXPECT_EQ(importOk(makeModel(fp8 + "true")).remarks,
            std::vector<std::string>{
                "'quantization_config.dequantize' leaves activations in bf16"});
}

TEST(QuantizationValues, BitsAndBytesHasOneSize) {
  expectRefused(R"("quant_method": "bitsandbytes", "load_in_8bit": true,
                   "load_in_4bit": true)",
                "'quantization_config.load_in_4bit' = true is not supported; "
                "false with 'load_in_8bit' is");
}

TEST(QuantizationValues, ScalesOfQuarkAreThoseOfRows) {
  auto quark = [](const std::string &weight, const std::string &more = "") {
    return R"("quant_method": "quark", "global_quant_config": {"weight": {)" +
           weight + R"(, "is_dynamic": false, "symmetric": true})" + more + "}";
  };
  std::string rows = R"("dtype": "fp8_e4m3", "qscheme": "per_channel")",
              field = "'quantization_config.global_quant_config.";
  EXPECT_EQ(read(quark(rows + R"(, "ch_axis": 0)")), read(quark(rows)));
  expectRefused(quark(rows + R"(, "ch_axis": 1)"),
                field + "weight.ch_axis' = 1 is not supported with 'qscheme' "
                        "\"per_channel\"; 0 is");
  expectRefused(quark(R"("dtype": "fp8_e4m3", "qscheme": "per_block",
                         "block_size": [64, 64])"),
                field + "weight.block_size' = 64 x 64 is not supported with "
                        "'qscheme' \"per_block\"; 128 x 128 is");
  expectRefused(quark(R"("dtype": "fp4", "qscheme": "per_group",
                         "group_size": 32, "scale_format": "float32")"),
                field + "weight.scale_format' = float32 is not supported");
  expectRefused(quark(rows, R"(, "output_tensors": {"dtype": "fp8_e4m3",
                                "qscheme": "per_tensor"})"),
                field +
                    "output_tensors' = an object is not supported; null is");
}

} // namespace
