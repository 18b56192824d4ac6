//===- QuantizationMethods.h - what each quant_method means -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A reader for each tool that quantizes models. What a reader returns is how
// products are quantized and how the checkpoint holds it; a value that moec
// cannot honour has been reported, and a field that the reader does not know is
// for the caller to report.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_IMPORT_QUANTIZATIONMETHODS_H
#define MOEC_LIB_IMPORT_QUANTIZATIONMETHODS_H

#include "AllowList.h"
#include "FieldReader.h"

namespace moec {

/// What the readers are told beside the object `quantization_config`.
struct QuantizationContext {
  /// The layer's dtype, which scales of groups of integers have.
  DType dtype = DType::BF16;
  IgnoredFields &ignored;
  /// What a reader says beside the quantization: files have columns that belong
  /// to any group (act-order).
  bool hasColumnOrder = false;
};

std::optional<QuantizationSpec>
readCompressedTensors(FieldReader &reader, QuantizationContext &context);
/// Also the object in a hf_quant_config.json.
std::optional<QuantizationSpec> readModelOpt(FieldReader &reader,
                                             QuantizationContext &context);
std::optional<QuantizationSpec> readGptq(FieldReader &reader,
                                         QuantizationContext &context);
std::optional<QuantizationSpec> readAwq(FieldReader &reader,
                                        QuantizationContext &context);
std::optional<QuantizationSpec> readBitsAndBytes(FieldReader &reader,
                                                 QuantizationContext &context);

/// Fields that nobody knows would change what the method means.
void refuseOtherFields(FieldReader &reader, llvm::StringRef method,
                       IgnoredFields &ignored);

/// Reports a value of a field; `expected` says what is supported instead.
void refuseValue(FieldReader &reader, llvm::StringRef field,
                 const llvm::Twine &expected);

/// Scales of integers in groups.
ScaleType getScaleType(DType dtype);

/// e4m3 with f32 scales.
OperandQuantization makeFp8(Granularity granularity, bool isStatic = false);

/// The meaning of an abbreviation.
QuantizationSpec getMeaning(llvm::StringRef name,
                            Packing packing = Packing::Unstated);

} // namespace moec

#endif // MOEC_LIB_IMPORT_QUANTIZATIONMETHODS_H
