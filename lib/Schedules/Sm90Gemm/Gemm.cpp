//===- Gemm.cpp - state of sm90.gemm; waits ---------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// State of the Hopper gemm, and its waits for results of other CTAs: the second
// of two joined gemms, a gemm after the quantization of its rows, and the sums
// of the last gemm's rows. CTAs signal the end of their share by a counter in
// memory, and wait until all have.

#include "Gemm.h"

#include "Schedules/GatherReduce/GatherReduce.h"
#include "Schedules/Interface/Emit.h"
#include "Schedules/Quantize/QuantizeRows.h"
#include "Schedules/Quantize/Shape.h"
#include "moec/Support/GpuInstructions.h"

using namespace mlir;
using namespace moec;

Sm90Gemm::Sm90Gemm(tile::GemmOp op, AsyncEmitter &emitter, Sm90Gemm *before)
    : op(op), emitter(emitter), b(emitter.b),
      shape(sm90::getShapeInKernel(op, op.getConfigAttr())),
      shared(before ? before->shared : emitter.dynamicShared()),
      pipeline(emitter, shared, shared,
               {shape.tile().stages, shape.shared().getStageBytes(),
                /*firstStage=*/0, shape.shared().getBarrierOffset(),
                shape.tile().getClusterTiles()}),
      scheduler(op, emitter, shape, shared,
                before ? &before->scheduler : nullptr),
      shares(emitter, emitter.advance(shared, shape.shared().getSharesOffset()),
             shared,
             {/*stages=*/1, /*stageBytes=*/0, /*firstStage=*/0,
              shape.shared().getShareBarrierOffset()}),
      before(before), quantization(sm90::getQuantization(op)),
      areRowsAwaited(sm90::awaitsRows(op)) {
  if (before)
    firstMap = before->firstMap +
               int64_t(sm90::getTensorMaps(before->op, before->shape).size());
}

//===----------------------------------------------------------------------===//
// Clusters
//===----------------------------------------------------------------------===//

I32 Sm90Gemm::getOwnColumn(const Sm90Tile &tile) {
  int64_t ctas = shape.tile().getClusterTiles();
  if (ctas == 1)
    return tile.firstColumn;
  int64_t columns = shape.tile().blockN / ctas;
  return tile.firstColumn + emitter.clusterRank() * columns;
}

Value Sm90Gemm::getOwnWeights(I32 stage) {
  Value weights = pipeline.stageAddress(stage);
  int64_t ctas = shape.tile().getClusterTiles();
  if (ctas == 1)
    return weights;
  int64_t bytes = shape.shared().getWeightBytes() / ctas;
  return emitter.advance(weights, emitter.clusterRank() * bytes);
}

void Sm90Gemm::meet() {
  if (shape.tile().getClusterCtas() > 1)
    emitter.clusterBarrier();
  else
    emitter.barrier();
}

void Sm90Gemm::setForm(const KernelBody &body) {
  const sm90::RegisterBudget &registers = shape.registers();
  int64_t ctas = shape.tile().getClusterCtas();
  if (!registers.hasReducedRegisters() && ctas == 1)
    return;
  tile::KernelOp kernel = body.kernel;
  body.func->setAttr(
      kFormAttr,
      tile::KernelFormAttr::get(
          op.getContext(), kernel.getIndependent(), kernel.getAhead(),
          kernel.getResident(), kernel.getLate(),
          registers.hasReducedRegisters() ? registers.getRegisters() : 0,
          ctas > 1 ? ctas : 0));
}

//===----------------------------------------------------------------------===//
// Waits
//===----------------------------------------------------------------------===//

/// The address of the single counter.
static Value getCounter(AsyncEmitter &emitter, Value counter) {
  return emitter.address(emitter.operand(counter), {emitter.index(0)});
}

void Sm90Gemm::waitInRole() {
  if (op.getIds())
    emitter.waitForLaunchBefore();
}

void Sm90Gemm::pollRows() {
  // Without tokens the launch before has no CTAs.
  emitter.ifThen(emitter.tokens() != 0, [&] {
    emitter.awaitHighestBit(getCounter(emitter, op.getAwaits()));
  });
}

/// Behind the op, memory has what launches before the last one have written.
static void endAwait(Operation *barrier) {
  auto yes = UnitAttr::get(barrier->getContext());
  barrier->setAttr(kBetweenPhasesAttr, yes);
  barrier->setAttr(kEndsAwaitAttr, yes);
}

void Sm90Gemm::waitForRows() {
  if (!areRowsAwaited)
    return waitInRole();
  emitter.ifThen(emitter.lane() == 0, [&] { pollRows(); });
  endAwait(emitter.warpBarrier());
  if (shape.tile().mapRows)
    emitter.fenceAsyncGlobal();
}

void Sm90Gemm::waitForRowsAsConsumers() {
  if (!areRowsAwaited)
    return waitInRole();
  emitter.ifThen(emitter.thread() == kWarpgroup, [&] { pollRows(); });
  endAwait(emitter.consumerBarrier());
}

void Sm90Gemm::signal() {
  tile::GatherReduceOp sums = sm90::getSums(op);
  // Boxes may be copied from the results, which all lanes have stored. Sums
  // load them.
  if (!sums && sm90::getPartner(op).getConfigAttr().getMapRows())
    emitter.fenceAsyncGlobal();
  // Once per CTA, because atomic additions to one address are serialized.
  emitter.consumerBarrier();
  emitter.ifThen(emitter.thread() == kWarpgroup, [&] {
    // A CTA may be done with the second gemm before others are with the first.
    int64_t signal = before ? sm90::kTileIncrement : 1;
    emitter.addReleasing(emitter.i32(signal),
                         getCounter(emitter, op.getSignals()));
  });
  if (sums)
    addSums(sums);
}

