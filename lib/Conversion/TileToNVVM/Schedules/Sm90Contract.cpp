//===- Sm90Contract.cpp - the schedule sm90.contract ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The rows of each group are cut into tiles of about equal height, which with
// the panels of columns make a list: groups in order, in them panels, in them
// tiles of rows, so that weights are read from memory once. A CTA takes every
// gridDim-th entry. Which group an entry belongs to is found in a table of
// first tiles, which each CTA makes at its start; empty groups have no entries.

#include "Sm90Contract.h"

#include "../Emit.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;

constexpr int64_t kWarp = 32;
constexpr int64_t kTableBytes = 4;

Sm90Contract::Sm90Contract(tile::ContractOp op, AsyncEmitter &emitter)
    : op(op), emitter(emitter), b(emitter.b), shape(op, op.getConfigAttr()),
      shared(emitter.dynamicShared()) {}

//===----------------------------------------------------------------------===//
// The ring
//===----------------------------------------------------------------------===//

RingPlace Sm90Contract::getFirstPlace() {
  return {emitter.i32(0), emitter.i32(0)};
}

RingPlace Sm90Contract::next(RingPlace place) {
  Value stage = emitter.scale(place.stage, 1, 1);
  Value wraps = isEqual(stage, emitter.i32(shape.stages));
  Value turned = arith::XOrIOp::create(b, place.parity, emitter.i32(1));
  return {arith::SelectOp::create(b, wraps, emitter.i32(0), stage),
          arith::SelectOp::create(b, wraps, turned, place.parity)};
}

Value Sm90Contract::stageAddress(Value stage, int64_t offset) {
  return emitter.advance(shared,
                         emitter.scale(stage, shape.getStageBytes(), offset));
}

constexpr int64_t kBarrierBytes = 8;

Value Sm90Contract::fullBarrier(Value stage) {
  return emitter.advance(
      shared, emitter.scale(stage, kBarrierBytes, shape.getBarrierOffset()));
}

Value Sm90Contract::emptyBarrier(Value stage) {
  return emitter.advance(
      shared,
      emitter.scale(stage, kBarrierBytes,
                    shape.getBarrierOffset() + shape.stages * kBarrierBytes));
}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

Value Sm90Contract::loadTable(int64_t offset, Value group) {
  Value address =
      emitter.advance(sharedAddress(offset), emitter.scale(group, kTableBytes));
  return emitter.load(b.getI32Type(), address, kTableBytes);
}

Value Sm90Contract::loadOffset(Value group) {
  if (Value offsets = emitter.operand(op.getOffsets()))
    return emitter.loadI32(offsets, emitter.toIndex(group));
  // One group: the rows that count.
  Value rows = emitter.toI32(emitter.validTokens(op.getNumValidTokens()));
  return arith::SelectOp::create(b, isEqual(group, emitter.i32(0)),
                                 emitter.i32(0), rows);
}

void Sm90Contract::emitPrologue() {
  using sm90::Contract;
  emitter.ifThen(isEqual(emitter.thread(), emitter.i32(0)), [&] {
    for (int64_t i = 0; i < emitter.getNumTensorMaps(); ++i)
      emitter.prefetchTensorMap(i);
    for (int64_t stage = 0; stage < shape.stages; ++stage) {
      // The thread that starts copies of boxes, and those that copy rows.
      emitter.initBarrier(fullBarrier(emitter.i32(stage)),
                          shape.mapRows ? 1 : 1 + Contract::kWarpgroup);
      emitter.initBarrier(emptyBarrier(emitter.i32(stage)),
                          Contract::kConsumers * Contract::kWarpgroup / kWarp);
    }
    emitter.fenceBarriers();
  });
  emitter.forThreads(
      emitter.index(0), emitter.index(shape.groups + 1), [&](Value index) {
        Value group = emitter.toI32(index);
        Value address = emitter.advance(sharedAddress(shape.getOffsetsOffset()),
                                        emitter.scale(group, kTableBytes));
        emitter.store(loadOffset(group), address, kTableBytes);
      });
  emitter.barrier();
  emitter.ifThen(isEqual(emitter.warp(), emitter.i32(0)),
                 [&] { emitTileCounts(); });
  emitter.barrier();
}

