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

/// What all threads share that quantize.
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

/// The rows that there are to quantize (index): those that offsets say, or
/// tokens.
mlir::Value countQuantizedRows(tile::QuantizeOp op, ThreadEmitter &emitter);

/// Rows that a warp holds in registers (`sm80::Quantize::areHeld`): the warp's
/// are `first`, then `step` on, as long as they are less than `rows` (index),
/// so many at once.
void emitHeldRows(tile::QuantizeOp op, ThreadEmitter &emitter,
                  bool convertsFloat8, mlir::Value first, mlir::Value step,
                  mlir::Value rows, int64_t atOnce);

/// sm80.quantize where each row has one scale, or all have.
void emitRowQuantization(tile::QuantizeOp op, ThreadEmitter &emitter,
                         bool convertsFloat8);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80QUANTIZEROWS_H
