//===- Sm90Contract.h - the parts of sm90.contract --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90CONTRACT_H
#define MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90CONTRACT_H

#include "../../AsyncEmitter.h"
#include "../../RingCopies.h"
#include "moec/Analysis/Sm90.h"

namespace moec {

class RankIds;

/// One tile of the result; all are i32. `rows`, at least one, are at most the
/// highest tile.
struct ContractTile {
  mlir::Value group, firstColumn, firstRow, rows;
};

/// What the warpgroups of a CTA share: where things lie in shared memory, and
/// which tiles there are.
///
/// A kernel with two products has two of them, one `before` the other: all
/// warps go through the tiles of the first, then through those of the second,
/// with the same ring and table. While the last tiles of the first are
/// multiplied somewhere, weights of the second arrive; its rows wait until all
/// of them are. So do rows that the consumers of all CTAs quantize first.
class Sm90Contract {
public:
  Sm90Contract(tile::ContractOp op, AsyncEmitter &emitter,
               Sm90Contract *before = nullptr);

  tile::ContractOp op;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm90::Contract shape;

  /// All threads: barriers and the table of groups. Once per kernel.
  void emitPrologue();
  /// Tells the product behind that the CTA's results are there; all consumers,
  /// behind their last tile.
  void signal();
  /// All consumers: quantizes the CTA's share of the rows, tells that, and
  /// waits until all CTAs have; nothing where the kernel does not begin with
  /// that.
  void quantizeRows();
  /// Whether rows are quantized by this kernel.
  bool quantizesRows() const { return static_cast<bool>(quantization); }
  /// Waits until the phase before has told so everywhere. Whole warps, ahead of
  /// their first rows.
  void awaitBefore();
  /// With ids the prologue has not waited for the launches before, so that
  /// weights can be copied; each role waits before it touches anything else.
  void waitInRole() {
    if (op.getIds())
      emitter.waitForLaunchBefore();
  }
  /// The list of all tiles: the numbers of the CTA's are `first`, then `step`
  /// on, as long as they are less than `end`; i32.
  struct Items {
    mlir::Value first, end, step;
  };
  Items getItems();
  /// Whole warps.
  ContractTile findTile(mlir::Value item);
  /// Calls `body` for the CTA's tiles, with values that it carries from tile to
  /// tile; the same tiles in the same order in every warp. Whole warps. Where
  /// there is a queue, one thread of all those that call this `draws` (i1,
  /// null: none of these), after the wait for the launches before.
  using TileBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      ContractTile, mlir::ValueRange)>;
  llvm::SmallVector<mlir::Value> forTiles(mlir::ValueRange init, TileBody body,
                                          mlir::Value draws = {},
                                          bool isConsumer = false);
  /// The same of some of them, whose numbers are known ahead.
  llvm::SmallVector<mlir::Value> forTiles(const Items &items,
                                          mlir::ValueRange init, TileBody body);
  /// The same with the numbers of tiles: the body gets one, and calls what it
  /// gets last, once, for the number of the next one.
  using ItemBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::Value, mlir::ValueRange, llvm::function_ref<mlir::Value()>)>;
  llvm::SmallVector<mlir::Value> forItems(mlir::ValueRange init,
                                          mlir::Value draws, ItemBody body,
                                          bool isConsumer = false);

  /// A place in the queue: its number is there, and all warps have read it.
  mlir::Value drawnBarrier(mlir::Value place) {
    return barrier(shape.getQueueOffset(), /*before=*/0, place);
  }
  mlir::Value readBarrier(mlir::Value place) {
    return barrier(shape.getQueueOffset(), sm90::Contract::kTaken, place);
  }

  //===--- The ring ---===//

  RingPlace getFirstPlace();
  RingPlace next(RingPlace place);
  bool hasBefore() const { return before; }
  /// The tensor map `i` of the product.
  mlir::Value tensorMap(int64_t i) { return emitter.tensorMap(firstMap + i); }
  /// The weights of a stage, and `offset` bytes on.
  mlir::Value stageAddress(mlir::Value stage, int64_t offset = 0);
  /// Where the input rows of a stage begin in it.
  int64_t getInputOffset() const { return shape.getWeightBytes(); }
  /// Full: copies are there. Empty: products have read them.
  mlir::Value fullBarrier(mlir::Value stage) {
    return barrier(shape.getBarrierOffset(), /*before=*/0, stage);
  }
  mlir::Value emptyBarrier(mlir::Value stage) {
    return barrier(shape.getBarrierOffset(), shape.stages, stage);
  }
  mlir::Value sharedAddress(int64_t offset) {
    return emitter.advance(shared, offset);
  }

  //===--- i32 ---===//

  mlir::Value divideUp(mlir::Value x, mlir::Value y);
  /// The lowest multiple of 8 that holds so many rows, at least 8.
  mlir::Value roundHeight(mlir::Value rows);
  /// How a group's rows are cut (Sm90Tiles.cpp): the heights of its tiles, in
  /// a word, and how many there are; i32.
  struct Cut {
    mlir::Value heights, tiles;
  };
  /// Rows of a tile, a multiple of 8, and `more` of the first `higher` ones;
  /// the last tile may have fewer. Where tiles never have two heights the word
  /// is the one.
  struct Heights {
    mlir::Value low, more, higher;
  };
  mlir::Value packHeight(mlir::Value height);
  mlir::Value packHeights(int64_t low, int64_t high, mlir::Value higher);
  Heights unpackHeights(mlir::Value word);
  mlir::Value addI32(mlir::Value x, mlir::Value y) {
    return b.createOrFold<mlir::arith::AddIOp>(x, y);
  }
  mlir::Value minI32(mlir::Value x, mlir::Value y) {
    return b.createOrFold<mlir::arith::MinSIOp>(x, y);
  }
  mlir::Value isEqual(mlir::Value x, mlir::Value y) {
    return mlir::arith::CmpIOp::create(b, mlir::arith::CmpIPredicate::eq, x, y);
  }