void Sm90Gemm::awaitAll() {
  I32 signals = emitter.numCtas();
  if (quantization)
    signals = min(signals, scheduler.table.countRows());
  emitter.awaitAtLeast(signals, getCounter(emitter, op.getAwaits()),
                       quantization || sm90::getSums(op) ? sm90::kTileIncrement
                                                         : 0);
}

void Sm90Gemm::awaitBefore() {
  emitter.ifThen(emitter.lane() == 0, [&] { awaitAll(); });
  // The waiting lane copies boxes itself; chunks are copied by all lanes.
  if (!shape.tile().mapRows)
    emitter.warpBarrier();
}

void Sm90Gemm::quantizeRows() {
  if (!quantization)
    return;
  constexpr int64_t warpsPerGroup = kWarpgroup / kWarp;
  int64_t warps = shape.tile().getConsumers() * warpsPerGroup;
  // With few rows, each is quantized by a different CTA, and the remaining CTAs
  // have nothing to signal.
  I32 ctas = emitter.numCtas();
  I32 cta = emitter.toI32(emitter.cta());
  I32 warp = emitter.warp() + -warpsPerGroup;
  I32 first = multiplyNoWrap(warp, ctas) + cta;
  I32 rows = scheduler.table.countRows();
  // Consumers hold no accumulators yet.
  anygpu::Quantize held(quantization, quantization.getConfigAttr());
  int64_t vectors = anygpu::Quantize::kMostHeld;
  if (!shape.registers().hasReducedRegisters())
    vectors *= 2;
  Index firstRow = emitter.toIndex(first);
  Index step = emitter.toIndex(ctas * warps);
  emitHeldRows(quantization, emitter, /*convertsFloat8=*/true, firstRow, step,
               emitter.toIndex(rows), vectors / held.getHeldVectors());
  if (shape.tile().mapRows)
    emitter.fenceAsyncGlobal();
  emitter.consumerBarrier();
  emitter.ifThen(emitter.thread() == kWarpgroup, [&] {
    emitter.ifThen(cta < rows, [&] {
      emitter.addReleasing(emitter.i32(1), getCounter(emitter, op.getAwaits()));
    });
    awaitAll();
  });
  // Consumers load scales of rows themselves.
  emitter.consumerBarrier()->setAttr(kBetweenPhasesAttr, b.getUnitAttr());
}

/// One warpgroup adds, as threads of the CTAs that a launch of the sums would
/// have; CTAs without a share do not wait.
void Sm90Gemm::addSums(tile::GatherReduceOp sums) {
  auto config = cast<tile::GpuGatherReduceAttr>(sums.getConfigAttr());
  int64_t threads = config.getColumnsPerCta() / config.getVectorWidth();
  int64_t columnTiles =
      llvm::divideCeil(sums.getSlotColumns(), config.getColumnsPerCta());
  Index ctas = min(emitter.tokens(), config.getTokenStride()) * columnTiles;
  Index first = emitter.cta();
  I32 thread = emitter.thread() + -kWarpgroup;
  Flag hasShare = first < ctas, adds = thread < threads;
  emitter.ifThen(hasShare & adds, [&] {
    emitter.ifThen(emitter.thread() == kWarpgroup, [&] {
      // Signals of the first gemm do not add up to one of the second.
      I32 signals = emitter.numCtas() * (before ? sm90::kTileIncrement : 1);
      emitter.awaitAtLeast(signals, getCounter(emitter, sums.getAwaits()),
                           op.getTileCounter() ? sm90::kTileIncrement : 0);
    });
    // The threads need not be a whole warpgroup.
    emitter.barrierOf(emitter.warpgroup() + 1, threads)
        ->setAttr(kBetweenPhasesAttr, b.getUnitAttr());
    emitter.loop(
        first, ctas, emitter.toIndex(emitter.numCtas()),
        [&](Index cta) { emitGatherReduceOf(sums, emitter, cta, thread); });
  });
}

/// The wait is when the first tile is found. The thread arrives in place of all
/// the threads that copy rows of the gemm before, as the barriers count them.
void moec::loadSm90AwaitedRows(Sm90Gemm &gemm, PipelineState first) {
  AsyncEmitter &emitter = gemm.emitter;
  const Pipeline &pipeline = gemm.pipeline;
  Flag isFirst = emitter.lane() == 0;
  int64_t kTiles = gemm.shape.tile().getKTiles(),
          turns = gemm.shape.getRowTurns();
  I32 turn = emitter.warpgroupWarp() + -1;
  // Beside the pipeline state: whether the wait is over.
  std::tuple start(first, emitter.i32(0));
  gemm.scheduler.forTiles(start, [&](Sm90Tile tile, auto state) {
    emitter.ifThen(std::get<1>(state) == 0, [&] { gemm.awaitBefore(); });
    PipelineState begin = std::get<0>(state);
    emitter.loop(turn, emitter.i32(kTiles), turns, pipeline.skip(begin, turn),
                 [&](I32 step, PipelineState at) {
                   emitter.ifThen(isFirst, [&] {
                     pipeline.waitUntilEmpty(at);
                     pipeline.full(at.stage).arrive(sm90::kRowThreads - 1);
                     loadSm90Rows(gemm, tile, step, at.stage);
                   });
                   return pipeline.skip(at, turns);
                 });
    return std::tuple(pipeline.skip(begin, kTiles), emitter.i32(1));
  });
}
