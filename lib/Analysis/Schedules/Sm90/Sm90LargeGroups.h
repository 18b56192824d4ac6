//===- Sm90LargeGroups.h - large groups by themselves -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90LARGEGROUPS_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90LARGEGROUPS_H

#include "moec/Analysis/Rewrites/SplitLargeGroups.h"

namespace moec::sm90 {

/// `SplitsLargeGroups::getLargeGroupRows` of sm90.contract.
int64_t getLargeGroupRows(tile::ContractOp product, tile::LoadAttr load);

/// `SplitsLargeGroups::chooseLargeGroups` of sm90.contract.
tile::ConfigAttr chooseLargeGroupsContract(tile::ContractOp product,
                                           tile::ContractOp large,
                                           tile::LoadAttr load,
                                           const Target &target);

} // namespace moec::sm90

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90LARGEGROUPS_H
