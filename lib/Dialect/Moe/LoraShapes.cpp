//===- LoraShapes.cpp - rules of operands of adapters -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/PipelineShapes.h"

using namespace mlir;

namespace moec::moe {

/// Verifies the matrices of the operand list `list`, which agree in type. Sizes
/// that are not given are those of the first one.
static LogicalResult verifyMatrices(const OperandChecker &check, StringRef list,
                                    ValueRange matrices,
                                    SmallVector<Dim> dims) {
  for (auto [i, matrix] : llvm::enumerate(matrices)) {
    std::string name = nameOf(list, i);
    if (failed(check.checkShape(name, matrix, dims)))
      return failure();
    for (auto [d, dim] : llvm::enumerate(dims))
      dim.size = getDim(matrix, d);
    if (failed(check.checkElement(name, matrix,
                                  getElementType(matrices.front()),
                                  "like " + nameOf(list, 0))))
      return failure();
  }
  return success();
}

/// Verifies the operands of both halves: rows, tables and first matrices.
template <typename OperandsT>
static LogicalResult verifyFirst(const OperandChecker &check,
                                 const OperandsT &o, ValueRange matrices) {
  if (o.topK < 1)
    return check.error("'top_k' is ") << o.topK << "; at least 1 is accepted";
  if (matrices.empty())
    return check.error("has no matrices; give at least one in 'a'");
  if (failed(check.checkShape("offsets", o.offsets, {{"(groups + 1)"}})) ||
      failed(check.checkShape("source", o.source, {positionsDim()})) ||
      failed(check.checkShape("adapter_ids", o.adapterIds, {tokensDim()})) ||
      failed(verifyMatrices(check, "a", matrices,
                            {{"adapters"},
                             {"groups", getDim(o.offsets, 0) - 1},
                             {"rank"},
                             {"width"}})))
    return failure();
  Value first = matrices.front();
  Dim row = o.gathers ? tokensDim() : positionsDim();
  return failure(failed(check.checkShape("input", o.input,
                                         {row, {"width", getDim(first, 3)}})) ||
                 failed(check.checkElement(
                     "input", o.input, getElementType(first), "like a[0]")));
}

/// Verifies rows times first matrices: f32, or rounded to the matrices' type.
static LogicalResult verifyShrunk(const OperandChecker &check, StringRef name,
                                  Value shrunk, Value matrix, Dim width) {
  if (!getElementType(shrunk).isF32() &&
      failed(check.checkElement(name, shrunk, getElementType(matrix),
                                "like the matrices, or f32")))
    return failure();
  return check.checkShape(name, shrunk, {positionsDim(), width});
}

LogicalResult verifyLoraShrink(Operation *op, const LoraShrinkOperands &o) {
  OperandChecker check(op);
  if (failed(verifyFirst(check, o, o.matrices)))
    return failure();
  Dim columns{"(matrices * rank)",
              getDim(o.matrices.front(), 2) * int64_t(o.matrices.size())};
  return failure(failed(verifyShrunk(check, "result", o.result,
                                     o.matrices.front(), columns)) ||
                 failed(check.checkShape("adapter", o.adapter,
                                         {positionsDim(), {"1", 1}})));
}

LogicalResult verifyLoraUpdate(Operation *op, const LoraUpdateOperands &o) {
  OperandChecker check(op);
  if (failed(verifyFirst(check, o, o.first)))
    return failure();
  if (o.second.size() != o.first.size() || o.results.size() != o.first.size())
    return check.error("has ")
           << o.first.size() << " matrices in 'a', " << o.second.size()
           << " in 'b' and " << o.results.size() << " outs; give as many";
  Value first = o.first.front();
  if (failed(verifyMatrices(check, "b", o.second,
                            {{"adapters", getDim(first, 0)},
                             {"groups", getDim(first, 1)},
                             {"columns"},
                             {"rank", getDim(first, 2)}})))
    return failure();
  Dim columns{"columns", getDim(o.second.front(), 2)};
  for (auto [i, result] : llvm::enumerate(o.results))
    if (failed(check.checkShape(nameOf("outs", i), result,
                                {positionsDim(), columns})))
      return failure();
  return success();
}

LogicalResult verifyLoraExpand(Operation *op, const MatmulOperands &o,
                               int64_t groups, int64_t columns) {
  OperandChecker check(op);
  if (bool(o.shrunk) != bool(o.adapters) ||
      bool(o.shrunk) == o.matrices.empty())
    return check.error("takes 'shrunk', 'adapters' and 'b' together");
  if (!o.shrunk)
    return success();
  if (groups == 0)
    return check.error("takes 'shrunk' with 'offsets' only, whose groups have "
                       "adapters");
  size_t expected = o.isPaired() ? 2 : 1;
  if (o.matrices.size() != expected)
    return check.error("has ")
           << o.matrices.size() << " matrices in 'b'; give " << expected
           << (o.isPaired() ? ", for gate and up" : "");
  if (failed(verifyMatrices(
          check, "b", o.matrices,
          {{"adapters"}, {"groups", groups}, {"columns", columns}, {"rank"}})))
    return failure();
  Dim width{"(matrices * rank)",
            getDim(o.matrices.front(), 3) * int64_t(expected)};
  return failure(failed(verifyShrunk(check, "shrunk", o.shrunk,
                                     o.matrices.front(), width)) ||
                 failed(check.checkShape("adapters", o.adapters,
                                         {positionsDim(), {"1", 1}})));
}

} // namespace moec::moe
