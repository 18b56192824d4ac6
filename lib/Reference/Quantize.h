//===- Quantize.h - rows as e4m3 with scales --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_REFERENCE_QUANTIZE_H
#define MOEC_LIB_REFERENCE_QUANTIZE_H

#include "moec/Reference/Tensors.h"

namespace moec::reference {

/// Neighbours that share a scale in block fp8, along either dimension.
constexpr int64_t kScaleBlock = 128;

/// What the codes of the quantized rows of x stand for: `e4m3(x / s) * s`, with
/// every step of the quantization in f32, as docs/layers.md has it, and an
/// exact product.
Matrix quantizeRows(const Matrix &x, int threads);

} // namespace moec::reference

#endif // MOEC_LIB_REFERENCE_QUANTIZE_H
