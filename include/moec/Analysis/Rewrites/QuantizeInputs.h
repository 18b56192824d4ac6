//===- QuantizeInputs.h - what quantize-inputs asks -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_REWRITES_QUANTIZEINPUTS_H
#define MOEC_ANALYSIS_REWRITES_QUANTIZEINPUTS_H

#include "moec/Analysis/Schedules.h"

namespace moec {

/// A gemm schedule on a GPU whose CTAs can quantize the rows that they all
/// multiply, and wait for each other.
class QuantizesInputs {
public:
  virtual ~QuantizesInputs() = default;
  /// Reason why `quantize` cannot be the first phase of the kernel of
  /// `product`; empty if it can. Both have a config.
  virtual std::string whyApart(tile::QuantizeOp quantize,
                               tile::ContractOp product,
                               tile::LoadAttr load) const = 0;
};

} // namespace moec

#endif // MOEC_ANALYSIS_REWRITES_QUANTIZEINPUTS_H
