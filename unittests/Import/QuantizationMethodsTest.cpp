//===- QuantizationMethodsTest.cpp - tests of quantization_config -*- C++ -*-=//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ImportTesting.h"

using namespace moec;
using namespace moec::testing;

namespace {

/// A model whose `quantization_config` has these fields.
std::string makeModel(const std::string &fields,
                      const char *dtype = "bfloat16") {
  return R"({"model_type": "qwen3_moe", "hidden_size": 256, "num_experts": 4,
"num_experts_per_tok": 2, "moe_intermediate_size": 128, "torch_dtype": ")" +
         std::string(dtype) + R"(", "quantization_config": {)" + fields + "}}";
}

QuantizationSpec read(const std::string &fields, const char *dtype = "bfloat16",
                      std::vector<std::string> ignored = {}) {
  SpecOverrides overrides;
  overrides.ignoredFields = std::move(ignored);
  overrides.toCompile = true;
  LayerSpec spec = importOk(makeModel(fields, dtype), overrides);
  EXPECT_TRUE(spec.quantization.w13);
  EXPECT_EQ(spec.quantization.w13, spec.quantization.w2);
  return spec.quantization.w13.value_or(QuantizationSpec());
}

void expectRefused(const std::string &fields, const std::string &message) {
  std::string messages = importError(makeModel(fields));
  EXPECT_NE(messages.find(message), std::string::npos) << message << "\n"
                                                       << messages;
}

OperandQuantization makeIntegers(StorageType storage, int64_t columns,
                                 ScaleType scale, bool hasZeroPoint = false) {
  OperandQuantization operand;
  operand.storage = storage;
  operand.scale = scale;
  operand.granularity = columns ? Granularity::Group : Granularity::Channel;
  operand.blockRows = columns ? 1 : 0;
  operand.blockColumns = columns;
  operand.hasZeroPoint = hasZeroPoint;
  return operand;
}

/// A compressed-tensors configuration with one group.
std::string compressed(const std::string &format, const std::string &weights,
                       const std::string &inputs = "null") {
  return R"("quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "quantization_status": "compressed", "kv_cache_scheme": null,
"ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
"config_groups": {"group_0": {"targets": ["Linear"], "output_activations": null,
"weights": {)" +
         weights + R"(}, "input_activations": )" + inputs + "}}";
}

// The configuration of Kimi-K2-Thinking.
const char *const kInt4 = R"("actorder": null, "block_structure": null,
"dynamic": false, "group_size": 32, "num_bits": 4, "observer": "minmax",
"observer_kwargs": {}, "strategy": "group", "symmetric": true, "type": "int")";
const char *const kInt8 = R"("num_bits": 8, "type": "int",
"strategy": "channel", "symmetric": true, "dynamic": false)";
const char *const kNvfp4 = R"("num_bits": 4, "type": "float",
"strategy": "tensor_group", "group_size": 16, "symmetric": true,
"scale_dtype": "torch.float8_e4m3fn", "zp_dtype": "torch.float8_e4m3fn")";
const char *const kNvfp4Inputs = R"({"num_bits": 4, "type": "float",
"strategy": "tensor_group", "group_size": 16, "symmetric": true,
"dynamic": "local"})";

std::string replace(std::string text, const char *from, const char *to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, strlen(from), to);
}

