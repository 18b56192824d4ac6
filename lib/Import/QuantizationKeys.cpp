//===- QuantizationKeys.cpp - keys that say nothing of values -------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One table per tool: the keys that its reader does not read, because they say
// nothing of the stored values. A key with values is refused with any other
// value. test/Frameworks/test_quantization_configs.py holds the tables to what
// the tools write.
//
//===----------------------------------------------------------------------===//

#include "QuantizationKeys.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"

using namespace llvm;

namespace moec {

namespace {

struct ToolKey {
  StringLiteral name;
  /// Values with which it says nothing, as JSON, separated by `|`; empty for
  /// any value.
  StringLiteral values = "";
};

/// Transformers' FineGrainedFP8Config and the files of DeepSeek.
constexpr ToolKey kFp8[] = {
    {"expert_dtype", "\"fp8\""},
    {"kv_cache_scheme"},
    {"modules_to_convert", "[]"},
    {"scale_fmt", "\"float\""},
};

/// AutoGPTQ, AutoAWQ, GPTQModel, Transformers' GPTQConfig and AwqConfig. Names
/// of kernels and of the calibration.
constexpr ToolKey kGptqAwq[] = {
    {"act_group_aware"},
    {"activation", "{}"},
    {"auto_forward_data_parallel"},
    {"backend"},
    {"batch_size"},
    {"block_name_to_quantize"},
    {"cache_block_outputs"},
    {"damp_auto_increment"},
    {"damp_percent"},
    {"dataset"},
    {"desc_act", "false"},
    {"device"},
    {"device_map"},
    {"disable_exllama"},
    {"do_fuse"},
    {"exllama_config"},
    {"fallback"},
    {"foem", "false"},
    {"fuse_max_seq_len"},
    {"gptaq"},
    {"hyb_act"},
    {"is_marlin_format", "false"},
    {"lm_head"},
    {"max_input_length"},
    {"meta"},
    {"method", "\"gptq\"|\"awq\"|\"fp8\""},
    {"model_file_base_name"},
    {"model_name_or_path"},
    {"model_seqlen"},
    {"module_name_preceding_first_block"},
    {"modules_to_fuse"},
    {"moe"},
    {"mse"},
    {"offload_to_disk"},
    {"offload_to_disk_path"},
    {"pack_impl"},
    {"pad_token_id"},
    {"quantizer"},
    {"rotation", "false"},
    {"static_groups"},
    {"sym", "true"},
    {"tokenizer"},
    {"true_sequential"},
    {"use_cuda_fp16"},
    {"use_exllama"},
    {"v2"},
};

constexpr ToolKey kCompressedTensors[] = {
    {"global_compression_ratio"}, {"kv_cache_scheme"}, {"modules_to_save"},
    {"run_compressed"},           {"version"},
};

constexpr ToolKey kModelOpt[] = {
    {"config_groups"},
    {"has_zero_point", "false"},
    {"kv_cache_quant_algo"},
    {"kv_cache_scheme"},
    {"modelopt_quant_config"},
    // The checkpoint tells by a tensor.
    {"pre_quant_scale"},
    {"producer"},
};

constexpr ToolKey kAutoRound[] = {
    {"act_data_type"},
    {"act_dynamic"},
    {"act_group_size"},
    {"act_sym"},
    {"amp"},
    {"autoround_version"},
    {"backend"},
    {"batch_size"},
    {"dataset"},
    {"enable_minmax_tuning"},
    {"enable_norm_bias_tuning", "false"},
    {"enable_quanted_input"},
    {"gradient_accumulate_steps"},
    {"iters"},
    {"low_gpu_mem_usage"},
    {"lr"},
    {"minmax_lr"},
    {"model_free"},
    {"nsamples"},
    {"provider"},
    {"quant_block_list"},
    {"quant_lm_head"},
    {"rotation_configs", "[]"},
    {"scale_dtype"},
    {"seqlen"},
    {"static_attention_dtype"},
    {"static_attention_granularity"},
    {"static_kv_dtype"},
    {"static_kv_granularity"},
    {"super_bits"},
    {"super_group_size"},
    {"supported_types"},
};

/// How kernels run, and what is quantized beside linear modules.
constexpr ToolKey kTorchAo[] = {
    {"activation_value_lb", "null"},
    {"activation_value_ub", "null"},
    {"alg_id"},
    {"group_size", "null"},
    {"include_input_output_embeddings"},
    {"int4_tile_packed_ntile"},
    {"kernel_preference"},
    {"mm_config"},
    {"quant_type_kwargs", "{}"},
    {"reduce_range", "false"},
    {"scaling_mode"},
    {"set_inductor_config"},
    {"untie_embedding_weights"},
    {"use_triton_kernel"},
    {"weight_only_decode"},
};

constexpr ToolKey kQuark[] = {
    {"algo_config", "[]"},
    {"export"},
    {"kv_cache_post_rope"},
    {"kv_cache_quant_config", "{}"},
    {"log_severity_level"},
    {"quant_mode"},
    {"version"},
};

/// Options of loading and computing.
constexpr ToolKey kBitsAndBytes[] = {
    {"_load_in_4bit"},
    {"_load_in_8bit"},
    {"bnb_4bit_compute_dtype"},
    {"llm_int8_enable_fp32_cpu_offload"},
    {"llm_int8_has_fp16_weight"},
    {"llm_int8_threshold"},
};

constexpr ToolKey kMxfp4[] = {{"dequantize"}};

struct Table {
  StringLiteral tool;
  ArrayRef<ToolKey> keys;
};

const Table kTables[] = {
    {"auto-round", kAutoRound},
    {"awq", kGptqAwq},
    {"bitsandbytes", kBitsAndBytes},
    {"compressed-tensors", kCompressedTensors},
    {"fp8", kFp8},
    {"fp8 of GPTQModel", kGptqAwq},
    {"gptq", kGptqAwq},
    {"modelopt", kModelOpt},
    {"mxfp4", kMxfp4},
    {"quark", kQuark},
    {"torchao", kTorchAo},
};

/// The value as in the table: a scalar, or brackets without content.
std::string print(const json::Value &value) {
  using Kind = json::Value::Kind;
  switch (value.kind) {
  case Kind::Null:
    return "null";
  case Kind::Boolean:
    return value.boolean ? "true" : "false";
  case Kind::Number:
    return value.text;
  case Kind::String:
    return "\"" + value.text + "\"";
  case Kind::Array:
    return value.elements.empty() ? "[]" : "[...]";
  case Kind::Object:
    return value.members.empty() ? "{}" : "{...}";
  }
  llvm_unreachable("every kind is listed");
}

} // namespace

bool saysNothing(StringRef tool, StringRef key, const json::Value &value) {
  if (value.isNull())
    return true;
  for (const Table &table : kTables)
    if (table.tool == tool)
      for (const ToolKey &known : table.keys) {
        if (known.name != key)
          continue;
        SmallVector<StringRef> values;
        known.values.split(values, '|', -1, /*KeepEmpty=*/false);
        return values.empty() || is_contained(values, print(value));
      }
  return false;
}

} // namespace moec
