//===- MoeLegalizeQuant.cpp - how the target multiplies it ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "moec/Dialect/Moe/PrepackedFormat.h"
#include "moec/Dialect/Moe/Prepacking.h"
#include "moec/Dialect/Moe/QuantLayout.h"
#include "moec/Dialect/Names.h"
#include "moec/Schedules/QuantSupport.h"
#include "moec/Transforms/Passes.h"
#include "llvm/ADT/MapVector.h"

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
    kept.clear();
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
      StringAttr weight = findWeightName(op);
      InFlightDiagnostic diagnostic = op->emitOpError();
      if (weight)
        diagnostic << "of '" << weight.getValue() << "' ";
      diagnostic << "cannot be lowered: " << reason;
      return WalkResult::interrupt();
    });
    if (result.wasInterrupted())
      return signalPassFailure();
    for (auto [values, numbers] : kept)
      if (values->use_empty())
        values->erase();
  }

  /// Sets `strategy` (the strategy) of a gemm; returns the reason if there is
  /// none.
  std::string legalize(moe::GroupedMatmulOp product, const Target &target) {
    auto quantize = product.getInput().getDefiningOp<moe::QuantizeOp>();
    if (quantize && isBetterByBF16(target, QuantProduct(product)))
      takeBF16(product, quantize);
    QuantProduct quant(product);
    if (std::string reason = declineProduct(target, quant); !reason.empty())
      return reason;
    if (!quant.input && !quant.weight)
      return {};
    product.setStrategy(findStrategy(target, quant)->strategy);
    if (product.getStrategy() == moe::Strategy::Prepack)
      repack(product);
    return {};
  }

  /// Makes the gemm read its quantized rows as bf16. Other gemms may still read
  /// the quantized rows.
  void takeBF16(moe::GroupedMatmulOp product, moe::QuantizeOp quantize) {
    moe::QuantizeOp &numbers = kept[quantize];
    if (!numbers)
      numbers = keep(quantize);
    moe::QuantAttr quant = numbers.getQuantAttr();
    product.getInputMutable().assign(numbers.getQuantized());
    if (moe::areTimesScales(quant)) {
      product.getInputScaleMutable().clear();
      product.removeInputQuantAttr();
      return;
    }
    if (numbers.getScale())
      product.getInputScaleMutable().assign(numbers.getScale());
    product.setInputQuantAttr(quant);
  }

  /// Adds a quantization with the same values as another one, kept as bf16.
  static moe::QuantizeOp keep(moe::QuantizeOp quantize) {
    OpBuilder builder(quantize);
    moe::QuantAttr quant = moe::keepAsBF16(quantize.getQuant());
    auto type = cast<RankedTensorType>(quantize.getQuantized().getType());
    bool hasScale = quantize.getScale() && !moe::areTimesScales(quant);
    auto numbers = moe::QuantizeOp::create(
        builder, quantize.getLoc(), type.clone(moe::getMemoryType(quant)),
        hasScale ? quantize.getScale().getType() : Type(), quantize.getInput(),
        quantize.getOffsets(), quantize.getTensorScale(),
        quantize.getTopKAttr(), quant);
    if (auto names = quantize->getAttrOfType<ArrayAttr>(kNameAttr))
      numbers->setAttr(kNameAttr,
                       builder.getArrayAttr(names.getValue().take_front(
                           numbers->getNumResults())));
    return numbers;
  }

  /// Makes the gemm read prepacked weights.
  static void repack(moe::GroupedMatmulOp product) {
    OpBuilder builder(product);
    Value weight = product.getWeight(), scale = product.getWeightScale();
    auto type = cast<RankedTensorType>(weight.getType());
    auto rowScale = RankedTensorType::get(type.getShape().drop_back(),
                                          builder.getF32Type());
    moe::QuantAttr quant = product.getWeightQuantAttr();
    moe::Packing packing = *moe::getPrepacking(QuantProduct(product).inputType);
    moe::QuantAttr packed = moe::getPrepacked(quant, packing);
    int64_t sizeK = moe::getRowWidth(quant, type.getShape().back());
    SmallVector<int64_t> scaleShape(type.getShape());
    scaleShape.back() = moe::PrepackedFormat(packed).getRowBytes(sizeK);
    auto bytes = RankedTensorType::get(type.getShape(), builder.getI8Type());
    auto op = moe::PrepackOp::create(builder, product.getLoc(), bytes,
                                     bytes.clone(scaleShape), rowScale, weight,
                                     scale, product.getWeightZeroPoint(),
                                     product.getWeightGlobalScale(),
                                     product.getLayoutAttr(), quant, packing);
    if (auto argument = dyn_cast<BlockArgument>(weight))
      nameResults(op, argument);
    product.getWeightMutable().assign(op.getPacked());
    product.getWeightScaleMutable().assign(op.getPackedScale());
    product.getWeightZeroPointMutable().clear();
    product.getWeightGlobalScaleMutable().assign(op.getRowScale());
    product.setWeightQuantAttr(packed);
  }

  /// The name of a layer's argument; null if it has none.
  static StringAttr findName(BlockArgument argument) {
    auto func = dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp());
    return func ? func.getArgAttrOfType<StringAttr>(argument.getArgNumber(),
                                                    kNameAttr)
                : StringAttr();
  }

  /// The name of the weight of a gemm, or of the first gemm that reads the
  /// result of another op; it identifies the spec's field.
  static StringAttr findWeightName(Operation *op) {
    if (auto product = dyn_cast<moe::GroupedMatmulOp>(op)) {
      auto weight = dyn_cast<BlockArgument>(product.getWeight());
      return weight ? findName(weight) : StringAttr();
    }
    for (Operation *user : op->getUsers())
      if (isa<moe::GroupedMatmulOp, moe::QuantizeOp>(user))
        if (StringAttr name = findWeightName(user))
          return name;
    return {};
  }

  /// Names the prepacked tensors of a layer's weight, which then may not have
  /// gaps between its rows: its memory is written as a whole.
  static void nameResults(moe::PrepackOp op, BlockArgument weight) {
    if (auto func = dyn_cast<func::FuncOp>(weight.getOwner()->getParentOp()))
      func.removeArgAttr(weight.getArgNumber(), kStridedAttr);
    StringAttr name = findName(weight);
    if (!name)
      return;
    Builder builder(op.getContext());
    StringRef base = name.getValue();
    op->setAttr(kNameAttr,
                builder.getStrArrayAttr({(base + "_prepacked").str(),
                                         (base + "_prepacked_scale").str(),
                                         (base + "_row_scale").str()}));
  }

  /// For quantizations, those with the same values kept as bf16.
  llvm::MapVector<moe::QuantizeOp, moe::QuantizeOp> kept;
};

} // namespace
