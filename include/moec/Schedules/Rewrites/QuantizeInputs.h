//===- QuantizeInputs.h - what quantize-inputs asks -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_QUANTIZEINPUTS_H
#define MOEC_SCHEDULES_REWRITES_QUANTIZEINPUTS_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A gemm schedule on a GPU whose CTAs can quantize the input rows of the gemm
/// and then wait for each other.
class QuantizesInputs {
public:
  virtual ~QuantizesInputs() = default;
  /// Reason why `quantize` cannot be the first phase of the kernel of
  /// `product`; empty if it can. Both have a config.
  virtual std::string whyApart(tile::QuantizeOp quantize, tile::GemmOp product,
                               tile::LoadAttr load) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_QUANTIZEINPUTS_H
