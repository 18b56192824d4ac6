//===- Sm90Quantized.h - products that quantize their results ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90QUANTIZED_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90QUANTIZED_H

#include "moec/Analysis/Rewrites/QuantizeResults.h"

namespace moec::sm90 {

/// `QuantizesResults::quantizeResult` of sm90.contract.
tile::ConfigAttr quantizeContract(tile::ContractOp product,
                                  tile::QuantizeOp quantization,
                                  tile::ContractOp quantized,
                                  tile::LoadAttr load, bool isFixed,
                                  const Target &target);

} // namespace moec::sm90

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90QUANTIZED_H
