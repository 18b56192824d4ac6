//===- Kernel.cpp - the schedule sm100.gemm ---------------------*- C++ -*-===//
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

#include "Kernel.h"

#include "Schedules/Interface/Emit.h"

using namespace mlir;
using namespace moec;

using Shape = sm100::GemmShape;

Sm100Gemm::Sm100Gemm(tile::GemmOp op, TensorEmitter &emitter)
    : op(op), emitter(emitter), shape(op, op.getConfigAttr()),
      shared(emitter.dynamicShared()),
      pipeline(emitter, shared,
               emitter.advance(shared, shape.getBarrierOffset()),
               {shape.stages, shape.getStageBytes(), 0, 0}),
      accumulators(emitter, shared,
                   emitter.advance(shared, shape.getSumBarrierOffset()),
                   {shape.getSumSets(), /*stageBytes=*/0, 0, 0}) {}

//===----------------------------------------------------------------------===//
// Addresses
//===----------------------------------------------------------------------===//

Value Sm100Gemm::scaleAddress(I32 stage, int64_t block) {
  return emitter.advance(emitter.advance(shared, shape.getScaleOffset()),
                         stage * shape.getScaleBytes() +
                             block * Shape::kScaleBlockBytes);
}

I32 Sm100Gemm::sumsOf(I32 set, int64_t block) {
  return tensor + (set * shape.getSumColumns() + block * shape.m);
}

I32 Sm100Gemm::scalesOf(I32 stage, int64_t block) {
  return tensor +
         (stage * shape.getScaleColumns() +
          (shape.getFirstScaleColumn() + block * Shape::kScaleBlockColumns));
}

Index Sm100Gemm::getBlockColumn(int64_t block) {
  return firstColumn +
         (shape.weightsPerColumn == 2 ? 0 : block * Shape::kBlockRows);
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// One thread.
void Sm100Gemm::initBarriers() {
  // Arrivals at full stages: the thread that issues copies of weights, and the
  // threads that copy the rest.
  pipeline.init(shape.areBytes + Shape::kCopyThreads, 1);
  accumulators.init(1, Shape::kSumThreads);
  emitter.fenceBarriers();
}

void Sm100Gemm::findRows(Index block) {
  if (group) {
    Value offsets = emitter.operand(op.getOffsets());
    begin = emitter.loadIndex(offsets, group);
    end = emitter.loadIndex(offsets, group + 1);
    return;
  }
  begin = block * shape.m;
  Index valid = emitter.validTokens(op.getNumValidTokens());
  end = min(begin + shape.m, valid);
}

void Sm100Gemm::storeZeroRows(Index block) {
  Value result = emitter.operand(op.getResult());
  Index last = block * shape.m + shape.m;
  emitter.loop(max(begin, end), min(last, emitter.tokens()), 1, [&](Index row) {
    Index columns = firstColumn + shape.n;
    if (!areWhole())
      columns = min(columns, shape.columns);
    emitter.forThreads(firstColumn, columns, [&](Value column) {
      emitter.storeF32(emitter.f32(0), result, {row, column});
    });
  });
}

LogicalResult Sm100Gemm::emitRoles() {
  Value address = emitter.advance(shared, shape.getTensorAddressOffset());
  Flag issuesMmas = emitter.warp() == Shape::kProductWarp;
  emitter.ifThen(issuesMmas, [&] {
    emitter.takeTensorMemory(address, shape.getAllocatedColumns());
    emitter.fenceTensorBefore();
  });
  emitter.barrier();
  emitter.fenceTensorAfter();
  tensor = emitter.loadWord(address);
  LogicalResult status = success();
  // One thread of each warp.
  auto emitOthers = [&] {
    Flag isFirst = emitter.lane() == 0;
    if (shape.areBytes)
      emitter.ifThen(emitter.warp() == Shape::kBoxWarp, [&] {
        emitter.ifThen(isFirst, [&] { emitSm100WeightCopies(*this); });
      });
    emitter.ifThen(issuesMmas, [&] {
      emitter.ifThen(isFirst, [&] { emitSm100Products(*this); });
    });
    emitter.warpBarrier();
  };
  emitter.ifThen(
      emitter.warpgroup() == 0, [&] { status = emitSm100Epilogue(*this); },
      [&] {
        emitter.ifThen(
            emitter.warpgroup() == 1, [&] { emitSm100RowCopies(*this); },
            emitOthers);
      });
  emitter.fenceTensorBefore();
  emitter.barrier();
  emitter.ifThen(issuesMmas, [&] {
    emitter.fenceTensorAfter();
    emitter.giveTensorMemory(tensor, shape.getAllocatedColumns());
  });
  return status;
}

LogicalResult Sm100Gemm::emit() {
  Index nTiles = emitter.index(shape.getNTiles());
  Index major = emitter.cta() / nTiles, minor = emitter.cta() % nTiles;
  firstColumn = minor * shape.n;
  if (shape.isGrouped)
    group = major;
  if (shape.areBytes)
    emitter.ifThen(emitter.thread() == Shape::kBoxWarp * Shape::kWarp,
                   [&] { emitter.prefetchTensorMap(0); });
  emitter.ifThen(emitter.thread() == 0, [&] { initBarriers(); });
  emitter.waitForLaunchBefore();
  findRows(major);
  if (op.getNumValidTokens())
    storeZeroRows(major);
  LogicalResult status = success();
  emitter.ifThen(begin < end, [&] { status = emitRoles(); });
  return status;
}

LogicalResult moec::emitSm100Gemm(Operation *phase, KernelBody body) {
  TensorEmitter emitter(body.func, body.kernel, body.threads);
  return Sm100Gemm(cast<tile::GemmOp>(phase), emitter).emit();
}
