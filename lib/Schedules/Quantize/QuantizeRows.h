//===- QuantizeRows.h - scales of whole rows --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_QUANTIZE_QUANTIZEROWS_H
#define MOEC_LIB_SCHEDULES_QUANTIZE_QUANTIZEROWS_H

#include "KernelBuilder/Quantizer.h"
#include "KernelBuilder/ThreadEmitter.h"
#include "Shape.h"

namespace moec {

/// State that all quantizing threads share.
class QuantizingThreads {
public:
  QuantizingThreads(tile::QuantizeOp op, ThreadEmitter &emitter,
                    bool convertsFloat8);

protected:
  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  anygpu::Quantize shape;
  mlir::Value input;
  Quantizer quantizer;
  mlir::Value quantized, scale;
};

/// Number of rows to quantize: by offsets, or the tokens.
Index countQuantizedRows(tile::QuantizeOp op, ThreadEmitter &emitter);

/// Quantizes rows that a warp holds in registers (`anygpu::Quantize::areHeld`):
/// `first`, `first + step`, ... below `rows`, so many at once.
void emitHeldRows(tile::QuantizeOp op, ThreadEmitter &emitter,
                  bool convertsFloat8, Index first, Index step, Index rows,
                  int64_t atOnce);

/// gpu.quantize with one scale per row, or one for all rows.
void emitRowQuantization(tile::QuantizeOp op, ThreadEmitter &emitter,
                         bool convertsFloat8);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_QUANTIZE_QUANTIZEROWS_H
