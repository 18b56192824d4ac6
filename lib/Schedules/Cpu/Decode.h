//===- Decode.h - stored elements and scales as f32 -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Decoders for CPUs. Each function takes i8 or a vector of it and returns f32
// of equal shape, exactly.

#ifndef MOEC_LIB_SCHEDULES_CPU_DECODE_H
#define MOEC_LIB_SCHEDULES_CPU_DECODE_H

#include "KernelBuilder/KernelEmitter.h"
#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/Moe.h"

namespace moec {

using I8 = IntegerValue<int8_t>;

F32 decodeE4M3(I8 bytes);
/// The powers of two 2^-127 to 2^127; 255 is NaN.
F32 decodeE8M0(I8 bytes);
F32 decodeInteger(I8 bytes, bool isUnsigned);
/// 4-bit values; -0 becomes 0.
F32 decodeE2M1(I8 values);
/// 4-bit indices into `book`.
F32 decodeByBook(KernelEmitter &emitter, const moe::CodeBook &book, I8 values);

/// Decodes elements of `quant`, without subtracting zero points. 4-bit elements
/// have one byte each.
F32 decodeElements(KernelEmitter &emitter, moe::QuantAttr quant, I8 values);

/// Splits bytes into 4-bit values, the low half first.
I8 splitPairs(I8 bytes);

/// Loads a scale of any type that `#moe.quant` allows.
F32 loadScale(KernelEmitter &emitter, mlir::Value scales,
              mlir::ValueRange indices);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_CPU_DECODE_H
