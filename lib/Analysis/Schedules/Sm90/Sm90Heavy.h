//===- Sm90Heavy.h - groups with many rows by themselves --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90HEAVY_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90HEAVY_H

#include "moec/Analysis/Rewrites/SplitHeavy.h"

namespace moec::sm90 {

/// `SplitsHeavy::getHeavyRows` of sm90.contract.
int64_t getHeavyRows(tile::ContractOp product, tile::LoadAttr load);

/// `SplitsHeavy::chooseHeavy` of sm90.contract.
tile::ConfigAttr chooseHeavyContract(tile::ContractOp product,
                                     tile::ContractOp heavy,
                                     tile::LoadAttr load, const Target &target);

} // namespace moec::sm90

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90HEAVY_H
