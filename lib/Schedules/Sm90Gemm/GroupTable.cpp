//===- GroupTable.cpp - the groups of sm90.gemm -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GroupTable.h"

#include "Schedules/Routing/SortIds.h"

using namespace mlir;
using namespace moec;

//===----------------------------------------------------------------------===//
// Entries
//===----------------------------------------------------------------------===//

Value Sm90GroupTable::entryAddress(I32 group) {
  return emitter.advance(
      emitter.advance(shared, shape.shared().getTableOffset()),
      group * sm90::kTableBytes);
}

Value Sm90GroupTable::wordAddress(I32 group, int64_t word) {
  return emitter.advance(entryAddress(group), word * kWordBytes);
}

Sm90GroupTable::Entry Sm90GroupTable::load(I32 group) {
  Value entry = emitter.loadWords(entryAddress(group), 4);
  auto word = [&](int64_t i) { return emitter.element<I32>(entry, i); };
  return {word(0), word(kTileWord), word(kRowsWord), word(kBlockMWord)};
}

void Sm90GroupTable::store(I32 group, Entry entry) {
  I32 words[] = {entry.row, entry.tile, entry.rows, entry.blockMs};
  Value all = emitter.makeVector(ArrayRef(words));
  emitter.store(all, entryAddress(group), sm90::kTableBytes);
}

I32 Sm90GroupTable::countRows() {
  Entry last = load(emitter.i32(shape.problem().groups - 1));
  return last.row + last.rows;
}

/// Finds the last group whose first tile is not after `tile`. Empty groups
/// share their first tile with the next group. In each round every lane tests
/// one group, and the range narrows to the groups before the next lane's.
I32 Sm90GroupTable::findGroup(I32 tile) {
  I32 group = emitter.i32(0);
  for (int64_t left = shape.problem().groups; left > 1;) {
    int64_t step = llvm::divideCeil(left, kWarp);
    I32 own = group + emitter.lane() * step;
    I32 last = min(group + (left - 1), shape.problem().groups - 1);
    Flag isInside = own <= last;
    I32 first = load(min(own, last)).tile;
    Flag isBefore = isInside & (first <= tile);
    group = group + (emitter.countLanes(isBefore) * step + -step);
    left = step;
  }
  return group;
}

//===----------------------------------------------------------------------===//
// The table
//===----------------------------------------------------------------------===//

void Sm90GroupTable::build() {
  auto sumUpCounts = [&] {
    emitter.ifThen(emitter.warp() == 0, [&] { sumUp(); });
  };
  if (!op.getIds()) {
    emitter.waitForLaunchBefore();
    return sumUpCounts();
  }
  Index slots = emitter.tokens() * getColumns(emitter.operand(op.getIds()));
  Value localTable = op.getLocalExperts()
                         ? emitter.constantTable(SortIds::getLocalTable(op))
                         : Value();
  SortIds experts(op, emitter, localTable);
  auto buildFromMany = [&] {
    countIds(experts, slots);
    sumUpCounts();
  };
  // Tiles of few ids are not paired.
  if (shape.tile().getClusterTiles() > 1)
    return buildFromMany();
  emitter.ifThen(
      areFewIds(slots), [&] { buildFromFew(experts, slots); }, buildFromMany);
}

void Sm90GroupTable::countIds(SortIds &experts, Index slots) {
  Value ids = emitter.operand(op.getIds());
  auto loadId = [&](Index slot) {
    return emitter.loadConstantI32(ids, {emitter.index(0), slot});
  };
  auto count = [&](I32 id) {
    I32 local(b, experts.localOf(id));
    emitter.ifThen(experts.isHere(local), [&] {
      emitter.addAtomically(emitter.i32(1), wordAddress(local, kRowsWord));
    });
  };
  // The first load overlaps with the clearing of counters.
  Index own = emitter.toIndex(emitter.thread());
  I32 first = emitter.choose(
      own < slots, [&] { return loadId(own); },
      [&] { return emitter.i32(-1); });
  // Includes the entry behind the last group, which lanes without a group read.
  emitter.forThreads(
      emitter.index(0), emitter.index(shape.problem().groups + 1),
      [&](Value group) {
        emitter.store(emitter.i32(0),
                      wordAddress(emitter.toI32(group), kRowsWord), kWordBytes);
      });
  emitter.barrier();
  count(first);
  // Several slots per iteration, so that their loads overlap.
  constexpr int64_t atOnce = 4;
  int64_t threads = emitter.getNumThreads();
  Index last = slots + -1;
  emitter.loop(own + threads, slots, atOnce * threads, [&](Index slot) {
    SmallVector<I32> loaded;
    for (int64_t i = 0; i < atOnce; ++i) {
      Index at = slot + i * threads;
      Flag exists = at < slots;
      I32 id = loadId(min(at, last));
      loaded.push_back(select(exists, id, -1));
    }
    for (I32 id : loaded)
      count(id);
  });
  emitter.barrier();
}

