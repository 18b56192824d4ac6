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

/// One tile of the result; all values are i32. `rows` is at least one and at
/// most the largest BLOCK_M.
struct ContractTile {
  mlir::Value group, firstColumn, firstRow, rows;
};

/// State that the warpgroups of a CTA share: the layout of shared memory, the
/// barriers and the tile scheduler.
///
/// A kernel of joined gemms has two of them, the first being `before` of the
/// second. All warps go through the tiles of the first, then through those of
/// the second, with one pipeline and one table. While other CTAs still multiply
/// the last tiles of the first gemm, weights of the second are copied; its rows
/// wait until all those tiles are done. Rows that the consumers of all CTAs
/// quantize first are waited for in the same way.
class Sm90Contract {
public:
  Sm90Contract(tile::ContractOp op, AsyncEmitter &emitter,
               Sm90Contract *before = nullptr);

  tile::ContractOp op;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm90::Contract shape;

  /// All threads, once per kernel: initializes barriers and the table of
  /// groups.
  void emitPrologue();
  /// Signals to the second gemm that the CTA's results are stored. All
  /// consumers, after their last tile.
  void signal();
  /// All consumers: quantizes the CTA's share of the rows, signals that, and
  /// waits until all CTAs have done so. Does nothing if the kernel does not
  /// begin with a quantization.
  void quantizeRows();
  bool quantizesRows() const { return static_cast<bool>(quantization); }
  /// Waits until all CTAs have signalled the end of the phase before. Whole
  /// warps, before their first rows.
  void awaitBefore();
  /// With ids, the prologue does not wait for the launches before, so that
  /// weights can be copied early; each role waits before it accesses anything
  /// else.
  void waitInRole() {
    if (op.getIds())
      emitter.waitForLaunchBefore();
  }
  /// The CTA's tiles in the list of all tiles: `first`, `first + step`, ...
  /// below `end`; i32.
  struct Items {
    mlir::Value first, end, step;
  };
  Items getItems();
  /// Requires whole warps.
  ContractTile findTile(mlir::Value item);
  /// Calls `body` for the CTA's tiles, with loop-carried values; every warp
  /// visits the same tiles in the same order. Whole warps. With the dynamic
  /// scheduler, exactly one of all threads that call this `draws` (i1; null:
  /// none of these threads) tiles, after the wait for the launches before.
  using TileBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      ContractTile, mlir::ValueRange)>;
  llvm::SmallVector<mlir::Value> forTiles(mlir::ValueRange init, TileBody body,
                                          mlir::Value draws = {},
                                          bool isConsumer = false);
  /// Calls `body` for tiles with indices known in advance.
  llvm::SmallVector<mlir::Value> forTiles(const Items &items,
                                          mlir::ValueRange init, TileBody body);
  /// Calls `body` with tile indices. The body calls its last argument once, to
  /// get the index of the next tile.
  using ItemBody = llvm::function_ref<llvm::SmallVector<mlir::Value>(
      mlir::Value, mlir::ValueRange, llvm::function_ref<mlir::Value()>)>;
  llvm::SmallVector<mlir::Value> forItems(mlir::ValueRange init,
                                          mlir::Value draws, ItemBody body,
                                          bool isConsumer = false);

  /// Barriers of a slot of the dynamic scheduler: its tile index has been
  /// written; all warps have read it.
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
  /// Tensor map `i` of this gemm.
  mlir::Value tensorMap(int64_t i) { return emitter.tensorMap(firstMap + i); }
  /// The address of a stage's weights, plus `offset` bytes.
  mlir::Value stageAddress(mlir::Value stage, int64_t offset = 0);
  /// Offset of the input rows in a stage.
  int64_t getInputOffset() const { return shape.getWeightBytes(); }
  /// Full: copies have arrived. Empty: wgmmas have read the stage.
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
  /// Rounds up to a multiple of 8, at least 8.
  mlir::Value roundHeight(mlir::Value rows);
  /// M tiling of a group (Sm90Tiles.cpp): the values of BLOCK_M packed in a
  /// word, and the number of tiles; i32.
  struct Cut {
    mlir::Value heights, tiles;
  };
  /// The first `higher` tiles have `low + more` rows, the others `low`,
  /// multiples of 8; the last tile may have fewer. Where a group never has two
  /// values of BLOCK_M, the packed word is that value.
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
  /// Address of barrier `number` (i32) of an array of barriers at `offset`,
  /// behind `before` others.
  mlir::Value barrier(int64_t offset, int64_t before, mlir::Value number);
  /// A group's first position, the number of tiles before it, its rows, and its
  /// packed values of BLOCK_M; i32. The entry behind the last group has the
  /// totals.
  struct Entry {
    mlir::Value row, tile, rows, heights;
  };
  mlir::Value entryAddress(mlir::Value group);
  Entry loadEntry(mlir::Value group);
  void storeEntry(mlir::Value group, Entry entry);
  static constexpr int64_t kTileWord = 1, kRowsWord = 2, kHeightsWord = 3;
  static constexpr int64_t kWordBytes = 4;
  mlir::Value wordAddress(mlir::Value group, int64_t word);
  /// A group's first position, loaded from memory; i32.
  mlir::Value loadOffset(mlir::Value group);
  /// The CTA's index in the static order of the `ctas` CTAs that take tiles;
  /// i32.
  mlir::Value getPlace(mlir::Value ctas);
  /// Total rows of all groups; i32.
  mlir::Value countRows();
  /// One thread: polls until all CTAs have signalled the end of the phase
  /// before; with quantized rows, only the CTAs that have any.
  void awaitAll();
  void initBarriers();
  void initQueue();
  llvm::SmallVector<mlir::Value> forItems(const Items &items,
                                          mlir::ValueRange init, ItemBody body);
  /// Whether `emitTableOfFew` applies to so many ids (index); i1.
  mlir::Value areFewIds(mlir::Value slots);
  mlir::Value loadOwnKey(RankIds &experts, mlir::Value slots,
                         mlir::Value height);
  /// BLOCK_M of all groups in that case, except for last tiles; i32.
  mlir::Value getHeightOfFew();
  /// All threads: builds the table from at most one id per lane
  /// (Sm90FewIds.cpp).
  void emitTableOfFew(RankIds &experts, mlir::Value slots);
  /// All threads: counts ids into the row counts of the entries.
  void countIds(RankIds &experts, mlir::Value slots);
  /// One warp: builds the table from these counts, or from offsets.
  void emitTable();
  /// Exclusive prefix sums of a lane's values, and the sum behind its last one,
  /// over the warp in the order of lanes, starting from `before`.
  llvm::SmallVector<mlir::Value> addUp(llvm::ArrayRef<mlir::Value> own,
                                       mlir::Value before);
  /// M tiling of a group with `count` rows; no tiles if the group is not one of
  /// this launch.
  Cut cutGroup(mlir::Value count);
  /// M tiling of each group of a lane: packed values of BLOCK_M and numbers of
  /// tiles.
  struct Cuts {
    llvm::SmallVector<mlir::Value> heights, tiles;
  };
  /// Loads the number of rows of a group, 0 behind the last one; i32.
  using LoadCount = llvm::function_ref<mlir::Value(mlir::Value)>;
  /// M tiling of a lane's groups from `first` on, by `counts` or by counts that
  /// are loaded again; all lanes of a warp together.
  Cuts cutGroups(llvm::ArrayRef<mlir::Value> counts, mlir::Value first,
                 LoadCount loadCount);
  /// M tiling in a loop over parts of a lane's groups; `share`, the number per
  /// lane, is a multiple of a part.
  Cuts cutInTurn(int64_t share, mlir::Value first, LoadCount loadCount);
  /// Whether this launch computes a group with `count` rows (i1); null if it
  /// computes all.
  mlir::Value takesGroup(mlir::Value count);
  /// `tiles` if the launch computes the group, else 0.
  mlir::Value ifTaken(mlir::Value count, mlir::Value tiles);
  /// All lanes of a warp together.
  mlir::Value findGroup(mlir::Value tile);

  mlir::Value shared;
  Sm90Contract *before;
  tile::QuantizeOp quantization;
  int64_t firstMap = 0;
};

/// The gemms of a kernel, in order.
using Sm90Contracts = llvm::MutableArrayRef<Sm90Contract>;

/// The producer warpgroup.
void emitSm90Producer(Sm90Contracts contracts);
/// The consumer warpgroups. Fails with a diagnostic on an epilogue that cannot
/// be emitted.
mlir::LogicalResult emitSm90Consumer(Sm90Contracts contracts);

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_SCHEDULES_SM90_SM90CONTRACT_H