TEST(QuantizationMethods, PackedIntegers) {
  QuantizationSpec int4 = read(compressed("pack-quantized", kInt4));
  EXPECT_EQ(int4.weight, makeIntegers(StorageType::Int4, 32, ScaleType::BF16));
  EXPECT_FALSE(int4.activation);
  EXPECT_EQ(int4.packing, Packing::CompressedInts);
  EXPECT_EQ(read(compressed("pack-quantized", kInt4), "float16").weight.scale,
            ScaleType::F16);
  EXPECT_EQ(read(compressed("pack-quantized", replace(kInt4, "true", "false")))
                .weight,
            makeIntegers(StorageType::Int4, 32, ScaleType::BF16, true));
  EXPECT_EQ(read(compressed("pack-quantized", kInt8)).weight,
            makeIntegers(StorageType::Int8, 0, ScaleType::F32));
  // A missing strategy follows from the group size. The rounding order of
  // weights has no effect.
  EXPECT_EQ(read(compressed("pack-quantized",
                            R"("num_bits": 8, "type": "int", "group_size": 128,
                               "actorder": "static")"))
                .weight,
            makeIntegers(StorageType::Int8, 128, ScaleType::BF16));
  EXPECT_EQ(read(compressed("pack-quantized",
                            R"("num_bits": 4, "type": "int", "group_size": -1,
                               "actorder": false)"))
                .weight,
            makeIntegers(StorageType::Int4, 0, ScaleType::F32));
}

TEST(QuantizationMethods, IntegersOfBothOperands) {
  std::string tokens = R"({"num_bits": 8, "type": "int", "strategy": "token",
      "symmetric": true, "dynamic": true, "observer": null})";
  QuantizationSpec spec = read(compressed("int-quantized", kInt8, tokens));
  EXPECT_EQ(spec.weight, makeIntegers(StorageType::Int8, 0, ScaleType::F32));
  ASSERT_TRUE(spec.activation);
  EXPECT_EQ(spec.activation->storage, StorageType::Int8);
  EXPECT_EQ(spec.activation->granularity, Granularity::Token);
  EXPECT_FALSE(spec.activation->isStatic);
  spec = read(compressed("int-quantized", kInt8,
                         R"({"num_bits": 8, "type": "int",
                             "strategy": "tensor", "dynamic": false})"));
  ASSERT_TRUE(spec.activation);
  EXPECT_EQ(spec.activation->granularity, Granularity::Tensor);
  EXPECT_TRUE(spec.activation->isStatic);
  EXPECT_FALSE(
      read(compressed("int-quantized", kInt8, tokens), "bfloat16",
           {"quantization_config.config_groups.group_0.input_activations"})
          .activation);
}

// field-bug: llm-compressor#1758, inference#4032
TEST(QuantizationMethods, FloatsOfBlocks) {
  QuantizationSpec spec =
      read(compressed("float-quantized", R"("num_bits": 8, "type": "float",
      "strategy": "block", "block_structure": [128, 128])",
                      R"({"num_bits": 8, "type": "float", "strategy": "group",
          "group_size": 128, "dynamic": true})"));
  EXPECT_EQ(spec, getQuantization("fp8_block128"));
  EXPECT_EQ(spec.packing, Packing::Modules);
}

// field-bug: vllm#54189, vllm#45212, vllm#45320, vllm#42601
// field-bug: compressed-tensors#595
TEST(QuantizationMethods, FloatsOfFourBits) {
  std::string nvfp4 = compressed("nvfp4-pack-quantized", kNvfp4);
  EXPECT_EQ(read(nvfp4), getQuantization("nvfp4"));
  EXPECT_EQ(read(nvfp4).packing, Packing::CompressedFp4);
  EXPECT_EQ(read(compressed("mxfp4-pack-quantized",
                            R"("num_bits": 4, "type": "float",
                               "strategy": "group", "group_size": 32,
                               "scale_dtype": "torch.uint8")")),
            getQuantization("mxfp4"));
  // 4-bit activations stay unquantized only if the user ignores the field.
  std::string both = compressed("nvfp4-pack-quantized", kNvfp4, kNvfp4Inputs);
  std::string field =
      "quantization_config.config_groups.group_0.input_activations";
  expectRefused(both, "'" + field +
                          "' is not supported with format "
                          "\"nvfp4-pack-quantized\" and 4 bits; leave "
                          "activations as they are with --ignore-field=" +
                          field);
  EXPECT_EQ(read(both, "bfloat16", {field}), getQuantization("nvfp4"));
}

/// 4-bit weights with 8-bit activations.
TEST(QuantizationMethods, FourByEight) {
  std::string tokens = R"("num_bits": 8, "strategy": "token",
      "symmetric": true, "dynamic": true, "type": )";
  QuantizationSpec spec =
      read(compressed("pack-quantized", kInt4, "{" + tokens + R"("float"})"));
  EXPECT_EQ(spec.weight, makeIntegers(StorageType::Int4, 32, ScaleType::BF16));
  EXPECT_EQ(spec.activation, makeFp8(Granularity::Token));
  EXPECT_EQ(spec.packing, Packing::CompressedInts);
  spec = read(compressed("pack-quantized", kInt4, "{" + tokens + R"("int"})"));
  ASSERT_TRUE(spec.activation);
  EXPECT_EQ(spec.activation->storage, StorageType::Int8);
  EXPECT_EQ(spec.activation->granularity, Granularity::Token);
  const char *mxfp4 = R"("num_bits": 4, "type": "float", "strategy": "group",
      "group_size": 32, "scale_dtype": "torch.uint8")";
  spec = read(compressed("mxfp4-pack-quantized", mxfp4,
                         R"({"num_bits": 8, "type": "float", "dynamic": true,
                             "strategy": "group", "group_size": 128})"));
  EXPECT_EQ(spec.weight, getQuantization("mxfp4").weight);
  EXPECT_EQ(spec.activation, getQuantization("fp8_block128").activation);
  expectRefused(compressed("mxfp4-pack-quantized", mxfp4,
                           R"({"num_bits": 8, "type": "float", "dynamic": true,
                               "strategy": "group", "group_size": 32})"),
                "' = 32 is not supported; 128 is");
}

