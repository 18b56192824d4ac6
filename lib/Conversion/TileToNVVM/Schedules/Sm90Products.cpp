//===- Sm90Products.cpp - the sums of sm90.contract -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Each step adds the products of one stage to the accumulators; a stage goes
// back to the producer when the products of the next one have been started.

#include "Sm90Products.h"

#include "../../Emission/ContractOperands.h"

using namespace mlir;
using namespace moec;
using sm90::Contract;

Sm90Products::Sm90Products(Sm90Contract &contract)
    : contract(contract), emitter(contract.emitter), b(contract.b),
      shape(contract.shape),
      element(getElementType(emitter.operand(contract.op.getWeight()))),
      consumer(emitter.scale(emitter.warpgroup(), 1, -1)) {}

void Sm90Products::release(Value stage) {
  // Each warp has read its own rows of weights, and all input rows.
  emitter.ifThen(contract.isEqual(emitter.lane(), emitter.i32(0)),
                 [&] { emitter.arrive(contract.emptyBarrier(stage)); });
}

SmallVector<Value> Sm90Products::describeWeights(Value stage) {
  constexpr int64_t blockBytes = Contract::kBlockRows * Contract::kStepBytes;
  // A plane holds the columns of both consumers.
  int64_t planeBlocks = shape.n / Contract::kBlockRows;
  Value weights = emitter.advance(
      contract.stageAddress(stage),
      emitter.scale(consumer, shape.getResultBlocks() * blockBytes));
  SmallVector<Value> blocks;
  for (int64_t plane = 0; plane < shape.planes; ++plane)
    for (int64_t i = 0; i < shape.getResultBlocks(); ++i)
      blocks.push_back(emitter.describeTile(
          emitter.advance(weights, (plane * planeBlocks + i) * blockBytes)));
  return blocks;
}

Value Sm90Products::describeRows(Value stage) {
  return emitter.describeTile(
      contract.stageAddress(stage, contract.getInputOffset()));
}

ContractSums Sm90Products::emit(int64_t width, RingPlace place) {
  int64_t numBlocks = shape.getBlocks();
  SmallVector<Value> carried{place.stage, place.parity, emitter.i32(0)};
  carried.append(numBlocks, emitter.makeSums(width));
  SmallVector<Value> end = emitter.forLoop(
      emitter.index(0), emitter.index(shape.getSteps()), 1, carried,
      [&](Value step, ValueRange values) {
        RingPlace at{values[0], values[1]};
        SmallVector<Value> sums(values.drop_front(3));
        emitter.waitBarrier(contract.fullBarrier(at.stage), at.parity);
        SmallVector<Value> blocks = describeWeights(at.stage);
        Value rows = describeRows(at.stage);
        emitter.fenceProducts();
        for (int64_t i = 0; i < Contract::kStepProducts; ++i)
          for (int64_t block = 0; block < numBlocks; ++block)
            sums[block] = emitter.multiplyAsync(element, width, blocks[block],
                                                rows, i, sums[block]);
        emitter.commitProducts();
        // The step before is done, so that its stage is free.
        emitter.waitProducts(1);
        Value hasBefore = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                                step, emitter.index(0));
        emitter.ifThen(hasBefore, [&] { release(values[2]); });
        RingPlace next = contract.next(at);
        SmallVector<Value> all{next.stage, next.parity, at.stage};
        all.append(sums);
        return all;
      });
  emitter.waitProducts(0);
  ContractSums result{{end[0], end[1]}, {}};
  for (Value value : ArrayRef<Value>(end).drop_front(3))
    result.blocks.push_back(emitter.getSums(value));
  release(end[2]);
  return result;
}
