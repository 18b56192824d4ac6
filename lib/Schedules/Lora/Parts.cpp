//===- Parts.cpp - rows of an expert with one adapter -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Parts.h"

#include "Slot.h"

using namespace mlir;
using namespace moec;
using namespace moec::lora;

I32 PartTable::loadAdapter(Index row) {
  Index token = emitter.loadIndex(source, row);
  I32 given = emitter.loadI32(adapterIds, token);
  return select(given.isBelow(adapters), given, -1);
}

/// Rows of the group before `position` with the adapter, counted by each warp.
I32 PartTable::countBefore(Index begin, Index position, I32 adapter) {
  constexpr int64_t atOnce = 4;
  Index lane = emitter.toIndex(emitter.lane());
  I32 count = emitter.loop(begin, position, atOnce * kWarp, emitter.i32(0),
                           [&](Index from, I32 count) {
                             for (int64_t i = 0; i < atOnce; ++i) {
                               Index row = from + lane + i * kWarp;
                               I32 other = loadAdapter(min(row, position));
                               Flag isSame =
                                   (row < position) & (other == adapter);
                               count = count + isSame.toI32();
                             }
                             return count;
                           });
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    count = count + emitter.shuffleXor(count, mask);
  return count;
}

/// Writes the first rows from `position` on with the adapter to the warp's
/// table; returns their number.
I32 PartTable::findRows(Index position, Index end, I32 adapter) {
  struct State {
    Index from;
    I32 found;
    auto fields() { return std::tie(from, found); }
  };
  I32 lane = emitter.lane();
  I32 below = (emitter.i32(1) << lane) - 1;
  // All lanes have read the rows of the part before.
  emitter.warpBarrier();
  State last = emitter.whileLoop(
      State{position, emitter.i32(0)},
      [&](State &state) { return (state.from < end) & (state.found < kRows); },
      [&](State state) {
        Index row = state.from + emitter.toIndex(lane);
        I32 other = loadAdapter(min(row, end - 1));
        Flag isSame = (row < end) & (other == adapter);
        I32 same = emitter.ballot(isSame);
        I32 place = state.found + (same & below).popcount();
        emitter.ifThen(isSame & (place < kRows), [&] {
          I32 at = emitter.warp() * kRows + place;
          emitter.storeI32(row.toI32(), rowTable, emitter.toIndex(at));
        });
        return State{state.from + kWarp, state.found + same.popcount()};
      });
  emitter.warpBarrier();
  return min(last.found, kRows);
}

Index PartTable::getRow(I32 i) {
  I32 at = emitter.warp() * kRows + i;
  return emitter.loadIndex(rowTable, emitter.toIndex(at));
}

void PartTable::emitPosition(Index position,
                             function_ref<void(const Part &)> body) {
  Part part;
  part.group = findGroupByLanes(emitter, offsets, position);
  Index begin = emitter.loadIndex(offsets, part.group);
  Index end = emitter.loadIndex(offsets, part.group + 1);
  part.adapter = loadAdapter(position);
  I32 before = countBefore(begin, position, part.adapter);
  emitter.ifThen(before % kRows == 0, [&] {
    part.count = findRows(position, end, part.adapter);
    body(part);
  });
}

void PartTable::forParts(Index window, function_ref<void(const Part &)> body) {
  Index positions = emitter.tokens() * topK;
  Index rows = emitter.index(kRows);
  for (const LoraShape::Window &each : llvm::reverse(LoraShape::kUpdateWindows))
    rows = select(positions <= each.positions, emitter.index(each.rows), rows);
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  Index last = emitter.loadIndex(offsets, emitter.index(groups));
  Index first = window * rows;
  emitter.loop(first, min(first + rows, last), 1,
               [&](Index position) { emitPosition(position, body); });
}