SmallVector<I32> Sm90GroupTable::addUp(ArrayRef<I32> own, I32 before) {
  SmallVector<I32> sums{emitter.i32(0)};
  for (I32 value : own)
    sums.push_back(sums.back() + value);
  I32 sum = sums.back();
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    I32 other = emitter.shuffleUp(sum, distance);
    Flag hasOther = emitter.lane() >= distance;
    sum = sum + select(hasOther, other, 0);
  }
  I32 start = before + (sum - sums.back());
  for (I32 &end : sums)
    end = start + end;
  return sums;
}

I32 Sm90GroupTable::loadOffset(I32 group) {
  if (Value offsets = emitter.operand(op.getOffsets()))
    return emitter.loadI32(offsets, emitter.toIndex(group));
  // For a single group only the end is needed: the number of valid rows.
  return emitter.toI32(emitter.validTokens(op.getNumValidTokens()));
}

I32 Sm90GroupTable::loadCount(I32 group) {
  // Groups past the end are empty.
  I32 inside = min(group, shape.problem().groups);
  if (op.getIds())
    return emitter.loadWord(wordAddress(inside, kRowsWord));
  I32 end = loadOffset(min(group + 1, shape.problem().groups));
  return end - loadOffset(inside);
}

void Sm90GroupTable::storeSingleGroup() {
  I32 zero = emitter.i32(0);
  emitter.ifThen(emitter.lane() == 0, [&] {
    I32 rows = loadOffset(emitter.i32(1));
    Sm90MTiling tiling = tileGroup(rows);
    // The lane's index is the group's.
    I32 group = emitter.lane();
    store(group, {zero, zero, rows, tiling.blockMs});
    store(group + 1, {zero, tiling.tiles, zero, zero});
  });
}

/// A lane loads the offsets, or counts, of adjacent groups and sums their
/// tiles; then lanes sum across the warp. Very many groups are processed in
/// parts.
void Sm90GroupTable::sumUp() {
  if (shape.problem().groups == 1 && !op.getIds())
    return storeSingleGroup();
  int64_t share = std::min<int64_t>(
      llvm::divideCeil(shape.problem().groups, kWarp), ptxas::kGroupsAtOnce);
  if (share > ptxas::kCutAtOnce)
    share = llvm::alignTo(share, ptxas::kCutAtOnce);
  I32 zero = emitter.i32(0), groups = emitter.i32(shape.problem().groups);
  /// Tiles and rows of the parts before.
  struct Totals {
    I32 tiles, rows;
    auto fields() { return std::tie(tiles, rows); }
  };
  auto emitPart = [&](Index part, Totals before) {
    I32 first = emitter.toI32(part) + emitter.lane() * share;
    SmallVector<I32> rows, counts;
    if (op.getIds()) {
      for (int64_t i = 0; i < share; ++i)
        counts.push_back(loadCount(first + i));
      // Other lanes have read the entry behind the last group, too.
      emitter.warpBarrier();
      rows = addUp(counts, before.rows);
    } else {
      for (int64_t i = 0; i <= share; ++i)
        rows.push_back(loadOffset(min(first + i, groups)));
      for (int64_t i = 0; i < share; ++i)
        counts.push_back(rows[i + 1] - rows[i]);
    }
    Tilings tilings = tileGroups(counts, first);
    SmallVector<I32> firstTiles = addUp(tilings.tiles, before.tiles);
    for (int64_t i = 0; i < share; ++i) {
      I32 group = first + i;
      emitter.ifThen(group < groups, [&] {
        store(group, {rows[i], firstTiles[i], counts[i], tilings.blockMs[i]});
      });
    }
    I32 allTiles = emitter.broadcast(firstTiles.back(), kWarp - 1);
    return Totals{allTiles, emitter.broadcast(rows.back(), kWarp - 1)};
  };
  Totals end =
      emitter.loop(emitter.index(0), emitter.index(shape.problem().groups),
                   share * kWarp, Totals{zero, zero}, emitPart);
  // Only the number of tiles of this entry is read.
  emitter.ifThen(emitter.lane() == 0,
                 [&] { store(groups, {zero, end.tiles, zero, zero}); });
}
