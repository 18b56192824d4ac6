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
  Value column = emitter.add(
      emitter.toIndex(tile.firstColumn),
      emitter.mul(emitter.toIndex(block), Contract::kBlockRows / shape.planes));
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

/// Of 8 rows, a thread has two.
static constexpr int64_t kOctet = 8, kPair = 2;

Value Sm90Scales::findRows(int64_t body, Value consumer) {
  Value row;
  if (shape.hasRowsOnM(body)) {
    // Read, lest registers keep more that follows from it.
    Value thread = readThread(b);
    constexpr int64_t warp = 32, perRow = 4;
    row = contract.addI32(
        emitter.scale(
            emitter.divide(emitter.remainder(thread, Contract::kWarpgroup),
                           warp),
            kPair * kOctet),
        emitter.divide(emitter.remainder(thread, warp), perRow));
    if (shape.splitsRows(body))
      row = contract.addI32(
          row, emitter.scale(consumer, shape.getConsumerRows(body)));
  } else {
    row =
        emitter.scale(emitter.remainder(emitter.lane(), kOctet / kPair), kPair);
  }
  return emitter.advance(contract.sharedAddress(shape.getScaleOffset()),
                         emitter.scale(row, Contract::kScaleElementBytes));
}

SmallVector<Value> Sm90Scales::loadRows(Value rows, Value stage, int64_t body) {
  constexpr int64_t scaleBytes = Contract::kScaleElementBytes;
  Value own =
      emitter.advance(rows, emitter.scale(stage, shape.getScaleBytes()));
  SmallVector<Value> scales;
  if (shape.hasRowsOnM(body)) {
    for (int64_t i = 0; i < kPair; ++i)
      scales.push_back(emitter.load(
          b.getF32Type(), emitter.advance(own, i * kOctet * scaleBytes),
          scaleBytes));
    return scales;
  }
  for (int64_t first = 0; first < body; first += kOctet) {
    Value both = emitter.load(VectorType::get(kPair, b.getF32Type()),
                              emitter.advance(own, first * scaleBytes),
                              kPair * scaleBytes);
    for (int64_t i = 0; i < kPair; ++i)
      scales.push_back(vector::ExtractOp::create(b, both, i));
  }
  return scales;
}

SmallVector<Value> Sm90Scales::loadWeights(Value stage, int64_t body,
                                           Value consumer, int64_t block) {
  auto slot = [&](int64_t weightRows) {
    return weightRows / Contract::kBlockRows * shape.planes;
  };
  Value from = address(stage, shape.getMaxBody() +
                                  slot(block * shape.getBlockWeights(body)));
  if (!shape.sharesBlock() && !shape.splitsRows(body))
    from = emitter.advance(
        from, emitter.scale(consumer, slot(shape.getConsumerWeights(body)) *
                                          Contract::kScaleElementBytes));
  SmallVector<Value> scales;
  for (int64_t plane = 0; plane < shape.planes; ++plane)
    scales.push_back(emitter.load(
        b.getF32Type(),
        emitter.advance(from, plane * Contract::kScaleElementBytes),
        Contract::kScaleElementBytes));
  return scales;
}

