//===- GemvTensor.cpp - sm80.gemv with tensor cores -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GemvTensor.h"

using namespace mlir;
using namespace moec;

/// Lanes that share a row, and accumulators per lane of an instruction's tile.
static constexpr int64_t kRowLanes = 4, kTileSums = 4;
static constexpr int64_t kPieceWords = sm80::Gemv::kPieceBytes / 4;

void GemvTensor::findPlaces(Value firstRow, Value lastRow, Value firstColumn) {
  Value inStep = emitter.scale(emitter.remainder(emitter.lane(), kRowLanes),
                               shape.getPieceElements());
  Value depth = emitter.toIndex(arith::AddIOp::create(
      b, emitter.scale(emitter.warp(), sm80::Gemv::kTensorDepth), inStep));
  Value side = emitter.toIndex(emitter.divide(emitter.lane(), kRowLanes));
  auto add = [&](Value memref, Value first, Value last, int64_t count) {
    for (int64_t i = 0; i < count; i += kSide) {
      Value row = emitter.add(emitter.add(first, i), side);
      places.push_back(
          emitter.address(memref, {emitter.min(row, last), depth}));
    }
  };
  add(input, firstRow, lastRow, shape.m);
  add(weight, firstColumn, emitter.index(shape.columns - 1), shape.n);
}

GemvTensor::Values GemvTensor::load(Value step, int64_t count) {
  auto type = VectorType::get(kPieceWords, b.getI32Type());
  int64_t stepBytes =
      sm80::Gemv::kTensorDepth * shape.elementBytes * shape.getWarps();
  Values pieces;
  for (int64_t i = 0; i < count; ++i) {
    Value bytes = arith::IndexCastOp::create(
        b, b.getI64Type(), emitter.mul(emitter.add(step, i), stepBytes));
    for (Value place : places)
      pieces.push_back(emitter.load(type, emitter.advance(place, bytes),
                                    sm80::Gemv::kPieceBytes));
  }
  return pieces;
}

void GemvTensor::multiplyStep(ValueRange pieces, Values &sums) {
  Type element = cast<MemRefType>(weight.getType()).getElementType();
  auto word = [&](int64_t piece, int64_t i) -> Value {
    return vector::ExtractOp::create(b, pieces[piece], i);
  };
  int64_t rows = shape.m / kSide, columns = shape.n / kSide;
  for (int64_t half = 0; half < kPieceWords; half += 2)
    for (int64_t row = 0; row < rows; row += 2) {
      Values a = {word(row, half), word(row + 1, half), word(row, half + 1),
                  word(row + 1, half + 1)};
      for (int64_t column = 0; column < columns; ++column) {
        Values w = {word(rows + column, half), word(rows + column, half + 1)};
        auto tile = MutableArrayRef<Value>(sums).slice(
            (row / 2 * columns + column) * kTileSums, kTileSums);
        llvm::copy(emitter.multiply(element, a, w, ValueRange(tile)),
                   tile.begin());
      }
    }
}

void GemvTensor::multiply(ValueRange pieces, Values &sums) {
  for (; !pieces.empty(); pieces = pieces.drop_front(shape.getPiecesPerStep()))
    multiplyStep(pieces.take_front(shape.getPiecesPerStep()), sums);
}

void GemvTensor::multiplyRest(Values &sums) {
  int64_t rest = shape.getTensorSteps() % shape.getWarps();
  if (rest == 0)
    return;
  SmallVector<Type> types(sums.size(), b.getF32Type());
  sums = emitter.choose(
      emitter.isLess(emitter.warp(), emitter.i32(rest)), types,
      [&] {
        Value step = emitter.index(shape.getTensorSteps() / shape.getWarps());
        Values next(sums);
        multiply(load(step, 1), next);
        return next;
      },
      [&] { return sums; });
}

/// Prefetches the chunks of the next k tiles before it multiplies the current
/// ones.
void GemvTensor::emit(Value firstRow, Value lastRow, Value firstColumn,
                      Value table) {
  findPlaces(firstRow, lastRow, firstColumn);
  Values sums(shape.m * shape.n / sm80::kWarp, emitter.f32(0.0));
  int64_t steps = shape.getTensorSteps() / shape.getWarps();
  int64_t atOnce = shape.getStepsAtOnce();
  int64_t whole = steps - steps % atOnce;
  if (whole) {
    Values carried(sums);
    llvm::append_range(carried, load(emitter.index(0), atOnce));
    auto body = [&](Value step, ValueRange values) {
      Values next(values.take_front(sums.size()));
      Values pieces = load(step, atOnce);
      multiply(values.drop_front(sums.size()), next);
      llvm::append_range(next, pieces);
      return next;
    };
    carried = emitter.forLoop(emitter.index(atOnce), emitter.index(whole),
                              atOnce, carried, body);
    size_t number = sums.size();
    sums.assign(carried.begin(), carried.begin() + number);
    multiply(ValueRange(carried).drop_front(number), sums);
  }
  if (steps > whole)
    multiply(load(emitter.index(whole), steps - whole), sums);
  multiplyRest(sums);
  store(sums, table);
}

void GemvTensor::store(ValueRange sums, Value table) {
  constexpr int64_t pairBytes = 8;
  int64_t columns = shape.n / kSide;
  Value row = emitter.divide(emitter.lane(), kRowLanes);
  Value column = emitter.scale(emitter.remainder(emitter.lane(), kRowLanes), 2);
  Value first = arith::AddIOp::create(
      b, emitter.scale(emitter.warp(), shape.getWarpSums()),
      arith::AddIOp::create(b, emitter.scale(row, shape.getSumStride()),
                            column));
  for (int64_t i = 0, number = sums.size(); i < number; i += 2) {
    int64_t tile = i / kTileSums, lower = i % kTileSums ? kSide : 0;
    int64_t at = (tile / columns * 2 * kSide + lower) * shape.getSumStride() +
                 tile % columns * kSide;
    auto type = VectorType::get(2, b.getF32Type());
    Value pair = vector::FromElementsOp::create(
        b, type, ValueRange{sums[i], sums[i + 1]});
    vector::StoreOp::create(b, pair, table,
                            emitter.add(emitter.toIndex(first), at),
                            /*nontemporal=*/false, llvm::MaybeAlign(pairBytes));
  }
}
