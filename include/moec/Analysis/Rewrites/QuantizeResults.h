//===- QuantizeResults.h - asked by quantize-results ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_REWRITES_QUANTIZERESULTS_H
#define MOEC_ANALYSIS_REWRITES_QUANTIZERESULTS_H

#include "moec/Analysis/Schedules.h"

namespace moec {

/// Of a schedule of products on a GPU that can quantize their results.
class QuantizesResults {
public:
  virtual ~QuantizesResults() = default;
  /// The config with which a product, which has one of this schedule,
  /// quantizes its results itself, as `quantized` does, the same product with
  /// `result_scale`; null if it cannot, or is expected to take longer than with
  /// `quantization` behind it. With `isFixed` the config that it has.
  virtual tile::ConfigAttr quantizeResult(tile::ContractOp product,
                                          tile::QuantizeOp quantization,
                                          tile::ContractOp quantized,
                                          tile::LoadAttr load, bool isFixed,
                                          const Target &target) const = 0;
};

} // namespace moec

#endif // MOEC_ANALYSIS_REWRITES_QUANTIZERESULTS_H
