//===- QuantizationTesting.h - imports of quantizations -----------*- C++ -*-
//===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_IMPORT_QUANTIZATIONTESTING_H
#define MOEC_UNITTESTS_IMPORT_QUANTIZATIONTESTING_H

#include "ImportTesting.h"

#include <array>
#include <cstring>

namespace moec::testing {

/// A model whose `quantization_config` has these fields.
inline std::string makeModel(const std::string &fields,
                             const char *dtype = "bfloat16") {
  return R"({"model_type": "qwen3_moe", "hidden_size": 256, "num_experts": 4,
"num_experts_per_tok": 2, "moe_intermediate_size": 128, "torch_dtype": ")" +
         std::string(dtype) + R"(", "quantization_config": {)" + fields + "}}";
}

inline QuantizationSpec read(const std::string &fields,
                             const char *dtype = "bfloat16",
                             std::vector<std::string> ignored = {}) {
  SpecOverrides overrides;
  overrides.ignoredFields = std::move(ignored);
  overrides.toCompile = true;
  LayerSpec spec = importOk(makeModel(fields, dtype), overrides);
  EXPECT_TRUE(spec.quantization.w13);
  EXPECT_EQ(spec.quantization.w13, spec.quantization.w2);
  return spec.quantization.w13.value_or(QuantizationSpec());
}

/// The quantization of both gemms, of the routed and of the shared experts.
inline std::array<std::optional<QuantizationSpec>, 4>
readWeights(const std::string &fields) {
  LayerSpec spec = importOk(
      R"({"model_type": "qwen2_moe", "hidden_size": 256, "num_experts": 12,
"num_experts_per_tok": 2, "moe_intermediate_size": 128,
"num_hidden_layers": 2, "shared_expert_intermediate_size": 128,
"torch_dtype": "bfloat16", "quantization_config": {)" +
      fields + "}}");
  return {spec.quantization.w13, spec.quantization.w2,
          spec.sharedExperts->quantization.w13,
          spec.sharedExperts->quantization.w2};
}

inline void expectRefused(const std::string &fields,
                          const std::string &message) {
  std::string messages = importError(makeModel(fields));
  EXPECT_NE(messages.find(message), std::string::npos) << message << "\n"
                                                       << messages;
}

inline OperandQuantization makeIntegers(StorageType storage, int64_t columns,
                                        ScaleType scale,
                                        bool hasZeroPoint = false) {
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
inline std::string compressed(const std::string &format,
                              const std::string &weights,
                              const std::string &inputs = "null") {
  return R"("quant_method": "compressed-tensors", "format": ")" + format +
         R"(", "quantization_status": "compressed", "kv_cache_scheme": null,
"ignore": ["lm_head", "re:.*self_attn.*", "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"],
"config_groups": {"group_0": {"targets": ["Linear"], "output_activations": null,
"weights": {)" +
         weights + R"(}, "input_activations": )" + inputs + "}}";
}

// The configuration of Kimi-K2-Thinking.
inline constexpr const char *kInt4 =
    R"("actorder": null, "block_structure": null,
"dynamic": false, "group_size": 32, "num_bits": 4, "observer": "minmax",
"observer_kwargs": {}, "strategy": "group", "symmetric": true, "type": "int")";
inline constexpr const char *kInt8 = R"("num_bits": 8, "type": "int",
"strategy": "channel", "symmetric": true, "dynamic": false)";
inline constexpr const char *kNvfp4 = R"("num_bits": 4, "type": "float",
"strategy": "tensor_group", "group_size": 16, "symmetric": true,
"scale_dtype": "torch.float8_e4m3fn", "zp_dtype": "torch.float8_e4m3fn")";
inline constexpr const char *kNvfp4Inputs = R"({"num_bits": 4, "type": "float",
"strategy": "tensor_group", "group_size": 16, "symmetric": true,
"dynamic": "local"})";

inline std::string replace(std::string text, const char *from, const char *to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, strlen(from), to);
}

} // namespace moec::testing

#endif // MOEC_UNITTESTS_IMPORT_QUANTIZATIONTESTING_H
