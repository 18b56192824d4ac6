//===- GemmTile.cpp - dot products in registers -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GemmTile.h"

#include "Shape.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;
using namespace moec;

/// Bytes per prefetch.
static constexpr int64_t kCacheLine = 64;

int64_t GemmTile::getStep(Type element, int64_t lanes) {
  return cpu::getLaneElements(element) * lanes;
}

GemmTile::GemmTile(KernelEmitter &emitter, Value input, Value weight,
                   int64_t lanes, int64_t unrolledK,
                   cpu::InstructionK instruction)
    : emitter(emitter), b(emitter.b), input(input), weight(weight),
      element(cast<MemRefType>(weight.getType()).getElementType()),
      sizeK(cast<MemRefType>(weight.getType()).getShape().back()), lanes(lanes),
      unrolledK(unrolledK), stepSize(getStep(element, lanes)),
      instruction(instruction) {}

//===----------------------------------------------------------------------===//
// One step
//===----------------------------------------------------------------------===//

/// Loads elements `k .. k + step - 1` of a row, the first `skip` of them as 0.
/// Multiplying by 0 instead would be wrong: the other operand could be
/// infinite.
GemmTile::Parts GemmTile::load(Value memref, const Indices &row, Index k,
                               int64_t skip) {
  Indices indices(row);
  indices.push_back(k);
  Value loaded = emitter.loadElements(memref, indices, stepSize);
  if (instruction == cpu::kQuads) {
    auto words = VectorType::get(lanes, b.getI32Type());
    return {F32::fromBits({b, vector::BitCastOp::create(b, words, loaded)})};
  }
  if (!element.isBF16()) {
    F32 values(b, castFloat(b, loaded, b.getF32Type()));
    if (!skip)
      return {values};
    SmallVector<bool> keep(lanes, true);
    std::fill_n(keep.begin(), skip, false);
    auto flags = VectorType::get(lanes, b.getI1Type());
    Flag mask(b, arith::ConstantOp::create(
                     b, DenseElementsAttr::get(flags, ArrayRef<bool>(keep))));
    return {select(mask, values, 0.0)};
  }
  constexpr int64_t highHalf = 0xffff0000;
  auto ints = VectorType::get(lanes, b.getI32Type());
  I32 pairs(b, vector::BitCastOp::create(b, ints, loaded));
  if (skip) {
    // Element 2i is the low half of pair i.
    SmallVector<int32_t> keep(lanes, -1);
    std::fill_n(keep.begin(), skip / 2, 0);
    if (skip % 2)
      keep[skip / 2] = static_cast<int32_t>(highHalf);
    pairs =
        pairs &
        I32(b, arith::ConstantOp::create(
                   b, DenseElementsAttr::get(ints, ArrayRef<int32_t>(keep))));
  }
  if (instruction == cpu::kPairs)
    return {F32::fromBits(pairs)};
  I32 even = pairs << 16, odd = pairs & highHalf;
  return {F32::fromBits(even), F32::fromBits(odd)};
}

F32 GemmTile::multiplyPairs(F32 x, F32 w, F32 sum) {
  auto type = VectorType::get(2 * lanes, b.getBF16Type());
  auto getPairs = [&](Value bits) {
    return vector::BitCastOp::create(b, type, bits).getResult();
  };
  std::string name =
      "llvm.x86.avx512bf16.dpbf16ps." + std::to_string(lanes * 32);
  return {b, LLVM::CallIntrinsicOp::create(
                 b, sum.getType(), b.getStringAttr(name),
                 ValueRange{sum, getPairs(x), getPairs(w)})
                 .getResults()};
}

