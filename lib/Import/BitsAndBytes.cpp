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

void readBitsAndBytes(FieldReader &reader, QuantizationContext &context,
                      QuantizationMethod &method) {
  constexpr StringLiteral kTool = "bitsandbytes";
  if (reader.has("method"))
    return reader.error("method", reader.show("method") +
                                      " is GPTQModel's: its names of the "
                                      "tool's tensors are not supported; save "
                                      "the model with bitsandbytes itself");
  if (reader.getBoolean("load_in_8bit", false)) {
    if (reader.getBoolean("load_in_4bit", false))
      refuseValue(reader, "load_in_4bit", "false with 'load_in_8bit'",
                  /*isRequired=*/true);
    QuantizationSpec result;
    result.weight.storage = StorageType::Int8;
    result.weight.granularity = Granularity::Channel;
    result.packing = Packing::BitsAndBytesInt8;
    for (StringRef field : {"bnb_4bit_quant_type", "bnb_4bit_quant_storage",
                            "bnb_4bit_use_double_quant"})
      reader.markKnown(field);
    refuseOtherFields(reader, kTool);
    context.remarks.push_back(
        reader.show("load_in_8bit") +
        " quantizes activations in a call; they stay in " +
        stringify(context.dtype).str());
    setOnlyScheme(method, {result});
    return;
  }
  if (!reader.getBoolean("load_in_4bit", false))
    refuseValue(reader, "load_in_4bit", "true", /*isRequired=*/true);
  // fp4 has other values than e2m1: the checkpoint has a table of them.
  bool isFp4 = reader.getOneOf("bnb_4bit_quant_type", {"fp4", "nf4"}) == "fp4";
  reader.getOneOf("bnb_4bit_quant_storage", {"uint8"});
  QuantizationSpec result;
  result.weight.storage = StorageType::NF4;
  result.weight.granularity = Granularity::Group;
  result.weight.blockRows = 1;
  // The only block size with this configuration.
  constexpr int64_t blockSize = 64;
  result.weight.blockColumns = blockSize;
  bool isNested = reader.getBoolean("bnb_4bit_use_double_quant", false);
  if (isFp4)
    result.packing =
        isNested ? Packing::BitsAndBytesFp4Nested : Packing::BitsAndBytesFp4;
  else
    result.packing =
        isNested ? Packing::BitsAndBytesNested : Packing::BitsAndBytes;
  refuseOtherFields(reader, kTool);
  setOnlyScheme(method, {result});
}

} // namespace moec
