//===- Sm80Decoded.cpp - products of quantized elements ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm80Products.h"

using namespace mlir;
using namespace moec;

/// A loop, because for a whole unrolled k tile ptxas would need more registers
/// than there are. A part with a single mma takes its half of the elements
/// decoded at once.
SmallVector<Value> Sm80Products::multiplyDecoded(Value step, Value stage,
                                                 int64_t part,
                                                 ValueRange sums) {
  std::pair<Value, Value> rows = findRows(stage, /*asMatrices=*/false);
  int64_t begin = part * shape.partDepth;
  int64_t first = llvm::alignDown(begin, kDecodedColumns);
  int64_t depth = std::max(shape.partDepth, kDecodedColumns);
  Halves halves{0, 2};
  if (shape.partDepth < kDecodedColumns) {
    halves.begin = (begin - first) / kCoreDepth;
    halves.end = halves.begin + 1;
  }
  return emitter.forLoop(
      emitter.index(first), emitter.index(first + depth), kDecodedColumns,
      SmallVector<Value>(sums), [&](Value k, ValueRange sums) {
        auto at = [&](Value base, const Operand &operand) {
          return emitter.advance(base, getBytes(operand, emitter.toI32(k)));
        };
        Value firstElement =
            addI32(emitter.scale(step, shape.k), emitter.toI32(k));
        return addDecoded(firstElement, at(rows.first, input),
                          at(rows.second, weight), halves, sums);
      });
}

/// The mmas of `kDecodedColumns` elements, or one of the two.
SmallVector<Value> Sm80Products::addDecoded(Value firstElement, Value inputs,
                                            Value weights, Halves halves,
                                            ValueRange before) {
  static_assert(kDecodedColumns == 2 * kCoreDepth &&
                kProductColumns == kCoreDepth);
  SmallVector<Value> sums(before);
  int64_t rowBlocks = getWarpRows() / kCoreRows;
  int64_t columnBlocks = getWarpColumns() / kCoreColumns;
  SmallVector<SmallVector<ElementFactors>> factors;
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    factors.push_back(scales.loadForElements(
        projection, emitter.scale(firstElement, 1, halves.begin * kCoreDepth)));
  // a[block][half of K].
  SmallVector<std::array<SmallVector<Value>, 2>> a(rowBlocks);
  for (int64_t block = 0; block < rowBlocks; ++block) {
    int64_t stride = input.rows.getStride();
    SmallVector<Value> pieces = input.decoder.loadPieces(
        emitter.advance(inputs, block * kCoreRows * stride), stride);
    for (int64_t half = halves.begin; half < halves.end; ++half) {
      auto [low0, high0] = input.decoder.decode(pieces[2 * half], half);
      auto [low8, high8] = input.decoder.decode(pieces[2 * half + 1], half);
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
      SmallVector<Value> pieces = weight.decoder.loadPieces(
          emitter.advance(weights, row * stride), stride);
      for (int64_t i = 0; i < 4; ++i) {
        if (i % 2 < halves.begin || i % 2 >= halves.end)
          continue;
        ElementFactors own;
        if (shape.hasElementFactors)
          own = factors[projection][column + i / 2];
        auto [low, high] = weight.decoder.decode(pieces[i], i % 2, own);
        for (int64_t block = 0; block < rowBlocks; ++block) {
          int64_t first = ((projection * rowBlocks + block) * columnBlocks +
                           column + i / 2) *
                          kCoreSums;
          auto place = MutableArrayRef<Value>(sums).slice(first, kCoreSums);
          SmallVector<Value> product =
              emitter.multiply(element, a[block][i % 2], ValueRange{low, high},
                               SmallVector<Value>(place));
          llvm::copy(product, place.begin());
        }
      }
    }
  return sums;
}

/// An mma by ones, all columns of which are equal.
void Sm80Products::addRow(int64_t block, ArrayRef<Value> elements,
                          MutableArrayRef<Value> sums) {
  Value ones = emitter.i32(element.isBF16() ? 0x3F803F80 : 0x3C003C00);
  auto place = sums.slice(getNumSums() + block * kCoreSums, kCoreSums);
  SmallVector<Value> product = emitter.multiply(
      element, elements, ValueRange{ones, ones}, SmallVector<Value>(place));
  llvm::copy(product, place.begin());
}
