//===- Producer.cpp - the producer of sm90.gemm -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Producer of the Hopper gemm. One thread issues the TMA copy of each k tile's
// weights, one box, as soon as a stage is empty; with ids, while the launches
// before still run. Contiguous input rows are copied as a box too. Scattered
// rows are copied by the remaining warps (RowProducer.cpp).

#include "AdapterProducts.h"
#include "Schedules/Sm90Gemm/PrepackedWeights/PackedTiles.h"

using namespace mlir;
using namespace moec;

//===----------------------------------------------------------------------===//
// TMA copies of one k tile; one thread
//===----------------------------------------------------------------------===//

/// Issues the copy of a k tile's weights, which its stage waits for.
static void loadWeights(Sm90Gemm &gemm, const Sm90Tile &tile, I32 step,
                        I32 stage) {
  AsyncEmitter &emitter = gemm.emitter;
  const sm90::GemmShape &shape = gemm.shape;
  if (shape.problem().isPrepacked())
    return copyPackedTiles(gemm, tile, step, stage);
  I32 firstColumn = gemm.getOwnColumn(tile);
  SmallVector<I32> begin;
  if (shape.problem().isGrouped)
    begin.push_back(tile.group);
  if (shape.problem().weightsPerColumn == 2)
    begin.append(
        {firstColumn / sm90::kPairedRows, emitter.i32(0), emitter.i32(0)});
  else
    begin.push_back(firstColumn);
  begin.push_back(step * shape.tile().blockK);
  Barrier full = gemm.pipeline.full(stage);
  full.arriveExpecting(shape.shared().getWeightBytes());
  emitter.copyBox(gemm.getOwnWeights(stage), gemm.tensorMap(0), begin, full,
                  /*areWeights=*/true, shape.tile().getClusterTiles());
}

void moec::loadSm90Rows(Sm90Gemm &gemm, const Sm90Tile &tile, I32 step,
                        I32 stage, size_t i) {
  AsyncEmitter &emitter = gemm.emitter;
  const sm90::GemmShape &shape = gemm.shape;
  int64_t blockM = shape.tile().blockM[i], swizzles = shape.tile().swizzleRows;
  auto load = [&] {
    Barrier full = gemm.pipeline.full(stage);
    full.arriveExpecting(swizzles * shape.shared().getSwizzledBytes(blockM));
    Value to = gemm.pipeline.stageAddress(stage, gemm.getInputOffset());
    SmallVector<I32> begin{tile.firstRow, step * shape.tile().blockK};
    if (swizzles > 1)
      begin = {step * swizzles, tile.firstRow, emitter.i32(0)};
    emitter.copyBox(
        to, gemm.tensorMap(shape.problem().getWeightMaps() + int64_t(i)), begin,
        full, /*areWeights=*/false);
  };
  if (i + 1 == shape.tile().blockM.size())
    return load();
  emitter.ifThen(
      emitter.i32(blockM) < tile.rows,
      [&] { loadSm90Rows(gemm, tile, step, stage, i + 1); }, load);
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
  bool copiesRows() const { return shape.tile().mapRows && !gemm.hasBefore(); }
  bool copiesAhead() const {
    return (gemm.op.getIds() || gemm.quantizesRows()) && copiesRows();
  }
  /// Number of k tiles copied ahead; with the dynamic scheduler, only the first
  /// tile is known in advance, as are k tiles of adapters.
  int64_t getStepsAhead() const {
    return gemm.scheduler.isDynamic() || shape.problem().adapters
               ? std::min(shape.tile().stages, shape.tile().getLeastKTiles())
               : shape.tile().stages;
  }

  Sm90Gemm &gemm;
  AsyncEmitter &emitter;
  const sm90::GemmShape &shape;
  const Pipeline &pipeline;
  Flag isFirst;
};

