//===- QuantizationMethodsTest.cpp - quantization_config --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "QuantizationTesting.h"

using namespace moec;
using namespace moec::testing;

namespace {

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
  // 4-bit activations stay as they are, with a remark unless the user ignores
  // the field.
  std::string both = compressed("nvfp4-pack-quantized", kNvfp4, kNvfp4Inputs);
  std::string field =
      "quantization_config.config_groups.group_0.input_activations";
  EXPECT_EQ(read(both), getQuantization("nvfp4"));
  EXPECT_EQ(importOk(makeModel(both)).remarks,
            std::vector<std::string>{
                "'" + field +
                "' quantizes activations to 4 bits, which no target "
                "multiplies; they stay in bf16"});
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
                "'quantization_config.scale_fmt' must be \"float\" or "
                "\"ue8m0\", not \"e4m3\"; if it says nothing of the experts, "
                "read past it with "
                "--ignore-field=quantization_config.scale_fmt");
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
  // The values of fp4 are in the checkpoint: the loader dequantizes.
  for (const char *fields :
       {R"("load_in_4bit": true, "bnb_4bit_quant_type": "fp4")",
        R"("load_in_4bit": true)"}) {
    LayerSpec layer = importOk(makeModel(bnb(fields)));
    EXPECT_FALSE(layer.quantization.w13);
    ASSERT_TRUE(layer.findStored("experts.w13"));
    EXPECT_EQ(layer.findStored("experts.w13")->schemes.front()->packing,
              Packing::BitsAndBytesFp4);
  }
  expectRefused(bnb(R"("bnb_4bit_quant_type": "nf4")"),
                field + "load_in_4bit', which is absent, is not supported; "
                        "true is");
  spec = read(R"("quant_method": "bitsandbytes", "load_in_8bit": true)");
  OperandQuantization int8;
  int8.storage = StorageType::Int8;
  int8.granularity = Granularity::Channel;
  EXPECT_EQ(spec, (QuantizationSpec{int8, std::nullopt}));
  EXPECT_EQ(spec.packing, Packing::BitsAndBytesInt8);
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
  EXPECT_EQ(read(modelOpt(groups)), getQuantization("nvfp4"));
  EXPECT_EQ(importOk(makeModel(modelOpt(groups))).remarks.size(), 1u);
  EXPECT_EQ(read(modelOpt(groups), "bfloat16", {field}),
            getQuantization("nvfp4"));
  LayerSpec decoded = importOk(makeModel(modelOpt(
      R"("quant_algo": "W4A8_AWQ", "group_size": 128, "pre_quant_scale": true)")));
  EXPECT_FALSE(decoded.quantization);
  EXPECT_EQ(decoded.findStored("experts.w2")->schemes.front()->packing,
            Packing::ModelOptAwq);
  expectRefused(modelOpt(R"("quant_algo": "W4A8")"),
                "'quantization_config.quant_algo' must be \"FP8\", "
                "\"FP8_PER_CHANNEL_PER_TOKEN\", \"FP8_PB_WO\", "
                "\"FP8_BLOCK_SCALES\", \"FP8_PB_REAL\", \"W8A16\", "
                "\"W4A16_NVFP4\", \"NVFP4\", \"NVFP4_AWQ\", "
                "\"W4A16_MXFP4\", \"MXFP4\", \"W4A8_MXFP4_FP8\", \"MXFP8\", "
                "\"W4A16_AWQ\", \"W4A8_AWQ\", \"NVFP4_SVD\" "
                "or \"MIXED_PRECISION\", not \"W4A8\"");
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
  // What rows are when GPTQModel multiplies them.
  auto withRows = [&](const std::string &mode) {
    return gptq(R"("bits": 4, "group_size": 128, "activation": {"mode": ")" +
                mode + R"("})");
  };
  spec = read(withRows("w4afp8"));
  ASSERT_TRUE(spec.activation);
  EXPECT_EQ(spec.activation->storage, StorageType::Fp8E4M3);
  EXPECT_EQ(spec.activation->granularity, Granularity::Token);
  LayerSpec four = importOk(makeModel(withRows("w4a_nvfp4")));
  EXPECT_FALSE(four.quantization.w13->activation);
  EXPECT_EQ(four.remarks.size(), 1u);
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
  expectRefused(gptq(R"("bits": 6, "group_size": 128)"),
                "'quantization_config.bits' = 6 is not supported; 2, 3, 4 or 8 "
                "is");
  expectRefused(gptq(R"("bits": 4)"),
                "'quantization_config.group_size' is missing");
  expectRefused(gptq(R"("bits": 4, "group_size": 128,
                        "checkpoint_format": "bitblas")"),
                "'quantization_config.checkpoint_format' must be \"gptq\", "
                "\"gptq_v2\", \"gptq_p\" or \"marlin\", not \"bitblas\"");
  expectRefused(gptq(R"("bits": 4, "group_size": 96, "desc_act": true)"),
                "the last scale is of a part of a group of 96, and columns may "
                "be in any order");
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
  // Symmetric words have zero points too.
  EXPECT_EQ(read(awq(R"("bits": 4, "zero_point": false)")).weight, spec.weight);
  expectRefused(awq(R"("bits": 4, "version": "bitblas")"),
                "'quantization_config.version' = \"bitblas\" is not supported; "
                "\"gemm\" is");
  expectRefused(
      awq(R"("bits": 4, "version": "gemv", "format": "gemm")"),
      "'quantization_config.format' = \"gemm\" is another version than "
      "'quantization_config.version' states; keep one");
}

