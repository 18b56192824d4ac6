//===- Sm90Producer.cpp - the producer of sm90.contract ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Producer of the Hopper gemm. One thread issues the TMA copy of each k tile's
// weights, one box, as soon as a stage is empty; with ids, while the launches
// before still run. Contiguous input rows are copied as a box too. Scattered
// rows are copied by the remaining warps, in swizzled chunks of 16 bytes. A
// thread waits for its chunks to arrive, makes them visible to the tensor cores
// and arrives at the barrier. It does so some k tiles later, or when no stage
// is empty, to avoid waiting for copies that it has just issued.

#include "../../RingCopies.h"
#include "Sm90Scales.h"
#include "Sm90Units.h"

using namespace mlir;
using namespace moec;

//===----------------------------------------------------------------------===//
// TMA copies of one k tile; one thread
//===----------------------------------------------------------------------===//

/// Issues the copy of a k tile's weights, which its stage waits for.
static void loadWeights(Sm90Gemm &gemm, const Sm90Tile &tile, I32 step,
                        I32 stage) {
  AsyncEmitter &emitter = gemm.emitter;
  const Sm90Shape &shape = gemm.shape;
  if (shape.fromRegisters)
    return copyPackedTiles(gemm, tile, step, stage);
  SmallVector<I32> begin;
  if (shape.isGrouped)
    begin.push_back(tile.group);
  if (shape.weightsPerColumn == 2)
    begin.append({tile.firstColumn / Sm90Shape::kPairedRows, emitter.i32(0),
                  emitter.i32(0)});
  else
    begin.push_back(tile.firstColumn);
  begin.push_back(step * shape.k);
  Barrier full = gemm.pipeline.full(stage);
  full.arriveExpecting(shape.getWeightBytes());
  emitter.copyBox(gemm.pipeline.stageAddress(stage), gemm.tensorMap(0), begin,
                  full, /*areWeights=*/true);
}

/// Issues the copy of a k tile's rows, which its stage waits for: with the
/// lowest BLOCK_M, from index `i` on, that holds them.
static void loadRows(Sm90Gemm &gemm, const Sm90Tile &tile, I32 step, I32 stage,
                     size_t i = 0) {
  AsyncEmitter &emitter = gemm.emitter;
  const Sm90Shape &shape = gemm.shape;
  int64_t height = shape.tileRows[i], units = shape.getUnits();
  auto load = [&] {
    Barrier full = gemm.pipeline.full(stage);
    full.arriveExpecting(units * shape.getUnitRowBytes(height));
    Value to = gemm.pipeline.stageAddress(stage, gemm.getInputOffset());
    SmallVector<I32> begin{tile.firstRow, step * shape.k};
    if (units > 1)
      begin = {step * units, tile.firstRow, emitter.i32(0)};
    emitter.copyBox(to, gemm.tensorMap(shape.getFirstRowMap() + int64_t(i)),
                    begin, full, /*areWeights=*/false);
  };
  if (i + 1 == shape.tileRows.size())
    return load();
  emitter.ifThen(
      emitter.i32(height) < tile.rows,
      [&] { loadRows(gemm, tile, step, stage, i + 1); }, load);
}

namespace {

//===----------------------------------------------------------------------===//
// The warp of TMA copies
//===----------------------------------------------------------------------===//

/// One warp, because finding tiles takes a whole warp; the first lane copies.
class BoxProducer {
public:
  explicit BoxProducer(Sm90Gemm &gemm)
      : gemm(gemm), emitter(gemm.emitter), shape(gemm.shape),
        pipeline(gemm.pipeline), isFirst(emitter.lane() == 0) {}

  /// Copies from pipeline state `first` on; returns the state at the end.
  PipelineState emit(PipelineState first);

private:
  /// To copy rows, the thread has to wait for the launches before or until rows
  /// are quantized: weights of the first round of stages are copied before.
  void setup();
  /// `done`: number of k tiles before this one; only needed with copies ahead.
  void load(const Sm90Tile &tile, I32 step, PipelineState at, I32 done);

