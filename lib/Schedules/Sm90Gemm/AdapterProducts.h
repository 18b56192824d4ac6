//===- AdapterProducts.h - k tiles of adapters in sm90.gemm -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERPRODUCTS_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERPRODUCTS_H

#include "Gemm.h"

namespace moec {

/// The k tiles that the adapters of a tile's rows add to those of the input:
/// `shrunk` in place of input rows, `b` in place of weights. Each role finds
/// the same adapters, in ascending order. Rows have zeros in chunks of adapters
/// that are not theirs.
class Sm90AdapterProducts {
public:
  explicit Sm90AdapterProducts(Sm90Gemm &gemm)
      : gemm(gemm), emitter(gemm.emitter), b(gemm.b), shape(gemm.shape),
        tiles(*gemm.shape.problem().adapters) {}

  /// Bits of the adapters of a tile's rows. Whole warps.
  I32 find(const Sm90Tile &tile);
  /// The number of their k tiles.
  I32 countTiles(I32 found);

  //===--- The warp of TMA copies ---===//

  /// Arrives for the boxes that these k tiles do not have: of weights and, with
  /// `copiesRows`, of rows. `goOn` returns the state behind a k tile.
  template <typename State, typename GoOn>
  State passTiles(const Sm90Tile &tile, State state, bool copiesRows,
                  GoOn goOn) {
    gemm.waitInRole();
    return emitter.loop(
        emitter.index(0), emitter.toIndex(countTiles(find(tile))), 1, state,
        [&](Index, State state) {
          emitter.ifThen(emitter.lane() == 0, [&] {
            gemm.pipeline.waitUntilEmpty(state.at);
            gemm.pipeline.full(state.at.stage).arrive(1 + copiesRows);
          });
          return goOn(state);
        });
  }

  //===--- Threads that copy rows; `number` is the thread's ---===//

  /// Adapters of the rows that a thread copies.
  llvm::SmallVector<I32> findRows(const Sm90Tile &tile, I32 number);
  /// Calls `step(copy)` for each k tile in order; `copy(stage)` issues the
  /// thread's copies. `step` returns the next state.
  template <typename State, typename Step>
  State forTiles(const Sm90Tile &tile, I32 number, State state, Step step) {
    I32 found = find(tile);
    llvm::SmallVector<I32> rows = findRows(tile, number);
    auto last = emitter.whileLoop(
        std::tuple(found, state),
        [&](auto &at) { return std::get<0>(at) != 0; },
        [&](auto at) {
          auto &[left, now] = at;
          I32 rest = left;
          I32 adapter = take(rest, number);
          for (int64_t part = 0; part < tiles.getTilesOfAdapter(); ++part)
            now = step(now, [&](I32 stage) {
              copyRows(tile, rows, number, adapter, part, stage);
              copyWeights(tile, number, adapter, part, stage);
            });
          return std::tuple(rest, now);
        });
    return std::get<1>(last);
  }

  //===--- Consumers ---===//

  /// Makes elements of the stage's weights finite that are not, so that zeros
  /// of other adapters' rows stay zeros. All consumers.
  void keepFinite(I32 stage);

private:
  using Tiles = sm90::AdapterTiles;
  /// Rows that all threads copy at once.
  static constexpr int64_t kRowsAtOnce = sm90::kRowThreads / Tiles::kRowChunks,
                           kWeightsAtOnce =
                               sm90::kRowThreads / Tiles::kWeightChunks;

  /// Takes the adapters of a k tile out of `left`; returns that of the thread's
  /// chunk, -2 for none.
  I32 take(I32 &left, I32 number);
  /// The thread's chunk of a weight row among those of its adapter.
  I32 getChunk(I32 number, int64_t part);
  /// The address of a chunk of a row, of an operand at `offset` in a stage.
  mlir::Value getPlace(I32 stage, int64_t offset, I32 row, I32 chunk);
  void copyRows(const Sm90Tile &tile, llvm::ArrayRef<I32> rows, I32 number,
                I32 adapter, int64_t part, I32 stage);
  void copyWeights(const Sm90Tile &tile, I32 number, I32 adapter, int64_t part,
                   I32 stage);

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::GemmShape &shape;
  Tiles tiles;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERPRODUCTS_H
