//===- QuantizationMethods.h - readers of quantization configs --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One reader per quantization tool. A reader turns the tool's lists of modules
// into rules, and says how a scheme of these rules is read. Schemes that no
// module of the layer has are never read: a model may quantize its attention as
// it likes.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_QUANTIZATIONMETHODS_H
#define MOEC_LIB_IMPORT_QUANTIZATIONMETHODS_H

#include "AllowList.h"
#include "FieldReader.h"
#include "ModuleRules.h"

namespace moec {

/// How some modules are quantized.
struct Scheme {
  QuantizationSpec quantization;
  /// A column may belong to any group (act-order).
  bool hasColumnOrder = false;
};

/// The schemes of a model's modules.
struct QuantizationMethod {
  /// The modules that the tool's lists leave as they are come first.
  ModuleRules rules;
  /// Reads a scheme of the rules. Reports values that moec cannot honour; a
  /// scheme without a quantization leaves modules as they are.
  std::function<std::optional<Scheme>(int scheme)> read;
};

/// Context and further results of the readers.
struct QuantizationContext {
  /// Dtype of the layer, and of the group scales of integers.
  DType dtype = DType::BF16;
  IgnoredFields &ignored;
  /// The decoder layer, if the model has several.
  std::optional<int64_t> layer = {};
  /// A model's `expert_dtype`, for the method "fp8".
  std::string expertDType = {};
  /// Output: what the layer computes otherwise than the configuration says.
  std::vector<std::string> remarks = {};
};

void readCompressedTensors(FieldReader &reader, QuantizationContext &context,
                           QuantizationMethod &method);
/// Also reads the object of a hf_quant_config.json.
void readModelOpt(FieldReader &reader, QuantizationContext &context,
                  QuantizationMethod &method);
void readGptq(FieldReader &reader, QuantizationContext &context,
              QuantizationMethod &method);
/// The object of the method "fp8" that GPTQModel writes.
void readGptqModelFp8(FieldReader &reader, QuantizationMethod &method);
void readAwq(FieldReader &reader, QuantizationContext &context,
             QuantizationMethod &method);
void readAutoRound(FieldReader &reader, QuantizationContext &context,
                   QuantizationMethod &method);
void readQuark(FieldReader &reader, QuantizationContext &context,
               QuantizationMethod &method);
void readTorchAo(FieldReader &reader, QuantizationContext &context,
                 QuantizationMethod &method);
void readBitsAndBytes(FieldReader &reader, QuantizationContext &context,
                      QuantizationMethod &method);
/// The object of MLX, or of Transformers' "metal", which has the same form.
void readMlx(FieldReader &reader, QuantizationContext &context,
             QuantizationMethod &method);
/// Whether an object without a method is one of MLX.
bool statesMlx(const json::Value &value);
void readHqq(FieldReader &reader, QuantizationContext &context,
             QuantizationMethod &method);
void readAqlm(FieldReader &reader, QuantizationContext &context,
              QuantizationMethod &method);
void readBitNet(FieldReader &reader, QuantizationContext &context,
                QuantizationMethod &method);
void readFbgemmFp8(FieldReader &reader, QuantizationContext &context,
                   QuantizationMethod &method);
void readGemma(FieldReader &reader, QuantizationContext &context,
               QuantizationMethod &method);
/// Blocks of ggml in safetensors files.
void readGptqModelGguf(FieldReader &reader, QuantizationContext &context,
                       QuantizationMethod &method);
/// A method that quantizes weights when they are loaded: files have them as
/// they were.
void readOnLoad(FieldReader &reader, QuantizationContext &context,
                QuantizationMethod &method);

/// A method with one scheme for all modules that no rule names.
void setOnlyScheme(QuantizationMethod &method, const Scheme &scheme);

/// Refuses fields that no getter has read, since they could change the meaning
/// of the method, unless the tool's table of keys (QuantizationKeys.h) says
/// that the value means nothing.
void refuseOtherFields(FieldReader &reader, llvm::StringRef tool);

/// Reports the value of a field; `expected` is the supported alternative.
/// `isRequired`: ignoring the field is no way out.
void refuseValue(FieldReader &reader, llvm::StringRef field,
                 const llvm::Twine &expected, bool isRequired = false);

/// Adds the remark that activations of 4 bits stay in the layer's dtype,
/// because no target multiplies them.
void keepActivations(QuantizationContext &context, llvm::StringRef shownField);

/// Reads `weight_block_size`: the rows and columns of a block.
void readBlockSize(FieldReader &reader, OperandQuantization &weight);

/// "2, 3, 4 or 8"
std::string listNumbers(llvm::ArrayRef<int64_t> numbers);

/// Bits of integers that some tool packs in words.
inline constexpr int64_t kPackedBits[] = {2, 3, 4, 5, 6, 7, 8};
/// The storage type of integers of these bits, which they have in files: the
/// smallest that has all their values.
void setIntegerBits(QuantizationSpec &quantization, int64_t bits);

/// Type of integer group scales.
ScaleType getScaleType(DType dtype);

/// e4m3 with f32 scales.
OperandQuantization makeFp8(Granularity granularity, bool isStatic = false);

/// Expands a short name.
QuantizationSpec getMeaning(llvm::StringRef name,
                            Packing packing = Packing::Unstated);

} // namespace moec

#endif // MOEC_LIB_IMPORT_QUANTIZATIONMETHODS_H
