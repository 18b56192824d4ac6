//===- Decode.h - stored elements and scales as f32 -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Decoders for CPUs. Each function takes i8 or a vector of it and returns f32
// of equal shape, exactly.

#ifndef MOEC_LIB_CONVERSION_TILETOVECTOR_DECODE_H
#define MOEC_LIB_CONVERSION_TILETOVECTOR_DECODE_H

#include "../Emission/KernelEmitter.h"
#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/Moe.h"

namespace moec {

mlir::Value decodeE4M3(KernelEmitter &emitter, mlir::Value bytes);
/// The powers of two 2^-127 to 2^127; 255 is NaN.
mlir::Value decodeE8M0(KernelEmitter &emitter, mlir::Value bytes);
mlir::Value decodeInteger(KernelEmitter &emitter, mlir::Value bytes,
                          bool isUnsigned);
/// 4-bit values; -0 becomes 0.
mlir::Value decodeE2M1(KernelEmitter &emitter, mlir::Value codes);
/// 4-bit indices into `book`.
mlir::Value decodeByBook(KernelEmitter &emitter, const moe::CodeBook &book,
                         mlir::Value codes);

/// Decodes elements of `quant`, without subtracting zero points. 4-bit elements
/// have one byte each.
mlir::Value decodeElements(KernelEmitter &emitter, moe::QuantAttr quant,
                           mlir::Value codes);

/// Splits bytes into 4-bit values, the low half first.
mlir::Value splitPairs(KernelEmitter &emitter, mlir::Value bytes);

/// Loads a scale of any type that `#moe.quant` allows.
mlir::Value loadScale(KernelEmitter &emitter, mlir::Value scales,
                      mlir::ValueRange indices);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETOVECTOR_DECODE_H
