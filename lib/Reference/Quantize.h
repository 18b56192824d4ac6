//===- Quantize.h - rows as codes with scales -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_REFERENCE_QUANTIZE_H
#define MOEC_LIB_REFERENCE_QUANTIZE_H

#include "moec/Reference/Tensors.h"

namespace moec::reference {

/// What the codes of the quantized rows of x stand for: `code(x / s) * s` with
/// codes of e4m3 or int8, every step of the quantization in f32, as
/// docs/layers.md has it, and an exact product. All rows have `tensorScale`
/// with granularity `tensor`.
Matrix quantizeRows(const Matrix &x, const OperandQuantization &quantization,
                    float tensorScale, int threads);

/// The largest finite magnitude of x, as f32.
float findLargest(const Matrix &x);

/// The scale of a tensor with that one.
float makeTensorScale(float largest, StorageType storage);

} // namespace moec::reference

#endif // MOEC_LIB_REFERENCE_QUANTIZE_H