  /// After another gemm, rows have a thread of their own, because they wait.
  bool copiesRows() const { return shape.mapRows && !gemm.hasBefore(); }
  bool copiesAhead() const {
    return (gemm.op.getIds() || gemm.quantizesRows()) && copiesRows();
  }
  /// Number of k tiles copied ahead; with the dynamic scheduler, only the first
  /// tile is known in advance.
  int64_t getStepsAhead() const {
    return gemm.scheduler.isDynamic() ? std::min(shape.stages, shape.getSteps())
                                      : shape.stages;
  }

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  const Sm90Shape &shape;
  const Pipeline &pipeline;
  Flag isFirst;
};

PipelineState BoxProducer::emit(PipelineState first) {
  if (copiesAhead())
    setup();
  /// The pipeline state and, with copies ahead, the number of k tiles.
  struct State {
    PipelineState at;
    SmallVector<I32, 1> done;
    auto fields() { return std::tie(at, done); }
  };
  State start{first, {}};
  if (copiesAhead())
    start.done.push_back(emitter.i32(0));
  auto loadTile = [&](Sm90Tile tile, State state) {
    return emitter.loop(emitter.index(0), emitter.index(shape.getSteps()), 1,
                        state, [&](Index step, State state) {
                          I32 done = copiesAhead() ? state.done.front() : I32();
                          load(tile, emitter.toI32(step), state.at, done);
                          state.at = pipeline.next(state.at);
                          for (I32 &count : state.done)
                            count = count + 1;
                          return state;
                        });
  };
  // If other warps copy rows, one of them draws tiles.
  Flag draws = shape.hasRowThreads() ? Flag() : isFirst;
  return gemm.scheduler.forTiles(start, loadTile, draws).at;
}

void BoxProducer::setup() {
  Sm90TileScheduler::Items items = gemm.scheduler.getItems();
  int64_t most = llvm::divideCeil(getStepsAhead(), shape.getSteps());
  items.end = min(items.end, items.first + items.step * most);
  gemm.scheduler.forTiles(items, emitter.i32(0), [&](Sm90Tile tile, I32 done) {
    I32 left = emitter.i32(getStepsAhead()) - done;
    I32 steps = min(emitter.i32(shape.getSteps()), left);
    emitter.loop(emitter.index(0), emitter.toIndex(steps), 1, [&](Index i) {
      I32 step = emitter.toI32(i);
      emitter.ifThen(isFirst,
                     [&] { loadWeights(gemm, tile, step, done + step); });
    });
    return done + steps;
  });
  gemm.waitInRole();
  if (gemm.quantizesRows())
    gemm.awaitBefore();
}

void BoxProducer::load(const Sm90Tile &tile, I32 step, PipelineState at,
                       I32 done) {
  auto load = [&] {
    pipeline.waitUntilEmpty(at);
    loadWeights(gemm, tile, step, at.stage);
  };
  emitter.ifThen(isFirst, [&] {
    if (copiesAhead())
      emitter.ifThen(emitter.i32(getStepsAhead() - 1) < done, load);
    else
      load();
    if (copiesRows())
      loadRows(gemm, tile, step, at.stage);
  });
}

//===----------------------------------------------------------------------===//
// The warps that copy scattered rows, and scales
//===----------------------------------------------------------------------===//

class RowProducer {
public:
  explicit RowProducer(Sm90Gemm &gemm);
  /// Copies from pipeline state `first` on; returns the state at the end.
  PipelineState emit(PipelineState first);

private:
  using State = RingCopies::State;
  /// A tile, and the positions of the thread's rows in the input.
  struct Rows {
    Sm90Tile tile;
    SmallVector<I32> positions;
    auto fields() { return std::tie(tile, positions); }
  };

