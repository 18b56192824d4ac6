//===- Sm80Float8.cpp - products of e4m3 on a CTA ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm80Products.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

static constexpr int64_t kScaleBytes = 4;

void Sm80Products::findScales(RowAddress scaleAddress) {
  // The rows of a thread's sums: two of every block of rows, 8 apart.
  Value row = addI32(emitter.scale(warpRow, getWarpRows()),
                     emitter.divide(emitter.lane(), 4));
  inputScales.clear();
  for (int64_t i = 0; i < getWarpRows(); i += kCoreRows / 2)
    inputScales.push_back(scaleAddress(0, emitter.scale(row, 1, i)));
}

/// All sums of the step are new. A loop: of the whole step ptxas would take
/// more into registers than there are.
SmallVector<Value> Sm80Products::multiplyFloat8(Value stage) {
  constexpr int64_t depth = 2 * kCoreDepth;
  std::pair<Value, Value> matrices = findMatrices(stage);
  return emitter.forLoop(emitter.index(0), emitter.index(shape.k), depth,
                         SmallVector<Value>(getNumSums(), emitter.f32(0)),
                         [&](Value k, ValueRange sums) {
                           Value offset = emitter.toI32(k);
                           return addFloat8(
                               emitter.advance(matrices.first, offset),
                               emitter.advance(matrices.second, offset), sums);
                         });
}

/// The products of 32 elements.
SmallVector<Value> Sm80Products::addFloat8(Value inputs, Value weights,
                                           ValueRange before) {
  int64_t stride = shape.getRowStride();
  Type half = b.getF16Type();
  SmallVector<Value> sums(before);
  int64_t rowBlocks = getWarpRows() / kCoreRows;
  int64_t columnBlocks = getWarpColumns() / kCoreColumns;
  // A row of a matrix has 16 elements, of which a lane gets four neighbours.
  // They are taken for two of the first and two of the second half of a
  // product's depth, in inputs and weights alike.
  // a[block][part of the depth].
  SmallVector<std::array<SmallVector<Value>, 2>> a(rowBlocks);
  for (int64_t block = 0; block < rowBlocks; ++block) {
    SmallVector<Value> matrices = emitter.loadMatrices(
        emitter.advance(inputs, block * kCoreRows * stride));
    for (int64_t part = 0; part < 2; ++part) {
      auto [low0, high0] = floats.extend(matrices[2 * part]);
      auto [low8, high8] = floats.extend(matrices[2 * part + 1]);
      a[block][part] = {low0, low8, high0, high8};
    }
  }
  for (int64_t plane = 0; plane < shape.planes; ++plane)
    for (int64_t column = 0; column < columnBlocks; column += 2) {
      int64_t row = plane * shape.n + column * kCoreColumns;
      SmallVector<Value> matrices =
          emitter.loadMatrices(emitter.advance(weights, row * stride));
      for (int64_t i = 0; i < 4; ++i) {
        auto [low, high] = floats.extend(matrices[i]);
        for (int64_t block = 0; block < rowBlocks; ++block) {
          int64_t first =
              ((plane * rowBlocks + block) * columnBlocks + column + i / 2) *
              kCoreSums;
          auto place = MutableArrayRef<Value>(sums).slice(first, kCoreSums);
          SmallVector<Value> product =
              emitter.multiply(half, a[block][i % 2], ValueRange{low, high},
                               SmallVector<Value>(place));
          llvm::copy(product, place.begin());
        }
      }
    }
  return sums;
}

SmallVector<Value> Sm80Products::multiplyScaled(Value step, Value stage,
                                                ValueRange sums) {
  Value offset = arith::ExtUIOp::create(b, b.getI64Type(),
                                        emitter.scale(step, kScaleBytes));
  // Loaded before they are needed.
  auto loadAll = [&](ArrayRef<Value> addresses) {
    return llvm::map_to_vector(addresses, [&](Value address) {
      return emitter.load(b.getF32Type(), emitter.advance(address, offset),
                          kScaleBytes);
    });
  };
  SmallVector<Value> rows = loadAll(inputScales);
  SmallVector<Value> planes = loadAll(weightScales);
  SmallVector<Value> products = multiplyFloat8(stage);
  SmallVector<Value> next;
  int64_t columns = getWarpColumns() / kCoreColumns * kCoreSums;
  int64_t planeSums = columns * getWarpRows() / kCoreRows;
  for (int64_t plane = 0; plane < shape.planes; ++plane) {
    SmallVector<Value> factors = llvm::map_to_vector(rows, [&](Value row) {
      return Value(arith::MulFOp::create(b, row, planes[plane]));
    });
    for (int64_t i = 0; i < planeSums; ++i) {
      int64_t sum = plane * planeSums + i;
      int64_t half = i % kCoreSums / 2;
      next.push_back(math::FmaOp::create(
          b, products[sum], factors[i / columns * 2 + half], sums[sum]));
    }
  }
  return next;
}