private:
  /// The one with that number (i32) of some that begin at `offset`, behind
  /// `before` others.
  mlir::Value barrier(int64_t offset, int64_t before, mlir::Value number);
  /// A group's first position, the number of tiles before it, its rows,
  /// and the heights of its tiles in a word; i32. Behind the last group, where
  /// they end.
  struct Entry {
    mlir::Value row, tile, rows, heights;
  };
  mlir::Value entryAddress(mlir::Value group);
  Entry loadEntry(mlir::Value group);
  void storeEntry(mlir::Value group, Entry entry);
  static constexpr int64_t kTileWord = 1, kRowsWord = 2, kHeightsWord = 3;
  static constexpr int64_t kWordBytes = 4;
  mlir::Value wordAddress(mlir::Value group, int64_t word);
  /// The first position of a group from memory; of type i32.
  mlir::Value loadOffset(mlir::Value group);
  /// The CTA's place among the `ctas` that take tiles in turn; i32.
  mlir::Value getPlace(mlir::Value ctas);
  /// The rows of all groups; i32.
  mlir::Value countRows();
  /// One thread: asks until all CTAs have told that the phase before is done;
  /// of rows that are quantized, those that have any.
  void awaitAll();
  void initBarriers();
  void initQueue();
  llvm::SmallVector<mlir::Value> forItems(const Items &items,
                                          mlir::ValueRange init, ItemBody body);
  /// Whether `emitTableOfFew` is right for so many ids (index); i1.
  mlir::Value areFewIds(mlir::Value slots);
  mlir::Value loadOwnKey(RankIds &experts, mlir::Value slots,
                         mlir::Value height);
  /// Rows of the tiles of all groups there, but of last ones; i32.
  mlir::Value getHeightOfFew();
  /// All threads: the table of at most one id per lane (Sm90FewIds.cpp).
  void emitTableOfFew(RankIds &experts, mlir::Value slots);
  /// All threads: counts ids, into the entries' rows.
  void countIds(RankIds &experts, mlir::Value slots);
  /// One warp: from these, or from offsets.
  void emitTable();
  /// What comes before each of a lane's values, and behind its last one; of
  /// the warp's, in the order of lanes, all behind `before`.
  llvm::SmallVector<mlir::Value> addUp(llvm::ArrayRef<mlir::Value> own,
                                       mlir::Value before);
  /// The tiles of a group with `count` rows; none if it is not one of the
  /// product's groups.
  Cut cutGroup(mlir::Value count);
  /// Heights and numbers of tiles, of each group of a lane.
  struct Cuts {
    llvm::SmallVector<mlir::Value> heights, tiles;
  };
  /// The rows of a group, none behind the last one; i32.
  using LoadCount = llvm::function_ref<mlir::Value(mlir::Value)>;
  /// By their counts, of groups from `first` on, or by those that are loaded
  /// again; all lanes of a warp together.
  Cuts cutGroups(llvm::ArrayRef<mlir::Value> counts, mlir::Value first,
                 LoadCount loadCount);
  /// Some of a lane's groups at a time, where it has more; a multiple in all.
  Cuts cutInTurn(int64_t share, mlir::Value first, LoadCount loadCount);
  /// Whether a group with `count` rows is one of the product's (i1); null where
  /// all are.
  mlir::Value takesGroup(mlir::Value count);
  /// `tiles` of such a group, else none.
  mlir::Value ifTaken(mlir::Value count, mlir::Value tiles);
  /// All lanes of a warp together.
  mlir::Value findGroup(mlir::Value tile);

  mlir::Value shared;
  Sm90Contract *before;
  tile::QuantizeOp quantization;
  int64_t firstMap = 0;
};

/// The products of a kernel, in order.
using Sm90Contracts = llvm::MutableArrayRef<Sm90Contract>;

/// The warpgroup that fills the ring.
void emitSm90Producer(Sm90Contracts contracts);
/// The warpgroups that empty it. Fails with a diagnostic on an epilogue that
/// cannot be emitted.
mlir::LogicalResult emitSm90Consumer(Sm90Contracts contracts);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90CONTRACT_H