TEST(QuantizationMethods, Mxfp8) {
  const char *weights = R"("num_bits": 8, "type": "float", "strategy": "group",
      "group_size": 32, "scale_dtype": "torch.uint8", "symmetric": true)";
  std::string inputs = std::string("{\"dynamic\": true, ") + weights + "}";
  QuantizationSpec spec = read(compressed("mxfp8-quantized", weights, inputs));
  EXPECT_EQ(spec, getQuantization("mxfp8"));
  EXPECT_EQ(spec.packing, Packing::Modules);
  spec = read(compressed("mxfp8-quantized", weights));
  EXPECT_EQ(spec.weight, getQuantization("mxfp8").weight);
  EXPECT_FALSE(spec.activation);
}

/// Blocks with power-of-two scales, as in DeepSeek-V3.1.
// field-bug: transformers#48368
TEST(QuantizationMethods, PowersOfTwo) {
  std::string fp8 = R"("quant_method": "fp8", "fmt": "e4m3",
      "activation_scheme": "dynamic", "weight_block_size": [128, 128])";
  QuantizationSpec expected = getQuantization("fp8_block128");
  EXPECT_EQ(read(fp8), expected);
  expected.activation->scale = ScaleType::E8M0;
  EXPECT_EQ(read(fp8 + R"(, "scale_fmt": "ue8m0")"), expected);
  expectRefused(fp8 + R"(, "scale_fmt": "e4m3")",
                "'quantization_config.scale_fmt' must be \"ue8m0\", not "
                "\"e4m3\"");
}