I32 GemmTile::addQuads(I32 sum, I32 withoutSign, I32 withSign) {
  auto type = VectorType::get(4 * lanes, b.getI8Type());
  auto getQuads = [&](Value words) {
    return vector::BitCastOp::create(b, type, words).getResult();
  };
  std::string name = "llvm.x86.avx512.vpdpbusd." + std::to_string(lanes * 32);
  return {b, LLVM::CallIntrinsicOp::create(
                 b, sum.getType(), b.getStringAttr(name),
                 ValueRange{sum, getQuads(withoutSign), getQuads(withSign)})
                 .getResults()};
}

SmallVector<F32> GemmTile::multiplyQuads(ArrayRef<Parts> inputs,
                                         ArrayRef<Parts> weights,
                                         ArrayRef<F32> sums) {
  constexpr int64_t halfRange = 0x80808080;
  SmallVector<F32> next(sums);
  auto words = VectorType::get(lanes, b.getI32Type());
  I32 half(b, arith::ConstantOp::create(
                  b, DenseElementsAttr::get(words, int32_t(halfRange))));
  for (auto [column, parts] : llvm::enumerate(weights)) {
    I32 shifted = parts.front().bits() ^ half;
    for (auto [row, x] : llvm::enumerate(inputs)) {
      F32 &sum = next[row * weights.size() + column];
      sum = F32::fromBits(addQuads(sum.bits(), shifted, x.front().bits()));
    }
  }
  for (auto [row, x] : llvm::enumerate(inputs)) {
    F32 &sum = next[inputs.size() * weights.size() + row];
    sum = F32::fromBits(addQuads(sum.bits(), half, x.front().bits()));
  }
  return next;
}

SmallVector<F32> GemmTile::multiply(ArrayRef<Parts> inputs,
                                    ArrayRef<Parts> weights,
                                    ArrayRef<F32> sums) {
  if (instruction == cpu::kQuads)
    return multiplyQuads(inputs, weights, sums);
  SmallVector<F32> next(sums);
  for (size_t part = 0; part < weights.front().size(); ++part)
    for (auto [column, w] : llvm::enumerate(weights))
      for (auto [row, x] : llvm::enumerate(inputs)) {
        F32 &sum = next[row * weights.size() + column];
        sum = instruction == cpu::kPairs
                  ? multiplyPairs(x[part], w[part], sum)
                  : F32(b, vector::FMAOp::create(b, x[part], w[part], sum));
      }
  return next;
}

SmallVector<F32> GemmTile::step(ArrayRef<Indices> inputRows,
                                ArrayRef<Indices> weightRows,
                                ArrayRef<F32> sums, Index k, int64_t skip) {
  auto loadAll = [&](Value memref, ArrayRef<Indices> rows) {
    return llvm::map_to_vector(
        rows, [&](const Indices &row) { return load(memref, row, k, skip); });
  };
  SmallVector<Parts> inputs = loadAll(input, inputRows);
  SmallVector<Parts> weights = loadAll(weight, weightRows);
  return multiply(inputs, weights, sums);
}

