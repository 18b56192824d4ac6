//===- Sm90Scales.cpp - block scales of sm90.contract -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm90Scales.h"

#include "../../Emission/ContractOperands.h"
#include "../InlinePtx.h"
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
  Value source = emitter.operand(contract.op.getSource());
  // Rows past the end repeat the last one; nobody reads their sums.
  Value last = emitter.scale(tile.rows, 1, -1);
  SmallVector<Value> from;
  for (int64_t i = 0; i < shape.getMaxBody(); i += Contract::kRowThreads) {
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
  return emitter.toI32(row);
}

void Sm90Scales::copy(const ContractTile &tile, ValueRange from, Value number,
                      Value step, Value stage) {
  Value to = emitter.advance(
      address(stage, 0), emitter.scale(number, Contract::kScaleElementBytes));
  // `count` scales of rows of a matrix, the thread's one at `first` + number.
  auto copyOne = [&](Value memref, SmallVector<Value> row, int64_t first,
                     int64_t count) {
    row.push_back(step);
    auto start = [&] {
      for (Value &index : row)
        index = emitter.toIndex(index);
      emitter.copyWordAsync(
          emitter.advance(to, first * Contract::kScaleElementBytes),
          emitter.address(emitter.operand(memref), row));
    };
    if (count >= Contract::kRowThreads)
      start();
    else
      emitter.ifThen(emitter.isLess(number, emitter.i32(count)), start);
  };
  for (int64_t i = 0; i < shape.getMaxBody(); i += Contract::kRowThreads)
    copyOne(contract.op.getInputScale(), {from[i / Contract::kRowThreads]}, i,
            shape.getMaxBody() - i);
  SmallVector<Value> row{from.back()};
  if (shape.isGrouped)
    row.insert(row.begin(), tile.group);
  copyOne(contract.op.getWeightScale(), row, shape.getMaxBody(),
          shape.getScaleSlots());
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

SmallVector<Value> Sm90Scales::loadRows(Value stage, int64_t count) {
  constexpr int64_t rows8 = 8, pair = 2;
  constexpr int64_t pairBytes = pair * Contract::kScaleElementBytes;
  Value own =
      emitter.scale(emitter.remainder(emitter.lane(), rows8 / pair), pairBytes);
  SmallVector<Value> scales;
  for (int64_t first = 0; first < count; first += rows8) {
    Value both =
        emitter.load(VectorType::get(pair, b.getF32Type()),
                     emitter.advance(address(stage, first), own), pairBytes);
    for (int64_t i = 0; i < pair; ++i)
      scales.push_back(vector::ExtractOp::create(b, both, i));
  }
  return scales;
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

/// Whether a body's row scales fit in registers next to its sums: they are then
/// loaded while the first products run, and once for all blocks.
static bool keepsRowScales(int64_t width, int64_t numBlocks) {
  constexpr int64_t most = 160;
  return (numBlocks + 1) * width / 2 + width / 4 <= most;
}

/// One block after the other: its products of the step are new sums, which are
/// added, times their scales. Meanwhile the other consumer has the tensor
/// cores.
ContractSums Sm90Products::multiplyScaled(int64_t width,
                                          const ContractTile &tile,
                                          RingPlace place) {
  Sm90Scales scales(contract);
  int64_t numBlocks = shape.getBlocks(), numSums = width / 2;
  bool keepsScales = keepsRowScales(width, numBlocks);
  SmallVector<Value> carried{place.stage, place.parity};
  carried.append(numBlocks * numSums, emitter.f32(0));
  auto step = [&](RingPlace at, MutableArrayRef<Value> sums) {
    emitter.waitBarrier(contract.fullBarrier(at.stage), at.parity);
    SmallVector<Value> blocks = describeWeights(at.stage);
    Value rows = describeRows(at.stage);
    SmallVector<Value> rowScales;
    // The last reads of the stage are over in all lanes.
    auto giveBack = [&] {
      emitter.warpBarrier();
      release(at.stage);
    };
    for (int64_t block = 0; block < numBlocks; ++block) {
      SmallVector<Value> weightScales =
          scales.loadWeights(at.stage, consumer, block);
      emitter.fenceProducts();
      Value products = emitter.makeUnsetSums(width);
      for (int64_t i = 0; i < getStepProducts(); ++i)
        products = emitter.multiplyAsync(element, width, blocks[block], rows, i,
                                         products, /*isFirst=*/i == 0);
      emitter.commitProducts();
      if (block == 0 && keepsScales)
        rowScales = scales.loadRows(at.stage, width);
      emitter.waitProducts(0);
      SmallVector<Value> blockSums = emitter.getSums(products);
      if (block + 1 == numBlocks && keepsScales)
        giveBack();
      if (!keepsScales)
        rowScales = scales.loadRows(at.stage, width);
      auto own = sums.slice(block * numSums, numSums);
      addScaled(own, blockSums, rowScales, weightScales);
    }
    if (!keepsScales)
      giveBack();
  };
  SmallVector<Value> end =
      emitter.forLoop(emitter.index(0), emitter.index(shape.getSteps()), 1,
                      carried, [&](Value, ValueRange values) {
                        RingPlace at{values[0], values[1]};
                        SmallVector<Value> sums(values.drop_front(2));
                        step(at, sums);
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

/// `rowScales`: two for every four sums.
void Sm90Products::addScaled(MutableArrayRef<Value> sums,
                             ArrayRef<Value> products,
                             ArrayRef<Value> rowScales,
                             ArrayRef<Value> weightScales) {
  // Of a thread's four sums of 8 rows, neighbours are of neighbouring rows, and
  // the last two of the other plane.
  constexpr int64_t perRows = 4;
  for (size_t i = 0; i < sums.size(); i += perRows)
    for (int64_t j = 0; j < perRows; ++j) {
      Value row = rowScales[i / 2 + j % 2];
      Value weight = weightScales[shape.planes == 2 ? j / 2 : 0];
      Value scale = arith::MulFOp::create(b, row, weight);
      sums[i + j] = math::FmaOp::create(b, products[i + j], scale, sums[i + j]);
    }
  // Here, not where the next step reads them: the products' registers are free
  // for the next block.
  llvm::copy(tieSums(b, sums), sums.begin());
}
