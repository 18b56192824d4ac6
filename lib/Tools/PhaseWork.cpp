//===- PhaseWork.cpp - least work of a phase --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PhaseWork.h"

#include "moec/Dialect/Tile/Tile.h"

#include <cmath>

using namespace mlir;
using namespace moec;

namespace {

double getElementBytes(Value memref) {
  return cast<MemRefType>(memref.getType()).getElementTypeBitWidth() / 8.0;
}

/// The matrices of the adapters of `slots` slots, each read once.
double getAdapterBytes(ValueRange matrices, double slots) {
  double bytes = 0;
  for (Value matrix : matrices) {
    ArrayRef<int64_t> shape = cast<MemRefType>(matrix.getType()).getShape();
    bytes += std::min(slots, double(shape[0] * shape[1])) *
             double(shape[2] * shape[3]) * getElementBytes(matrix);
  }
  return bytes;
}

/// Elements per row of a memref: the product of all dimensions but the first.
int64_t getRowElements(Value memref) {
  return ShapedType::getNumElements(
      cast<MemRefType>(memref.getType()).getShape().drop_front());
}

double getRowBytes(Value memref) {
  return getElementBytes(memref) * double(getRowElements(memref));
}

/// The expected number of experts that `tokens` tokens reach, with `topK`
/// distinct experts each, if all experts are equally likely.
double getActiveGroups(double groups, double topK, double tokens) {
  return groups * (1 - std::pow(1 - std::min(1.0, topK / groups), tokens));
}

Work getGemmWork(tile::GemmOp op, int64_t topK, int64_t tokens) {
  auto weight = cast<MemRefType>(op.getWeight().getType());
  bool grouped = static_cast<bool>(op.getOffsets());
  double rows = double(tokens) * double(grouped ? topK : 1);
  double columns = double(weight.getShape()[grouped ? 1 : 0]);
  // The launch's share of the columns.
  double share = 1;
  if (std::optional<uint64_t> count = op.getNumColumns())
    share = double(*count) /
            double(cast<MemRefType>(op.getResult().getType()).getDimSize(1));
  columns *= share;
  double groups = grouped ? getActiveGroups(double(weight.getDimSize(0)),
                                            double(topK), double(tokens))
                          : 1;
  // Assumes about the same number of rows in each group.
  if (!op.takesGroup(std::llround(rows / std::max(groups, 1.0))))
    return {};
  double inputRows =
      std::min(rows, double(tokens) * double(op.getSource() ? 1 : topK));
  Work work;
  // Elements of a weight may be smaller than a byte, those of an input are not.
  auto input = cast<MemRefType>(op.getInput().getType());
  work.operations = 2 * rows * columns * double(input.getShape().back());
  work.bytes = groups * columns * double(weight.getShape().back()) *
                   getElementBytes(op.getWeight()) +
               share * rows * getRowBytes(op.getResult()) +
               inputRows * getRowBytes(op.getInput());
  for (Value operand : op.getElementwiseOperands())
    work.bytes += share * rows * getRowBytes(operand);
  if (op.getShrunk()) {
    auto matrix = cast<MemRefType>(op.getMatrices().front().getType());
    work.operations += 2 * rows * columns * double(matrix.getDimSize(3));
    work.bytes += rows * getRowBytes(op.getShrunk()) +
                  share * getAdapterBytes(op.getMatrices(), rows);
  }
  if (op.getResultScale())
    work.bytes += rows * getRowBytes(op.getResultScale());
  if (op.getWeightScale()) {
    auto scales = cast<MemRefType>(op.getWeightScale().getType());
    double perGroup = getElementBytes(op.getWeightScale()) *
                      double(scales.getNumElements()) /
                      double(grouped ? scales.getDimSize(0) : 1);
    work.bytes += groups * perGroup;
  }
  // A single scale per tensor is negligible.
  if (op.getInputScale() &&
      op.getInputQuantAttr().getGranularity() != moe::Granularity::Tensor)
    work.bytes += inputRows * getRowBytes(op.getInputScale());
  return work;
}

} // namespace

