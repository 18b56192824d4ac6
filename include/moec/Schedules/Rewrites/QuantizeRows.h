//===- QuantizeRows.h - what quantize-rows asks -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_QUANTIZEROWS_H
#define MOEC_SCHEDULES_REWRITES_QUANTIZEROWS_H

#include "moec/Schedules/Schedules.h"

namespace moec {

/// A gemm schedule on a GPU whose threads can quantize the input rows that they
/// copy (`quantizes_input`).
class QuantizesRows {
public:
  virtual ~QuantizesRows() = default;
  /// Reason why no config of `product` quantizes rows so by its `input_quant`;
  /// empty if one may.
  virtual std::string whyNotQuantized(tile::GemmOp product) const = 0;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_QUANTIZEROWS_H
