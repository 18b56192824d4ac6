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
  /// The tile may have no rows.
  llvm::SmallVector<I32> load(const Sm90Tile &tile, int64_t rows);
  /// Bits of these adapters. Whole warps.
  I32 find(llvm::ArrayRef<I32> loaded);
  /// The number of their k tiles.
  I32 countTiles(I32 found);

  //===--- The warp of TMA copies ---===//

  /// Loads the adapters of a tile's rows when the launches that write them have
  /// ended.
  static llvm::SmallVector<I32> loadAwaited(Sm90Gemm &gemm,
                                            const Sm90Tile &tile);
  /// Stands for the result of loadAwaited in a tile whose rows have no
  /// adapters.
  static llvm::SmallVector<I32> loadNone(Sm90Gemm &gemm);
  /// Arrives for the boxes that these k tiles do not have: of weights and, with
  /// `copiesRows`, of rows. `goOn` returns the state behind a k tile.
  template <typename State, typename GoOn>
  State passTiles(llvm::ArrayRef<I32> loaded, State state, bool copiesRows,
                  GoOn goOn) {
    return emitter.loop(
        emitter.index(0), emitter.toIndex(countTiles(find(loaded))), 1, state,
        [&](Index, State state) {
          emitter.ifThen(emitter.lane() == 0, [&] {
            gemm.pipeline.waitUntilEmpty(state.at);
            gemm.pipeline.full(state.at.stage).arrive(1 + copiesRows);
          });
          return goOn(state);
        });
  }

  //===--- Threads that copy rows ---===//

  /// Bits of a tile's adapters, and those of the rows that a thread copies,
  /// four in a word.
  struct Found {
    I32 all;
    llvm::SmallVector<I32> rows;
    auto fields() { return std::tie(all, rows); }
  };
  /// Loads of which findAll makes `Found`. They may still be in flight, so that
  /// other work can stand between the two calls. Whole warps call both.
  struct Loads {
    llvm::SmallVector<I32> lanes, rows;
  };
  Loads loadAll(const Sm90Tile &tile) {
    return {load(tile, shape.tile().getMaxBlockM()), loadRows(tile)};
  }
  Found findAll(const Loads &loads) {
    return {find(loads.lanes), packRows(loads.rows)};
  }

  /// Calls `step(copy)` for each k tile in order; `copy(stage)` issues the
  /// thread's copies. `step` returns the next state. The thread passes stages
  /// whose copies have arrived to keepFinite.
  template <typename State, typename Step>
  State forTiles(const Sm90Tile &tile, const Found &found, State state,
                 Step step) {
    auto last = emitter.whileLoop(
        std::tuple(found.all, state),
        [&](auto &at) { return std::get<0>(at) != 0; },
        [&](auto at) {
          auto &[left, now] = at;
          I32 rest = left;
          I32 adapter = take(rest);
          auto copyPart = [&](I32 part, State now) {
            return step(now, [&](I32 stage) {
              Own own = getPart(adapter, part);
              if (!gemm.awaitsRows()) {
                copyRows(tile, found.rows, own, stage);
                return copyWeights(tile, own, stage);
              }
              // The rows alone come from the launch before.
              copyWeights(tile, own, stage);
              gemm.waitInRole();
              copyRows(tile, found.rows, own, stage);
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

  /// Makes elements of the thread's weights in a stage finite that are not, so
  /// that zeros of other adapters' rows stay zeros.
  void keepFinite(I32 stage);

private:
  using Tiles = sm90::AdapterTiles;
  /// Chunks of one column of K that all threads copy at once.
  static constexpr int64_t kRowsAtOnce = sm90::kRowThreads / Tiles::kChunks;
  static constexpr int64_t kChunkWords = sm90::kChunkBytes / 4;

  /// The adapter of a thread's chunk of a k tile, kNone for none, and the
  /// chunk's number among those of the adapter.
  struct Own {
    I32 adapter, chunk;
  };

  /// The thread's index among those that copy rows. Read again for each k tile:
  /// addresses that depend on it would be kept in registers across k tiles.
  I32 readNumber();
  llvm::SmallVector<I32> loadRows(const Sm90Tile &tile);
  llvm::SmallVector<I32> packRows(llvm::ArrayRef<I32> loaded);
  /// Takes the adapters of a k tile out of `left`; returns that of the thread.
  I32 take(I32 &left);
  /// The thread's chunk, in the first k tile of its adapter.
  I32 getChunk();
  Own getPart(I32 adapter, I32 part);
  /// Columns of the result in a tile, each with one or two weight rows.
  int64_t getColumns() const;
  /// The half of 16 weight rows that a chunk's matrix has.
  I32 getHalf(I32 chunk);
  I32 getWeightRow(I32 column, I32 half);
  /// A chunk of zeros.
  I32 getZeros();
  /// The address of the thread's chunk of a row, of an operand at `offset` in a
  /// stage.
  mlir::Value getPlace(I32 stage, int64_t offset, I32 row);
  /// Calls `body(column, place, isThere)` for the thread's chunks in a stage's
  /// weight rows of one half: columns relative to the thread's first one, and
  /// a null flag if all threads have the chunk. Addresses differ by constants.
  void forWeights(I32 stage, I32 half,
                  llvm::function_ref<void(int64_t, mlir::Value, Flag)> body);
  void copyRows(const Sm90Tile &tile, llvm::ArrayRef<I32> rows, Own own,
                I32 stage);
  void copyWeights(const Sm90Tile &tile, Own own, I32 stage);
  /// Stores zeros to the thread's chunks of the other matrix's weight rows. The
  /// stores stand ahead of the copies, since ptxas delays a copy behind a
  /// store.
  void clearOther(I32 stage, I32 half);
  /// Runs `body` if `flag` is set or null.
  void emitIf(Flag flag, llvm::function_ref<void()> body);
  /// Adds the products of 16-bit elements and 0, which are 0 for finite ones
  /// and NaN for others.
  I32 addNonfinite(I32 sums, I32 words);
  /// Replaces infinities and NaNs of the thread's chunks by the largest finite
  /// number.
  void clamp(I32 stage, I32 half);

  /// The byte of a chunk that has no adapter. Rows without an adapter have 255,
  /// so that the two are never equal.
  static constexpr int64_t kNone = 254, kBytes = 4, kByte = 255;

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  mlir::ImplicitLocOpBuilder &b;
  const sm90::GemmShape &shape;
  Tiles tiles;
};

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERPRODUCTS_H