TEST(QuantizationMethods, OrdersOfColumns) {
  std::string weights =
      replace(kInt4, "\"actorder\": null", "\"actorder\": \"group\"");
  std::string ordered = compressed("pack-quantized", weights);
  EXPECT_EQ(read(ordered).weight,
            makeIntegers(StorageType::Int4, 32, ScaleType::BF16));
  // Other spellings that the tool accepts.
  for (const char *order : {"\"dynamic\"", "true"})
    EXPECT_TRUE(
        importOk(makeModel(replace(ordered, "\"group\"", order))).expertColumns)
        << order;
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
                                                     "\"num_bits\": 1")),
                group + "weights.num_bits' = 1 is not supported; 2, 3, 4, 5, "
                        "6, 7 or 8 is");
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

/// Fields of a scheme as Transformers 5.24 writes them.
// field-bug: transformers#48368
TEST(QuantizationMethods, KeysThatSayNothing) {
  std::string fp8 = R"("quant_method": "fp8", "modules_to_not_convert": null,
      "modules_to_convert": null, "activation_scheme": "dynamic",
      "weight_block_size": [128, 128], "dequantize": false,
      "scale_fmt": "float", "expert_dtype": )";
  EXPECT_EQ(read(fp8 + "\"fp8\""), getQuantization("fp8_block128"));
  std::string refused = fp8 + "\"fp6\"";
  expectRefused(refused,
                "'quantization_config.expert_dtype' must be \"fp8\" or "
                "\"fp4\", not \"fp6\"; if it says nothing of the experts, "
                "read past it with "
                "--ignore-field=quantization_config.expert_dtype");
  // The way that the message gives works, for values too.
  EXPECT_EQ(read(refused, "bfloat16", {"quantization_config.expert_dtype"}),
            getQuantization("fp8_block128"));
  EXPECT_EQ(read(R"("quant_method": "fp8", "activation_scheme": "dynamic",
                    "weight_block_size": [128, 128], "scale_fmt": "int")",
                 "bfloat16", {"quantization_config.scale_fmt"}),
            getQuantization("fp8_block128"));
}