TEST(QuantizationMethods, BitsAndBytes) {
  auto bnb = [](const std::string &fields) {
    return R"("quant_method": "bitsandbytes", "load_in_8bit": false,
        "_load_in_4bit": true, "bnb_4bit_compute_dtype": "bfloat16",
        "bnb_4bit_quant_storage": "uint8", "llm_int8_threshold": 6.0,
        "llm_int8_skip_modules": ["lm_head", "mlp.gate"], )" +
           fields;
  };
  OperandQuantization nf4;
  nf4.storage = StorageType::NF4;
  nf4.granularity = Granularity::Group;
  nf4.blockRows = 1;
  nf4.blockColumns = 64;
  std::string four = R"("load_in_4bit": true, )";
  QuantizationSpec spec = read(bnb(four + R"("bnb_4bit_quant_type": "nf4")"));
  EXPECT_EQ(spec, (QuantizationSpec{nf4, std::nullopt}));
  EXPECT_EQ(spec.packing, Packing::BitsAndBytes);
  spec = read(bnb(four + R"("bnb_4bit_quant_type": "nf4",
                             "bnb_4bit_use_double_quant": true)"));
  EXPECT_EQ(spec.weight, nf4);
  EXPECT_EQ(spec.packing, Packing::BitsAndBytesNested);
  std::string field = "'quantization_config.";
  expectRefused(bnb(four + R"("bnb_4bit_quant_type": "fp4")"),
                field + "bnb_4bit_quant_type' = \"fp4\" is not supported; "
                        "\"nf4\" is");
  expectRefused(bnb(R"("load_in_4bit": true)"),
                field + "bnb_4bit_quant_type', which is absent, is not "
                        "supported; \"nf4\" is");
  expectRefused(bnb(R"("bnb_4bit_quant_type": "nf4")"),
                field + "load_in_4bit', which is absent, is not supported; "
                        "true is");
  expectRefused(R"("quant_method": "bitsandbytes", "load_in_8bit": true)",
                field + "load_in_8bit' = true is not supported; "
                        "'load_in_4bit' = true is");
  expectRefused(replace(bnb(four + R"("bnb_4bit_quant_type": "nf4")"),
                        "\"uint8\"", "\"bfloat16\""),
                field + "bnb_4bit_quant_storage' must be \"uint8\"");
}

// field-bug: tokenspeed#527, vllm#47318, Model-Optimizer#929
// field-bug: Model-Optimizer#1363, Model-Optimizer#1030, TensorRT-LLM#15485
// field-bug: TensorRT-LLM#18393, tokenspeed#749, tokenspeed#1439
TEST(QuantizationMethods, ModelOpt) {
  auto modelOpt = [](const std::string &fields) {
    return R"("quant_method": "modelopt", "producer": {"name": "modelopt"},
        "ignore": ["lm_head"], "kv_cache_scheme": null, )" +
           fields;
  };
  QuantizationSpec spec = read(modelOpt(R"("quant_algo": "FP8")"));
  EXPECT_EQ(spec, (QuantizationSpec{makeFp8(Granularity::Tensor),
                                    makeFp8(Granularity::Tensor, true)}));
  EXPECT_EQ(spec.packing, Packing::ModelOpt);
  EXPECT_EQ(read(modelOpt(R"("quant_algo": "FP8_PER_CHANNEL_PER_TOKEN")")),
            (QuantizationSpec{makeFp8(Granularity::Channel),
                              makeFp8(Granularity::Token)}));
  EXPECT_EQ(read(modelOpt(R"("quant_algo": "W4A16_NVFP4", "group_size": 16)")),
            getQuantization("nvfp4"));
  EXPECT_EQ(read(modelOpt(R"("quant_algo": "W4A16_MXFP4")")),
            getQuantization("mxfp4"));
  std::string groups = R"("quant_algo": "NVFP4", "config_groups": {"group_0": {
      "input_activations": {"num_bits": 4}, "weights": {"num_bits": 4}}})";
  std::string field =
      "quantization_config.config_groups.group_0.input_activations";
  expectRefused(modelOpt(groups),
                "'quantization_config.quant_algo' = \"NVFP4\" quantizes "
                "activations to 4 bits, which is not supported; to leave them "
                "as they are, read past that with --ignore-field=" +
                    field);
  EXPECT_EQ(read(modelOpt(groups), "bfloat16", {field}),
            getQuantization("nvfp4"));
  expectRefused(modelOpt(R"("quant_algo": "W4A8_AWQ")"),
                "'quantization_config.quant_algo' must be \"FP8\", "
                "\"FP8_PER_CHANNEL_PER_TOKEN\", \"FP8_PB_WO\", \"W8A16\", "
                "\"W4A16_NVFP4\", \"NVFP4\", \"W4A16_MXFP4\", \"MXFP4\", "
                "\"W4A8_MXFP4_FP8\" or \"MXFP8\", not \"W4A8_AWQ\"");
  EXPECT_EQ(read(modelOpt(R"("quant_algo": "MXFP8", "group_size": 32)")),
            getQuantization("mxfp8"));
  spec = read(modelOpt(R"("quant_algo": "W4A8_MXFP4_FP8", "group_size": 32)"));
  EXPECT_EQ(spec.weight, getQuantization("mxfp4").weight);
  EXPECT_EQ(spec.activation, makeFp8(Granularity::Tensor, true));
  expectRefused(modelOpt(R"("quant_algo": "W4A16_NVFP4", "group_size": 32)"),
                "'quantization_config.group_size' = 32 is not supported; 16 "
                "is");
  // The object of a hf_quant_config.json as a nested object.
  EXPECT_EQ(read(R"("quant_method": "modelopt", "quantization": {
                      "quant_algo": "W4A16_NVFP4", "group_size": 16,
                      "kv_cache_quant_algo": "FP8",
                      "exclude_modules": ["lm_head"]})"),
            getQuantization("nvfp4"));
  EXPECT_FALSE(
      importOk(makeModel(R"("quant_method": "modelopt", "quantization": {
                      "quant_algo": "FP8",
                      "exclude_modules": ["*mlp.experts*"]})"))
          .quantization);
}

