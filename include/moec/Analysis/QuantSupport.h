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

/// What quantized operands are multiplied as.
struct QuantProduct {
  explicit QuantProduct(moe::GroupedMatmulOp op);

  /// Null where an operand is not quantized.
  moe::QuantAttr input, weight;
  /// The type of an input in memory.
  mlir::Type inputType;
  /// The size of a matrix of weights, in elements.
  int64_t rows, depth;
  moe::WeightLayoutAttr layout;
};

/// The way of a target for such a product; none where it has none.
std::optional<ProductWay> findWay(const Target &target,
                                  const QuantProduct &product);

/// Why a target takes that way, where it takes it.
llvm::StringRef getReason(const Target &target, moe::Way way);

/// Whether a target would multiply such operands faster, or at all without
/// decoding them ahead, if the codes of rows were kept as bf16; and why so.
bool isBetterByBF16(const Target &target, const QuantProduct &product);
llvm::StringRef getReasonForBF16();

/// Why a target cannot multiply such operands, and what to use instead; empty
/// if it can.
std::string declineProduct(const Target &target, const QuantProduct &product);

/// Why a target cannot quantize rows so, or find the scale of a tensor, and
/// what to use instead; empty if it can.
std::string declineQuantize(const Target &target, moe::QuantAttr quant);

} // namespace moec

#endif // MOEC_ANALYSIS_QUANTSUPPORT_H
