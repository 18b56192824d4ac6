//===- GroupTable.h - the groups of sm90.gemm -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_GROUPTABLE_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_GROUPTABLE_H

#include "KernelBuilder/AsyncEmitter.h"
#include "Shape.h"

namespace moec {

class SortIds;

/// M tiling of a group: the values of BLOCK_M packed in a word, and the number
/// of tiles.
struct Sm90MTiling {
  I32 blockMs, tiles;

  auto fields() { return std::tie(blockMs, tiles); }
};

/// Table of groups in shared memory, which each CTA builds at its start. The M
/// tiles of all groups are numbered in the order of groups. Empty groups have
/// no tiles, nor have groups whose number of rows excludes them from this
/// launch.
///
/// The table is built from offsets, which a launch before writes, or from the
/// caller's ids: each CTA then counts all ids, and copies weights while the
/// launches before still run.
class Sm90GroupTable {
public:
  Sm90GroupTable(tile::GemmOp op, AsyncEmitter &emitter,
                 const sm90::GemmShape &shape, mlir::Value shared)
      : op(op), emitter(emitter), b(emitter.b), shape(shape), shared(shared) {}

  /// A group's first position, the number of tiles before it, its rows, and its
  /// packed values of BLOCK_M. The entry behind the last group has the totals.
  struct Entry {
    I32 row, tile, rows, blockMs;
  };
  Entry load(I32 group);
  I32 countTiles() { return load(emitter.i32(shape.problem().groups)).tile; }
  /// Rows of all groups.
  I32 countRows();
  /// The group of a tile; all lanes of a warp together.
  I32 findGroup(I32 tile);

  /// All threads, before a barrier. Waits for the launches before unless there
  /// are ids.
  void build();

  /// The first `higher` tiles have `low + more` rows, the others `low`,
  /// multiples of 8; the last tile may have fewer. Where a group never has two
  /// values of BLOCK_M, the packed word is that value.
  struct BlockMPair {
    I32 low, more, higher;
  };
  I32 packBlockM(I32 blockM);
  I32 packBlockMs(int64_t low, int64_t high, I32 higher);
  BlockMPair unpackBlockMs(I32 word);

private:
  static constexpr int64_t kTileWord = 1, kRowsWord = 2, kBlockMWord = 3;
  static constexpr int64_t kWordBytes = 4;

  mlir::Value entryAddress(I32 group);
  mlir::Value wordAddress(I32 group, int64_t word);
  void store(I32 group, Entry entry);
  /// A group's first position, loaded from memory.
  I32 loadOffset(I32 group);

  /// All threads: counts ids into the row counts of the entries.
  void countIds(SortIds &experts, Index slots);
  /// One warp: builds the table from these counts, or from offsets.
  void sumUp();
  void storeSingleGroup();
  /// The number of rows of a group, 0 behind the last one.
  I32 loadCount(I32 group);
  /// Exclusive prefix sums of a lane's values, and the sum behind its last one,
  /// over the warp in the order of lanes, starting from `before`.
  llvm::SmallVector<I32> addUp(llvm::ArrayRef<I32> own, I32 before);

  //===--- Few ids (FewIds.cpp) ---===//

  /// Whether `buildFromFew` applies to so many ids.
  Flag areFewIds(Index slots);
  /// All threads: builds the table from at most one id per lane.
  void buildFromFew(SortIds &experts, Index slots);
  I32 loadOwnKey(SortIds &experts, Index slots, I32 blockM);
  /// BLOCK_M of all groups in that case, except for last tiles.
  I32 getBlockMOfFew();

  //===--- M tiling (MTiling.cpp) ---===//

  /// M tiling of a group with `count` rows; no tiles if the group is not one of
  /// this launch.
  Sm90MTiling tileGroup(I32 count);
  /// M tiling of a lane's groups from `first` on, by `counts`; all lanes of a
  /// warp together.
  struct Tilings {
    llvm::SmallVector<I32> blockMs, tiles;

    auto fields() { return std::tie(blockMs, tiles); }
    void add(Sm90MTiling tiling) {
      blockMs.push_back(tiling.blockMs);
      tiles.push_back(tiling.tiles);
    }
  };
  Tilings tileGroups(llvm::ArrayRef<I32> counts, I32 first);
  /// M tiling in a loop over parts of a lane's groups, whose counts are loaded
  /// again; `share`, the number per lane, is a multiple of a part.
  Tilings tileInTurn(int64_t share, I32 first);
  /// Whether this launch computes a group with `count` rows; null if it
  /// computes all.
  Flag takesGroup(I32 count);
  /// `tiles` if the launch computes the group, else 0.
  I32 ifTaken(I32 count, I32 tiles);

  tile::GemmOp op;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm90::GemmShape shape;
  mlir::Value shared;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_GROUPTABLE_H
