//===- Cost.h - how long the schedules of adapters take ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_LORA_COST_H
#define MOEC_LIB_SCHEDULES_LORA_COST_H

#include "moec/Schedules/Cost.h"

namespace moec::lora {

/// Rows of a call by expert and adapter. All adapters are assumed to have as
/// many tokens.
struct PairCounts {
  /// `rowsOfPart` is a multiple of 8.
  PairCounts(tile::LoadAttr load, int64_t groups, int64_t adapters,
             int64_t tokens, Routing routing, int64_t rowsOfPart = 16);

  /// Pairs that have rows; all of their rows; their parts.
  double pairs = 0, rows = 0, parts = 0;
};

/// `PredictsTime::predict` of gpu.lora_tile, gpu.lora_parts and
/// gpu.lora_update.
double predictShrink(tile::LoraShrinkOp op, tile::LoadAttr load, int64_t tokens,
                     Routing routing, const DeviceRates &device);
double predictParts(tile::LoraShrinkOp op, tile::LoadAttr load, int64_t tokens,
                    Routing routing, const DeviceRates &device);
double predictUpdate(tile::LoraUpdateOp op, tile::LoadAttr load, int64_t tokens,
                     Routing routing, const DeviceRates &device);

} // namespace moec::lora

#endif // MOEC_LIB_SCHEDULES_LORA_COST_H
