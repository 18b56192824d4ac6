//===- Sm90Join.h - two products in one kernel of sm90.contract -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90JOIN_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90JOIN_H

#include "moec/Analysis/Rewrites/JoinProducts.h"

namespace moec::sm90 {

/// `JoinsProducts::join` of sm90.contract.
std::optional<JoinedConfigs> joinContracts(tile::ContractOp first,
                                           tile::ContractOp second,
                                           tile::LoadAttr load, bool areFixed,
                                           const Target &target);

} // namespace moec::sm90

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90JOIN_H
