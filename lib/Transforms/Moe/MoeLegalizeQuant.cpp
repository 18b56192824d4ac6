//===- MoeLegalizeQuant.cpp - how the target multiplies it ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "moec/Analysis/QuantSupport.h"
#include "moec/Transforms/Passes.h"

namespace moec {
#define GEN_PASS_DEF_MOELEGALIZEQUANTPASS
#include "moec/Transforms/Passes.h.inc"
} // namespace moec

using namespace mlir;
using namespace moec;

namespace {

struct MoeLegalizeQuant
    : moec::impl::MoeLegalizeQuantPassBase<MoeLegalizeQuant> {
  using MoeLegalizeQuantPassBase::MoeLegalizeQuantPassBase;

  void runOnOperation() override {
    std::optional<Target> found =
        Target::findFor(getOperation(), "moe-legalize-quant", target);
    if (!found)
      return signalPassFailure();
    WalkResult result = getOperation().walk([&](Operation *op) {
      std::string reason;
      if (auto product = dyn_cast<moe::GroupedMatmulOp>(op))
        reason = legalize(product, *found);
      else if (auto quantize = dyn_cast<moe::QuantizeOp>(op))
        reason = declineQuantize(*found, quantize.getQuant());
      else if (auto scale = dyn_cast<moe::TensorScaleOp>(op))
        reason = declineQuantize(*found, scale.getQuant());
      if (reason.empty())
        return WalkResult::advance();
      op->emitOpError("cannot be lowered: ") << reason;
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      signalPassFailure();
  }

  /// Sets the way of a product; returns why there is none.
  static std::string legalize(moe::GroupedMatmulOp product,
                              const Target &target) {
    moe::QuantAttr input = product.getInputQuantAttr(),
                   weight = product.getWeightQuantAttr();
    if (std::string reason = declineProduct(target, input, weight);
        !reason.empty())
      return reason;
    if (input || weight)
      product.setWay(findWay(target, input, weight)->way);
    return {};
  }
};

} // namespace