/// Multiplies rows that are shorter than a step, in their natural order.
SmallVector<F32> GemmTile::shortRows(ArrayRef<Indices> inputRows,
                                     ArrayRef<Indices> weightRows,
                                     ArrayRef<F32> sums) {
  SmallVector<F32> next(sums);
  for (int64_t k = 0; k < sizeK; k += lanes) {
    Index start = emitter.index(k);
    Flag mask;
    if (sizeK - k < lanes)
      mask = emitter.mask(emitter.index(sizeK - k), lanes);
    auto loadAll = [&](Value memref, ArrayRef<Indices> rows) {
      return llvm::map_to_vector(rows, [&](const Indices &row) -> Parts {
        Indices indices(row);
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

F32 GemmTile::add(F32 x, F32 y) {
  return instruction == cpu::kQuads ? F32::fromBits(x.bits() + y.bits())
                                    : x + y;
}

/// Sums the lanes of each of four accumulators; returns one vector of 4. The
/// shuffles stay inside 128 bits until all four share a vector.
F32 GemmTile::sumLanes(ArrayRef<F32> four) {
  auto combine = [&](F32 x, F32 y, ArrayRef<int64_t> first,
                     ArrayRef<int64_t> second) {
    auto shuffle = [&](ArrayRef<int64_t> pick) -> F32 {
      // `pick` selects two of four lanes, first from x, then from y.
      SmallVector<int64_t> mask;
      for (int64_t base = 0; base < lanes; base += 4)
        for (int64_t from : {base, lanes + base})
          for (int64_t lane : pick)
            mask.push_back(from + lane);
      return {b, vector::ShuffleOp::create(b, x, y, mask)};
    };
    F32 left = shuffle(first), right = shuffle(second);
    return add(left, right);
  };
  F32 low = combine(four[0], four[1], {0, 1}, {2, 3});
  F32 high = combine(four[2], four[3], {0, 1}, {2, 3});
  F32 sum = combine(low, high, {0, 2}, {1, 3});
  for (int64_t width = lanes; width > 4; width /= 2) {
    auto half = [&](int64_t offset) -> F32 {
      return {b, vector::ExtractStridedSliceOp::create(
                     b, sum, ArrayRef<int64_t>{offset},
                     ArrayRef<int64_t>{width / 2}, ArrayRef<int64_t>{1})};
    };
    F32 lower = half(0), upper = half(width / 2);
    sum = add(lower, upper);
  }
  if (instruction == cpu::kQuads)
    return {b, arith::SIToFPOp::create(b, VectorType::get(4, b.getF32Type()),
                                       sum.bits())};
  return sum;
}

SmallVector<F32> GemmTile::sumAll(ArrayRef<F32> sums) {
  SmallVector<F32> quads;
  for (size_t first = 0; first < sums.size(); first += 4)
    quads.push_back(sumLanes(sums.slice(first, 4)));
  return quads;
}

//===----------------------------------------------------------------------===//
// The tile
//===----------------------------------------------------------------------===//

SmallVector<F32> GemmTile::emit(ArrayRef<Indices> inputRows,
                                ArrayRef<Indices> weightRows,
                                ArrayRef<Indices> nextRows) {
  size_t numSums = inputRows.size() * weightRows.size();
  // Behind the sums of quads is what to subtract from those of each input row.
  SmallVector<F32> sums(numSums +
                            (instruction == cpu::kQuads ? inputRows.size() : 0),
                        emitter.splat(0.0, lanes));
  if (sizeK < stepSize)
    return sumAll(shortRows(inputRows, weightRows, sums));
  int64_t looped = sizeK - sizeK % unrolledK;
  int64_t line = kCacheLine * 8 / element.getIntOrFloatBitWidth();
  sums = emitter.loop(
      emitter.index(0), emitter.index(looped), unrolledK, sums,
      [&](Index k, SmallVector<F32> next) {
        for (const Indices &row : nextRows)
          for (int64_t ahead = 0; ahead < unrolledK; ahead += line) {
            Indices indices(row);
            indices.push_back(k + ahead);
            memref::PrefetchOp::create(b, weight, indices,
                                       /*isWrite=*/false,
                                       /*localityHint=*/2,
                                       /*isDataCache=*/true);
          }
        for (int64_t done = 0; done < unrolledK; done += stepSize)
          next = step(inputRows, weightRows, next, k + done, 0);
        return next;
      });
  for (int64_t k = looped; k + stepSize <= sizeK; k += stepSize)
    sums = step(inputRows, weightRows, sums, emitter.index(k), 0);
  // The remainder takes a whole step that ends at the row's end.
  if (int64_t left = sizeK % stepSize)
    sums = step(inputRows, weightRows, sums, emitter.index(sizeK - stepSize),
                stepSize - left);
  for (size_t i = 0; i < numSums && sums.size() > numSums; ++i)
    sums[i] = F32::fromBits(sums[i].bits() -
                            sums[numSums + i / weightRows.size()].bits());
  sums.truncate(numSums);
  return sumAll(sums);
}