// field-bug: auto-round#1776, vllm#43227, vllm#17850, sglang#6226
TEST(QuantizationMethods, AutoRound) {
  auto autoRound = [](const std::string &fields) {
    return R"("quant_method": "auto-round", "bits": 4, "group_size": 128,
        "data_type": "int", "sym": true, "autoround_version": "0.16.1",
        "iters": 200, "block_name_to_quantize": "model.layers", )" +
           fields;
  };
  std::string format = R"("packing_format": "auto_round:auto_gptq")";
  QuantizationSpec int4 = read(autoRound(format));
  EXPECT_EQ(int4.weight, makeIntegers(StorageType::Int4, 128, ScaleType::F16));
  EXPECT_EQ(int4.packing, Packing::Gptq);
  QuantizationSpec awq =
      read(autoRound(R"("packing_format": "auto_round:auto_awq")"));
  EXPECT_EQ(awq.packing, Packing::Awq);
  EXPECT_TRUE(awq.weight.hasZeroPoint);
  std::optional<QuantizationSpec> none;
  using Weights = std::array<std::optional<QuantizationSpec>, 4>;
  EXPECT_EQ(readWeights(autoRound(format + R"(, "extra_config": {
      "model.layers.0.mlp.shared_expert.gate_proj": {"bits": 16},
      "model.layers.0.mlp.shared_expert.up_proj": {"bits": 16},
      ".*experts\\.[0-9]+\\.down_proj": {"bits": 8, "group_size": 64}})")),
            (Weights{int4,
                     QuantizationSpec{
                         makeIntegers(StorageType::Int8, 64, ScaleType::F16),
                         std::nullopt},
                     none, int4}));
  EXPECT_FALSE(importOk(makeModel(replace(autoRound(format), "\"model.layers\"",
                                          "\"model.visual\"")))
                   .quantization);
  expectRefused(autoRound(format + R"(, "extra_config": {
                    ".*(?!gate)mlp": {"bits": 16}})"),
                "'quantization_config.extra_config' has the expression "
                "\".*(?!gate)mlp\", which cannot be understood; write names, "
                "or expressions without flags");
  expectRefused(autoRound(R"("packing_format": "auto_round:llm_compressor")"),
                "'quantization_config.packing_format' = "
                "\"auto_round:llm_compressor\" is not supported");
}

TEST(QuantizationMethods, FloatsOfAutoRound) {
  auto autoRound = [](const std::string &fields) {
    return R"("quant_method": "auto-round", "sym": true, "act_sym": true,
        "autoround_version": "0.16.1", )" +
           fields;
  };
  std::string mx = R"("data_type": "mx_fp", "group_size": 32,
      "packing_format": "auto_round:mx_fp", )";
  QuantizationSpec eight = read(autoRound(mx + R"("bits": 8, "act_bits": 8)"));
  EXPECT_EQ(getShortName(eight), "mxfp8");
  EXPECT_EQ(eight.packing, Packing::Modules);
  QuantizationSpec four = read(autoRound(mx + R"("bits": 4, "act_bits": 8)"));
  EXPECT_EQ(four.activation, eight.activation);
  EXPECT_EQ(four.packing, Packing::CompressedFp4);
  std::string nv = R"("data_type": "nv_fp", "bits": 4, "group_size": 16,
      "packing_format": "auto_round:nv_fp", )";
  LayerSpec layer = importOk(makeModel(autoRound(nv + R"("act_bits": 4)")));
  EXPECT_EQ(describe(layer.quantization), "nvfp4");
  EXPECT_EQ(layer.remarks.size(), 1u);
  expectRefused(autoRound(nv + R"("act_bits": 8)"),
                "'quantization_config.act_bits' = 8 is not supported");
  expectRefused(autoRound(mx + R"("bits": 6, "act_bits": 16)"),
                "'quantization_config.bits' = 6 is not supported; 4 or 8 is");
  expectRefused(autoRound(replace(mx, "32", "64") + R"("bits": 4)"),
                "'quantization_config.group_size' = 64 is not supported; 32");
  expectRefused(autoRound(R"("data_type": "fp", "bits": 8, "group_size": -1)"),
                "'quantization_config.data_type' must be \"int\"");
}