  /// The tile of an item, or zeros past the end.
  Rows setup(const Sm90TileScheduler::Items &items, I32 item);
  /// Copies the k tiles of a tile.
  State loadTile(const Rows &rows, PipelineState first);
  void load(const Rows &rows, I32 step, I32 stage);

  // A swizzle row has 8 chunks, or 4; the warps copy 12 rows at once, or 24.
  int64_t getRowChunks() const {
    return shape.swizzledBytes / Sm90Shape::kChunkBytes;
  }
  int64_t getRowsAtOnce() const {
    return Sm90Shape::kRowThreads / getRowChunks();
  }
  /// Copies one swizzle row of a k tile. `chunks`: addresses of the thread's
  /// chunks in it, used cyclically over the rows.
  void loadUnit(const Rows &rows, I32 step, int64_t unit,
                ArrayRef<Value> chunks);

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  const Sm90Shape &shape;
  RingCopies copies;
  Sm90Scales scales;
  Value input, source;
  /// Index of the thread; its first row of a tile, and its chunk in each row.
  I32 own, ownRow, ownChunk;
};

RowProducer::RowProducer(Sm90Gemm &gemm)
    : gemm(gemm), emitter(gemm.emitter), shape(gemm.shape),
      copies(emitter, gemm.pipeline), scales(gemm),
      input(emitter.operand(gemm.op.getInput())),
      source(emitter.operand(gemm.op.getSource())) {
  constexpr int64_t others = Sm90Shape::kWarpgroup - Sm90Shape::kRowThreads;
  own = emitter.warpgroupThread() + -others;
  ownRow = own / getRowChunks();
  ownChunk = own % getRowChunks();
}

PipelineState RowProducer::emit(PipelineState first) {
  Sm90TileScheduler::Items items = gemm.scheduler.getItems();
  std::tuple start(first, setup(items, items.first));
  auto end = gemm.scheduler.forItems(
      start, /*draws=*/own == 0, [&](I32, auto at, auto findNext) {
        auto &[state, rows] = at;
        State loaded = loadTile(rows, state);
        // Rows of the next tile are looked up while the last copies arrive.
        Rows next = setup(items, findNext());
        return std::tuple(copies.publishAll(loaded).place, next);
      });
  return std::get<0>(end);
}

RowProducer::Rows RowProducer::setup(const Sm90TileScheduler::Items &items,
                                     I32 item) {
  int64_t count = shape.mapRows
                      ? 0
                      : llvm::divideCeil(shape.getMaxHeight(), getRowsAtOnce());
  I32 zero = emitter.i32(0);
  auto find = [&] {
    Rows rows{gemm.scheduler.findTile(item), {}};
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
    return Rows{{zero, zero, zero, zero}, SmallVector<I32>(count, zero)};
  });
}

RowProducer::State RowProducer::loadTile(const Rows &rows,
                                         PipelineState first) {
  SmallVector<I32> scaleRows;
  if (shape.copiesScales())
    scaleRows = scales.find(rows.tile, own);
  auto loadStep = [&](I32 step, State state) {
    I32 stage = state.place.stage, before = state.place.before();
    Barrier empty = gemm.pipeline.empty(stage);
    return copies.emitStep(state, empty, before, [&] {
      if (!shape.mapRows)
        load(rows, step, stage);
      if (shape.copiesScales())
        scales.copy(rows.tile, scaleRows, own, step, stage);
    });
  };
  return emitter.loop(emitter.i32(0), emitter.i32(shape.getSteps()), 1,
                      copies.begin(first), loadStep);
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
    chunks[i] = emitter.advance(begin, ownRow * shape.swizzledBytes +
                                           chunk * Sm90Shape::kChunkBytes);
  }
  for (int64_t unit = 0; unit < shape.getUnits(); ++unit) {
    if (unit)
      for (Value &chunk : chunks)
        chunk =
            emitter.advance(chunk, shape.getUnitRowBytes(shape.getMaxHeight()));
    loadUnit(rows, step, unit, chunks);
  }
}

