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

/// The sum of the lanes up to this one.
I32 PartTable::scan(I32 own) {
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    I32 other = emitter.shuffleUp(own, distance);
    own = own + select(emitter.lane() < distance, emitter.i32(0), other);
  }
  return own;
}

PartTable::Found PartTable::find(ArrayRef<I32> sizes, I32 item) {
  constexpr int64_t highest = int64_t(1) << 31;
  I32 own = sizes.front();
  for (I32 size : sizes.drop_front())
    own = own + size;
  I32 end = scan(own), rest = item - (end - own), list = emitter.i32(0);
  I32 lanes = emitter.ballot((rest >= 0) & (item < end));
  // A lane without the item computes numbers that no other lane reads.
  for (int64_t i = 0; i + 1 < int64_t(sizes.size()); ++i) {
    Flag isBehind = (list == i) & (rest >= sizes[i]);
    rest = select(isBehind, rest - sizes[i], rest);
    list = select(isBehind, list + 1, list);
  }
  I32 lane = emitter.lowestBit(lanes | highest);
  I32 number = list + emitter.lane() * int64_t(sizes.size());
  Found found;
  found.exists = lanes != 0;
  found.number = emitter.getFromLane(number, lane);
  found.within = emitter.getFromLane(rest, lane);
  return found;
}

SmallVector<I32> PartTable::getNumbers() {
  int64_t count = llvm::divideCeil(shape.groups, kWarp);
  SmallVector<I32> bounds, numbers;
  for (int64_t i = 0; i <= count; ++i) {
    I32 group = min(emitter.lane() * count + i, shape.groups);
    bounds.push_back(emitter.loadI32(offsets, {emitter.toIndex(group)}));
  }
  for (int64_t i = 0; i < count; ++i) {
    I32 all = bounds[i + 1] - bounds[i];
    numbers.push_back(min(all, all / rows + shape.getKinds()));
  }
  return numbers;
}

SmallVector<I32> PartTable::getParts() {
  int64_t count = llvm::divideCeil(shape.getKinds(), kWarp);
  SmallVector<I32> parts;
  for (int64_t i = 0; i < count; ++i) {
    I32 kind = emitter.lane() * count + i;
    I32 safe = min(kind, shape.getKinds() - 1);
    I32 found = emitter.loadI32(counts, {emitter.toIndex(safe)});
    parts.push_back(select(kind < shape.getKinds(), divideUp(found, rows), 0));
  }
  return parts;
}

SmallVector<PartTable::Look> PartTable::look(I32 from, I32 end) {
  SmallVector<Look> looks;
  for (int64_t i = 0; i < kAtOnce; ++i) {
    Look each;
    each.row = from + emitter.thread() + i * emitter.getNumThreads();
    each.exists = each.row < end;
    I32 safe = min(each.row, end - 1);
    Index token = emitter.loadIndex(source, emitter.toIndex(safe));
    I32 given = emitter.loadI32(adapterIds, token);
    each.kind = select(given.isBelow(shape.adapters), given, shape.adapters);
    looks.push_back(each);
  }
  return looks;
}

void PartTable::count(I32 begin, I32 end) {
  emitter.loop(begin, end, kAtOnce * emitter.getNumThreads(), [&](I32 from) {
    for (const Look &each : look(from, end)) {
      // One addition for all lanes with the kind.
      I32 same = emitter.matchAny(select(each.exists, each.kind, -1));
      Flag isFirst = emitter.lowestBit(same) == emitter.lane();
      emitter.ifThen(each.exists & isFirst, [&] {
        emitter.addAtomically(same.popcount(), counts,
                              emitter.toIndex(each.kind));
      });
    }
  });
}

void PartTable::findRows(I32 begin, I32 end, I32 kind, I32 first) {
  struct State {
    I32 from, before;
    auto fields() { return std::tie(from, before); }
  };
  int64_t warps = emitter.getNumWarps(), entries = kAtOnce * warps;
  I32 lane = emitter.lane(), below = (emitter.i32(1) << lane) - 1;
  emitter.whileLoop(
      State{begin, emitter.i32(0)},
      [&](State &state) {
        return (state.from < end) & (state.before < first + rows);
      },
      [&](State state) {
        SmallVector<Look> looks = look(state.from, end);
        SmallVector<I32> same;
        for (auto [i, each] : llvm::enumerate(looks)) {
          same.push_back(emitter.ballot(each.exists & (each.kind == kind)));
          emitter.ifThen(lane == 0, [&, i = int64_t(i)] {
            emitter.storeI32(same.back().popcount(), warpCounts,
                             {emitter.toIndex(emitter.warp() + i * warps)});
          });
        }
        emitter.barrier();
        I32 safe = min(lane, entries - 1);
        I32 found = emitter.loadI32(warpCounts, {emitter.toIndex(safe)});
        I32 own = select(lane < entries, found, 0), sum = scan(own);
        for (auto [i, each] : llvm::enumerate(looks)) {
          I32 before = emitter.getFromLane(sum - own,
                                           emitter.warp() + int64_t(i) * warps);
          I32 place = state.before + before + (same[i] & below).popcount();
          place = place - first;
          Flag isSame = ((same[i] >> lane) & 1) != 0;
          emitter.ifThen(isSame & place.isBelow(rows), [&, each = each] {
            emitter.storeI32(each.row, rowTable, {emitter.toIndex(place)});
          });
        }
        emitter.barrier();
        return State{state.from + kAtOnce * emitter.getNumThreads(),
                     state.before + emitter.broadcast(sum, kWarp - 1)};
      });
}

Index PartTable::getRow(const Part &part, I32 i) {
  return part.row ? part.row
                  : emitter.loadIndex(rowTable, {emitter.toIndex(i)});
}

void PartTable::ifRow(I32 position, function_ref<void(const Part &)> body) {
  // The table of tokens has an entry for each position of the call.
  Part part;
  part.row = emitter.toIndex(position);
  Index token = emitter.loadIndex(source, part.row);
  Index last = emitter.loadIndex(offsets, emitter.index(shape.groups));
  part.group = findGroupByLanes(emitter, offsets, part.row);
  emitter.ifThen(part.row < last, [&] {
    I32 given = emitter.loadI32(adapterIds, token);
    part.adapter = select(given.isBelow(shape.adapters), given, -1);
    part.count = emitter.i32(1);
    body(part);
  });
}

void PartTable::ifPart(I32 number, function_ref<void(const Part &)> body) {
  emitter.forThreads(
      emitter.index(0), emitter.index(shape.getKinds()),
      [&](Index kind) { emitter.storeI32(emitter.i32(0), counts, {kind}); });
  Found group = find(getNumbers(), number);
  emitter.ifThen(group.exists, [&] {
    Part part;
    part.group = emitter.toIndex(group.number);
    I32 begin = emitter.loadI32(offsets, {part.group});
    I32 end = emitter.loadI32(offsets, {part.group + 1});
    emitter.barrier();
    count(begin, end);
    emitter.barrier();
    Found kind = find(getParts(), group.within);
    emitter.ifThen(kind.exists, [&] {
      part.adapter =
          select(kind.number == shape.adapters, emitter.i32(-1), kind.number);
      I32 first = kind.within * rows;
      I32 all = emitter.loadI32(counts, {emitter.toIndex(kind.number)});
      part.count = min(all - first, rows);
      findRows(begin, end, kind.number, first);
      body(part);
    });
  });
}