// field-bug: vllm#48226, vllm#52263, sglang#38998, sglang#39317
TEST(QuantizationMethods, Quark) {
  const char *mxfp4 = R"({"weight": {"dtype": "fp4", "qscheme": "per_group",
      "group_size": 32, "scale_format": "e8m0", "is_dynamic": false,
      "symmetric": null, "ch_axis": -1}, "input_tensors": {"dtype": "fp4",
      "qscheme": "per_group", "group_size": 32, "is_dynamic": true},
      "output_tensors": null, "bias": null, "target_device": null})";
  const char *blocks = R"({"weight": {"dtype": "fp8_e4m3",
      "qscheme": "per_block", "block_size": [128, 128], "is_dynamic": false,
      "symmetric": true}, "input_tensors": {"dtype": "fp8_e4m3",
      "qscheme": "per_group", "group_size": 128, "is_dynamic": true,
      "symmetric": true}})";
  auto quark = [&](const std::string &fields) {
    return R"("quant_method": "quark", "quant_mode": "eager_mode",
        "version": "0.13", "export": {"kv_cache_group": [],
        "pack_method": "reorder", "weight_format": "real_quantized"},
        "algo_config": null, "exclude": ["lm_head", "*mlp.gate"],
        "global_quant_config": )" +
           std::string(mxfp4) + fields;
  };
  EXPECT_EQ(read(quark("")), getQuantization("mxfp4"));
  EXPECT_EQ(importOk(makeModel(quark(""))).remarks.size(), 1u);
  std::optional<QuantizationSpec> none;
  QuantizationSpec four = getQuantization("mxfp4"),
                   eight = getQuantization("fp8_block128");
  using Weights = std::array<std::optional<QuantizationSpec>, 4>;
  EXPECT_EQ(
      readWeights(quark(R"(, "layer_quant_config": {"*shared_expert.*": )" +
                        std::string(blocks) + "}")),
      (Weights{four, four, eight, eight}));
  EXPECT_EQ(readWeights(
                replace(quark(""), "\"lm_head\"", "\"re:.*shared_expert.*\"")),
            (Weights{four, four, none, none}));
  expectRefused(replace(quark(""), "\"fp4\"", "\"fp6\""),
                "'quantization_config.global_quant_config.weight' is fp6 "
                "per_group of 32, which is not supported");
}

