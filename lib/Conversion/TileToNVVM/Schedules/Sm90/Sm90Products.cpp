//===- Sm90Products.cpp - the sums of sm90.contract -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Mainloop of consumers. Each k tile adds the wgmmas of one stage to the
// accumulators; a stage is released when the wgmmas of the next one have been
// issued.

#include "Sm90Products.h"

#include "../../../Emission/ContractOperands.h"

using namespace mlir;
using namespace moec;
using sm90::Contract;

/// Bytes of K that each of two consumers multiplies of a k tile, if they share
/// a block.
constexpr int64_t kHalfStepBytes = Contract::kStepBytes / 2;

Sm90Products::Sm90Products(Sm90Contract &contract)
    : contract(contract), emitter(contract.emitter), b(contract.b),
      shape(contract.shape),
      element(getElementType(emitter.operand(contract.op.getWeight()))),
      sumType(shape.compute == ComputeType::Int8 ? Type(b.getI32Type())
                                                 : b.getF32Type()),
      consumer(emitter.scale(emitter.warpgroup(), 1, -1)) {}

void Sm90Products::release(Value stage) {
  // Each warp has read its own weight rows and all input rows.
  emitter.ifThen(contract.isEqual(emitter.lane(), emitter.i32(0)),
                 [&] { emitter.arrive(contract.emptyBarrier(stage)); });
}

void Sm90Products::ifBehindFirst(Value step, function_ref<void()> body) {
  emitter.ifThen(arith::CmpIOp::create(b, arith::CmpIPredicate::ne, step,
                                       emitter.index(0)),
                 body);
}

Sm90Products::Factors Sm90Products::describe(int64_t height, Value stage) {
  // Offsets at which the second consumer begins.
  int64_t weightBytes = 0, rowBytes = 0;
  if (shape.sharesBlock())
    weightBytes = rowBytes = kHalfStepBytes;
  else if (shape.splitsRows(height))
    rowBytes = shape.getConsumerRows(height) * Contract::kStepBytes;
  else
    weightBytes = shape.getConsumerWeights(height) * Contract::kStepBytes;
  // Descriptors of the first stage are loop-invariant; those of all others need
  // one addition.
  constexpr int64_t unit = Contract::kChunkBytes;
  Value distance = emitter.scale(stage, shape.getStageBytes() / unit);
  auto describe = [&](int64_t offset, int64_t bytes) {
    Value address = contract.sharedAddress(offset);
    if (bytes)
      address = emitter.advance(address, emitter.scale(consumer, bytes));
    return contract.addI32(emitter.describeTile(address), distance);
  };
  return {describe(0, weightBytes),
          describe(contract.getInputOffset(), rowBytes)};
}

std::pair<Value, Value>
Sm90Products::getSides(int64_t height, const Factors &factors, int64_t i) {
  int64_t bytes = shape.getBlockWeights(height) * Contract::kStepBytes;
  Value block =
      emitter.scale(factors.weights, 1, i * bytes / Contract::kChunkBytes);
  return shape.hasRowsOnM(height) ? std::pair(factors.rows, block)
                                  : std::pair(block, factors.rows);
}

ContractSums Sm90Products::emit(int64_t height, const ContractTile &tile,
                                RingPlace place) {
  if (shape.fromRegisters)
    return shape.promotes ? multiplyDecodedPromoted(height, tile, place)
                          : multiplyDecoded(height, tile, place);
  ContractSums sums = shape.promotes ? multiplyPromoted(height, tile, place)
                                     : multiply(height, place);
  if (shape.sharesBlock())
    exchange(sums.blocks.front());
  if (sumType.isInteger())
    for (SmallVector<Value> &block : sums.blocks)
      for (Value &sum : block)
        sum = arith::SIToFPOp::create(b, b.getF32Type(), sum);
  return sums;
}

int64_t Sm90Products::getStepProducts() const {
  return shape.sharesBlock() ? Contract::kStepProducts / 2
                             : Contract::kStepProducts;
}

