//===- Cost.h - expected time of a gemm on the CPU --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_CPU_COST_H
#define MOEC_LIB_SCHEDULES_CPU_COST_H

#include "moec/Schedules/Cost.h"
#include "moec/Schedules/Device.h"

namespace moec::cpu {

/// `PredictsHostTime::predict` of `cpu.gemm`.
Prediction predictGemm(tile::GemmOp op, tile::CpuGemmAttr config, double bytes,
                       double operations, double readBytes, int64_t tokens,
                       int64_t topK, const HostRates &host);

} // namespace moec::cpu

#endif // MOEC_LIB_SCHEDULES_CPU_COST_H
