//===- QuantSupport.h - which quantizations a target multiplies -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_QUANTSUPPORT_H
#define MOEC_SCHEDULES_QUANTSUPPORT_H

#include "Schedules.h"
#include "moec/Dialect/Moe/QuantLayout.h"

namespace moec {

/// The strategy by which a target multiplies quantized operands, with the
/// reason.
struct ProductStrategy {
  moe::Strategy strategy;
  llvm::StringRef reason;
};

/// Properties of a gemm with quantized operands that decide how it is
/// multiplied.
struct QuantProduct {
  explicit QuantProduct(moe::GroupedMatmulOp op);

  /// Null for an operand that is not quantized.
  moe::QuantAttr input, weight;
  /// The stored type of the input.
  mlir::Type inputType;
  /// Elements of a weight matrix.
  int64_t rows, sizeK;
  moe::WeightLayoutAttr layout;
};

/// The target's strategy for such a gemm; no value if it has none.
std::optional<ProductStrategy> findStrategy(const Target &target,
                                            const QuantProduct &product);

/// Reason why a target uses that strategy.
llvm::StringRef getReason(const Target &target, moe::Strategy strategy);

/// Whether quantized rows should be dequantized to bf16, because the target
/// then multiplies such operands faster or without decoding them ahead; and the
/// reason.
bool isBetterByBF16(const Target &target, const QuantProduct &product);
llvm::StringRef getReasonForBF16();

/// Reason why a target cannot multiply such operands, and an alternative; empty
/// if it can.
std::string declineProduct(const Target &target, const QuantProduct &product);

/// Reason why a target cannot quantize rows in this way, or compute the scale
/// of a tensor, and an alternative; empty if it can.
std::string declineQuantize(const Target &target, moe::QuantAttr quant);

} // namespace moec

#endif // MOEC_SCHEDULES_QUANTSUPPORT_H
