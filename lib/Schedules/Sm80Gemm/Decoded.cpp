//===- Decoded.cpp - products of quantized elements -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Products.h"

using namespace mlir;
using namespace moec;

/// A loop, because for a whole unrolled k tile ptxas would need more registers
/// than there are. A part with a single mma takes its half of the elements
/// decoded at once.
Sm80Products::Sums Sm80Products::multiplyDecoded(I32 kTile, I32 stage,
                                                 int64_t part, Sums sums) {
  StageRows rows = findRows(stage, /*asMatrices=*/false);
  int64_t begin = part * shape.partK;
  int64_t first = llvm::alignDown(begin, kDecodedColumns);
  int64_t sizeK = std::max(shape.partK, kDecodedColumns);
  Halves halves{0, 2};
  if (shape.partK < kDecodedColumns) {
    halves.begin = (begin - first) / kCoreK;
    halves.end = halves.begin + 1;
  }
  return emitter.loop(
      emitter.index(first), emitter.index(first + sizeK), kDecodedColumns, sums,
      [&](Index k, const Sums &sums) {
        I32 offset = emitter.toI32(k);
        I32 firstElement = kTile * shape.k + offset;
        Value inputs = emitter.advance(rows.inputs, getBytes(input, offset));
        Value weights = emitter.advance(rows.weights, getBytes(weight, offset));
        return addDecoded(firstElement, {inputs, weights}, halves, sums);
      });
}

/// The mmas of `kDecodedColumns` elements, or one of the two.
Sm80Products::Sums Sm80Products::addDecoded(I32 firstElement, StageRows rows,
                                            Halves halves, Sums sums) {
  static_assert(kDecodedColumns == 2 * kCoreK && kProductColumns == kCoreK);
  int64_t rowBlocks = getWarpRows() / kCoreRows;
  int64_t columnBlocks = getWarpColumns() / kCoreColumns;
  SmallVector<SmallVector<ElementFactors>> factors;
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    factors.push_back(scales.loadForElements(
        projection, firstElement + halves.begin * kCoreK));
  // a[block][half of K].
  SmallVector<std::array<SmallVector<Value>, 2>> a(rowBlocks);
  for (int64_t block = 0; block < rowBlocks; ++block) {
    int64_t stride = input.rows.getStride();
    SmallVector<Value> chunks = input.decoder.loadChunks(
        emitter.advance(rows.inputs, block * kCoreRows * stride), stride);
    for (int64_t half = halves.begin; half < halves.end; ++half) {
      auto [low0, high0] = input.decoder.decode(chunks[2 * half], half);
      auto [low8, high8] = input.decoder.decode(chunks[2 * half + 1], half);
      a[block][half] = {low0, low8, high0, high8};
      if (shape.hasMinima)
        addRow(block, a[block][half], sums);
    }
  }
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    for (int64_t column = 0; column < columnBlocks; column += 2) {
      int64_t row = projection * shape.n + column * kCoreColumns;
      int64_t stride = weight.rows.getStride();
      SmallVector<Value> chunks = weight.decoder.loadChunks(
          emitter.advance(rows.weights, row * stride), stride);
      for (int64_t i = 0; i < 4; ++i) {
        if (i % 2 < halves.begin || i % 2 >= halves.end)
          continue;
        ElementFactors own;
        if (shape.hasElementFactors)
          own = factors[projection][column + i / 2];
        auto [low, high] = weight.decoder.decode(chunks[i], i % 2, own);
        for (int64_t block = 0; block < rowBlocks; ++block)
          addProduct(a[block][i % 2], {low, high}, sums,
                     ((projection * rowBlocks + block) * columnBlocks + column +
                      i / 2) *
                         kCoreSums);
      }
    }
  return sums;
}

/// An mma by ones, all columns of which are equal.
void Sm80Products::addRow(int64_t block, ValueRange elements, Sums &sums) {
  I32 ones = emitter.i32(element.isBF16() ? 0x3F803F80 : 0x3C003C00);
  addProduct(elements, {ones, ones}, sums, getNumSums() + block * kCoreSums);
}
