//===- BitsAndBytes.cpp - configuration of bitsandbytes -------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Source: BitsAndBytesConfig of transformers, QuantState of bitsandbytes.
//
//===----------------------------------------------------------------------===//

#include "QuantizationMethods.h"

using namespace llvm;

namespace moec {

std::optional<QuantizationSpec> readBitsAndBytes(FieldReader &reader,
                                                 QuantizationContext &context) {
  // Options of loading and computing, which do not change what is stored.
  for (StringRef field :
       {"_load_in_4bit", "_load_in_8bit", "bnb_4bit_compute_dtype",
        "llm_int8_enable_fp32_cpu_offload", "llm_int8_has_fp16_weight",
        "llm_int8_threshold"})
    reader.markKnown(field);
  if (reader.getBoolean("load_in_8bit", false))
    refuseValue(reader, "load_in_8bit", "'load_in_4bit' = true");
  else if (!reader.getBoolean("load_in_4bit", false))
    refuseValue(reader, "load_in_4bit", "true");
  // The default is fp4, whose values differ from e2m1.
  const json::Value *type = reader.get("bnb_4bit_quant_type");
  if (!type || type->text != "nf4")
    refuseValue(reader, "bnb_4bit_quant_type", "\"nf4\"");
  reader.getOneOf("bnb_4bit_quant_storage", {"uint8"});
  QuantizationSpec result;
  result.weight.storage = StorageType::NF4;
  result.weight.granularity = Granularity::Group;
  result.weight.blockRows = 1;
  // The only block size with this configuration.
  constexpr int64_t blockSize = 64;
  result.weight.blockColumns = blockSize;
  result.packing = reader.getBoolean("bnb_4bit_use_double_quant", false)
                       ? Packing::BitsAndBytesNested
                       : Packing::BitsAndBytes;
  refuseOtherFields(reader, "bitsandbytes", context.ignored);
  return result;
}

} // namespace moec
