//===- Problem.cpp - what a gemm of sm90.gemm computes ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Problem.h"

#include "moec/Dialect/Moe/PrepackedFormat.h"

using namespace mlir;
using namespace moec;
using namespace moec::sm90;

/// Whether the tensor cores' sums of a row would lose too many digits. For e4m3
/// they keep 14 and cut off the others (docs/design/ptx-simulator.md has the
/// rule). By that rule sums of 2048 products of quantized normal values are off
/// by 0.9e-3 of their size (root of the mean square), of 7168 by 1.8e-3, where
/// rounding to bf16 costs 1.6e-3; added step by step by 0.13e-3.
static bool losesDigits(ComputeType type, int64_t sizeK) {
  constexpr int64_t most = 2048;
  return type == ComputeType::E4M3 && sizeK > most;
}

GemmProblem::GemmProblem(tile::GemmOp op)
    : isGrouped(static_cast<bool>(op.getOffsets())),
      weightsPerColumn(op.getLayout() ? 2 : 1),
      quantizesInput(op.getQuantizesInput()),
      findsScales(static_cast<bool>(op.getResultScale())),
      compute(op.getInputQuantAttr() ? getNativeType(op) : getDecodedType(op)),
      scales(op), adapters(getAdapterTiles(op)),
      minGroupRows(op.getMinGroupRows()), maxGroupRows(op.getMaxGroupRows()) {
  auto weight = cast<MemRefType>(op.getWeight().getType());
  auto result = cast<MemRefType>(op.getResult().getType());
  auto input = cast<MemRefType>(op.getInput().getType());
  groups = isGrouped ? weight.getDimSize(0) : 1;
  sizeK = input.getDimSize(1);
  columns = result.getDimSize(1);
  launchColumns = int64_t(op.getNumColumns().value_or(uint64_t(columns)));
  inputBits = quantizesInput ? moe::getStorageBits(op.getInputQuantAttr())
                             : input.getElementTypeBitWidth();
  resultBytes = result.getElementTypeBitWidth() / 8;
  quantizes = resultBytes == 1;
  if (!hasPrepackedLayout(op.getWeightQuantAttr())) {
    storageBits = weight.getElementTypeBitWidth();
    promotes = copiesScales() || losesDigits(compute, sizeK);
    return;
  }
  moe::PrepackedFormat format(op.getWeightQuantAttr());
  storageBits = moe::getStorageBits(op.getWeightQuantAttr());
  promotes = format.areScalesOfSums();
  swizzleBytes = format.values.getInputBytes();
  packed = {format.values.getTileBytes(),
            moe::PrepackedFormat::kRows * format.getRowBytes(),
            format.scaleTiles, format.book.has_value()};
}
