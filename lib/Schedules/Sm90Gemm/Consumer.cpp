//===- Consumer.cpp - the consumers of sm90.gemm ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Consumers of the Hopper gemm, with the mainloop that accumulates in tensor
// cores: each k tile adds the wgmmas of one stage to the accumulators; a stage
// is released when the wgmmas of the next one have been issued.

#include "Consumer.h"
#include "AdapterProducts.h"

#include "Epilogue.h"

using namespace mlir;
using namespace moec;

Sm90Consumer::Sm90Consumer(Sm90Gemm &gemm)
    : gemm(gemm), emitter(gemm.emitter), b(gemm.b), shape(gemm.shape),
      pipeline(gemm.pipeline),
      element(getElementType(emitter.operand(gemm.op.getWeight()))),
      consumer(emitter.warpgroup() + -1) {}

//===----------------------------------------------------------------------===//
// Tiles
//===----------------------------------------------------------------------===//

LogicalResult moec::emitSm90Consumer(Sm90Gemms &gemms) {
  PipelineState state = gemms.front().pipeline.first();
  for (Sm90Gemm &gemm : gemms) {
    Sm90Consumer consumer(gemm);
    state = consumer.emit(state);
    if (failed(consumer.getStatus()))
      return failure();
  }
  return success();
}

PipelineState Sm90Consumer::emit(PipelineState first) {
  if (shape.tile().splitK > 1)
    return emitShares(first);
  PipelineState end = gemm.scheduler.forTiles(
      first,
      [&](Sm90Tile tile, PipelineState at) { return emitTile(tile, at); },
      /*draws=*/Flag(), /*isConsumer=*/true);
  if (gemm.op.getSignals())
    gemm.signal();
  return end;
}

PipelineState Sm90Consumer::emitTile(const Sm90Tile &tile, PipelineState first,
                                     size_t i) {
  int64_t blockM = shape.tile().blockM[i];
  auto emitHere = [&] {
    Sm90Part part = setup(blockM, tile);
    Sm90EpilogueOperands operands = loadSm90Operands(gemm, part);
    // With promotion no registers are left to load epilogue operands early.
    bool isEarly = !shape.problem().promotes;
    if (isEarly)
      loadSm90Scales(gemm, part, operands);
    Sm90Sums sums = compute(blockM, tile, first);
    if (!isEarly)
      loadSm90Scales(gemm, part, operands);
    finish(part, operands, sums);
    return sums.end;
  };
  if (i + 1 == shape.tile().blockM.size())
    return emitHere();
  return emitter.choose(tile.rows <= blockM, emitHere,
                        [&] { return emitTile(tile, first, i + 1); });
}

Sm90Part Sm90Consumer::setup(int64_t blockM, const Sm90Tile &tile) {
  Sm90Part part{blockM, tile, shape.tile().getConsumerRows(blockM)};
  if (shape.tile().sharesBlock() || shape.tile().splitsRows(blockM)) {
    // The first consumer has the first rows.
    I32 first = consumer * part.maxRows;
    part.tile.firstRow = tile.firstRow + first;
    part.tile.rows = tile.rows - first;
  } else {
    part.tile.firstColumn =
        tile.firstColumn + consumer * shape.tile().getConsumerColumns(blockM);
  }
  return part;
}

//===----------------------------------------------------------------------===//
// Compute
//===----------------------------------------------------------------------===//

Sm90Sums Sm90Consumer::compute(int64_t blockM, const Sm90Tile &tile,
                               PipelineState first) {
  if (shape.problem().isPrepacked())
    return shape.problem().promotes
               ? multiplyDecodedPromoted(blockM, tile, first)
               : multiplyDecoded(blockM, tile, first);
  if (shape.problem().promotes)
    return multiplyPromoted(blockM, tile, first);
  return shape.problem().compute == ComputeType::Int8
             ? multiply<I32>(blockM, tile, first)
             : multiply<F32>(blockM, tile, first);
}

template <typename Sum>
Sm90Sums Sm90Consumer::multiply(int64_t blockM, const Sm90Tile &tile,
                                PipelineState first) {
  constexpr bool isInteger = std::is_same_v<Sum, I32>;
  /// The state of the mainloop; `before`: the stage of the k tile before.
  struct State {
    PipelineState at;
    I32 before;
    SmallVector<Value> sums;
    auto fields() { return std::tie(at, before, sums); }
  };
  int64_t width = shape.tile().getProductWidth(blockM);
  Type sumType = isInteger ? Type(b.getI32Type()) : b.getF32Type();
  I32 none = emitter.i32(0);
  SmallVector<Value> zeros(shape.tile().getBlocks(blockM),
                           emitter.makeSums(sumType, width));
  std::optional<Sm90AdapterProducts> adapters;
  SmallVector<I32> loaded;
  if (shape.problem().adapters) {
    adapters.emplace(gemm);
    loaded = adapters->load(tile, blockM);
  }
  auto multiplyStep = [&](State state, function_ref<void(I32)> releaseBefore) {
    auto &[at, before, sums] = state;
    pipeline.waitUntilFull(at);
    Factors factors = describe(blockM, at.stage);
    emitter.fenceProducts();
    for (int64_t i = 0; i < getStepProducts(); ++i)
      for (auto [block, sum] : llvm::enumerate(sums)) {
        auto [rows64, other] = getSides(blockM, factors, block);
        sum = emitter.multiplyAsync(element, width, rows64, other, i, sum);
      }
    emitter.commitProducts();
    // The k tile before is complete, so that its stage is free.
    emitter.waitProducts(1);
    releaseBefore(before);
    return State{pipeline.next(at), at.stage, sums};
  };
  State end =
      emitter.loop(emitter.index(0), emitter.toIndex(gemm.countSteps()), 1,
                   State{first, none, zeros}, [&](Index step, State state) {
                     return multiplyStep(state, [&](I32 before) {
                       ifBehindFirst(step, [&] { release(before); });
                     });
                   });
  if (adapters)
    end = emitter.loop(
        emitter.index(0),
        emitter.toIndex(adapters->countTiles(adapters->find(loaded))), 1, end,
        [&](Index, State state) {
          return multiplyStep(state, [&](I32 before) { release(before); });
        });
  emitter.waitProducts(0);
  SmallVector<SmallVector<Sum>> blocks;
  for (Value sums : end.sums)
    blocks.push_back(emitter.getSums<Sum>(sums));
  release(end.before);
  exchange(blocks);
  addShares(blocks);
  if constexpr (isInteger)
    return {end.at, llvm::map_to_vector(blocks, [](ArrayRef<I32> block) {
              return llvm::map_to_vector(block,
                                         [](I32 sum) { return sum.toF32(); });
            })};
  else
    return {end.at, blocks};
}

void Sm90Consumer::release(I32 stage) {
  // Each warp has read its own weight rows and all input rows.
  pipeline.release(stage);
}

void Sm90Consumer::releaseRead(I32 stage) {
  emitter.warpBarrier();
  release(stage);
}

void Sm90Consumer::ifBehindFirst(Index step, function_ref<void()> body) {
  emitter.ifThen(step != 0, body);
}

//===----------------------------------------------------------------------===//
// Finish
//===----------------------------------------------------------------------===//

void Sm90Consumer::finish(const Sm90Part &part,
                          const Sm90EpilogueOperands &operands,
                          const Sm90Sums &sums) {
  if (gemm.awaitsRows())
    gemm.waitInRole();
  ifComplete([&] {
    if (failed(emitSm90Epilogue(gemm, part, operands, sums)))
      status = failure();
  });
}
