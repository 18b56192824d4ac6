//===- ContractTile.cpp - dot products in registers -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ContractTile.h"

using namespace mlir;
using namespace moec;

/// Bytes per prefetch.
static constexpr int64_t kCacheLine = 64;

int64_t ContractTile::getStep(Type element, int64_t lanes) {
  return element.isBF16() ? 2 * lanes : lanes;
}

ContractTile::ContractTile(KernelEmitter &emitter, Value input, Value weight,
                           int64_t lanes, int64_t turn)
    : emitter(emitter), b(emitter.b), input(input), weight(weight),
      element(cast<MemRefType>(weight.getType()).getElementType()),
      depth(cast<MemRefType>(weight.getType()).getShape().back()), lanes(lanes),
      turn(turn), stepSize(getStep(element, lanes)) {}

//===----------------------------------------------------------------------===//
// One step
//===----------------------------------------------------------------------===//

/// Loads elements `k .. k + step - 1` of a row, the first `skip` of them as 0.
/// Multiplying by 0 instead would be wrong: the other operand could be
/// infinite.
ContractTile::Parts ContractTile::load(Value memref, const Index &row, Value k,
                                       int64_t skip) {
  Index indices(row);
  indices.push_back(k);
  Value loaded = vector::LoadOp::create(b, VectorType::get(stepSize, element),
                                        memref, indices);
  if (!element.isBF16()) {
    if (!element.isF32())
      loaded = arith::ExtFOp::create(b, VectorType::get(lanes, b.getF32Type()),
                                     loaded);
    if (!skip)
      return {loaded};
    SmallVector<bool> keep(lanes, true);
    std::fill_n(keep.begin(), skip, false);
    Value mask = arith::ConstantOp::create(
        b, DenseElementsAttr::get(VectorType::get(lanes, b.getI1Type()),
                                  ArrayRef<bool>(keep)));
    return {
        arith::SelectOp::create(b, mask, loaded, emitter.splat(0.0, lanes))};
  }
  auto ints = VectorType::get(lanes, b.getI32Type());
  auto constant = [&](ArrayRef<int32_t> values) -> Value {
    return arith::ConstantOp::create(b, DenseElementsAttr::get(ints, values));
  };
  Value pairs = vector::BitCastOp::create(b, ints, loaded);
  if (skip) {
    // Element 2i is the low half of pair i.
    SmallVector<int32_t> keep(lanes, -1);
    std::fill_n(keep.begin(), skip / 2, 0);
    if (skip % 2)
      keep[skip / 2] = int32_t(0xffff0000);
    pairs = arith::AndIOp::create(b, pairs, constant(keep));
  }
  Value even = arith::ShLIOp::create(b, pairs, constant(16));
  Value odd = arith::AndIOp::create(b, pairs, constant(int32_t(0xffff0000)));
  return {
      arith::BitcastOp::create(b, VectorType::get(lanes, b.getF32Type()), even),
      arith::BitcastOp::create(b, VectorType::get(lanes, b.getF32Type()), odd)};
}

SmallVector<Value> ContractTile::multiply(ArrayRef<Parts> inputs,
                                          ArrayRef<Parts> weights,
                                          ValueRange sums) {
  SmallVector<Value> next(sums);
  for (size_t part = 0; part < weights.front().size(); ++part)
    for (auto [column, w] : llvm::enumerate(weights))
      for (auto [row, x] : llvm::enumerate(inputs)) {
        Value &sum = next[row * weights.size() + column];
        sum = vector::FMAOp::create(b, x[part], w[part], sum);
      }
  return next;
}

SmallVector<Value> ContractTile::step(ArrayRef<Index> inputRows,
                                      ArrayRef<Index> weightRows,
                                      ValueRange sums, Value k, int64_t skip) {
  auto loadAll = [&](Value memref, ArrayRef<Index> rows) {
    return llvm::map_to_vector(
        rows, [&](const Index &row) { return load(memref, row, k, skip); });
  };
  SmallVector<Parts> inputs = loadAll(input, inputRows);
  SmallVector<Parts> weights = loadAll(weight, weightRows);
  return multiply(inputs, weights, sums);
}

