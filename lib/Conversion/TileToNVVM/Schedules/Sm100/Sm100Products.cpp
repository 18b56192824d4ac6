//===- Sm100Products.cpp - the products of sm100.contract -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Mainloop of the Blackwell gemm; one thread issues all mmas. The scales of a k
// tile are first copied to columns of tensor memory that belong to the stage.
// Copies of scales are ordered before later mmas, but not after earlier ones
// (PTX ISA, "Pipelined tcgen05 instructions"); those have completed when the
// stage is filled again.

#include "Sm100Contract.h"

using namespace mlir;
using namespace moec;

using Shape = sm100::Contract;

/// The instruction descriptor for `rows` input rows, in multiples of 16.
static Value getInstruction(Sm100Contract &contract, Value rows) {
  TensorEmitter &emitter = contract.emitter;
  constexpr int64_t unit = Shape::kRowUnit;
  Value units = emitter.divide(emitter.scale(rows, 1, unit - 1), unit);
  constexpr int64_t perUnit = unit / sm100::kInstructionRowUnit
                              << sm100::kInstructionRowBit;
  uint32_t type = contract.shape.areBytes ? 0 : sm100::kInstructionE2M1;
  return emitter.scale(units, perUnit, sm100::kInstruction | type);
}

static void multiplyStep(Sm100Contract &contract, Value instruction, Value set,
                         Value stage, Value isLater) {
  TensorEmitter &emitter = contract.emitter;
  const Shape &shape = contract.shape;
  int64_t blocks = shape.getBlocks();
  for (int64_t block = 0; block <= blocks; ++block)
    emitter.copyScales(contract.scalesOf(stage, block),
                       emitter.describe(contract.scaleAddress(stage, block),
                                        sm100::kScaleDescriptor));
  Value buffer = contract.stageAddress(stage);
  Value yes =
      arith::ConstantOp::create(contract.b, contract.b.getBoolAttr(true));
  for (int64_t i = 0; i < Shape::kStepProducts; ++i) {
    auto describe = [&](int64_t offset) {
      return emitter.describe(buffer, sm100::kMatrixDescriptor,
                              offset + i * Shape::kProductBytes);
    };
    Value own = arith::OrIOp::create(
        contract.b, instruction,
        emitter.i32(int32_t(sm100::getScaleIds(uint32_t(i)))));
    for (int64_t block = 0; block < blocks; ++block)
      emitter.multiplyScaled(
          contract.sumsOf(set, block), describe(block * shape.getBlockBytes()),
          describe(shape.getWeightBytes()), own, i ? yes : isLater,
          contract.scalesOf(stage, block), contract.scalesOf(stage, blocks));
  }
}

void moec::emitSm100Products(Sm100Contract &contract) {
  TensorEmitter &emitter = contract.emitter;
  ImplicitLocOpBuilder &b = contract.b;
  const Shape &shape = contract.shape;
  RingPlace place = contract.getFirstPlace();
  contract.forTiles(
      {place.stage, place.parity, place.stage, place.parity},
      [&](Sm100Contract::Tile tile, ValueRange carried) {
        RingPlace set{carried[2], carried[3]};
        emitter.waitBarrier(contract.emptySums(set.stage),
                            contract.getTurnBefore(set));
        emitter.fenceTensorAfter();
        Value instruction = getInstruction(contract, tile.rows);
        SmallVector<Value> next = emitter.forLoop(
            emitter.i32(0), emitter.i32(shape.getSteps()), 1,
            carried.take_front(2), [&](Value step, ValueRange carried) {
              RingPlace place{carried[0], carried[1]};
              emitter.waitBarrier(contract.fullBarrier(place.stage),
                                  place.parity);
              emitter.fenceTensorAfter();
              Value isLater = arith::CmpIOp::create(b, arith::CmpIPredicate::ne,
                                                    step, emitter.i32(0));
              multiplyStep(contract, instruction, set.stage, place.stage,
                           isLater);
              emitter.arriveWhenDone(contract.emptyBarrier(place.stage));
              RingPlace next = contract.next(place, shape.stages);
              return SmallVector<Value>{next.stage, next.parity};
            });
        emitter.arriveWhenDone(contract.fullSums(set.stage));
        RingPlace nextSet = contract.next(set, shape.getSumSets());
        next.append({nextSet.stage, nextSet.parity});
        return next;
      });
}