TEST(QuantizationMethods, TorchAo) {
  auto torchao = [](const std::string &type, const std::string &fields) {
    return R"("quant_method": "torchao", "quant_type": {"default": {"_type": ")" +
           type + R"(", "_version": 2, "_data": {)" + fields +
           R"(}}}, "include_input_output_embeddings": false,
           "untie_embedding_weights": false, "quant_type_kwargs": {})";
  };
  const std::string rows =
      R"("granularity": [{"_type": "PerRow", "_version": 1, "_data": {"dim": -1}},
         {"_type": "PerRow", "_version": 1, "_data": {"dim": -1}}],
         "activation_dtype": {"_type": "torch.dtype", "_data": "float8_e4m3fn"},
         "packing_format": {"_type": "Float8PackingFormat", "_data": "PLAIN"},
         "kernel_preference": {"_type": "KernelPreference", "_data": "AUTO"},
         "mm_config": null, "activation_value_lb": null)";
  auto dynamic =
      read(torchao("Float8DynamicActivationFloat8WeightConfig", rows));
  EXPECT_EQ(dynamic.weight.granularity, Granularity::Channel);
  ASSERT_TRUE(dynamic.activation);
  EXPECT_EQ(dynamic.activation->granularity, Granularity::Token);
  EXPECT_EQ(dynamic.packing, Packing::TorchAo);
  auto tensors = read(torchao("Float8DynamicActivationFloat8WeightConfig", ""));
  EXPECT_EQ(tensors.weight.granularity, Granularity::Tensor);
  auto blocks = read(torchao(
      "Float8DynamicActivationFloat8WeightConfig",
      R"("granularity": [{"_type": "PerBlock", "_data": {"block_size": [1, 128]}},
         {"_type": "PerBlock", "_data": {"block_size": [128, 128]}}])"));
  EXPECT_EQ(blocks.weight.blockRows, 128);
  EXPECT_EQ(blocks.activation->granularity, Granularity::Group);
  auto eight = read(torchao("Int8WeightOnlyConfig", R"("group_size": null)"));
  EXPECT_EQ(eight.weight.storage, StorageType::Int8);
  EXPECT_FALSE(eight.activation);
  EXPECT_TRUE(read(torchao("Int8DynamicActivationInt8WeightConfig",
                           R"("act_mapping_type": {"_type": "MappingType",
                              "_data": "SYMMETRIC"})"))
                  .activation);
  auto four = read(torchao("Int4WeightOnlyConfig", R"("group_size": 64)"));
  EXPECT_EQ(four.packing, Packing::TorchAoInt4);
  EXPECT_TRUE(four.weight.hasMinimum);
  EXPECT_EQ(four.weight.blockColumns, 64);
  expectRefused(torchao("Int4WeightOnlyConfig",
                        R"("int4_packing_format": {"_type": "Int4PackingFormat",
                 "_data": "PRESHUFFLED"})"),
                "= \"PRESHUFFLED\" is not supported");
  QuantizationSpec bytes =
      read(torchao("Int8DynamicActivationIntxWeightConfig", ""));
  EXPECT_EQ(bytes.weight, makeIntegers(StorageType::Int8, 32, ScaleType::F32));
  expectRefused(torchao("UIntXWeightOnlyConfig", ""),
                "is UIntXWeightOnlyConfig, which is not supported; "
                "'Float8WeightOnlyConfig', ");
  expectRefused(torchao("Float8WeightOnlyConfig",
                        R"("granularity": {"_type": "PerAxis", "_data": {}})"),
                "granularity");
  expectRefused(
      R"("quant_method": "torchao", "quant_type": "int4_weight_only")",
      "quant_type");
}

// Layer 0 of the model, where others have activations of 4 bits.
TEST(QuantizationMethods, ActivationsOfGptqModelByLayer) {
  auto readLayers = [](const std::string &layers) {
    SpecOverrides overrides;
    overrides.layer = 0;
    return importOk(replace(makeModel(R"("quant_method": "gptq", "bits": 4,
"group_size": 128, "activation": {"mode": "w4a_nvfp4", "recipe": "nvidia",
"mlp": {"mode": "w4afp8", "layers": )" +
                                      layers + "}}"),
                            "{\"model_type\"",
                            "{\"num_hidden_layers\": 2, \"model_type\""),
                    overrides)
        .quantization.w13->activation;
  };
  ASSERT_TRUE(readLayers("[0, 1]"));
  EXPECT_EQ(readLayers("[0, 1]")->storage, StorageType::Fp8E4M3);
  EXPECT_FALSE(readLayers("[1]"));
}

// The fp8 format of GPTQModel 7.7 itself.
TEST(QuantizationMethods, Fp8OfGptqModel) {
  auto make = [](const std::string &fields) {
    return R"("bits": 8, "group_size": -1, "desc_act": false, "lm_head": false,
"method": "fp8", "quant_method": "fp8", "format": "float8_e4m3fn",
"checkpoint_format": "float8_e4m3fn", "pack_dtype": "int32", "meta": {"mse": 0.0},
"weight_scale_semantics": "inverse", )" +
           fields;
  };
  QuantizationSpec rows = read(make(R"("weight_scale_method": "row")"));
  EXPECT_EQ(rows.packing, Packing::Reciprocals);
  EXPECT_EQ(rows.weight.granularity, Granularity::Channel);
  EXPECT_FALSE(rows.activation);
  EXPECT_EQ(read(make(R"("weight_scale_method": "tensor")")).weight.granularity,
            Granularity::Tensor);
  const std::string blocks =
      R"("weight_scale_method": "block", "weight_block_size": [128, 64])";
  EXPECT_EQ(read(make(blocks)).weight.blockColumns, 64);
  LayerSpec spec = importOk(makeModel(make(
      R"("weight_scale_method": "row", "dynamic": {"-:.*down_proj": {},
"+:.*experts.*": {"weight_scale_method": "tensor"}})")));
  EXPECT_EQ(spec.quantization.w13->weight.granularity, Granularity::Tensor);
  EXPECT_FALSE(spec.quantization.w2);
  expectRefused(make(R"("weight_scale_method": "column")"),
                "must be \"row\", \"tensor\" or \"block\"");
  expectRefused(
      replace(make(R"("weight_scale_method": "row")"), "inverse", "direct"),
      "= \"direct\" is not supported; \"inverse\" is");
  expectRefused(R"("method": "bitsandbytes", "quant_method": "bitsandbytes",
                   "bits": 4, "format": "nf4")",
                "is GPTQModel's: its names of the tool's tensors are not "
                "supported; save the model with bitsandbytes itself");
}

