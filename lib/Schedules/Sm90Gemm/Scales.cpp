//===- Scales.cpp - block scales of sm90.gemm -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Scales.h"

#include "KernelBuilder/GemmOperands.h"
#include "KernelBuilder/InlinePtx.h"

using namespace mlir;
using namespace moec;

Sm90Scales::Sm90Scales(Sm90Gemm &gemm)
    : gemm(gemm), emitter(gemm.emitter), b(gemm.b), shape(gemm.shape) {}

Value Sm90Scales::address(I32 stage, int64_t scale) {
  return emitter.advance(gemm.sharedAddress(shape.shared().getScaleOffset()),
                         stage * shape.shared().getScaleBytes() +
                             scale * sm90::kScaleElementBytes);
}

//===----------------------------------------------------------------------===//
// The producer
//===----------------------------------------------------------------------===//

SmallVector<I32> Sm90Scales::find(const Sm90Tile &tile, I32 number) {
  Value source = emitter.operand(gemm.op.getSource());
  // Rows past the end repeat the last one; their sums are never read.
  I32 last = tile.rows + -1;
  SmallVector<I32> from;
  for (int64_t i = 0; i < countCopiedRows(); i += sm90::kRowThreads) {
    I32 position = tile.firstRow + min(number + i, last);
    if (source)
      position = emitter.loadI32(source, emitter.toIndex(position));
    from.push_back(position);
  }
  from.push_back(findWeights(tile, number));
  return from;
}

/// Threads without weights repeat the last ones.
I32 Sm90Scales::findWeights(const Sm90Tile &tile, I32 number) {
  int64_t projections = shape.problem().weightsPerColumn;
  I32 block = min(number / projections,
                  shape.tile().getWeightScales() / projections - 1);
  Index first = emitter.toIndex(tile.firstColumn);
  Index column =
      first + emitter.toIndex(block) * (sm90::kBlockRows / projections);
  column = min(column, shape.problem().columns - 1);
  Index row(b, getScaleRow(emitter, gemm.op, /*projection=*/0, column));
  if (projections == 2) {
    // In memory, up comes before gate in one of the orders.
    bool isUpFirst =
        gemm.op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate;
    Flag isGate = number % projections == int64_t(isUpFirst);
    Index up(b, getScaleRow(emitter, gemm.op, /*projection=*/1, column));
    row = select(isGate, row, up);
  }
  return emitter.toI32(row);
}

void Sm90Scales::copy(const Sm90Tile &tile, ArrayRef<I32> from, I32 number,
                      I32 step, I32 stage) {
  Value to =
      emitter.advance(address(stage, 0), number * sm90::kScaleElementBytes);
  // Copies one of `count` scales: the thread's, at index `first` plus its own.
  auto copyOne = [&](Value memref, ArrayRef<I32> indices, int64_t first,
                     int64_t count) {
    auto start = [&] {
      SmallVector<Value> element;
      for (I32 index : indices)
        element.push_back(emitter.toIndex(index));
      Value own = emitter.advance(to, first * sm90::kScaleElementBytes);
      Value from = emitter.address(emitter.operand(memref), element);
      Type type = getElementType(memref);
      if (type.isF32())
        return emitter.copyWordAsync(own, from);
      // The scales of a row are adjacent, so that nearly all loads hit the
      // cache. The thread's later arrival publishes the store.
      emitter.store(emitter.loadScale(type, from), own,
                    sm90::kScaleElementBytes);
    };
    if (count >= sm90::kRowThreads)
      start();
    else
      emitter.ifThen(number < count, start);
  };
  for (int64_t i = 0; i < countCopiedRows(); i += sm90::kRowThreads)
    copyOne(gemm.op.getInputScale(), {from[i / sm90::kRowThreads], step}, i,
            shape.tile().getMaxBlockM() - i);
  SmallVector<I32> row{from.back(), step};
  if (shape.problem().isGrouped)
    row.insert(row.begin(), tile.group);
  copyOne(gemm.op.getWeightScale(), row, shape.tile().getMaxBlockM(),
          shape.tile().getWeightScales());
}

void Sm90Scales::storeRow(I32 stage, I32 row, F32 scale) {
  Value to = emitter.advance(address(stage, 0), row * sm90::kScaleElementBytes);
  emitter.store(scale, to, sm90::kScaleElementBytes);
}

//===----------------------------------------------------------------------===//
// Consumers
//===----------------------------------------------------------------------===//

/// A thread has two of every 8 rows.
static constexpr int64_t kOctet = 8, kPair = 2;

Value Sm90Scales::findRows(int64_t blockM, I32 consumer) {
  I32 row;
  if (!shape.tile().swapsAB(blockM)) {
    // Read again, so that registers keep fewer derived values.
    I32 thread = readThread(b);
    constexpr int64_t warp = 32, perRow = 4;
    row =
        thread % kWarpgroup / warp * (kPair * kOctet) + thread % warp / perRow;
    if (shape.tile().splitsRows(blockM))
      row = row + consumer * shape.tile().getConsumerRows(blockM);
  } else {
    row = emitter.lane() % (kOctet / kPair) * kPair;
  }
  return emitter.advance(gemm.sharedAddress(shape.shared().getScaleOffset()),
                         row * sm90::kScaleElementBytes);
}

SmallVector<F32> Sm90Scales::loadRows(Value rows, I32 stage, int64_t blockM) {
  constexpr int64_t scaleBytes = sm90::kScaleElementBytes;
  Value own = emitter.advance(rows, stage * shape.shared().getScaleBytes());
  SmallVector<F32> scales;
  if (!shape.tile().swapsAB(blockM)) {
    for (int64_t i = 0; i < kPair; ++i)
      scales.push_back(
          emitter.loadSingle(emitter.advance(own, i * kOctet * scaleBytes)));
    return scales;
  }
  for (int64_t first = 0; first < blockM; first += kOctet) {
    Value pair =
        emitter.loadSingles(emitter.advance(own, first * scaleBytes), kPair);
    llvm::append_range(scales, emitter.elements<F32>(pair));
  }
  return scales;
}

SmallVector<F32> Sm90Scales::loadWeights(I32 stage, int64_t blockM,
                                         I32 consumer, int64_t block) {
  constexpr int64_t scaleBytes = sm90::kScaleElementBytes;
  auto slot = [&](int64_t weightRows) {
    return weightRows / sm90::kBlockRows * shape.problem().weightsPerColumn;
  };
  Value from =
      address(stage, shape.tile().getMaxBlockM() +
                         slot(block * shape.tile().getBlockWeights(blockM)));
  if (!shape.tile().sharesBlock() && !shape.tile().splitsRows(blockM))
    from = emitter.advance(
        from, consumer *
                  (slot(shape.tile().getConsumerWeights(blockM)) * scaleBytes));
  SmallVector<F32> scales;
  for (int64_t projection = 0; projection < shape.problem().weightsPerColumn;
       ++projection)
    scales.push_back(
        emitter.loadSingle(emitter.advance(from, projection * scaleBytes)));
  return scales;
}

bool Sm90Scales::areSame(int64_t blockM) const {
  // Gate and up have separate scale blocks, one each per `n` columns.
  return !shape.tile().swapsAB(blockM) &&
         shape.problem().weightsPerColumn == 2 &&
         gemm.op.getLayoutAttr().getOrder() != moe::GateUpOrder::Interleaved;
}
