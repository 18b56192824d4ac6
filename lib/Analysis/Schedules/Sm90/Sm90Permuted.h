//===- Sm90Permuted.h - products whose rows are in order --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90PERMUTED_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90PERMUTED_H

#include "moec/Analysis/Rewrites/PermuteRows.h"

namespace moec::sm90 {

/// `PermutesRows::permuteRows` of sm90.contract.
tile::ConfigAttr permuteContract(tile::ContractOp product,
                                 tile::GatherRowsOp gather,
                                 tile::ContractOp permuted, tile::LoadAttr load,
                                 bool isFixed, bool always,
                                 const Target &target);

} // namespace moec::sm90

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90PERMUTED_H
