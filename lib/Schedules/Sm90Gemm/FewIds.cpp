//===- FewIds.cpp - the table of groups of few ids --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Table of groups for few ids. With few tokens, the time until the first copy
// is most of a kernel's time, and counters in shared memory and prefix sums
// over all groups take several barriers of the CTA. If each lane of a warp has
// one id, each thread computes its groups' entries from all ids directly: the
// rows and tiles before a group are the number of lower ids, and of lower ids
// that are the first of a tile. All groups use one BLOCK_M, which holds all
// tokens if there is such a value: a token has one row in a group, or several
// if its ids repeat.

#include "GroupTable.h"
#include "Schedules/Routing/SortIds.h"

#include <limits>

using namespace mlir;
using namespace moec;

Flag Sm90GroupTable::areFewIds(Index slots) { return slots <= kWarp; }

I32 Sm90GroupTable::getBlockMOfFew() {
  I32 tokens = emitter.toI32(emitter.tokens());
  I32 blockM = emitter.i32(shape.tile().blockM.back());
  for (int64_t rows : llvm::reverse(ArrayRef(shape.tile().blockM).drop_back()))
    blockM = select(tokens <= rows, emitter.i32(rows), blockM);
  return blockM;
}

/// Key of the lane's slot: twice its local expert, plus one if a tile of that
/// expert begins with it; the maximum if the lane has no slot.
I32 Sm90GroupTable::loadOwnKey(SortIds &experts, Index slots, I32 blockM) {
  constexpr int32_t none = std::numeric_limits<int32_t>::max();
  Value ids = emitter.operand(op.getIds());
  Index slot = emitter.toIndex(emitter.lane());
  I32 key = emitter.choose(
      slot < slots,
      [&] {
        I32 id = emitter.loadConstantI32(ids, {emitter.index(0), slot});
        I32 local(b, experts.localOf(id));
        Flag isHere(b, experts.isHere(local));
        return select(isHere, local * 2, none);
      },
      [&] { return emitter.i32(none); });
  I32 same = emitter.matchAny(key);
  I32 bit = emitter.i32(1) << emitter.lane();
  I32 lower = same & (bit + -1);
  // Rows before it in the group's last tile.
  I32 inTile = lower.popcount() % blockM;
  Flag isFirst = (inTile == 0) & (key < none);
  Flag takes = takesGroup(same.popcount());
  if (!takes.isNull())
    isFirst = isFirst & takes;
  return key + isFirst.toI32();
}

void Sm90GroupTable::buildFromFew(SortIds &experts, Index slots) {
  I32 blockM = getBlockMOfFew();
  I32 key = loadOwnKey(experts, slots, blockM);
  /// Lower ids, those of them that begin a tile, and equal ones.
  struct Counts {
    I32 before, tiles, rows;
    auto fields() { return std::tie(before, tiles, rows); }
  };
  I32 zero = emitter.i32(0);
  // A round takes several slots, so that exchanges of keys overlap. Keys of
  // lanes without a slot change no count.
  constexpr int64_t slotsAtOnce = 8;
  static_assert(kWarp % slotsAtOnce == 0);
  // Whole warps, because lanes exchange values.
  emitter.loop(emitter.index(0), emitter.index(shape.problem().groups + 1),
               emitter.getNumThreads(), [&](Index first) {
                 I32 group = emitter.toI32(first) + emitter.thread();
                 I32 own = group * 2;
                 Counts counts = emitter.loop(
                     emitter.index(0), slots, slotsAtOnce,
                     Counts{zero, zero, zero}, [&](Index slot, Counts counts) {
                       for (int64_t i = 0; i < slotsAtOnce; ++i) {
                         I32 other =
                             emitter.getFromLane(key, emitter.toI32(slot) + i);
                         Flag isFirst = (other & 1) != 0;
                         Flag isBefore = other < own;
                         Flag isSame = (other | 1) == own + 1;
                         Flag begins = isBefore & isFirst;
                         counts.before = counts.before + isBefore.toI32();
                         counts.tiles = counts.tiles + begins.toI32();
                         counts.rows = counts.rows + isSame.toI32();
                       }
                       return counts;
                     });
                 emitter.ifThen(group <= shape.problem().groups, [&] {
                   store(group, {counts.before, counts.tiles, counts.rows,
                                 packBlockM(blockM)});
                 });
               });
}
