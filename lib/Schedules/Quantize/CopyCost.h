//===- CopyCost.h - how long kernels take that copy rows --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_QUANTIZE_COPYCOST_H
#define MOEC_LIB_SCHEDULES_QUANTIZE_COPYCOST_H

#include "moec/Schedules/Cost.h"

namespace moec::anygpu {

/// `PredictsTime::predict` of gpu.quantize.
double predictQuantize(tile::QuantizeOp op, tile::LoadAttr load, int64_t tokens,
                       Routing routing, const DeviceRates &device);

/// `PredictsTime::predict` of gpu.gather_rows.
double predictGatherRows(tile::GatherRowsOp op, tile::LoadAttr load,
                         int64_t tokens, Routing routing,
                         const DeviceRates &device);

} // namespace moec::anygpu

#endif // MOEC_LIB_SCHEDULES_QUANTIZE_COPYCOST_H