/// Multiplies rows that are shorter than a step, in their natural order.
SmallVector<Value> ContractTile::shortRows(ArrayRef<Index> inputRows,
                                           ArrayRef<Index> weightRows,
                                           ValueRange sums) {
  SmallVector<Value> next(sums);
  for (int64_t k = 0; k < depth; k += lanes) {
    Value start = emitter.index(k), mask;
    if (depth - k < lanes)
      mask = emitter.mask(emitter.index(depth - k), lanes);
    auto loadAll = [&](Value memref, ArrayRef<Index> rows) {
      return llvm::map_to_vector(rows, [&](const Index &row) -> Parts {
        Index indices(row);
        indices.push_back(start);
        return {emitter.loadVector(memref, indices, lanes, mask)};
      });
    };
    SmallVector<Parts> inputs = loadAll(input, inputRows);
    SmallVector<Parts> weights = loadAll(weight, weightRows);
    next = multiply(inputs, weights, next);
  }
  return next;
}

//===----------------------------------------------------------------------===//
// The sum of lanes
//===----------------------------------------------------------------------===//

/// Sums the lanes of each of four accumulators; returns one vector of 4. The
/// shuffles stay inside 128 bits until all four share a vector.
Value ContractTile::sumLanes(ValueRange four) {
  auto combine = [&](Value x, Value y, ArrayRef<int64_t> first,
                     ArrayRef<int64_t> second) -> Value {
    auto shuffle = [&](ArrayRef<int64_t> pick) -> Value {
      // `pick` selects two of four lanes, first from x, then from y.
      SmallVector<int64_t> mask;
      for (int64_t base = 0; base < lanes; base += 4)
        for (int64_t from : {base, lanes + base})
          for (int64_t lane : pick)
            mask.push_back(from + lane);
      return vector::ShuffleOp::create(b, x, y, mask);
    };
    return arith::AddFOp::create(b, shuffle(first), shuffle(second));
  };
  Value low = combine(four[0], four[1], {0, 1}, {2, 3});
  Value high = combine(four[2], four[3], {0, 1}, {2, 3});
  Value sum = combine(low, high, {0, 2}, {1, 3});
  for (int64_t width = lanes; width > 4; width /= 2) {
    auto half = [&](int64_t offset) -> Value {
      return vector::ExtractStridedSliceOp::create(
          b, sum, ArrayRef<int64_t>{offset}, ArrayRef<int64_t>{width / 2},
          ArrayRef<int64_t>{1});
    };
    sum = arith::AddFOp::create(b, half(0), half(width / 2));
  }
  return sum;
}

SmallVector<Value> ContractTile::sumAll(ValueRange sums) {
  SmallVector<Value> quads;
  for (size_t first = 0; first < sums.size(); first += 4)
    quads.push_back(sumLanes(sums.slice(first, 4)));
  return quads;
}

//===----------------------------------------------------------------------===//
// The tile
//===----------------------------------------------------------------------===//

SmallVector<Value> ContractTile::emit(ArrayRef<Index> inputRows,
                                      ArrayRef<Index> weightRows,
                                      ArrayRef<Index> nextRows) {
  SmallVector<Value> sums(inputRows.size() * weightRows.size(),
                          emitter.splat(0.0, lanes));
  if (depth < stepSize)
    return sumAll(shortRows(inputRows, weightRows, sums));
  int64_t looped = depth - depth % turn;
  int64_t line = kCacheLine * 8 / element.getIntOrFloatBitWidth();
  sums = emitter.forLoop(
      emitter.index(0), emitter.index(looped), turn, sums,
      [&](Value k, ValueRange carried) {
        for (const Index &row : nextRows)
          for (int64_t ahead = 0; ahead < turn; ahead += line) {
            Index indices(row);
            indices.push_back(emitter.add(k, ahead));
            memref::PrefetchOp::create(b, weight, indices, /*isWrite=*/false,
                                       /*localityHint=*/2,
                                       /*isDataCache=*/true);
          }
        SmallVector<Value> next(carried);
        for (int64_t done = 0; done < turn; done += stepSize)
          next = step(inputRows, weightRows, next, emitter.add(k, done), 0);
        return next;
      });
  for (int64_t k = looped; k + stepSize <= depth; k += stepSize)
    sums = step(inputRows, weightRows, sums, emitter.index(k), 0);
  // The remainder takes a whole step that ends at the row's end.
  if (int64_t left = depth % stepSize)
    sums = step(inputRows, weightRows, sums, emitter.index(depth - stepSize),
                stepSize - left);
  return sumAll(sums);
}