// field-bug: vllm#22001, GPTQModel#1455, GPTQModel#1680
TEST(QuantizationMethods, Gptq) {
  auto gptq = [](const std::string &fields) {
    return R"("quant_method": "gptq", "lm_head": false, "damp_percent": 0.01,
        "true_sequential": true, "static_groups": false, )" +
           fields;
  };
  QuantizationSpec spec = read(
      gptq(R"("bits": 4, "group_size": 128, "desc_act": false, "sym": true)"));
  EXPECT_EQ(spec.weight, makeIntegers(StorageType::Int4, 128, ScaleType::F16));
  EXPECT_EQ(spec.packing, Packing::Gptq);
  spec = read(gptq(R"("bits": 8, "group_size": -1, "sym": false,
                      "checkpoint_format": "gptq_v2")"));
  EXPECT_EQ(spec.weight,
            makeIntegers(StorageType::Int8, 0, ScaleType::F16, true));
  EXPECT_EQ(spec.packing, Packing::GptqV2);
  std::string ordered =
      gptq(R"("bits": 4, "group_size": 128, "desc_act": true)");
  EXPECT_TRUE(importOk(makeModel(ordered)).expertColumns);
  SpecOverrides overrides;
  overrides.ignoredFields = {"quantization_config.desc_act"};
  EXPECT_FALSE(importOk(makeModel(ordered), overrides).expertColumns);
  auto makeShared = [](const std::string &fields) {
    return R"({"model_type": "qwen2_moe", "hidden_size": 256, "num_experts": 4,
        "num_experts_per_tok": 2, "moe_intermediate_size": 128,
        "shared_expert_intermediate_size": 512, "quantization_config": {)" +
           fields + "}}";
  };
  LayerSpec shared = importOk(makeShared(ordered));
  EXPECT_TRUE(shared.expertColumns && shared.sharedExperts->columns);
  shared = importOk(makeShared(ordered + R"(, "modules_to_not_convert":
      ["shared_expert"])"));
  EXPECT_TRUE(shared.expertColumns && !shared.sharedExperts->columns);
  shared = importOk(makeShared(ordered), overrides);
  EXPECT_FALSE(shared.sharedExperts->columns);
  // With one group the order has no effect, and neither has it for experts that
  // are not quantized.
  for (const char *none : {R"("bits": 4, "group_size": 128, "desc_act": false)",
                           R"("bits": 4, "group_size": -1, "desc_act": true)",
                           R"("bits": 4, "group_size": 128, "desc_act": true,
           "modules_to_not_convert": ["experts"])"})
    EXPECT_FALSE(importOk(makeModel(gptq(none))).expertColumns) << none;
  expectRefused(gptq(R"("bits": 3, "group_size": 128)"),
                "'quantization_config.bits' = 3 is not supported; 4 or 8 is");
  expectRefused(gptq(R"("bits": 4)"),
                "'quantization_config.group_size' is missing");
  expectRefused(gptq(R"("bits": 4, "group_size": 128,
                        "checkpoint_format": "marlin")"),
                "'quantization_config.checkpoint_format' must be \"gptq\" or "
                "\"gptq_v2\", not \"marlin\"");
  expectRefused(gptq(R"("bits": 4, "group_size": 128,
                        "dynamic": {"-:.*attn.*": {}})"),
                "'quantization_config.dynamic' is not supported; if it says "
                "nothing of the experts, read past it with "
                "--ignore-field=quantization_config.dynamic");
  expectRefused(gptq(R"("bits": 4, "group_size": 96)"),
                "'hidden_size' must be a multiple of 96");
}

TEST(QuantizationMethods, Awq) {
  auto awq = [](const std::string &fields) {
    return R"("quant_method": "awq", "group_size": 64,
        "modules_to_not_convert": ["mlp.gate"], "do_fuse": false, )" +
           fields;
  };
  QuantizationSpec spec =
      read(awq(R"("bits": 4, "zero_point": true, "version": "GEMM")"));
  EXPECT_EQ(spec.weight,
            makeIntegers(StorageType::Int4, 64, ScaleType::F16, true));
  EXPECT_EQ(spec.packing, Packing::Awq);
  expectRefused(awq(R"("bits": 8)"),
                "'quantization_config.bits' = 8 is not supported; 4 is");
  expectRefused(awq(R"("bits": 4, "zero_point": false)"),
                "'quantization_config.zero_point' = false is not supported; "
                "true is");
  expectRefused(awq(R"("bits": 4, "version": "gemv")"),
                "'quantization_config.version' = \"gemv\" is not supported; "
                "\"gemm\" is");
}

TEST(QuantizationMethods, OrdersOfColumns) {
  std::string weights =
      replace(kInt4, "\"actorder\": null", "\"actorder\": \"group\"");
  std::string ordered = compressed("pack-quantized", weights);
  EXPECT_EQ(read(ordered).weight,
            makeIntegers(StorageType::Int4, 32, ScaleType::BF16));
  EXPECT_TRUE(importOk(makeModel(ordered)).expertColumns);
  EXPECT_FALSE(
      importOk(makeModel(compressed("pack-quantized", kInt4))).expertColumns);
  SpecOverrides overrides;
  overrides.ignoredFields = {
      "quantization_config.config_groups.group_0.weights.actorder"};
  EXPECT_FALSE(importOk(makeModel(ordered), overrides).expertColumns);
  std::string quantized = compressed("pack-quantized", weights, R"({
      "num_bits": 8, "type": "int", "strategy": "token", "dynamic": true})");
  EXPECT_TRUE(importOk(makeModel(quantized)).expertColumns);
}