void RowProducer::loadUnit(const Rows &rows, I32 step, int64_t unit,
                           ArrayRef<Value> chunks) {
  int64_t width = shape.k / shape.getUnits();
  I32 column = step * shape.k + unit * width;
  column = column + ownChunk * (width / getRowChunks());
  I32 bytes;
  if (shape.depth % shape.k) {
    // A chunk is entirely inside or outside of the row, because rows are whole
    // chunks.
    Flag isInside = column < shape.depth;
    bytes = select(isInside, emitter.i32(Sm90Shape::kChunkBytes), 0);
    column = select(isInside, column, 0);
  }
  for (auto [i, row] : llvm::enumerate(rows.positions)) {
    int64_t first = int64_t(i) * getRowsAtOnce();
    emitter.ifThen(ownRow + first < rows.tile.rows, [&, i = i, row = row] {
      Index at = emitter.toIndex(row);
      Value from = emitter.address(input, {at, emitter.toIndex(column)});
      Value to = emitter.advance(chunks[i % chunks.size()],
                                 first * shape.swizzledBytes);
      emitter.copyAsync(to, from, bytes);
    });
  }
}

//===----------------------------------------------------------------------===//
// Rows of joined gemms
//===----------------------------------------------------------------------===//

/// Copies boxes of rows that the gemm before has computed; waits for them when
/// the first tile is found. One warp. It arrives in place of all the threads
/// that copy rows of that gemm, as the barriers count them.
void loadAwaitedRows(Sm90Gemm &gemm, PipelineState first) {
  AsyncEmitter &emitter = gemm.emitter;
  const Pipeline &pipeline = gemm.pipeline;
  Flag isFirst = emitter.lane() == 0;
  // Beside the pipeline state: whether the wait is over.
  std::tuple start(first, emitter.i32(0));
  gemm.scheduler.forTiles(start, [&](Sm90Tile tile, auto state) {
    emitter.ifThen(std::get<1>(state) == 0, [&] { gemm.awaitBefore(); });
    PipelineState end = emitter.loop(
        emitter.index(0), emitter.index(gemm.shape.getSteps()), 1,
        std::get<0>(state), [&](Index step, PipelineState at) {
          emitter.ifThen(isFirst, [&] {
            I32 number = emitter.toI32(step);
            pipeline.waitUntilEmpty(at);
            pipeline.full(at.stage).arrive(Sm90Shape::kRowThreads - 1);
            loadRows(gemm, tile, number, at.stage);
          });
          return pipeline.next(at);
        });
    return std::tuple(end, emitter.i32(1));
  });
}

} // namespace

//===----------------------------------------------------------------------===//
// Roles
//===----------------------------------------------------------------------===//

void moec::emitSm90Producer(Sm90Gemms &gemms) {
  Sm90Gemm &first = gemms.front();
  AsyncEmitter &emitter = first.emitter;
  auto emitBoxes = [&] {
    PipelineState state = first.pipeline.first();
    for (Sm90Gemm &gemm : gemms)
      state = BoxProducer(gemm).emit(state);
  };
  auto emitRows = [&] {
    first.waitInRole();
    if (first.quantizesRows())
      first.awaitBefore();
    PipelineState state = RowProducer(first).emit(first.pipeline.first());
    if (gemms.size() == 1)
      return;
    Sm90Gemm &second = gemms.back();
    if (!second.shape.mapRows) {
      second.awaitBefore();
      RowProducer(second).emit(state);
      return;
    }
    emitter.ifThen(emitter.warpgroupWarp() == 1,
                   [&] { loadAwaitedRows(second, state); });
  };
  Flag isFirst = emitter.warpgroupWarp() == 0;
  if (!first.shape.hasRowThreads())
    return emitter.ifThen(isFirst, emitBoxes);
  emitter.ifThen(isFirst, emitBoxes, emitRows);
}
