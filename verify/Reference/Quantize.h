//===- Quantize.h - quantization of rows ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_REFERENCE_QUANTIZE_H
#define MOEC_VERIFY_REFERENCE_QUANTIZE_H

#include "moec/Reference/Tensors.h"

namespace moec::reference {

/// Quantizes and dequantizes the rows of x: `round(x / s) * s`, with rounding
/// to e4m3 or int8. Every step of the quantization is in f32, as in
/// docs/use/layers.md, and the product is exact. With granularity `tensor`, all
/// rows have `tensorScale`.
Matrix quantizeRows(const Matrix &x, const OperandQuantization &quantization,
                    float tensorScale, int threads);

/// The largest finite magnitude of x, as f32.
float findLargest(const Matrix &x);

/// The scale of a tensor with this largest magnitude.
float makeTensorScale(float largest, StorageType storage);

} // namespace moec::reference

#endif // MOEC_VERIFY_REFERENCE_QUANTIZE_H
