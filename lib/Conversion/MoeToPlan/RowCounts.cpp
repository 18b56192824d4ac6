//===- RowCounts.cpp - numbers of rows that must agree ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Types of tensors with a dynamic first dimension do not distinguish a row for
// each token from one for each slot of a token. Kernels that read the one as
// the other would read behind the end of a buffer.
//
//===----------------------------------------------------------------------===//

#include "LayerFunction.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace moec;
using namespace moec::moe;

namespace {

/// Compares the rows of an op's operands, and remembers the first that differ.
class RowChecker {
public:
  RowChecker(Operation &op, const llvm::DenseMap<Value, moert::Expr> &rows)
      : op(op), rows(rows) {}

  /// `value`, operand `name`, has `expected` rows if it has dynamic ones.
  void require(const Twine &name, Value value,
               const std::optional<moert::Expr> &expected, const Twine &like) {
    std::optional<moert::Expr> found = count(value);
    if (failed(result) || !found || !expected || *found == *expected)
      return;
    result = op.emitOpError("operand '")
             << name << "' has " << found->str() << " rows, but " << like
             << " has " << expected->str()
             << "; give both rows of the same tokens or slots";
  }
  void require(StringRef name, ValueRange values,
               const std::optional<moert::Expr> &expected, const Twine &like) {
    for (auto [i, value] : llvm::enumerate(values))
      require(name + "[" + Twine(i) + "]", value, expected, like);
  }
  /// The positions of sorted rows are `top_k` for each token.
  void requireTopK(std::optional<int64_t> topK, Value positions,
                   const moert::Expr &tokens) {
    std::optional<moert::Expr> found = count(positions);
    if (failed(result) || !topK || !found ||
        *found == moert::Expr(tokens) * *topK)
      return;
    result = op.emitOpError("has top_k = ")
             << *topK << " for " << found->str() << " positions of "
             << tokens.str() << " tokens; give the number of slots of a token";
  }

  std::optional<moert::Expr> count(Value value) const {
    auto found = value ? rows.find(value) : rows.end();
    return found == rows.end() ? std::nullopt : std::optional(found->second);
  }
  LogicalResult get() const { return result; }

private:
  Operation &op;
  const llvm::DenseMap<Value, moert::Expr> &rows;
  LogicalResult result = success();
};

} // namespace

LogicalResult LayerFunction::checkRows(Operation &op) const {
  RowChecker check(op, rows);
  /// Rows that are sorted by expert, and what `source` counts.
  auto checkSorted = [&](Value offsets, Value source, Value input) {
    auto permute = offsets ? offsets.getDefiningOp<PermuteOp>() : PermuteOp();
    auto sources = source ? source.getDefiningOp<PermuteOp>() : PermuteOp();
    if (permute)
      check.require(source ? "source" : "input", source ? source : input,
                    check.count(permute.getSource()),
                    "the moe.permute of its offsets");
    if (sources)
      check.require("input", input, check.count(sources.getIds()),
                    "the tensor of ids behind its source");
  };
  TypeSwitch<Operation *>(&op)
      .Case([&](RouteOp route) {
        auto count = check.count(route.getLogits());
        check.require("input_ids", route.getInputIds(), count, "'logits'");
        check.require("is_padding", route.getIsPadding(), count, "'logits'");
        check.require("given", route.getGivenIds(), count, "'logits'");
      })
      .Case([&](PermuteOp permute) {
        check.require("weights", permute.getWeights(),
                      check.count(permute.getIds()), "'ids'");
      })
      .Case([&](GroupedMatmulOp gemm) {
        checkSorted(gemm.getOffsets(), gemm.getSource(), gemm.getInput());
        Value row = gemm.getSource() ? gemm.getSource() : gemm.getInput();
        StringRef like = gemm.getSource() ? "'source'" : "'input'";
        auto count = check.count(row);
        check.require("input_scale", gemm.getInputScale(),
                      check.count(gemm.getInput()), "'input'");
        check.require("rows", gemm.getRowOperands(), count, like);
        check.require("elementwise", gemm.getElementwiseOperands(), count,
                      like);
        check.require("shrunk", gemm.getShrunk(), count, like);
        check.require("adapters", gemm.getAdapters(), count, like);
      })
      .Case([&](PlaceIdsOp place) {
        check.require("is_padding", place.getIsPadding(),
                      check.count(place.getIds()), "'ids'");
      })
      .Case([&](GatherRowsOp gather) {
        checkSorted(gather.getOffsets(), gather.getSource(), gather.getInput());
        check.requireTopK(gather.getTopK(), gather.getSource(),
                          rowTokens.lookup(gather.getSource()));
      })
      .Case([&](RowMapOp map) {
        auto count = check.count(map.getInput());
        check.require("rows", map.getRowOperands(), count, "'input'");
        check.require("elementwise", map.getElementwiseOperands(), count,
                      "'input'");
      })
      .Case([&](RmsNormOp norm) {
        checkSorted(norm.getOffsets(), Value(), norm.getInput());
        check.require("rows", norm.getRowWeight(), check.count(norm.getInput()),
                      "'input'");
      })
      .Case([&](LoraShrinkOp shrink) {
        Value source = shrink.getSource();
        checkSorted(shrink.getOffsets(), source,
                    shrink.getGather() ? shrink.getInput() : Value());
        if (!shrink.getGather())
          check.require("input", shrink.getInput(), check.count(source),
                        "'source'");
        check.require("adapter_ids", shrink.getAdapterIds(),
                      rowTokens.lookup(source), "the batch of its source");
        check.requireTopK(shrink.getTopK(), source, rowTokens.lookup(source));
      })
      .Case([&](TensorScaleOp scale) {
        checkSorted(scale.getOffsets(), Value(), scale.getInput());
        check.require("is_padding", scale.getIsPadding(),
                      check.count(scale.getInput()), "'input'");
      })
      .Case([&](QuantizeOp quantize) {
        checkSorted(quantize.getOffsets(), Value(), quantize.getInput());
      })
      .Case([&](UnpermuteOp sum) {
        auto tokens = check.count(sum.getPosition());
        if (auto permute = sum.getPosition().getDefiningOp<PermuteOp>();
            permute && !sum.getFromUnreduced())
          check.require("rows", sum.getRows(), check.count(permute.getSource()),
                        "the moe.permute of its positions");
        if (sum.getFromUnreduced())
          check.require("rows", sum.getRows(), tokens, "'position'");
        check.require("identity", sum.getIdentity(), tokens, "'position'");
        check.require("identity_weights", sum.getIdentityWeights(), tokens,
                      "'position'");
        check.require("addend", sum.getAddend(), tokens, "'position'");
      });
  return check.get();
}