/// One warp: the table of first tiles. A lane adds up neighbours, then lanes
/// add up theirs.
void Sm90Contract::emitTileCounts() {
  int64_t share = llvm::divideCeil(shape.groups, kWarp);
  Value first = emitter.scale(emitter.lane(), share);
  auto countTiles = [&](Value i) -> Value {
    Value group = addI32(first, emitter.toI32(i));
    // Lanes past the end count the last group, and drop it.
    Value inside = minI32(group, emitter.i32(shape.groups - 1));
    Value begin = loadTable(shape.getOffsetsOffset(), inside);
    Value end =
        loadTable(shape.getOffsetsOffset(), emitter.scale(inside, 1, 1));
    Value rows = arith::SubIOp::create(b, end, begin);
    Value tiles = emitter.divide(emitter.scale(rows, 1, shape.getMaxBody() - 1),
                                 shape.getMaxBody());
    return arith::SelectOp::create(
        b, emitter.isLess(group, emitter.i32(shape.groups)), tiles,
        emitter.i32(0));
  };
  Value start = emitter.index(0), end = emitter.index(share);
  Value own = emitter.forLoop(
      start, end, 1, {emitter.i32(0)}, [&](Value i, ValueRange sum) {
        return SmallVector<Value>{addI32(sum[0], countTiles(i))};
      })[0];
  Value sum = own;
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    Value other = emitter.shuffleUp(sum, distance);
    Value hasOther = arith::CmpIOp::create(
        b, arith::CmpIPredicate::sge, emitter.lane(), emitter.i32(distance));
    sum = addI32(sum,
                 arith::SelectOp::create(b, hasOther, other, emitter.i32(0)));
  }
  auto storeAt = [&](Value group, Value value) {
    Value address = emitter.advance(sharedAddress(shape.getTilesOffset()),
                                    emitter.scale(group, kTableBytes));
    emitter.store(value, address, kTableBytes);
  };
  Value before = arith::SubIOp::create(b, sum, own);
  emitter.forLoop(start, end, 1, {before}, [&](Value i, ValueRange tiles) {
    Value group = addI32(first, emitter.toI32(i));
    emitter.ifThen(emitter.isLess(group, emitter.i32(shape.groups)),
                   [&] { storeAt(group, tiles[0]); });
    return SmallVector<Value>{addI32(tiles[0], countTiles(i))};
  });
  emitter.ifThen(isEqual(emitter.lane(), emitter.i32(kWarp - 1)),
                 [&] { storeAt(emitter.i32(shape.groups), sum); });
}

ContractTile Sm90Contract::findTile(Value item) {
  int64_t panels = shape.getPanels();
  // The last group whose first tile is not behind the item's. Empty groups
  // share theirs with the next one.
  Value tile = emitter.divide(item, panels);
  Value group = emitter.i32(0);
  for (int64_t step = llvm::PowerOf2Ceil(shape.groups) / 2; step > 0;
       step /= 2) {
    Value later = emitter.scale(group, 1, step);
    Value inside = minI32(later, emitter.i32(shape.groups));
    Value first = loadTable(shape.getTilesOffset(), inside);
    Value isThere = arith::AndIOp::create(
        b, emitter.isLess(later, emitter.i32(shape.groups)),
        arith::CmpIOp::create(b, arith::CmpIPredicate::sle, first, tile));
    group = arith::SelectOp::create(b, isThere, later, group);
  }
  Value next = emitter.scale(group, 1, 1);
  Value firstTile = loadTable(shape.getTilesOffset(), group);
  Value tiles = arith::SubIOp::create(
      b, loadTable(shape.getTilesOffset(), next), firstTile);
  Value begin = loadTable(shape.getOffsetsOffset(), group);
  Value end = loadTable(shape.getOffsetsOffset(), next);
  Value count = arith::SubIOp::create(b, end, begin);

  Value inGroup =
      arith::SubIOp::create(b, item, emitter.scale(firstTile, panels));
  Value panel = arith::DivUIOp::create(b, inGroup, tiles);
  Value inPanel = arith::RemUIOp::create(b, inGroup, tiles);
  // As many whole rows of 8 as make tiles about equal.
  constexpr int64_t rows8 = 8;
  Value height = arith::DivUIOp::create(
      b, emitter.scale(addI32(count, tiles), 1, -1), tiles);
  height = emitter.scale(
      emitter.divide(emitter.scale(height, 1, rows8 - 1), rows8), rows8);
  Value first = b.createOrFold<arith::MulIOp>(inPanel, height);
  Value left = arith::SubIOp::create(b, count, first);
  // Columns fit 32 bits; verify-gpu-addresses cannot know.
  Value firstColumn = arith::MulIOp::create(b, panel, emitter.i32(shape.n),
                                            arith::IntegerOverflowFlags::nsw);
  return {group, firstColumn, addI32(begin, first), minI32(left, height)};
}

