//===- ContractTile.cpp - dot products in registers -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ContractTile.h"

using namespace mlir;
using namespace moec;

/// Bytes that one prefetch brings.
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

/// The elements `k .. k + step - 1` of a row. With `keep`, elements that are
/// off count as 0; if the row is shorter than a step they are not read either.
ContractTile::Parts ContractTile::load(Value memref, const Index &row, Value k,
                                       DenseElementsAttr keep, bool inBounds) {
  Index indices(row);
  indices.push_back(k);
  auto type = VectorType::get(stepSize, element);
  Value loaded;
  if (keep && !inBounds) {
    Value mask = arith::ConstantOp::create(b, keep);
    Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
    loaded = vector::MaskedLoadOp::create(b, type, memref, indices, mask, zero);
  } else {
    loaded = vector::LoadOp::create(b, type, memref, indices);
    if (keep) {
      Value mask = arith::ConstantOp::create(b, keep);
      Value zero = arith::ConstantOp::create(b, b.getZeroAttr(type));
      loaded = arith::SelectOp::create(b, mask, loaded, zero);
    }
  }
  if (element.isF32())
    return {loaded};
  if (!element.isBF16())
    return {arith::ExtFOp::create(b, emitter.f32Vector(lanes), loaded)};
  auto ints = VectorType::get(lanes, b.getI32Type());
  auto splat = [&](int32_t value) {
    return arith::ConstantOp::create(b, DenseElementsAttr::get(ints, value));
  };
  Value pairs = vector::BitCastOp::create(b, ints, loaded);
  Value even = arith::ShLIOp::create(b, pairs, splat(16));
  Value odd = arith::AndIOp::create(b, pairs, splat(int32_t(0xffff0000)));
  return {arith::BitcastOp::create(b, emitter.f32Vector(lanes), even),
          arith::BitcastOp::create(b, emitter.f32Vector(lanes), odd)};
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
                                      ValueRange sums, Value k) {
  auto loadAll = [&](Value memref, ArrayRef<Index> rows) {
    return llvm::map_to_vector(
        rows, [&](const Index &row) { return load(memref, row, k, {}, true); });
  };
  SmallVector<Parts> inputs = loadAll(input, inputRows);
  SmallVector<Parts> weights = loadAll(weight, weightRows);
  return multiply(inputs, weights, sums);
}

/// The `depth % step` elements that are left.
SmallVector<Value> ContractTile::lastStep(ArrayRef<Index> inputRows,
                                          ArrayRef<Index> weightRows,
                                          ValueRange sums) {
  int64_t left = depth % stepSize;
  if (!left)
    return SmallVector<Value>(sums);
  // A row of at least one step is read up to its end, and what was taken before
  // is masked on both sides: neither may be a factor, it could be infinite.
  bool inBounds = depth >= stepSize;
  SmallVector<bool> keep(stepSize, inBounds);
  if (inBounds)
    std::fill(keep.begin(), keep.end() - left, false);
  else
    std::fill(keep.begin(), keep.begin() + left, true);
  auto mask = DenseElementsAttr::get(VectorType::get(stepSize, b.getI1Type()),
                                     ArrayRef<bool>(keep));
  Value k = emitter.index(inBounds ? depth - stepSize : 0);
  auto loadAll = [&](Value memref, ArrayRef<Index> rows) {
    return llvm::map_to_vector(rows, [&](const Index &row) {
      return load(memref, row, k, mask, inBounds);
    });
  };
  SmallVector<Parts> inputs = loadAll(input, inputRows);
  SmallVector<Parts> weights = loadAll(weight, weightRows);
  return multiply(inputs, weights, sums);
}

//===----------------------------------------------------------------------===//
// The sum of lanes
//===----------------------------------------------------------------------===//

/// The sums of the lanes of four accumulators, as one vector of 4. The shuffles
/// stay inside 128 bits until all four share a vector.
Value ContractTile::sumLanes(ValueRange four) {
  auto combine = [&](Value x, Value y, ArrayRef<int64_t> first,
                     ArrayRef<int64_t> second) -> Value {
    auto shuffle = [&](ArrayRef<int64_t> pick) -> Value {
      // `pick` takes two of four lanes; first from x, then from y.
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

//===----------------------------------------------------------------------===//
// The tile
//===----------------------------------------------------------------------===//

SmallVector<Value> ContractTile::emit(ArrayRef<Index> inputRows,
                                      ArrayRef<Index> weightRows,
                                      ArrayRef<Index> nextRows) {
  SmallVector<Value> sums(inputRows.size() * weightRows.size(),
                          emitter.splat(0.0, lanes));
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
                                       /*localityHint=*/3,
                                       /*isDataCache=*/true);
          }
        SmallVector<Value> next(carried);
        for (int64_t done = 0; done < turn; done += stepSize)
          next = step(inputRows, weightRows, next, emitter.add(k, done));
        return next;
      });
  for (int64_t k = looped; k + stepSize <= depth; k += stepSize)
    sums = step(inputRows, weightRows, sums, emitter.index(k));
  sums = lastStep(inputRows, weightRows, sums);

  SmallVector<Value> quads;
  for (size_t first = 0; first < sums.size(); first += 4)
    quads.push_back(sumLanes(ValueRange(sums).slice(first, 4)));
  return quads;
}
