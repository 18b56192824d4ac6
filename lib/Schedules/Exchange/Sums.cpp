//===- Sums.cpp - sums that an exchange makes -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// All chunks of a warp in a round belong to one row, so a vote finds the slots
// with something to add, and a token's cost is that of its rows. Loads from
// rows of several slots and chunks are in flight at once.

#include "Sums.h"

#include "moec/Support/GpuInstructions.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

RowSums::RowSums(tile::ExchangeOp op, ThreadEmitter &emitter,
                 ExchangeParts &parts, I64 lane)
    : emitter(emitter), lane(lane),
      topK(cast<MemRefType>(op.getPosition().getType()).getDimSize(1)),
      rows(parts.addressOf(op.getRows())),
      positions(emitter.baseAddress(emitter.operand(op.getPosition()))) {
  if (op.getAddend())
    addend = parts.addressOf(op.getAddend());
  ImplicitLocOpBuilder &b = emitter.b;
  if (Value count = op.getNumValidTokens())
    numValid = {b,
                arith::ExtSIOp::create(b, b.getI64Type(),
                                       emitter.loadI32(emitter.operand(count),
                                                       {emitter.index(0)}))};
}

I32 RowSums::loadPosition(const ThreadChunks &chunks, I64 firstRow,
                          Value heap) {
  constexpr int64_t positionBytes = 4;
  // Lanes without a slot load the last one, and do not vote for it. Warps
  // without a row load the heap's header.
  I64 slot = min(lane, topK - 1);
  I64 index = (firstRow + chunks.row) * topK + slot;
  Value address = select(
      chunks.hasRow, emitter.advance(positions, index * positionBytes), heap);
  ImplicitLocOpBuilder &b = emitter.b;
  return {b, emitter.load(b.getI32Type(), address, positionBytes)};
}

I32 RowSums::findSlots(const ThreadChunks &chunks, I64 row, I32 position) {
  Flag has = chunks.hasRow & (position >= 0);
  if (topK < kWarp)
    has = has & (lane < topK);
  if (numValid)
    has = has & (row < numValid);
  return emitter.ballot(has);
}

RowSums::Progress RowSums::addSlots(const ThreadChunks &chunks, I32 position,
                                    Progress progress, int64_t count) {
  const ExchangePart &part = *chunks.part;
  // Byte offsets in a row; absent chunks load the row's last one.
  bool areAllThere = part.rowChunks % (kWarp * part.atOnce) == 0;
  I64 first = chunks.offsets.front() - chunks.row * part.rowBytes;
  SmallVector<I64> columns;
  for (int64_t i = 0; i < part.atOnce; ++i) {
    I64 column = first + i * kWarp * part.chunkBytes;
    columns.push_back(
        areAllThere ? column : min(column, part.rowBytes - part.chunkBytes));
  }
  SmallVector<SmallVector<Value>> loaded;
  for (int64_t i = 0; i < count; ++i) {
    I32 slot = emitter.lowestBit(progress.left);
    progress.left = progress.left & (progress.left - 1);
    I32 row = emitter.getFromLane(position, slot);
    Value from = emitter.advance(rows, row.toI64() * part.tensorRowBytes);
    SmallVector<Value> &chunks = loaded.emplace_back();
    for (I64 column : columns)
      chunks.push_back(emitter.load(part.chunk, emitter.advance(from, column),
                                    part.chunkBytes));
  }
  // All loads are issued before the first result is unpacked.
  tieChunks(emitter, loaded);
  for (const SmallVector<Value> &row : loaded)
    for (auto [sum, chunk] : llvm::zip(progress.sums, row))
      sum = sum + part.toF32(emitter.b, chunk);
  return progress;
}

RowSums::Progress RowSums::addAllSlots(const ThreadChunks &chunks, I32 position,
                                       I32 slots) {
  // 32-bit registers for rows in flight.
  constexpr int64_t mostWords = 64;
  const ExchangePart &part = *chunks.part;
  F32 zeros(emitter.b, emitter.splat(0.0, part.elements.getNumElements()));
  Progress progress{slots, SmallVector<F32>(size_t(part.atOnce), zeros)};
  I32 count = slots.popcount();
  int64_t words = part.atOnce * countWords(part);
  int64_t most = std::min<int64_t>(
      llvm::bit_floor(uint64_t(topK)),
      llvm::bit_floor(uint64_t(std::max<int64_t>(mostWords / words, 1))));
  progress = emitter.loop(emitter.index(0), emitter.toIndex(count / most), 1,
                          progress, [&](Index, const Progress &progress) {
                            return addSlots(chunks, position, progress, most);
                          });
  // The remainder takes halves, quarters, ...
  for (int64_t rows = most / 2; rows > 0; rows /= 2)
    progress = emitter.choose(
        (count & rows) != 0,
        [&] { return addSlots(chunks, position, progress, rows); },
        [&] { return progress; });
  return progress;
}

SmallVector<Value> RowSums::make(const ThreadChunks &chunks, I64 firstRow,
                                 I32 position, Value heap) {
  const ExchangePart &part = *chunks.part;
  ImplicitLocOpBuilder &b = emitter.b;
  I64 row = firstRow + chunks.row;
  I32 slots = findSlots(chunks, row, position);
  SmallVector<F32> sums = addAllSlots(chunks, position, slots).sums;
  SmallVector<Value> rounded;
  for (auto [sum, isThere, offset] :
       llvm::zip(sums, chunks.isThere, chunks.offsets)) {
    F32 total = sum;
    if (addend) {
      I64 bytes = firstRow * part.tensorRowBytes;
      if (part.tensorRowBytes != part.rowBytes)
        bytes = bytes + chunks.tensorGap();
      Value address =
          select(isThere, emitter.advance(addend, bytes + offset), heap);
      total = total +
              part.toF32(b, emitter.load(part.chunk, address, part.chunkBytes));
    }
    if (numValid)
      total = select(row < numValid, total, total.like(0.0));
    rounded.push_back(part.fromF32(b, total));
  }
  return rounded;
}
