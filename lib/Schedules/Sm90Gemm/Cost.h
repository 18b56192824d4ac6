//===- Cost.h - how long the schedules sm90.* take --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_COST_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_COST_H

#include "moec/Schedules/Cost.h"

namespace moec::sm90 {

/// Lines of an epilogue for a scale of whole rows. Beside two such scales the
/// rest may be as short as `ptxas::kShortEpilogue`
/// (ScalesOfRowsFitInRegisters).
constexpr int64_t kScaleLines = 3;

/// Estimated lines of PTX per result in the epilogue.
int64_t estimateEpilogue(tile::GemmOp op);

/// Issue clocks of an SM to decode a packed tile of weights into registers; 0
/// for weights that are not prepacked.
double getDecodeClk(tile::GemmOp op, const DeviceRates &device);

/// The mean of max(0, ceil(x / width)) for normally distributed integers x.
double meanCeil(double mean, double variance, double width);

/// The cost model of sm90.gemm and gpu.gemv.
std::unique_ptr<CostModel>
makeGemmCost(mlir::Operation *op, tile::LoadAttr load, const Target &target);

/// `CountsIds::predictSaved` of sm90.gemm.
double predictCounting(int64_t ids, const DeviceRates &device);

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_COST_H