bool Sm90Scales::areSame(int64_t body) const {
  // Gate and up have blocks of scales of their own: of `n` columns one each.
  return shape.hasRowsOnM(body) && shape.planes == 2 &&
         contract.op.getLayoutAttr().getOrder() !=
             moe::GateUpOrder::Interleaved;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Whether a body's row scales fit in registers next to its sums: they are then
/// loaded while the first products run, and once for all blocks.
static bool keepsRowScales(const Contract &shape, int64_t body) {
  constexpr int64_t most = 160;
  return shape.hasRowsOnM(body) ||
         (shape.getBlocks(body) + 1) * body / 2 + body / 4 <= most;
}

/// One block after the other: its products of the step are new sums, which are
/// added, times their scales. Meanwhile the other consumer has the tensor
/// cores.
///
/// With rows on M two sets of them would not fit in registers, so that each
/// chain of products is written over the one before, explicitly.
ContractSums Sm90Products::multiplyScaled(int64_t body,
                                          const ContractTile &tile,
                                          RingPlace place) {
  Sm90Scales scales(contract);
  int64_t numBlocks = shape.getBlocks(body);
  int64_t width = shape.getProductWidth(body), numSums = width / 2;
  bool isOnM = shape.hasRowsOnM(body),
       keepsScales = keepsRowScales(shape, body);
  Value rows = scales.findRows(body, consumer);
  Value zero = emitter.f32(0), never;
  if (isOnM) {
    // No compiler knows that a tile has rows. Zeros that wait for their number
    // take no registers while the tile is looked up.
    never = arith::ExtUIOp::create(b, b.getI32Type(),
                                   emitter.isLess(tile.rows, emitter.i32(1)));
    zero = arith::BitcastOp::create(b, b.getF32Type(), never);
  }
  // What comes before the first product of a step is known when the last one of
  // the step before has begun, perhaps even that the stage is full.
  struct Stage {
    RingPlace place;
    Factors factors;
    Value isFull;
  };
  Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  Value no = arith::ConstantOp::create(b, b.getBoolAttr(false));
  // `old`: the products before, of rows on M.
  auto step = [&](Stage at, MutableArrayRef<Value> sums,
                  SmallVector<Value> &old) {
    Value stage = at.place.stage;
    emitter.ifThen(arith::XOrIOp::create(b, at.isFull, yes), [&] {
      emitter.waitBarrier(contract.fullBarrier(stage), at.place.parity);
    });
    Stage next;
    SmallVector<Value> rowScales, weightScales;
    // The last reads of the stage are over in all lanes.
    auto giveBack = [&] {
      emitter.warpBarrier();
      release(stage);
    };
    for (int64_t block = 0; block < numBlocks; ++block) {
      auto [rows64, other] = getSides(body, at.factors, block);
      Value products;
      if (isOnM) {
        products = multiplyE4M3(b, old, emitter.getDescriptor(rows64, 0),
                                emitter.getDescriptor(other, 0), never);
      } else {
        emitter.fenceProducts();
        products =
            emitter.multiplyAsync(element, width, rows64, other,
                                  /*step=*/0, emitter.makeUnsetSums(width),
                                  /*isFirst=*/true);
      }
      for (int64_t i = 1; i < getStepProducts(); ++i)
        products =
            emitter.multiplyAsync(element, width, rows64, other, i, products);
      emitter.commitProducts();
      if (block == 0 || !scales.areSame(body))
        weightScales = scales.loadWeights(stage, body, consumer, block);
      if (block == 0 && keepsScales)
        rowScales = scales.loadRows(rows, stage, body);
      if (block + 1 == numBlocks) {
        next.place = contract.next(at.place);
        next.isFull = emitter.testBarrier(
            contract.fullBarrier(next.place.stage), next.place.parity);
        Factors factors = describe(body, next.place.stage);
        auto words = tieWords(b, {factors.weights, factors.rows});
        next.factors = {words[0], words[1]};
      }
      emitter.waitProducts(0);
      old = emitter.getSums(products);
      if (block + 1 == numBlocks && keepsScales)
        giveBack();
      if (!keepsScales)
        rowScales = scales.loadRows(rows, stage, body);
      auto own = sums.slice(block * numSums, numSums);
      addScaled(body, own, old, rowScales, weightScales);
    }
    if (!keepsScales)
      giveBack();
    return next;
  };
  Factors first = describe(body, place.stage);
  SmallVector<Value> carried{place.stage, place.parity, first.weights,
                             first.rows, no};
  int64_t numOwn = carried.size(), numAll = numBlocks * numSums;
  carried.append(numAll + (isOnM ? numSums : 0), zero);
  // Counted in one register: there are few left.
  SmallVector<Value> end = emitter.forLoop(
      emitter.i32(0), emitter.i32(shape.getSteps()), 1, carried,
      [&](Value, ValueRange values) {
        Stage at{{values[0], values[1]}, {values[2], values[3]}, values[4]};
        values = values.drop_front(numOwn);
        SmallVector<Value> sums(values.take_front(numAll));
        SmallVector<Value> old(values.drop_front(numAll));
        Stage next = step(at, sums, old);
        SmallVector<Value> all{next.place.stage, next.place.parity,
                               next.factors.weights, next.factors.rows,
                               next.isFull};
        all.append(sums);
        if (isOnM)
          all.append(old);
        return all;
      });
  ContractSums result{{end[0], end[1]}, {}};
  for (int64_t block = 0; block < numBlocks; ++block)
    result.blocks.emplace_back(
        ArrayRef<Value>(end).slice(numOwn + block * numSums, numSums));
  return result;
}

/// `rowScales`: two for every four sums, or two for all of them.
void Sm90Products::addScaled(int64_t body, MutableArrayRef<Value> sums,
                             ArrayRef<Value> products,
                             ArrayRef<Value> rowScales,
                             ArrayRef<Value> weightScales) {
  // Of a thread's four sums of 8 of the width, neighbours are neighbours there,
  // and the last two are 8 of the 64 on: of weights, that is the other plane.
  constexpr int64_t perOctet = 4;
  bool isOnM = shape.hasRowsOnM(body);
  for (int64_t i = 0, end = sums.size(); i < end; ++i) {
    int64_t octet = i / perOctet, half = i % perOctet / 2;
    Value row = rowScales[isOnM ? half : octet * 2 + i % 2];
    int64_t plane = (isOnM ? octet : half) % shape.planes;
    Value scale = arith::MulFOp::create(b, row, weightScales[plane]);
    sums[i] = math::FmaOp::create(b, products[i], scale, sums[i]);
  }
  // Here, not where the next step reads them: the products' registers are free
  // for the next block.
  llvm::copy(tieSums(b, sums), sums.begin());
}
