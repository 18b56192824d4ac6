//===- Sm100Contract.cpp - the schedule sm100.contract ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel of the Blackwell gemm. A CTA computes `n` result columns of one group,
// `m` rows at a time, or `n` columns of one block of `m` rows of a dense gemm.
// Warp roles synchronize only by barriers in shared memory.
//
// No CTA allocates tensor memory before it has waited for the launch before: a
// CTA of that launch could wait for the memory, and this one for its end.

#include "Sm100Contract.h"

#include "../../Emit.h"

using namespace mlir;
using namespace moec;

using Shape = sm100::Contract;

Sm100Contract::Sm100Contract(tile::ContractOp op, TensorEmitter &emitter)
    : op(op), emitter(emitter), b(emitter.b), shape(op, op.getConfigAttr()),
      shared(emitter.dynamicShared()) {}

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

Value Sm100Contract::getTurnBefore(RingPlace place) {
  return arith::XOrIOp::create(b, place.parity, emitter.i32(1));
}

Value Sm100Contract::stageAddress(Value stage, int64_t offset) {
  return emitter.advance(shared,
                         emitter.scale(stage, shape.getStageBytes(), offset));
}

Value Sm100Contract::scaleAddress(Value stage, int64_t block) {
  return emitter.advance(emitter.advance(shared, shape.getScaleOffset()),
                         emitter.scale(stage, shape.getScaleBytes(),
                                       block * Shape::kScaleBlockBytes));
}

Value Sm100Contract::barrier(int64_t offset, int64_t before, Value number) {
  return emitter.advance(emitter.advance(shared, offset),
                         emitter.scale(number, Shape::kBarrierBytes,
                                       before * Shape::kBarrierBytes));
}

Value Sm100Contract::sumsOf(Value set, int64_t block) {
  return addI32(tensor,
                emitter.scale(set, shape.getSumColumns(), block * shape.m));
}

Value Sm100Contract::scalesOf(Value stage, int64_t block) {
  return addI32(tensor, emitter.scale(stage, shape.getScaleColumns(),
                                      shape.getFirstScaleColumn() +
                                          block * Shape::kScaleBlockColumns));
}

Value Sm100Contract::getBlockColumn(int64_t block) {
  return emitter.add(
      firstColumn, shape.weightsPerColumn == 2 ? 0 : block * Shape::kBlockRows);
}

SmallVector<Value> Sm100Contract::forTiles(ValueRange init, TileBody body) {
  return emitter.forLoop(
      begin, end, shape.m, init, [&](Value row, ValueRange carried) {
        Value left = arith::SubIOp::create(b, end, row);
        Value rows = emitter.toI32(emitter.min(left, emitter.index(shape.m)));
        return body({row, rows}, carried);
      });
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// One warp; a barrier of each kind per lane.
void Sm100Contract::initBarriers() {
  Value own = emitter.lane();
  emitter.ifThen(emitter.isLess(own, emitter.i32(shape.stages)), [&] {
    // Arrivals: the thread that issues copies of weights, and the threads that
    // copy the rest.
    emitter.initBarrier(fullBarrier(own), shape.areBytes + Shape::kCopyThreads);
    emitter.initBarrier(emptyBarrier(own), 1);
  });
  emitter.ifThen(emitter.isLess(own, emitter.i32(shape.getSumSets())), [&] {
    emitter.initBarrier(fullSums(own), 1);
    emitter.initBarrier(emptySums(own), Shape::kSumThreads);
  });
  emitter.fenceBarriers();
}

void Sm100Contract::findRows(Value block) {
  if (group) {
    Value offsets = emitter.operand(op.getOffsets());
    begin = emitter.loadIndex(offsets, group);
    end = emitter.loadIndex(offsets, emitter.add(group, 1));
    return;
  }
  begin = emitter.mul(block, shape.m);
  end = emitter.min(emitter.add(begin, shape.m),
                    emitter.validTokens(op.getNumValidTokens()));
}

void Sm100Contract::storeZeroRows(Value block) {
  Value result = emitter.operand(op.getResult());
  Value last = emitter.add(emitter.mul(block, shape.m), shape.m);
  emitter.forLoop(emitter.max(begin, end), emitter.min(last, emitter.tokens()),
                  1, [&](Value row) {
                    Value columns = emitter.add(firstColumn, shape.n);
                    if (!areWhole())
                      columns =
                          emitter.min(columns, emitter.index(shape.columns));
                    emitter.forThreads(firstColumn, columns, [&](Value column) {
                      emitter.storeF32(emitter.f32(0), result, {row, column});
                    });
                  });
}

LogicalResult Sm100Contract::emitRoles() {
  Value address = emitter.advance(shared, shape.getTensorAddressOffset());
  Value isOfProducts = isEqual(emitter.warp(), Shape::kProductWarp);
  emitter.ifThen(isOfProducts, [&] {
    emitter.takeTensorMemory(address, shape.getAllocatedColumns());
    emitter.fenceTensorBefore();
  });
  emitter.barrier();
  emitter.fenceTensorAfter();
  constexpr int64_t bytes = 4;
  tensor = emitter.load(b.getI32Type(), address, bytes);
  LogicalResult status = success();
  // One thread of each warp.
  auto emitOthers = [&] {
    Value isFirst = isEqual(emitter.lane(), 0);
    if (shape.areBytes)
      emitter.ifThen(isEqual(emitter.warp(), Shape::kBoxWarp), [&] {
        emitter.ifThen(isFirst, [&] { emitSm100WeightCopies(*this); });
      });
    emitter.ifThen(isOfProducts, [&] {
      emitter.ifThen(isFirst, [&] { emitSm100Products(*this); });
    });
    emitter.warpBarrier();
  };
  emitter.ifThen(
      isEqual(emitter.warpgroup(), 0),
      [&] { status = emitSm100Epilogue(*this); },
      [&] {
        emitter.ifThen(
            isEqual(emitter.warpgroup(), 1), [&] { emitSm100RowCopies(*this); },
            emitOthers);
      });
  emitter.fenceTensorBefore();
  emitter.barrier();
  emitter.ifThen(isOfProducts, [&] {
    emitter.fenceTensorAfter();
    emitter.giveTensorMemory(tensor, shape.getAllocatedColumns());
  });
  return status;
}

LogicalResult Sm100Contract::emit() {
  Value panels = emitter.index(shape.getPanels());
  Value major = arith::DivUIOp::create(b, emitter.cta(), panels);
  Value minor = arith::RemUIOp::create(b, emitter.cta(), panels);
  firstColumn = emitter.mul(minor, shape.n);
  if (shape.isGrouped)
    group = major;
  if (shape.areBytes)
    emitter.ifThen(isEqual(emitter.thread(), Shape::kBoxWarp * Shape::kWarp),
                   [&] { emitter.prefetchTensorMap(0); });
  emitter.ifThen(isEqual(emitter.warp(), 0), [&] { initBarriers(); });
  emitter.waitForLaunchBefore();
  findRows(major);
  if (op.getNumValidTokens())
    storeZeroRows(major);
  LogicalResult status = success();
  Value hasRows =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, begin, end);
  emitter.ifThen(hasRows, [&] { status = emitRoles(); });
  return status;
}

LogicalResult moec::emitSm100Contract(Operation *phase, KernelBody body) {
  TensorEmitter emitter(body.func, body.kernel, body.threads);
  return Sm100Contract(cast<tile::ContractOp>(phase), emitter).emit();
}
