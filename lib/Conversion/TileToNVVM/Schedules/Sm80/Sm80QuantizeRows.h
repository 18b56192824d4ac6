//===- Sm80QuantizeRows.h - scales of whole rows ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80QUANTIZEROWS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80QUANTIZEROWS_H

#include "../../Quantizer.h"
#include "../../ThreadEmitter.h"
#include "moec/Analysis/Sm80.h"

namespace moec {

/// State that all quantizing threads share.
class QuantizingThreads {
public:
  QuantizingThreads(tile::QuantizeOp op, ThreadEmitter &emitter,
                    bool convertsFloat8);

protected:
  ThreadEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm80::Quantize shape;
  mlir::Value input;
  Quantizer quantizer;
  mlir::Value quantized, scale;
};

/// Number of rows to quantize (index): by offsets, or the tokens.
mlir::Value countQuantizedRows(tile::QuantizeOp op, ThreadEmitter &emitter);

/// Quantizes rows that a warp holds in registers (`sm80::Quantize::areHeld`):
/// `first`, `first + step`, ... below `rows` (index), so many at once.
void emitHeldRows(tile::QuantizeOp op, ThreadEmitter &emitter,
                  bool convertsFloat8, mlir::Value first, mlir::Value step,
                  mlir::Value rows, int64_t atOnce);

/// sm80.quantize with one scale per row, or one for all rows.
void emitRowQuantization(tile::QuantizeOp op, ThreadEmitter &emitter,
                         bool convertsFloat8);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80QUANTIZEROWS_H
