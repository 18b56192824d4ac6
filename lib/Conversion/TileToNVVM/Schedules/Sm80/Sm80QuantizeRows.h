//===- Sm80QuantizeRows.h - scales of whole rows ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80QUANTIZEROWS_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80QUANTIZEROWS_H

#include "../../ThreadEmitter.h"

namespace moec {

/// The rows that there are to quantize (index): those that offsets say, or
/// tokens.
mlir::Value countQuantizedRows(tile::QuantizeOp op, ThreadEmitter &emitter);

/// sm80.quantize where each row has one scale.
void emitRowQuantization(tile::QuantizeOp op, ThreadEmitter &emitter,
                         bool convertsFloat8);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM80_SM80QUANTIZEROWS_H
