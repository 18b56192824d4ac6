//===- RowProducer.cpp - scattered rows of sm90.gemm ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Copies of scattered input rows, and of scales, in swizzled chunks of 16
// bytes. A thread waits for its chunks to arrive, makes them visible to the
// tensor cores and arrives at the barrier. It does so some k tiles later, or
// when no stage is empty, to avoid waiting for copies that it has just issued.
// Few rows, and those that are quantized on the way (QuantizedRows.cpp), are
// copied by a warp per k tile.

#include "AdapterProducts.h"
#include "KernelBuilder/RingCopies.h"
#include "QuantizedRows.h"

#include <optional>

using namespace mlir;
using namespace moec;

namespace {

class RowProducer {
public:
  explicit RowProducer(Sm90Gemm &gemm);
  /// Copies from pipeline state `first` on; returns the state at the end.
  PipelineState emit(PipelineState first);

private:
  using State = RingCopies::State;
  /// The state behind a k tile, and a bit for each stage that has had one of
  /// the tile's adapters; null without adapters.
  struct Loaded {
    State state;
    I32 ofAdapters;
    auto fields() { return std::tie(state, ofAdapters); }
  };
  /// A tile, and the positions of the thread's rows in the input.
  struct Rows {
    Sm90Tile tile;
    SmallVector<I32> positions;
    /// Adapters of the tile; empty if the gemm has none.
    SmallVector<Sm90AdapterProducts::Found, 1> adapters;
    auto fields() { return std::tie(tile, positions, adapters); }
  };

  /// The tile of an item, or zeros past the end.
  Rows setup(const Sm90TileScheduler::Items &items, I32 item);
  using AdapterLoads = std::optional<Sm90AdapterProducts::Loads>;
  /// Looks up the adapters of a tile's rows, if there are some.
  AdapterLoads loadAdapters(const Sm90Tile &tile);
  void setAdapters(Rows &rows, const AdapterLoads &loads);
  /// Copies the k tiles of a tile.
  Loaded loadTile(const Rows &rows, PipelineState first);
  /// Copies a k tile: its rows, or its scales, or both.
  void loadStep(const Rows &rows, ArrayRef<I32> scaleRows, I32 step, I32 stage);
  /// Passes on what a thread does with its copies in a stage that have arrived;
  /// null if nothing.
  State finishing(const Rows &rows,
                  function_ref<State(function_ref<void(I32)>)> body);
  /// Copies the k tiles of the adapters of its rows.
  Loaded copyAdapters(const Rows &rows, State state);
  /// Work of a thread on a stage before it publishes it.
  void finishAdapters(I32 stage, I32 ofAdapters);
  void load(const Rows &rows, I32 step, I32 stage);

