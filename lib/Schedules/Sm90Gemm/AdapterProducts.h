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

  /// The adapters of a tile's up to `rows` rows, some for each lane of a warp.
  llvm::SmallVector<I32> load(const Sm90Tile &tile, int64_t rows);
  /// Bits of these adapters. Whole warps.
  I32 find(llvm::ArrayRef<I32> loaded);
  I32 find(const Sm90Tile &tile) {
    return find(load(tile, shape.tile().getMaxBlockM()));
  }
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

  //===--- Threads that copy rows ---===//

  /// Calls `step(copy)` for each k tile in order; `copy(stage)` issues the
  /// thread's copies. `step` returns the next state.
  template <typename State, typename Step>
  State forTiles(const Sm90Tile &tile, State state, Step step) {
    I32 found = find(tile);
    llvm::SmallVector<I32> rows = findRows(tile);
    auto last = emitter.whileLoop(
        std::tuple(found, state),
        [&](auto &at) { return std::get<0>(at) != 0; },
        [&](auto at) {
          auto &[left, now] = at;
          I32 rest = left;
          I32 adapter = take(rest);
          auto copyPart = [&](I32 part, State now) {
            return step(now, [&](I32 stage) {
              copyRows(tile, rows, adapter, part, stage);
              copyWeights(tile, adapter, part, stage);
            });
          };
          // Unrolled parts would keep addresses of each other in registers.
          int64_t parts = tiles.getTilesOfAdapter();
          now = parts == 1 ? copyPart(emitter.i32(0), now)
                           : emitter.loop(emitter.i32(0), emitter.i32(parts), 1,
                                          now, copyPart);
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

  /// The thread's index among those that copy rows. Read again for each k tile:
  /// addresses that depend on it would be kept in registers across k tiles.
  I32 readNumber();
  /// Adapters of the rows that a thread copies, four in a word.
  llvm::SmallVector<I32> findRows(const Sm90Tile &tile);
  /// Takes the adapters of a k tile out of `left`; returns that of the thread's
  /// chunk, kNone for none.
  I32 take(I32 &left);
  /// The thread's chunk of a weight row among those of its adapter.
  I32 getChunk(I32 number, I32 part);
  /// The address of a chunk of a row, of an operand at `offset` in a stage.
  mlir::Value getPlace(I32 stage, int64_t offset, I32 row, I32 chunk);
  void copyRows(const Sm90Tile &tile, llvm::ArrayRef<I32> rows, I32 adapter,
                I32 part, I32 stage);
  void copyWeights(const Sm90Tile &tile, I32 adapter, I32 part, I32 stage);

  /// In a byte: no adapter of a k tile, where a row without one has 255.
  static constexpr int64_t kNone = 254, kBytes = 4, kByte = 255;

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::GemmShape &shape;
  Tiles tiles;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERPRODUCTS_H