PipelineState BoxProducer::emit(PipelineState first) {
  if (copiesAhead())
    setup();
  /// The pipeline state and, with copies ahead, the number of k tiles; with
  /// adapters, that of tiles.
  struct State {
    PipelineState at;
    SmallVector<I32, 1> done, tiles;
    auto fields() { return std::tie(at, done, tiles); }
  };
  State start{first, {}, {}};
  if (copiesAhead())
    start.done.push_back(emitter.i32(0));
  if (shape.problem().adapters)
    start.tiles.push_back(emitter.i32(0));
  auto goOn = [&](State state) {
    state.at = pipeline.next(state.at);
    for (I32 &count : state.done)
      count = count + 1;
    return state;
  };
  auto loadTile = [&](Sm90Tile tile, State state) {
    SmallVector<I32> adapters;
    // Loads of the rows' adapters end while k tiles of the input are copied.
    // Adapters of the first tile wait for launches before, its weights do not.
    auto loadAdapters = [&] {
      return std::tuple(Sm90AdapterProducts::loadAwaited(gemm, tile));
    };
    if (shape.problem().adapters)
      adapters = std::get<0>(emitter.choose(
          state.tiles.front() == 0,
          [&] { return std::tuple(Sm90AdapterProducts::loadNone(gemm)); },
          loadAdapters));
    State loaded =
        emitter.loop(emitter.index(0), emitter.toIndex(gemm.countSteps()), 1,
                     state, [&](Index step, State state) {
                       I32 done = copiesAhead() ? state.done.front() : I32();
                       I32 kTile = gemm.getKTile(emitter.toI32(step));
                       load(tile, kTile, state.at, done);
                       return goOn(state);
                     });
    if (adapters.empty())
      return loaded;
    I32 &tiles = loaded.tiles.front();
    adapters = std::get<0>(emitter.choose(
        tiles == 0, loadAdapters, [&] { return std::tuple(adapters); }));
    tiles = tiles + 1;
    return Sm90AdapterProducts(gemm).passTiles(adapters, loaded, copiesRows(),
                                               goOn);
  };
  // If other warps copy rows, one of them draws tiles.
  Flag draws = shape.hasRowThreads() ? Flag() : isFirst;
  return gemm.scheduler.forTiles(start, loadTile, draws).at;
}

void BoxProducer::setup() {
  Sm90TileScheduler::Items items = gemm.scheduler.getItems();
  int64_t ahead = getStepsAhead();
  int64_t most = llvm::divideCeil(ahead, shape.tile().getLeastKTiles());
  items.end = min(items.end, items.first + items.step * most);
  gemm.scheduler.forTiles(items, emitter.i32(0), [&](Sm90Tile tile, I32 done) {
    I32 steps = min(gemm.countSteps(), emitter.i32(ahead) - done);
    emitter.loop(emitter.index(0), emitter.toIndex(steps), 1, [&](Index i) {
      I32 step = emitter.toI32(i), kTile = gemm.getKTile(step);
      emitter.ifThen(isFirst,
                     [&] { loadWeights(gemm, tile, kTile, done + step); });
    });
    return done + steps;
  });
  gemm.waitForRows();
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
      loadSm90Rows(gemm, tile, step, at.stage);
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
    first.waitForRows();
    if (first.quantizesRows())
      first.awaitBefore();
    PipelineState state = emitSm90RowCopies(first, first.pipeline.first());
    if (gemms.size() == 1)
      return;
    Sm90Gemm &second = gemms.back();
    if (!second.shape.tile().mapRows) {
      emitSm90RowCopies(second, state);
      return;
    }
    Flag hasTurn = emitter.warpgroupWarp() <= second.shape.getRowTurns();
    emitter.ifThen(hasTurn, [&] { loadSm90AwaitedRows(second, state); });
  };
  Flag isFirst = emitter.warpgroupWarp() == 0;
  if (!first.shape.hasRowThreads())
    return emitter.ifThen(isFirst, emitBoxes);
  emitter.ifThen(isFirst, emitBoxes, emitRows);
}
