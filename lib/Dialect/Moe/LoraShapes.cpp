//===- LoraShapes.cpp - rules of ops on adapters ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Dialect/Moe/PipelineShapes.h"

using namespace mlir;

namespace moec::moe {

namespace {

/// Names of the dimensions of a matrix.
struct MatrixDims {
  StringRef rows, columns;
};

} // namespace

/// Verifies what both ops have, and that matrices agree in all dimensions.
/// `expected` is that of the first one.
static LogicalResult verifyMatrices(const OperandChecker &check,
                                    const LoraOperands &o, StringRef list,
                                    MatrixDims names) {
  if (o.topK < 1)
    return check.error("'top_k' is ") << o.topK << "; at least 1 is accepted";
  if (o.matrices.empty())
    return check.error("has no matrices; give at least one in '" + list + "'");
  if (failed(check.checkShape("offsets", o.offsets, {{"(groups + 1)"}})) ||
      failed(check.checkShape("source", o.source, {positionsDim()})) ||
      failed(check.checkShape("adapter_ids", o.adapterIds, {tokensDim()})))
    return failure();
  Dim groups{"groups", getDim(o.offsets, 0) - 1};
  SmallVector<Dim> dims{{"adapters"}, groups, {names.rows}, {names.columns}};
  for (auto [i, matrix] : llvm::enumerate(o.matrices)) {
    std::string name = nameOf(list, i);
    if (failed(check.checkShape(name, matrix, dims)))
      return failure();
    for (auto [d, dim] : llvm::enumerate(dims))
      dim.size = getDim(matrix, d);
    if (failed(check.checkElement(name, matrix,
                                  getElementType(o.matrices.front()),
                                  "like " + nameOf(list, 0))))
      return failure();
  }
  return success();
}

LogicalResult verifyLoraShrink(Operation *op, const LoraOperands &o,
                               Value result, bool gathers) {
  OperandChecker check(op);
  if (failed(verifyMatrices(check, o, "a", {"rank", "width"})))
    return failure();
  Value first = o.matrices.front();
  Dim width{"width", getDim(first, 3)};
  int64_t columns = getDim(first, 2) * int64_t(o.matrices.size());
  return failure(
      failed(check.checkShape(
          "input", o.input, {gathers ? tokensDim() : positionsDim(), width})) ||
      failed(check.checkElement("input", o.input, getElementType(first),
                                "like a[0]")) ||
      failed(check.checkShape(
          "result", result, {positionsDim(), {"(matrices * rank)", columns}})));
}

LogicalResult verifyLoraExpand(Operation *op, const LoraOperands &o,
                               ValueRange results) {
  OperandChecker check(op);
  if (failed(verifyMatrices(check, o, "b", {"columns", "rank"})))
    return failure();
  Value first = o.matrices.front();
  int64_t columns = getDim(first, 3) * int64_t(o.matrices.size());
  if (failed(check.checkShape(
          "input", o.input, {positionsDim(), {"(matrices * rank)", columns}})))
    return failure();
  if (results.size() != o.matrices.size())
    return check.error("has ")
           << results.size() << " results, but " << o.matrices.size()
           << " matrices; give as many results";
  for (auto [i, result] : llvm::enumerate(results))
    if (failed(
            check.checkShape(nameOf("results", i), result,
                             {positionsDim(), {"columns", getDim(first, 2)}})))
      return failure();
  return success();
}

} // namespace moec::moe
