//===- TopKStored.h - routing with rows in scratch memory -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_EMISSION_TOPKSTORED_H
#define MOEC_LIB_CONVERSION_EMISSION_TOPKSTORED_H

#include "TopKEmission.h"

namespace moec {

/// Routing with the values and keys of a row in scratch memory.
class TopKStored : public TopKEmission {
public:
  TopKStored(tile::TopKOp op, KernelEmitter &emitter, int64_t lanes);

private:
  mlir::Value readRow(mlir::Value token) override;
  /// Stores exp(score - max) to `values`; returns the sum, in all lanes.
  mlir::Value softmaxRow(mlir::Value token);

  // Selects, with a value per slot in `chosen` and `scales`.
  void select(mlir::Value token) override;
  void selectBest(mlir::Value token, mlir::Value firstSlot, int64_t count,
                  mlir::Value begin, mlir::Value end);
  void selectByHash(mlir::Value token);
  void selectSparseMixer(mlir::Value token);
  mlir::Value mixerSum(mlir::Value largest);
  void take(mlir::Value token, mlir::Value slot, mlir::Value position,
            mlir::Value value);

  void weighRow(mlir::Value token) override;

  KeyTable keys;
  /// Lanes of the vector that holds all slots of a token.
  int64_t slotLanes;
  /// Scratch: f32 per position, and f32 per slot.
  mlir::Value values, chosen, scales;
};

} // namespace moec

#endif // MOEC_LIB_CONVERSION_EMISSION_TOPKSTORED_H
