//===- LargeGroups.h - large groups by themselves ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_LARGEGROUPS_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_LARGEGROUPS_H

#include "moec/Schedules/Rewrites/SplitLargeGroups.h"

namespace moec::sm90 {

/// `SplitsLargeGroups::getLargeGroupRows` of sm90.gemm.
int64_t getLargeGroupRows(tile::GemmOp product, tile::LoadAttr load);

/// `SplitsLargeGroups::chooseLargeGroups` of sm90.gemm.
tile::ConfigAttr chooseLargeGroupsGemm(tile::GemmOp product, tile::GemmOp large,
                                       tile::LoadAttr load,
                                       const Target &target);

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_LARGEGROUPS_H