TEST(QuantizationMethods, WhatFormatsDoNotHave) {
  std::string group = "'quantization_config.config_groups.group_0.";
  expectRefused(compressed("pack-quantized", replace(kInt4, "\"num_bits\": 4",
                                                     "\"num_bits\": 3")),
                group + "weights.num_bits' = 3 is not supported; 4 or 8 is");
  expectRefused(
      compressed("pack-quantized", replace(kInt4, "\"group_size\": 32, ", "")),
      group + "weights.group_size' is missing");
  expectRefused(compressed("pack-quantized",
                           std::string(kInt8) + ", \"actorder\": \"group\""),
                group + "weights.actorder' must be \"weight\" or \"static\"");
  expectRefused(
      compressed("nvfp4-pack-quantized",
                 replace(kNvfp4, "\"group_size\": 16", "\"group_size\": 32")),
      group + "weights.group_size' = 32 is not supported; 16 is");
  expectRefused(
      compressed("nvfp4-pack-quantized", replace(kNvfp4, "true", "false")),
      group + "weights.symmetric' = false is not supported; true is");
  expectRefused(compressed("int-quantized", kInt8,
                           R"({"num_bits": 8, "type": "int",
                               "strategy": "token", "dynamic": true,
                               "symmetric": false})"),
                "' = false is not supported; true is");
}

} // namespace
