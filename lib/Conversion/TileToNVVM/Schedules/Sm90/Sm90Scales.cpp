//===- Sm90Scales.cpp - block scales of sm90.contract -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm90Scales.h"

#include "../../../Emission/ContractOperands.h"
#include "../../InlinePtx.h"

using namespace mlir;
using namespace moec;
using sm90::Contract;

Sm90Scales::Sm90Scales(Sm90Contract &contract)
    : contract(contract), emitter(contract.emitter), b(contract.b),
      shape(contract.shape) {}

Value Sm90Scales::address(Value stage, int64_t scale) {
  return emitter.advance(contract.sharedAddress(shape.getScaleOffset()),
                         emitter.scale(stage, shape.getScaleBytes(),
                                       scale * Contract::kScaleElementBytes));
}

//===----------------------------------------------------------------------===//
// The producer
//===----------------------------------------------------------------------===//

SmallVector<Value> Sm90Scales::find(const ContractTile &tile, Value number) {
  Value source = emitter.operand(contract.op.getSource());
  // Rows past the end repeat the last one; their sums are never read.
  Value last = emitter.scale(tile.rows, 1, -1);
  SmallVector<Value> from;
  for (int64_t i = 0; i < shape.getMaxHeight(); i += Contract::kRowThreads) {
    Value row = contract.minI32(emitter.scale(number, 1, i), last);
    Value position = contract.addI32(tile.firstRow, row);
    if (source)
      position = emitter.loadI32(source, emitter.toIndex(position));
    from.push_back(position);
  }
  from.push_back(findWeights(tile, number));
  return from;
}

/// Threads without weights repeat the last ones.
Value Sm90Scales::findWeights(const ContractTile &tile, Value number) {
  Value block = contract.minI32(
      emitter.divide(number, shape.weightsPerColumn),
      emitter.i32(shape.getScaleSlots() / shape.weightsPerColumn - 1));
  Value column =
      emitter.add(emitter.toIndex(tile.firstColumn),
                  emitter.mul(emitter.toIndex(block),
                              Contract::kBlockRows / shape.weightsPerColumn));
  column = emitter.min(column, emitter.index(shape.columns - 1));
  Value row = getScaleRow(emitter, contract.op, /*projection=*/0, column);
  if (shape.weightsPerColumn == 2) {
    // In memory, up comes before gate in one of the orders.
    bool isUpFirst =
        contract.op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate;
    Value isGate =
        contract.isEqual(emitter.remainder(number, shape.weightsPerColumn),
                         emitter.i32(isUpFirst));
    Value up = getScaleRow(emitter, contract.op, /*projection=*/1, column);
    row = arith::SelectOp::create(b, isGate, row, up);
  }
  return emitter.toI32(row);
}

void Sm90Scales::copy(const ContractTile &tile, ValueRange from, Value number,
                      Value step, Value stage) {
  Value to = emitter.advance(
      address(stage, 0), emitter.scale(number, Contract::kScaleElementBytes));
  // Copies one of `count` scales: the thread's, at index `first` plus its own.
  auto copyOne = [&](Value memref, SmallVector<Value> row, int64_t first,
                     int64_t count) {
    row.push_back(step);
    auto start = [&] {
      for (Value &index : row)
        index = emitter.toIndex(index);
      Value own = emitter.advance(to, first * Contract::kScaleElementBytes);
      Value from = emitter.address(emitter.operand(memref), row);
      Type type = getElementType(memref);
      if (type.isF32())
        return emitter.copyWordAsync(own, from);
      // The scales of a row are adjacent, so that nearly all loads hit the
      // cache. The thread's later arrival publishes the store.
      emitter.store(emitter.loadScale(type, from), own,
                    Contract::kScaleElementBytes);
    };
    if (count >= Contract::kRowThreads)
      start();
    else
      emitter.ifThen(emitter.isLess(number, emitter.i32(count)), start);
  };
  for (int64_t i = 0; i < shape.getMaxHeight(); i += Contract::kRowThreads)
    copyOne(contract.op.getInputScale(), {from[i / Contract::kRowThreads]}, i,
            shape.getMaxHeight() - i);
  SmallVector<Value> row{from.back()};
  if (shape.isGrouped)
    row.insert(row.begin(), tile.group);
  copyOne(contract.op.getWeightScale(), row, shape.getMaxHeight(),
          shape.getScaleSlots());
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

/// A thread has two of every 8 rows.
static constexpr int64_t kOctet = 8, kPair = 2;

Value Sm90Scales::findRows(int64_t height, Value consumer) {
  Value row;
  if (shape.hasRowsOnM(height)) {
    // Read again, so that registers keep fewer derived values.
    Value thread = readThread(b);
    constexpr int64_t warp = 32, perRow = 4;
    row = contract.addI32(
        emitter.scale(
            emitter.divide(emitter.remainder(thread, Contract::kWarpgroup),
                           warp),
            kPair * kOctet),
        emitter.divide(emitter.remainder(thread, warp), perRow));
    if (shape.splitsRows(height))
      row = contract.addI32(
          row, emitter.scale(consumer, shape.getConsumerRows(height)));
  } else {
    row =
        emitter.scale(emitter.remainder(emitter.lane(), kOctet / kPair), kPair);
  }
  return emitter.advance(contract.sharedAddress(shape.getScaleOffset()),
                         emitter.scale(row, Contract::kScaleElementBytes));
}

SmallVector<Value> Sm90Scales::loadRows(Value rows, Value stage,
                                        int64_t height) {
  constexpr int64_t scaleBytes = Contract::kScaleElementBytes;
  Value own =
      emitter.advance(rows, emitter.scale(stage, shape.getScaleBytes()));
  SmallVector<Value> scales;
  if (shape.hasRowsOnM(height)) {
    for (int64_t i = 0; i < kPair; ++i)
      scales.push_back(emitter.load(
          b.getF32Type(), emitter.advance(own, i * kOctet * scaleBytes),
          scaleBytes));
    return scales;
  }
  for (int64_t first = 0; first < height; first += kOctet) {
    Value both = emitter.load(VectorType::get(kPair, b.getF32Type()),
                              emitter.advance(own, first * scaleBytes),
                              kPair * scaleBytes);
    for (int64_t i = 0; i < kPair; ++i)
      scales.push_back(vector::ExtractOp::create(b, both, i));
  }
  return scales;
}

SmallVector<Value> Sm90Scales::loadWeights(Value stage, int64_t height,
                                           Value consumer, int64_t block) {
  auto slot = [&](int64_t weightRows) {
    return weightRows / Contract::kBlockRows * shape.weightsPerColumn;
  };
  Value from = address(stage, shape.getMaxHeight() +
                                  slot(block * shape.getBlockWeights(height)));
  if (!shape.sharesBlock() && !shape.splitsRows(height))
    from = emitter.advance(
        from, emitter.scale(consumer, slot(shape.getConsumerWeights(height)) *
                                          Contract::kScaleElementBytes));
  SmallVector<Value> scales;
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    scales.push_back(emitter.load(
        b.getF32Type(),
        emitter.advance(from, projection * Contract::kScaleElementBytes),
        Contract::kScaleElementBytes));
  return scales;
}

bool Sm90Scales::areSame(int64_t height) const {
  // Gate and up have separate scale blocks, one each per `n` columns.
  return shape.hasRowsOnM(height) && shape.weightsPerColumn == 2 &&
         contract.op.getLayoutAttr().getOrder() !=
             moe::GateUpOrder::Interleaved;
}
