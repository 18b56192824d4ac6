//===- Join.h - two products in one kernel of sm90.gemm ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_JOIN_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_JOIN_H

#include "moec/Schedules/Rewrites/JoinProducts.h"

namespace moec::sm90 {

/// `JoinsProducts::join` of sm90.gemm.
std::optional<JoinedConfigs> joinGemms(tile::GemmOp first, tile::GemmOp second,
                                       tile::LoadAttr load, bool areFixed,
                                       bool mayCopyScales,
                                       const Target &target);

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_JOIN_H