// Forms of NVFP4 whose files have more tensors.
TEST(QuantizationMethods, OtherFormsOfNvfp4AreRefusedByName) {
  for (const std::string name : {"W4A8_NVFP4_FP8", "NVFP4_PER_TOKEN"})
    expectRefused(R"("quant_method": "modelopt", "quant_algo": ")" + name +
                      "\"",
                  "not \"" + name + "\"");
}

TEST(QuantizationMethods, TorchAoMxAndNvfp4) {
  auto torchao = [](const std::string &type, const std::string &fields) {
    return R"("quant_method": "torchao", "quant_type": {"default": {"_type": ")" +
           type + R"(", "_version": 1, "_data": {)" + fields + "}}}";
  };
  auto mx = [&](const std::string &type) {
    std::string dtype = R"({"_type": "torch.dtype", "_data": ")" + type + "\"}";
    return torchao("MXDynamicActivationMXWeightConfig",
                   R"("block_size": 32, "activation_dtype": )" + dtype +
                       R"(, "weight_dtype": )" + dtype +
                       R"(, "kernel_preference": {"_type": "KernelPreference",
"_data": "AUTO"}, "scaling_mode": {"_type": "ScaleCalculationMode",
"_data": "RCEIL"})");
  };
  QuantizationSpec eight = read(mx("float8_e4m3fn"));
  EXPECT_EQ(eight, getQuantization("mxfp8"));
  EXPECT_EQ(eight.packing, Packing::TorchAo);
  QuantizationSpec four = read(mx("float4_e2m1fn_x2"));
  EXPECT_EQ(four.weight, getQuantization("mxfp4").weight);
  EXPECT_FALSE(four.activation);
  expectRefused(mx("fp6_e3m2"),
                "= \"fp6_e3m2\" is not supported; \"float8_e4m3fn\" or "
                "\"float4_e2m1fn_x2\" is");
  expectRefused(
      torchao("MXDynamicActivationMXWeightConfig", R"("block_size": 64)"),
      "block_size' = 64 is not supported; 32 is");
  const std::string dynamic = "NVFP4DynamicActivationNVFP4WeightConfig";
  const std::string calibrated = R"("use_dynamic_per_tensor_scale": false,
"step": {"_type": "QuantizationStep", "_data": "CONVERT"})";
  for (const std::string &fields :
       {torchao("NVFP4WeightOnlyConfig", ""),
        torchao(dynamic, R"("use_triton_kernel": true, "step": null)"),
        torchao(dynamic, calibrated)}) {
    QuantizationSpec spec = read(fields);
    EXPECT_EQ(spec.weight, getQuantization("nvfp4").weight);
    EXPECT_FALSE(spec.activation);
  }
  EXPECT_FALSE(read(torchao("NVFP4WeightOnlyConfig",
                            R"("use_dynamic_per_tensor_scale": false)"))
                   .weight.hasGlobalScale);
}

} // namespace
