//===- Decode.h - stored elements and scales as f32 -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Each function takes i8 or a vector of it and returns f32 of the same shape,
// exactly.

#ifndef MOEC_LIB_CONVERSION_TILETOVECTOR_DECODE_H
#define MOEC_LIB_CONVERSION_TILETOVECTOR_DECODE_H

#include "../Emission/KernelEmitter.h"
#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Dialect/Moe/Moe.h"

namespace moec {

mlir::Value decodeE4M3(KernelEmitter &emitter, mlir::Value bytes);
/// Codes are the powers of two 2^-127 to 2^127; 255 is NaN.
mlir::Value decodeE8M0(KernelEmitter &emitter, mlir::Value bytes);
mlir::Value decodeInteger(KernelEmitter &emitter, mlir::Value bytes,
                          bool isUnsigned);
/// Codes of four bits; of -0 it makes 0.
mlir::Value decodeE2M1(KernelEmitter &emitter, mlir::Value codes);
/// Codes of four bits, of which `book` has the numbers.
mlir::Value decodeByBook(KernelEmitter &emitter, const moe::CodeBook &book,
                         mlir::Value codes);

/// Elements that `quant` describes, zero points not yet taken off. Those of
/// four bits come as one byte each.
mlir::Value decodeElements(KernelEmitter &emitter, moe::QuantAttr quant,
                           mlir::Value codes);

/// The codes in a vector of bytes, two of each: the low half first.
mlir::Value splitPairs(KernelEmitter &emitter, mlir::Value bytes);

/// One scale, of any type that `#moe.quant` has.
mlir::Value loadScale(KernelEmitter &emitter, mlir::Value scales,
                      mlir::ValueRange indices);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETOVECTOR_DECODE_H
