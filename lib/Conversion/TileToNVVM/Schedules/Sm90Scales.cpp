//===- Sm90Scales.cpp - block scales of sm90.contract -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm90Scales.h"

#include "../../Emission/ContractOperands.h"
#include "Sm90Products.h"
#include "mlir/Dialect/Math/IR/Math.h"

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
  Value scales = emitter.operand(contract.op.getInputScale());
  Value source = emitter.operand(contract.op.getSource());
  // Rows past the end repeat the last one; nobody reads their sums.
  Value last = emitter.scale(tile.rows, 1, -1);
  SmallVector<Value> from;
  for (int64_t i = 0; i < shape.getMaxBody(); i += Contract::kRowThreads) {
    Value row = contract.minI32(emitter.scale(number, 1, i), last);
    Value position = emitter.toIndex(contract.addI32(tile.firstRow, row));
    if (source)
      position = emitter.loadIndex(source, position);
    from.push_back(emitter.address(scales, {position, emitter.index(0)}));
  }
  from.push_back(findWeights(tile, number));
  return from;
}

/// Threads without weights repeat the last ones.
Value Sm90Scales::findWeights(const ContractTile &tile, Value number) {
  Value block =
      contract.minI32(emitter.divide(number, shape.planes),
                      emitter.i32(shape.getScaleSlots() / shape.planes - 1));
  Value column =
      emitter.add(emitter.toIndex(tile.firstColumn),
                  emitter.mul(emitter.toIndex(block), shape.getBlockColumns()));
  column = emitter.min(column, emitter.index(shape.columns - 1));
  Value row = getScaleRow(emitter, contract.op, /*plane=*/0, column);
  if (shape.planes == 2) {
    // In memory, up comes before gate in one of the orders.
    bool isUpFirst =
        contract.op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate;
    Value isGate = contract.isEqual(emitter.remainder(number, shape.planes),
                                    emitter.i32(isUpFirst));
    Value up = getScaleRow(emitter, contract.op, /*plane=*/1, column);
    row = arith::SelectOp::create(b, isGate, row, up);
  }
  SmallVector<Value> indices{row, emitter.index(0)};
  if (shape.isGrouped)
    indices.insert(indices.begin(), emitter.toIndex(tile.group));
  return emitter.address(emitter.operand(contract.op.getWeightScale()),
                         indices);
}

void Sm90Scales::copy(ValueRange from, Value number, Value step, Value stage) {
  Value offset = emitter.scale(step, Contract::kScaleElementBytes);
  Value to = emitter.advance(
      address(stage, 0), emitter.scale(number, Contract::kScaleElementBytes));
  // `count` scales, the thread's one at `first` + number.
  auto copyOne = [&](Value source, int64_t first, int64_t count) {
    auto start = [&] {
      emitter.copyWordAsync(
          emitter.advance(to, first * Contract::kScaleElementBytes),
          emitter.advance(source, offset));
    };
    if (count >= Contract::kRowThreads)
      start();
    else
      emitter.ifThen(emitter.isLess(number, emitter.i32(count)), start);
  };
  for (int64_t i = 0; i < shape.getMaxBody(); i += Contract::kRowThreads)
    copyOne(from[i / Contract::kRowThreads], i, shape.getMaxBody() - i);
  copyOne(from.back(), shape.getMaxBody(), shape.getScaleSlots());
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

std::array<Value, 2> Sm90Scales::loadRows(Value stage, int64_t first) {
  constexpr int64_t pair = 2;
  Value own = emitter.scale(emitter.remainder(emitter.lane(), 4),
                            pair * Contract::kScaleElementBytes);
  Value both = emitter.load(VectorType::get(pair, b.getF32Type()),
                            emitter.advance(address(stage, first), own),
                            pair * Contract::kScaleElementBytes);
  return {vector::ExtractOp::create(b, both, 0),
          vector::ExtractOp::create(b, both, 1)};
}

SmallVector<Value> Sm90Scales::loadWeights(Value stage, Value consumer,
                                           int64_t block) {
  Value from = address(stage, shape.getMaxBody() + block * shape.planes);
  if (!shape.sharesBlock())
    from = emitter.advance(
        from, emitter.scale(consumer, shape.getBlocks() * shape.planes *
                                          Contract::kScaleElementBytes));
  SmallVector<Value> scales;
  for (int64_t plane = 0; plane < shape.planes; ++plane)
    scales.push_back(emitter.load(
        b.getF32Type(),
        emitter.advance(from, plane * Contract::kScaleElementBytes),
        Contract::kScaleElementBytes));
  return scales;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// One block after the other: its products of the step are new sums, which are
/// added, times their scales. Meanwhile the other consumer has the tensor
/// cores.
ContractSums Sm90Products::multiplyScaled(int64_t width,
                                          const ContractTile &tile,
                                          RingPlace place) {
  // Of a thread's four sums of 8 rows, neighbours are of neighbouring rows, and
  // the last two of the other plane.
  constexpr int64_t rows8 = 8, perRows = 4;
  Sm90Scales scales(contract);
  int64_t numBlocks = shape.getBlocks();
  int64_t numSums = width / 2;
  SmallVector<Value> carried{place.stage, place.parity};
  carried.append(numBlocks * numSums, emitter.f32(0));
  SmallVector<Value> end = emitter.forLoop(
      emitter.index(0), emitter.index(shape.getSteps()), 1, carried,
      [&](Value, ValueRange values) {
        RingPlace at{values[0], values[1]};
        SmallVector<Value> sums(values.drop_front(2));
        emitter.waitBarrier(contract.fullBarrier(at.stage), at.parity);
        SmallVector<Value> blocks = describeWeights(at.stage);
        Value rows = describeRows(at.stage);
        for (int64_t block = 0; block < numBlocks; ++block) {
          SmallVector<Value> weights =
              scales.loadWeights(at.stage, consumer, block);
          emitter.fenceProducts();
          Value products = emitter.makeUnsetSums(width);
          for (int64_t i = 0; i < getStepProducts(); ++i)
            products = emitter.multiplyAsync(element, width, blocks[block],
                                             rows, i, products, i == 0);
          emitter.commitProducts();
          emitter.waitProducts(0);
          SmallVector<Value> blockSums = emitter.getSums(products);
          for (int64_t i = 0; i < numSums; i += perRows) {
            auto rowScales = scales.loadRows(at.stage, i / perRows * rows8);
            for (int64_t j = 0; j < perRows; ++j) {
              Value scale = arith::MulFOp::create(
                  b, rowScales[j % 2], weights[shape.planes == 2 ? j / 2 : 0]);
              Value &sum = sums[block * numSums + i + j];
              sum = math::FmaOp::create(b, blockSums[i + j], scale, sum);
            }
          }
        }
        // All lanes have read their scales.
        emitter.warpBarrier();
        release(at.stage);
        RingPlace next = contract.next(at);
        SmallVector<Value> all{next.stage, next.parity};
        all.append(sums);
        return all;
      });
  ContractSums result{{end[0], end[1]}, tile, width, {}};
  for (int64_t block = 0; block < numBlocks; ++block)
    result.blocks.emplace_back(
        ArrayRef<Value>(end).slice(2 + block * numSums, numSums));
  return result;
}
