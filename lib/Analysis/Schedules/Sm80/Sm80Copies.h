//===- Sm80Copies.h - how long kernels take that copy rows ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80COPIES_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80COPIES_H

#include "moec/Analysis/Cost.h"

namespace moec::sm80 {

/// `PredictsTime::predict` of sm80.quantize.
double predictQuantize(tile::QuantizeOp op, tile::LoadAttr load, int64_t tokens,
                       Routing routing, const DeviceRates &device);

/// `PredictsTime::predict` of sm80.gather_rows.
double predictGatherRows(tile::GatherRowsOp op, tile::LoadAttr load,
                         int64_t tokens, Routing routing,
                         const DeviceRates &device);

} // namespace moec::sm80

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM80_SM80COPIES_H