  // A swizzle row has 8 chunks, or 4; the warps copy 12 rows at once, or 24.
  int64_t getRowChunks() const {
    return shape.problem().swizzleBytes / sm90::kChunkBytes;
  }
  int64_t getRowsAtOnce() const {
    if (quantized)
      return kWarp;
    return (turns > 1 ? kWarp : sm90::kRowThreads) / getRowChunks();
  }
  /// Publishes the last k tiles of a tile that began in state `first`; returns
  /// the state behind it.
  PipelineState publish(const Rows &rows, PipelineState first, Loaded loaded);
  /// Copies one swizzle row of a k tile. `chunks`: addresses of the thread's
  /// chunks in it, used cyclically over the rows.
  void loadSwizzleRow(const Rows &rows, I32 step, int64_t swizzleRow,
                      ArrayRef<Value> chunks);

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  const sm90::GemmShape &shape;
  /// Warps that copy k tiles in turn, or 1: all copy each together.
  int64_t turns;
  RingCopies copies;
  Sm90Scales scales;
  std::optional<Sm90QuantizedRows> quantized;
  Value input, source;
  /// The thread's index among all that copy rows, and its index among those
  /// that copy a k tile together; its first row of a tile, and its chunk in
  /// each row.
  I32 own, number, ownRow, ownChunk;
};

RowProducer::RowProducer(Sm90Gemm &gemm)
    : gemm(gemm), emitter(gemm.emitter), shape(gemm.shape),
      turns(shape.getRowTurns()), copies(emitter, gemm.pipeline, turns),
      scales(gemm), input(emitter.operand(gemm.op.getInput())),
      source(emitter.operand(gemm.op.getSource())) {
  constexpr int64_t others = kWarpgroup - sm90::kRowThreads;
  own = emitter.warpgroupThread() + -others;
  number = turns > 1 ? emitter.lane() : own;
  if (shape.problem().quantizesInput) {
    quantized.emplace(gemm);
    ownRow = number;
    return;
  }
  ownRow = number / getRowChunks();
  ownChunk = number % getRowChunks();
}

PipelineState RowProducer::emit(PipelineState first) {
  Sm90TileScheduler::Items items = gemm.scheduler.getItems();
  // The first tile is known ahead of its rows.
  Rows begin = setup(items, items.first);
  if (gemm.hasBefore())
    gemm.awaitBefore();
  setAdapters(begin, loadAdapters(begin.tile));
  std::tuple start(first, begin);
  auto end = gemm.scheduler.forItems(
      start, /*draws=*/own == 0, [&](I32, auto at, auto findNext) {
        auto &[state, rows] = at;
        Loaded loaded = loadTile(rows, state);
        // Rows of the next tile are looked up while the last copies arrive.
        Rows next = setup(items, findNext());
        AdapterLoads loads = loadAdapters(next.tile);
        PipelineState end = publish(rows, state, loaded);
        setAdapters(next, loads);
        return std::tuple(end, next);
      });
  return std::get<0>(end);
}

RowProducer::Rows RowProducer::setup(const Sm90TileScheduler::Items &items,
                                     I32 item) {
  int64_t count =
      shape.tile().mapRows
          ? 0
          : llvm::divideCeil(shape.tile().getMaxBlockM(), getRowsAtOnce());
  I32 zero = emitter.i32(0);
  auto find = [&] {
    Rows rows{gemm.scheduler.findTile(item), {}, {}};
    // Rows past the end are not copied, and their sums are never read.
    I32 last = rows.tile.rows + -1;
    for (int64_t i = 0; i < count; ++i) {
      I32 row = min(ownRow + i * getRowsAtOnce(), last);
      I32 position = rows.tile.firstRow + row;
      if (source)
        position = emitter.loadI32(source, emitter.toIndex(position));
      rows.positions.push_back(position);
    }
    return rows;
  };
  return emitter.choose(item < items.end, find, [&] {
    return Rows{{zero, zero, zero, zero}, SmallVector<I32>(count, zero), {}};
  });
}

RowProducer::State
RowProducer::finishing(const Rows &rows,
                       function_ref<State(function_ref<void(I32)>)> body) {
  if (!quantized)
    return body(nullptr);
  return body([&](I32 stage) { quantized->quantize(rows.tile, stage); });
}

PipelineState RowProducer::publish(const Rows &rows, PipelineState first,
                                   Loaded loaded) {
  if (shape.problem().adapters)
    return copies
        .publishAll(
            loaded.state,
            [&](I32 stage) { finishAdapters(stage, loaded.ofAdapters); })
        .place;
  State published = finishing(rows, [&](function_ref<void(I32)> finish) {
    return copies.publishAll(loaded.state, finish);
  });
  if (turns == 1)
    return published.place;
  return gemm.pipeline.skip(first, shape.tile().getKTiles());
}

RowProducer::AdapterLoads RowProducer::loadAdapters(const Sm90Tile &tile) {
  if (!shape.problem().adapters)
    return std::nullopt;
  return Sm90AdapterProducts(gemm).loadAll(tile);
}

void RowProducer::setAdapters(Rows &rows, const AdapterLoads &loads) {
  if (loads)
    rows.adapters.push_back(Sm90AdapterProducts(gemm).findAll(*loads));
}

void RowProducer::loadStep(const Rows &rows, ArrayRef<I32> scaleRows, I32 step,
                           I32 stage) {
  if (quantized)
    quantized->copy(rows.tile, rows.positions.front(), step, stage);
  else if (!shape.tile().mapRows)
    load(rows, step, stage);
  if (shape.problem().copiesScales())
    scales.copy(rows.tile, scaleRows, number, step, stage);
}

RowProducer::Loaded RowProducer::loadTile(const Rows &rows,
                                          PipelineState first) {
  SmallVector<I32> scaleRows;
  if (shape.problem().copiesScales())
    scaleRows = scales.find(rows.tile, number);
  I32 turn = turns > 1 ? emitter.warpgroupWarp() + -1 : emitter.i32(0);
  PipelineState own = turns > 1 ? gemm.pipeline.skip(first, turn) : first;
  auto loadNext = [&](I32 index, State state) {
    I32 step = gemm.getKTile(index), stage = state.place.stage;
    return finishing(rows, [&](function_ref<void(I32)> finish) {
      return copies.emitStep(
          state, gemm.pipeline.empty(stage), state.place.before(),
          [&] { loadStep(rows, scaleRows, step, stage); }, finish);
    });
  };
  State loaded =
      emitter.loop(turn, gemm.countSteps(), turns, copies.begin(own), loadNext);
  return shape.problem().adapters ? copyAdapters(rows, loaded)
                                  : Loaded{loaded, {}};
}

RowProducer::Loaded RowProducer::copyAdapters(const Rows &rows, State state) {
  Sm90AdapterProducts adapters(gemm);
  // Consumers multiply the tile's input until the launch before has ended.
  if (gemm.awaitsRows() && shape.tile().mapRows)
    state = copies.publishAll(state);
  Loaded first{state, emitter.i32(0)};
  Loaded last = adapters.forTiles(
      rows.tile, rows.adapters.front(), first,
      [&](Loaded loaded, function_ref<void(I32)> copy) {
        auto [state, ofAdapters] = loaded;
        I32 stage = state.place.stage, before = state.place.before();
        State next = copies.emitStep(
            state, gemm.pipeline.empty(stage), before, [&] { copy(stage); },
            [&, ofAdapters = ofAdapters](I32 stage) {
              finishAdapters(stage, ofAdapters);
            });
        return Loaded{next, ofAdapters | emitter.i32(1) << stage};
      });
  // The next tile is drawn, by a barrier, ahead of the last k tiles' fences.
  emitter.fenceAsync();
  return last;
}

void RowProducer::finishAdapters(I32 stage, I32 ofAdapters) {
  // Stages of the tile's last k tiles of the input may be in flight too.
  emitter.ifThen(((ofAdapters >> stage) & 1) != 0,
                 [&] { Sm90AdapterProducts(gemm).keepFinite(stage); });
}

void RowProducer::load(const Rows &rows, I32 step, I32 stage) {
  // Swizzled offsets repeat after two groups of rows that are copied at once.
  constexpr int64_t period = 2;
  assert(period * getRowsAtOnce() % kSwizzleRows == 0 &&
         "offsets repeat after a whole pattern");
  Value begin = gemm.pipeline.stageAddress(stage, gemm.getInputOffset());
  Value chunks[period];
  for (int64_t i = 0; i < period; ++i) {
    I32 chunk = swizzle(ownRow + i * getRowsAtOnce(), ownChunk, getRowChunks());
    chunks[i] = emitter.advance(begin, ownRow * shape.problem().swizzleBytes +
                                           chunk * sm90::kChunkBytes);
  }
  for (int64_t swizzleRow = 0; swizzleRow < shape.tile().swizzleRows;
       ++swizzleRow) {
    if (swizzleRow)
      for (Value &chunk : chunks)
        chunk = emitter.advance(chunk, shape.shared().getSwizzledBytes(
                                           shape.tile().getMaxBlockM()));
    loadSwizzleRow(rows, step, swizzleRow, chunks);
  }
}

void RowProducer::loadSwizzleRow(const Rows &rows, I32 step, int64_t swizzleRow,
                                 ArrayRef<Value> chunks) {
  int64_t width = shape.tile().blockK / shape.tile().swizzleRows;
  I32 column = step * shape.tile().blockK + swizzleRow * width;
  column = column + ownChunk * (width / getRowChunks());
  I32 bytes;
  if (shape.problem().sizeK % shape.tile().blockK) {
    // A chunk is entirely inside or outside of the row, because rows are whole
    // chunks.
    Flag isInside = column < shape.problem().sizeK;
    bytes = select(isInside, emitter.i32(sm90::kChunkBytes), 0);
    column = select(isInside, column, 0);
  }
  for (auto [i, row] : llvm::enumerate(rows.positions)) {
    int64_t first = int64_t(i) * getRowsAtOnce();
    emitter.ifThen(ownRow + first < rows.tile.rows, [&, i = i, row = row] {
      Index at = emitter.toIndex(row);
      Value from = emitter.address(input, {at, emitter.toIndex(column)});
      Value to = emitter.advance(chunks[i % chunks.size()],
                                 first * shape.problem().swizzleBytes);
      emitter.copyAsync(to, from, bytes);
    });
  }
}

} // namespace

PipelineState moec::emitSm90RowCopies(Sm90Gemm &gemm, PipelineState first) {
  return RowProducer(gemm).emit(first);
}