ContractSums Sm90Products::multiply(int64_t height, RingPlace place) {
  constexpr int64_t numOwn = 3;
  int64_t width = shape.getProductWidth(height);
  SmallVector<Value> carried{place.stage, place.parity, emitter.i32(0)};
  carried.append(shape.getBlocks(height), emitter.makeSums(sumType, width));
  SmallVector<Value> end = emitter.forLoop(
      emitter.index(0), emitter.index(shape.getSteps()), 1, carried,
      [&](Value step, ValueRange values) {
        RingPlace at{values[0], values[1]};
        SmallVector<Value> sums(values.drop_front(numOwn));
        emitter.waitBarrier(contract.fullBarrier(at.stage), at.parity);
        Factors factors = describe(height, at.stage);
        emitter.fenceProducts();
        for (int64_t i = 0; i < getStepProducts(); ++i)
          for (auto [block, sum] : llvm::enumerate(sums)) {
            auto [rows64, other] = getSides(height, factors, block);
            sum = emitter.multiplyAsync(element, width, rows64, other, i, sum);
          }
        emitter.commitProducts();
        // The k tile before is complete, so that its stage is free.
        emitter.waitProducts(1);
        ifBehindFirst(step, [&] { release(values[2]); });
        RingPlace next = contract.next(at);
        SmallVector<Value> all{next.stage, next.parity, at.stage};
        all.append(sums);
        return all;
      });
  emitter.waitProducts(0);
  ContractSums sums{{end[0], end[1]}, {}};
  for (Value value : ArrayRef<Value>(end).drop_front(numOwn))
    sums.blocks.push_back(emitter.getSums(value));
  release(end[2]);
  return sums;
}

ContractPart Sm90Products::getPart(int64_t height, const ContractTile &tile) {
  ContractPart part{height, tile, shape.getConsumerRows(height)};
  if (shape.sharesBlock() || shape.splitsRows(height)) {
    // The first consumer has the first rows.
    Value first = emitter.scale(consumer, part.height);
    part.tile.firstRow = contract.addI32(tile.firstRow, first);
    part.tile.rows = arith::SubIOp::create(b, tile.rows, first);
  } else {
    part.tile.firstColumn = contract.addI32(
        tile.firstColumn,
        emitter.scale(consumer, shape.getConsumerColumns(height)));
  }
  return part;
}

/// Deterministic: both consumers add the same two numbers, and addition
/// commutes.
void Sm90Products::exchange(SmallVector<Value> &all) {
  constexpr int64_t lanes = 4, laneBytes = lanes * 4;
  constexpr int64_t pieceBytes = laneBytes * Contract::kWarpgroup;
  int64_t half = all.size() / 2, pieces = half / lanes;
  Value isFirst = contract.isEqual(consumer, emitter.i32(0));
  SmallVector<Value> own, others;
  for (int64_t i = 0; i < half; ++i) {
    own.push_back(arith::SelectOp::create(b, isFirst, all[i], all[half + i]));
    others.push_back(
        arith::SelectOp::create(b, isFirst, all[half + i], all[i]));
  }
  auto type = VectorType::get(lanes, sumType);
  auto address = [&](Value of, int64_t piece) {
    Value offset =
        contract.addI32(emitter.scale(of, pieces * pieceBytes),
                        emitter.scale(emitter.warpgroupThread(), laneBytes));
    return emitter.advance(
        contract.sharedAddress(shape.getExchangeOffset() + piece * pieceBytes),
        offset);
  };
  // The other consumer has read the buffer's contents of the tile before.
  emitter.consumerBarrier();
  for (int64_t i = 0; i < pieces; ++i)
    emitter.store(vector::FromElementsOp::create(
                      b, type, ArrayRef<Value>(others).slice(i * lanes, lanes)),
                  address(consumer, i), laneBytes);
  emitter.consumerBarrier();
  Value other = arith::SubIOp::create(b, emitter.i32(1), consumer);
  for (int64_t i = 0; i < pieces; ++i) {
    Value piece = emitter.load(type, address(other, i), laneBytes);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      Value &sum = own[i * lanes + lane];
      Value more = vector::ExtractOp::create(b, piece, lane);
      sum = sumType.isInteger() ? Value(arith::AddIOp::create(b, sum, more))
                                : arith::AddFOp::create(b, sum, more);
    }
  }
  all = own;
}
