//===- Pipeline.cpp - barriers and stages in shared memory ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Pipeline.h"

#include "InlinePtx.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;

//===----------------------------------------------------------------------===//
// Barrier
//===----------------------------------------------------------------------===//

I32 Barrier::i32(int64_t value) const {
  return {b, arith::ConstantOp::create(b, b.getI32IntegerAttr(value))};
}

void Barrier::init(int64_t arrivals) const {
  NVVM::MBarrierInitOp::create(b, address, i32(arrivals), Value());
}

void Barrier::arriveOn(Value of, Value count) const {
  NVVM::MBarrierArriveOp::create(b, /*res=*/Type(), of, count,
                                 NVVM::MemScopeKind::CTA);
}

void Barrier::arriveOnExpecting(Value of, int64_t bytes) const {
  NVVM::MBarrierArriveExpectTxOp::create(
      b, /*res=*/Type(), of, i32(bytes), NVVM::MemScopeKind::CTA,
      /*relaxed=*/false, /*predicate=*/Value());
}

void Barrier::arrive(int64_t times) const {
  arriveOn(address, times == 1 ? Value() : i32(times));
}

void Barrier::arriveAt(I32 rank) const {
  arriveOn(emitter.mapShared(address, rank), /*count=*/Value());
}

void Barrier::send(I32 rank, I32 word, Value slot) const {
  constexpr int64_t kWordBytes = 4;
  Value barrier = emitter.mapShared(address, rank);
  arriveOnExpecting(barrier, kWordBytes);
  storeAsync(b, emitter.mapShared(slot, rank), word, barrier);
}

void Barrier::arriveExpecting(int64_t bytes) const {
  arriveOnExpecting(address, bytes);
}

void Barrier::wait(I32 parity) const {
  auto loop = scf::WhileOp::create(b, TypeRange(), ValueRange());
  OpBuilder::InsertionGuard guard(b);
  b.createBlock(&loop.getBefore());
  Flag isOver(b, NVVM::MBarrierTryWaitOp::create(b, b.getI1Type(), address,
                                                 parity, /*ticks=*/Value(),
                                                 NVVM::MemScopeKind::CTA));
  scf::ConditionOp::create(b, ~isOver, ValueRange());
  b.createBlock(&loop.getAfter());
  scf::YieldOp::create(b);
}

Flag Barrier::test(I32 parity) const {
  return {b, NVVM::MBarrierTestWaitOp::create(b, b.getI1Type(), address, parity,
                                              NVVM::MemScopeKind::CTA)};
}

//===----------------------------------------------------------------------===//
// Pipeline
//===----------------------------------------------------------------------===//

PipelineState Pipeline::first() const {
  return {emitter.i32(0), emitter.i32(0)};
}

PipelineState Pipeline::next(PipelineState state) const {
  I32 stage = state.stage + 1;
  Flag wraps = stage == layout.stages;
  I32 flipped = state.parity ^ 1;
  return {select(wraps, emitter.i32(0), stage),
          select(wraps, flipped, state.parity)};
}

PipelineState Pipeline::skip(PipelineState state, I32 count) const {
  I32 stage = state.stage + count;
  Flag wraps = stage >= layout.stages;
  I32 flipped = state.parity ^ 1;
  return {select(wraps, stage - layout.stages, stage),
          select(wraps, flipped, state.parity)};
}

PipelineState Pipeline::skip(PipelineState state, int64_t count) const {
  if (count / layout.stages % 2)
    state.parity = state.parity ^ 1;
  return skip(state, emitter.i32(count % layout.stages));
}

Value Pipeline::stageAddress(I32 stage, int64_t offset) const {
  return emitter.advance(stages, stage * layout.stageBytes +
                                     (layout.firstStage + offset));
}

Barrier Pipeline::barrier(I32 stage, int64_t before) const {
  int64_t offset = layout.firstBarrier + before * kBarrierBytes;
  return {emitter, emitter.advance(barriers, stage * kBarrierBytes + offset)};
}

void Pipeline::init(int64_t fullArrivals, int64_t emptyArrivals) const {
  // Constant addresses: the hardware takes one at a time, so that lanes with
  // their own would need a loop of 40 clocks for each.
  for (int64_t i = 0; i < layout.stages; ++i) {
    I32 stage = emitter.i32(i);
    full(stage).init(fullArrivals);
    empty(stage).init(emptyArrivals);
  }
}

void Pipeline::release(I32 stage) const {
  emitter.ifThen(emitter.lane() == 0, [&] {
    if (layout.ctas == 1)
      return empty(stage).arrive();
    // Ranks are constants, because LLVM may map addresses on all lanes.
    for (int64_t rank = 0; rank < layout.ctas; ++rank)
      empty(stage).arriveAt(emitter.i32(rank));
  });
}

void Pipeline::waitUntilFull(PipelineState state) const {
  full(state.stage).wait(state.parity);
}

Flag Pipeline::isFull(PipelineState state) const {
  return full(state.stage).test(state.parity);
}

void Pipeline::waitUntilEmpty(PipelineState state) const {
  I32 before = state.before();
  empty(state.stage).wait(before);
}
