//===- QuantizationMethods.h - readers of quantization configs --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One reader per quantization tool. A reader returns the quantization of the
// gemms and the checkpoint layout. It reports values that moec cannot honour;
// the caller reports fields that the reader does not know.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_QUANTIZATIONMETHODS_H
#define MOEC_LIB_IMPORT_QUANTIZATIONMETHODS_H

#include "AllowList.h"
#include "FieldReader.h"

namespace moec {

/// Context and further results of the readers.
struct QuantizationContext {
  /// Dtype of the layer, and of the group scales of integers.
  DType dtype = DType::BF16;
  IgnoredFields &ignored;
  /// Output: a column may belong to any group (act-order).
  bool hasColumnOrder = false;
};

std::optional<QuantizationSpec>
readCompressedTensors(FieldReader &reader, QuantizationContext &context);
/// Also reads the object of a hf_quant_config.json.
std::optional<QuantizationSpec> readModelOpt(FieldReader &reader,
                                             QuantizationContext &context);
std::optional<QuantizationSpec> readGptq(FieldReader &reader,
                                         QuantizationContext &context);
std::optional<QuantizationSpec> readAwq(FieldReader &reader,
                                        QuantizationContext &context);
std::optional<QuantizationSpec> readBitsAndBytes(FieldReader &reader,
                                                 QuantizationContext &context);

/// Refuses unknown fields, since they could change the meaning of the method.
void refuseOtherFields(FieldReader &reader, llvm::StringRef method,
                       IgnoredFields &ignored);

/// Reports the value of a field; `expected` is the supported alternative.
void refuseValue(FieldReader &reader, llvm::StringRef field,
                 const llvm::Twine &expected);

/// Type of integer group scales.
ScaleType getScaleType(DType dtype);

/// e4m3 with f32 scales.
OperandQuantization makeFp8(Granularity granularity, bool isStatic = false);

/// Expands a short name.
QuantizationSpec getMeaning(llvm::StringRef name,
                            Packing packing = Packing::Unstated);

} // namespace moec

#endif // MOEC_LIB_IMPORT_QUANTIZATIONMETHODS_H
