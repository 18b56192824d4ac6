//===- TileScheduler.h - the tiles of a CTA ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_TILESCHEDULER_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_TILESCHEDULER_H

#include "GroupTable.h"
#include "KernelBuilder/Pipeline.h"

namespace moec {

/// One tile of the result. `rows` is at least one and at most the largest
/// BLOCK_M; 0 in a tile that fills a cluster, ahead of whose `firstRow` is a
/// row of the group.
struct Sm90Tile {
  I32 group, firstColumn, firstRow, rows;

  auto fields() { return std::tie(group, firstColumn, firstRow, rows); }
};

/// Tile scheduler. The M tiles of all groups and the N tiles form a list: by
/// group, then N tile, then M tile, so that weights are read from memory once.
/// A CTA takes every gridDim-th tile of the list, or the next one that is free.
/// The CTAs of a cluster take adjacent M tiles of one N tile, or the same tile.
///
/// Every warp visits the same tiles in the same order.
class Sm90TileScheduler {
public:
  /// `before`: the tile scheduler of the first of two joined gemms.
  Sm90TileScheduler(tile::GemmOp op, AsyncEmitter &emitter,
                    const sm90::GemmShape &shape, mlir::Value shared,
                    Sm90TileScheduler *before);

  Sm90GroupTable table;

  bool isDynamic() { return static_cast<bool>(op.getTileCounter()); }
  /// One warp; does nothing without the dynamic scheduler.
  void initBarriers();

  /// Tiles known in advance, as indices into the list: `first`, `first + step`,
  /// ... below `end`. With the dynamic scheduler, the first one.
  struct Items {
    I32 first, end, step;
  };
  Items getItems();
  /// Requires whole warps.
  Sm90Tile findTile(I32 item);

  /// Calls `body(tile, state)`, which returns the next state, for the CTA's
  /// tiles, and returns the last state. Whole warps. With the dynamic
  /// scheduler, exactly one of all threads that call this `draws` (null: none
  /// of these threads) tiles, after the wait for the launches before.
  template <typename State, typename Body>
  State forTiles(State state, Body body, Flag draws = {},
                 bool isConsumer = false) {
    return forItems(state, draws, withTile<State>(body), isConsumer);
  }
  /// For tiles known in advance.
  template <typename State, typename Body>
  State forTiles(const Items &items, State state, Body body) {
    return forItems(items, state, withTile<State>(body));
  }
  /// Calls `body(index, state, findNext)`. The body calls `findNext()` once, to
  /// get the index of the next tile.
  template <typename State, typename Body>
  State forItems(State state, Flag draws, Body body, bool isConsumer = false) {
    Items items = getItems();
    if (!isDynamic())
      return forItems(items, state, body);
    // Carries the tile index, the count of published ones, and the state.
    auto last = emitter.whileLoop(
        std::tuple(items.first, emitter.i32(0), state),
        [&](auto &at) { return std::get<0>(at) < items.end; },
        [&](auto at) {
          I32 iteration = std::get<1>(at), next;
          auto findNext = [&] {
            if (!draws.isNull())
              draw(items, draws, iteration);
            next = take(iteration, isConsumer);
            return next;
          };
          State end = body(std::get<0>(at), std::get<2>(at), findNext);
          return std::tuple(next, iteration + 1, end);
        });
    return std::get<2>(last);
  }

private:
  template <typename State, typename Body>
  State forItems(const Items &items, State state, Body body) {
    return emitter.loop(
        items.first, items.end, items.step, state, [&](I32 item, State state) {
          return body(item, state, [&] { return item + items.step; });
        });
  }
  template <typename State, typename Body>
  auto withTile(Body &body) {
    return [&](I32 item, State state, auto findNext) {
      Sm90Tile tile = findTile(item);
      State end = body(tile, state);
      findNext();
      return end;
    };
  }
  /// The thread that `draws`: takes the next index and publishes it.
  void draw(const Items &items, Flag draws, I32 iteration);
  /// Whole warps, including that of the drawing thread: reads the index that
  /// was published at `iteration`.
  I32 take(I32 iteration, bool isConsumer);
  /// The stage of an index, and the parity of its barriers.
  I32 stageAt(I32 iteration) { return iteration % sm90::kTaken; }
  I32 parityAt(I32 iteration) { return iteration / sm90::kTaken % 2; }
  mlir::Value counter();
  /// The CTAs that take tiles, or clusters of which each takes one.
  I32 countTakers();
  /// The CTA's index, or its cluster's, in the static order of `ctas` of them.
  I32 getCtaOrder();
  /// Writes an index, of the cluster's first CTA, for all CTAs of the cluster.
  void publish(I32 index, I32 stage);

  tile::GemmOp op;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  sm90::GemmShape shape;
  Sm90TileScheduler *before;
  /// Published indices of the dynamic scheduler. Full: the index has been
  /// written. Empty: all warps have read it.
  Pipeline numbers;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_TILESCHEDULER_H
