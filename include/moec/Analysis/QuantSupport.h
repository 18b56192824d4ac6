//===- QuantSupport.h - which quantizations a target multiplies -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_QUANTSUPPORT_H
#define MOEC_ANALYSIS_QUANTSUPPORT_H

#include "moec/Analysis/Schedules.h"
#include "moec/Dialect/Moe/QuantLayout.h"

namespace moec {

/// How a target multiplies quantized operands, and why so.
struct ProductWay {
  moe::Way way;
  llvm::StringRef reason;
};

/// The way of a target for such operands, of which one may be null; none where
/// it has none.
std::optional<ProductWay> findWay(const Target &target, moe::QuantAttr input,
                                  moe::QuantAttr weight);

/// Why a target cannot multiply such operands, null where one is not
/// quantized, and what to use instead; empty if it can.
std::string declineProduct(const Target &target, moe::QuantAttr input,
                           moe::QuantAttr weight);

/// Why a target cannot quantize rows so, or find the scale of a tensor, and
/// what to use instead; empty if it can.
std::string declineQuantize(const Target &target, moe::QuantAttr quant);

} // namespace moec

#endif // MOEC_ANALYSIS_QUANTSUPPORT_H