SmallVector<Value> Sm90Contract::forTiles(
    ValueRange init,
    function_ref<SmallVector<Value>(ContractTile, ValueRange)> body) {
  Value last = loadTable(shape.getTilesOffset(), emitter.i32(shape.groups));
  Value items = emitter.scale(last, shape.getPanels());
  Value first = emitter.toI32(emitter.cta());
  Value step = NVVM::GridDimXOp::create(b, b.getI32Type());
  auto loop = scf::ForOp::create(b, first, items, step, init);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(loop.getBody());
  SmallVector<Value> carried =
      body(findTile(loop.getInductionVar()), loop.getRegionIterArgs());
  scf::YieldOp::create(b, carried);
  return SmallVector<Value>(loop.getResults());
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

/// Rows of a dense product that do not count become zeros.
static void emitZeroRows(Sm90Contract &contract) {
  AsyncEmitter &emitter = contract.emitter;
  ImplicitLocOpBuilder &b = emitter.b;
  Value result = emitter.operand(contract.op.getResult());
  // Of 16 bytes, and of a divisor of the columns.
  int64_t lanes = 16 / contract.shape.resultBytes;
  while (contract.shape.columns % lanes)
    lanes /= 2;
  Value pieces = emitter.index(contract.shape.columns / lanes);
  Value valid = emitter.validTokens(contract.op.getNumValidTokens());
  Value begin = emitter.mul(valid, pieces);
  Value end = emitter.mul(emitter.tokens(), pieces);
  Value threads = emitter.index(emitter.getNumThreads());
  Value own = emitter.add(emitter.mul(emitter.cta(), threads),
                          emitter.toIndex(emitter.thread()));
  Value ctas = emitter.toIndex(NVVM::GridDimXOp::create(b, b.getI32Type()));
  auto loop = scf::ForOp::create(b, emitter.add(begin, own), end,
                                 emitter.mul(ctas, threads));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value piece = loop.getInductionVar();
  Value row = arith::DivUIOp::create(b, piece, pieces);
  Value column = emitter.mul(arith::RemUIOp::create(b, piece, pieces), lanes);
  emitter.storeVector(emitter.splat(0.0, lanes), result, {row, column});
}

LogicalResult moec::emitSm90Contract(Operation *phase, KernelBody body) {
  auto op = cast<tile::ContractOp>(phase);
  AsyncEmitter emitter(body.func, body.kernel, body.threads);
  Sm90Contract contract(op, emitter);
  contract.emitPrologue();
  if (op.getNumValidTokens())
    emitZeroRows(contract);
  LogicalResult status = success();
  emitter.ifThen(
      contract.isEqual(emitter.warpgroup(), emitter.i32(0)),
      [&] {
        emitter.decreaseRegisters(sm90::Contract::kProducerRegisters);
        emitSm90Producer(contract);
      },
      [&] {
        emitter.increaseRegisters(sm90::Contract::kConsumerRegisters);
        status = emitSm90Consumer(contract);
      });
  return status;
}