Work moec::getWork(Operation *phase, int64_t topK, int64_t tokens) {
  if (auto op = dyn_cast<tile::GemmOp>(phase))
    return getGemmWork(op, topK, tokens);
  Work work;
  double slots = double(tokens * topK);
  if (auto op = dyn_cast<tile::GatherReduceOp>(phase)) {
    int64_t rowsPerToken = op.getFromUnreduced() ? 1 : topK;
    work.operations = slots * double(op.getSlotColumns());
    work.bytes = double(tokens * rowsPerToken) * getRowBytes(op.getRows()) +
                 double(tokens) * getRowBytes(op.getResult());
    if (op.getAddend())
      work.bytes += double(tokens) * getRowBytes(op.getAddend());
  } else if (auto op = dyn_cast<tile::TopKOp>(phase)) {
    work.bytes = double(tokens) * getRowBytes(op.getLogits()) + 8 * slots;
  } else if (auto op = dyn_cast<tile::RowMapOp>(phase)) {
    work.bytes = double(tokens) *
                 (getRowBytes(op.getInput()) + getRowBytes(op.getResult()));
    for (Value operand : op.getElementwiseOperands())
      work.bytes += double(tokens) * getRowBytes(operand);
  } else if (auto op = dyn_cast<tile::RmsNormOp>(phase)) {
    work.bytes = (op.getOffsets() ? slots : double(tokens)) *
                 (getRowBytes(op.getInput()) + getRowBytes(op.getResult()));
  } else if (auto op = dyn_cast<tile::LoraShrinkOp>(phase)) {
    double rows = op.getGather() ? double(tokens) : slots;
    work.operations = 2 * slots * double(getRowElements(op.getInput())) *
                      double(getRowElements(op.getResult()));
    work.bytes = rows * getRowBytes(op.getInput()) +
                 slots * getRowBytes(op.getResult()) +
                 getAdapterBytes(op.getMatrices(), slots);
  } else if (auto op = dyn_cast<tile::LoraUpdateOp>(phase)) {
    double rows = op.getGather() ? double(tokens) : slots;
    work.bytes = rows * getRowBytes(op.getInput()) +
                 getAdapterBytes(op.getMatrices(), slots) +
                 getAdapterBytes(op.getSecond(), slots);
    for (auto [matrix, result] : llvm::zip(op.getMatrices(), op.getResults())) {
      auto rank = cast<MemRefType>(matrix.getType()).getDimSize(2);
      work.operations +=
          2 * slots * double(rank) *
          double(getRowElements(op.getInput()) + getRowElements(result));
      work.bytes += slots * getRowBytes(result);
    }
  } else if (auto op = dyn_cast<tile::PlaceIdsOp>(phase)) {
    work.bytes = double(tokens) *
                 (getRowBytes(op.getIds()) + getRowBytes(op.getResult()));
  } else if (auto op = dyn_cast<tile::QuantizeOp>(phase)) {
    work.bytes = (op.getOffsets() ? slots : double(tokens)) *
                 (getRowBytes(op.getInput()) + getRowBytes(op.getQuantized()) +
                  (op.getScale() ? getRowBytes(op.getScale()) : 0));
  } else if (auto op = dyn_cast<tile::TensorScaleOp>(phase)) {
    work.bytes =
        (op.getOffsets() ? slots : double(tokens)) * getRowBytes(op.getInput());
  } else if (auto op = dyn_cast<tile::PrepackOp>(phase)) {
    for (Value tensor : op->getOperands())
      if (auto type = dyn_cast<MemRefType>(tensor.getType()))
        work.bytes += getElementBytes(tensor) * double(type.getNumElements());
  } else if (auto op = dyn_cast<tile::GatherRowsOp>(phase)) {
    double rows = op.getOffsets() ? slots : double(tokens);
    for (auto [input, result] : llvm::zip(op.getInputs(), op.getResults()))
      work.bytes += rows * getRowBytes(result) +
                    std::min(rows, double(tokens)) * getRowBytes(input);
    if (Value columns = op.getColumns())
      work.bytes += rows * getRowBytes(columns);
  } else if (isa<tile::CountSlotsOp>(phase)) {
    work.bytes = slots * 4;
  } else if (isa<tile::SortByExpertOp>(phase)) {
    work.bytes = slots * 20;
  }
  return work;
}
