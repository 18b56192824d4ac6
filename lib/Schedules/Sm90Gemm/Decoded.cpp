//===- Decoded.cpp - products of weights in registers -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Mainloop with weights decoded into registers. A packed tile of 64 weight rows
// x 64 of K is 16 or 32 bytes of quantized values and some of scales per
// thread. They become the A registers of four wgmmas
// (PrepackedWeights/HalfDecoder.cpp), or of two for e4m3 (ByteDecoder.cpp
// there). While tensor cores work on one packed tile, the next one's values are
// loaded and unpacked. The last step, a multiplication per pair, waits for the
// wgmmas that read the same registers: with two consumers those of half a
// packed tile; with three, where wgmmas of two others run meanwhile, all.
//
// Few rows are multiplied by warps: these read the input rows themselves, and
// wait only for the registers that they need.

#include "Consumer.h"
#include "Schedules/Sm90Gemm/PrepackedWeights/PackedTiles.h"

#include "KernelBuilder/InlinePtx.h"

#include <numeric>

using namespace mlir;
using namespace moec;
using moe::PrepackedFormat;

void UnpackedTile::tie(ImplicitLocOpBuilder &b) {
  SmallVector<I32> *lists[] = {&numbers, &scales, &rests, &addends};
  SmallVector<I32> all;
  for (SmallVector<I32> *list : lists)
    llvm::append_range(all, *list);
  tieValues<I32>(b, all);
  ArrayRef<I32> tied(all);
  for (SmallVector<I32> *list : lists) {
    list->assign(tied.begin(), tied.begin() + list->size());
    tied = tied.drop_front(list->size());
  }
}

void moec::copyPackedTiles(Sm90Gemm &gemm, const Sm90Tile &tile, I32 step,
                           I32 stage) {
  AsyncEmitter &emitter = gemm.emitter;
  const sm90::GemmShape &shape = gemm.shape;
  Barrier full = gemm.pipeline.full(stage);
  full.arriveExpecting(shape.shared().getWeightBytes() +
                       shape.shared().getScaleBytes());
  // Results of blocks past the end are never stored.
  I32 block = tile.firstColumn /
              (PrepackedFormat::kRows / shape.problem().weightsPerColumn);
  // `tiles`: packed tiles that share what is copied.
  auto copy = [&](Value to, int64_t map, int64_t bytes, int64_t tiles) {
    int64_t share = bytes / 2, inTile = shape.tile().swizzleRows;
    // Two k tiles of one packed tile share a copy.
    I32 first = inTile < tiles ? step / (tiles / inTile) : step;
    int64_t chunks =
        llvm::divideCeil(inTile, tiles) * share / sm90::getChunkBytes(share);
    SmallVector<I32> begin{block, emitter.i32(0), first * chunks,
                           emitter.i32(0)};
    if (shape.problem().isGrouped)
      begin.insert(begin.begin(), tile.group);
    emitter.copyBox(to, gemm.tensorMap(map), begin, full,
                    /*areWeights=*/true);
  };
  const sm90::PackedTile &packed = *shape.problem().packed;
  copy(gemm.pipeline.stageAddress(stage), 0, packed.valueBytes, /*tiles=*/1);
  copy(emitter.advance(gemm.sharedAddress(shape.shared().getScaleOffset()),
                       stage * shape.shared().getScaleBytes()),
       1, packed.scaleBytes, packed.scaleTiles);
}

//===----------------------------------------------------------------------===//
// Packed tiles
//===----------------------------------------------------------------------===//

PackedTileReader::PackedTileReader(Sm90Gemm &gemm, I32 consumer, int64_t blockM)
    : gemm(gemm), emitter(gemm.emitter), shape(gemm.shape),
      format(gemm.op.getWeightQuantAttr()),
      decoder(format.values.decoded == moe::DecodedType::E4M3
                  ? makeByteDecoder(emitter, format)
                  : makeHalfDecoder(
                        emitter, format,
                        gemm.sharedAddress(shape.shared().getBookOffset()))),
      element(getElementType(emitter.operand(gemm.op.getInput()))),
      width(shape.tile().getProductWidth(blockM)),
      packedTiles(shape.tile().swizzleRows),
      scaleCopies(shape.tile().getScaleCopies(*shape.problem().packed)),
      blocks(shape.tile().getBlocks(blockM)),
      rowBytes(shape.shared().getSwizzledBytes(
          shape.tile().mapRows ? blockM : shape.tile().getMaxBlockM())) {
  // One half of each block for each half of the warps.
  constexpr int64_t halfThreads = kWarpgroup / 2, rowThreads = 4;
  I32 thread = emitter.warpgroupThread();
  I32 half = thread / halfThreads, inHalf = thread % halfThreads;
  auto offset = [&](int64_t bytes, I32 share, int64_t shareBytes) {
    I32 block = consumer * (blocks * bytes);
    I32 own = block + half * (bytes / 2);
    return own + share * shareBytes;
  };
  ownValues = offset(packedTiles * shape.problem().packed->valueBytes, inHalf,
                     sm90::kChunkBytes);
  ownScales = offset(scaleCopies * shape.problem().packed->scaleBytes,
                     inHalf / rowThreads, format.getQuadBytes());
}

bool PackedTileReader::isLoadedEarly(int64_t blockM) const {
  constexpr int64_t wordBytes = 4;
  int64_t words = format.values.getChunks() * PrepackedFormat::kThreadWords +
                  format.getQuadBytes() / wordBytes;
  int64_t sums = blocks * shape.tile().getProductWidth(blockM) / 2;
  return shape.registers().getConsumerRegisters() >=
         ptxas::kBesideEarlyWords + sums + 2 * words;
}

LoadedTile PackedTileReader::load(I32 stage, int64_t round) {
  int64_t packedTile = round / blocks, block = round % blocks;
  auto at = [&](int64_t tileBytes, int64_t tiles, int64_t tile) {
    return block * tiles * tileBytes + tile * tileBytes / 2;
  };
  constexpr int64_t wordBytes = 4,
                    chunkBytes = PrepackedFormat::kChunkWords * wordBytes;
  int64_t scaleBytes = format.getQuadBytes();
  // Several loads if the scales exceed one load or are no power of two.
  int64_t scaleAlignment = std::gcd(scaleBytes, sm90::kChunkBytes);
  Type scalesType = emitter.b.getI32Type();
  if (scaleBytes > wordBytes)
    scalesType = VectorType::get(scaleBytes / wordBytes, scalesType);
  SmallVector<Value> values;
  for (int64_t chunk = 0; chunk < format.values.getChunks(); ++chunk)
    values.push_back(emitter.advance(
        gemm.pipeline.stageAddress(stage, at(shape.problem().packed->valueBytes,
                                             packedTiles, packedTile) +
                                              chunk * chunkBytes),
        ownValues));
  Value scales = emitter.advance(
      gemm.sharedAddress(shape.shared().getScaleOffset() +
                         at(shape.problem().packed->scaleBytes, scaleCopies,
                            packedTile / format.scaleTiles)),
      stage * shape.shared().getScaleBytes() + ownScales);
  for (Value &chunk : values)
    chunk = emitter.loadWords(chunk, PrepackedFormat::kThreadWords);
  return {values, emitter.load(scalesType, scales, scaleAlignment)};
}

LoadedTile PackedTileReader::loadFirst(PipelineState at) {
  gemm.pipeline.waitUntilFull(at);
  return load(at.stage, 0);
}

LoadedTile PackedTileReader::loadNext(Index step, PipelineState next,
                                      const LoadedTile &any) {
  return emitter.choose(
      step == emitter.toIndex(gemm.countSteps() + -1), [&] { return any; },
      [&] { return loadFirst(next); });
}

Value PackedTileReader::multiply(I32 stage, int64_t round,
                                 ArrayRef<I32> fragments, Value sums, I32 keeps,
                                 int64_t part, int64_t parts) {
  // The first stage's descriptor is loop-invariant.
  I32 first = emitter.describeTile(
      gemm.sharedAddress(gemm.getInputOffset() + round / blocks * rowBytes));
  I32 rows =
      first + stage * (shape.shared().getStageBytes() / sm90::kChunkBytes);
  constexpr int64_t registers = PrepackedFormat::kRegisters;
  // The first wgmma of a chain, with `keeps`, comes with a fence.
  if (!keeps)
    emitter.fenceProducts();
  int64_t inPart = format.values.getProducts() / parts;
  for (int64_t i = 0; i < inPart; ++i) {
    sums = emitter.multiplyAsync(
        element, width, fragments.slice(i * registers, registers), rows,
        shape.problem().swizzleBytes, part * inPart + i, sums, keeps);
    keeps = {};
  }
  emitter.commitProducts();
  return sums;
}

//===----------------------------------------------------------------------===//
// Mainloops
//===----------------------------------------------------------------------===//

Sm90Sums Sm90Consumer::multiplyDecoded(int64_t blockM, const Sm90Tile &tile,
                                       PipelineState first) {
  if (shape.tile().multipliesByWarps(blockM))
    return multiplyByWarps(blockM, tile, first);
  /// `before`: the stage of the k tile before; `early`: the first packed tile,
  /// if it is loaded early.
  struct State {
    PipelineState at;
    I32 before;
    SmallVector<Value> sums;
    SmallVector<LoadedTile, 1> early;
    auto fields() { return std::tie(at, before, sums, early); }
  };
  PackedTileReader reader(gemm, consumer, blockM);
  int64_t numBlocks = shape.tile().getBlocks(blockM),
          rounds = reader.getRounds();
  bool isEarly = reader.isLoadedEarly(blockM);
  // Half of a packed tile's wgmmas run while the other half is decoded. With
  // three consumers, wgmmas of two others run meanwhile, and one more wait
  // gains nothing (H200, gpt-oss-120b, 1024 tokens: 683 and 688 us).
  int64_t parts = shape.tile().getConsumers() == sm90::kConsumers ? 2 : 1;
  I32 none = emitter.i32(0);
  Value zeros =
      emitter.makeSums(b.getF32Type(), shape.tile().getProductWidth(blockM));
  State start{first, none, SmallVector<Value>(numBlocks, zeros), {}};
  if (isEarly)
    start.early.push_back(reader.loadFirst(first));
  State end = emitter.loop(
      emitter.index(0), emitter.toIndex(gemm.countSteps()), 1, start,
      [&](Index step, State state) {
        PipelineState at = state.at;
        LoadedTile packed =
            isEarly ? state.early.front() : reader.loadFirst(at);
        UnpackedTile opened = reader.open(packed);
        auto load = [&](int64_t round) {
          if (round < rounds)
            packed = reader.load(at.stage, round);
        };
        if (isEarly)
          load(1);
        for (int64_t round = 0; round < rounds; ++round) {
          Value &sum = state.sums[round % numBlocks];
          for (int64_t part = 0; part < parts; ++part) {
            // Waits for the same part of the packed tile before.
            emitter.waitProducts(parts - 1);
            sum = reader.multiply(at.stage, round,
                                  reader.close(opened, part, parts), sum,
                                  /*keeps=*/{}, part, parts);
          }
          // All wgmmas of the k tile before are complete.
          if (round == 0)
            ifBehindFirst(step, [&] { releaseRead(state.before); });
          if (!isEarly)
            load(round + 1);
          if (round + 1 < rounds)
            opened = reader.open(packed);
          if (isEarly)
            load(round + 2);
        }
        State next{pipeline.next(at), at.stage, state.sums, {}};
        if (isEarly)
          next.early.push_back(
              reader.loadNext(step, next.at, state.early.front()));
        return next;
      });
  emitter.waitProducts(0);
  Sm90Sums sums{end.at, {}};
  for (Value value : end.sums)
    sums.blocks.push_back(emitter.getSums(value));
  releaseRead(end.before);
  addShares(sums.blocks);
  return sums;
}

/// Promotion by scale group. The sums of a group are separate, in registers
/// that the next group's reuse, and are added, times its scale, when its wgmmas
/// are complete: one group after the other, each of which begins when those
/// before have been added.
Sm90Sums Sm90Consumer::multiplyDecodedPromoted(int64_t blockM,
                                               const Sm90Tile &tile,
                                               PipelineState first) {
  /// `before`: the stage of the k tile before; `products`: the sums of the
  /// group before, and its scales.
  struct State {
    PipelineState at;
    I32 before;
    Value products;
    SmallVector<I32> scales;
    SmallVector<F32> sums;
    LoadedTile packed;
    auto fields() {
      return std::tie(at, before, products, scales, sums, packed);
    }
  };
  constexpr int64_t rows = PrepackedFormat::kQuadRows;
  PackedTileReader reader(gemm, consumer, blockM);
  int64_t numBlocks = shape.tile().getBlocks(blockM),
          rounds = reader.getRounds();
  int64_t width = shape.tile().getProductWidth(blockM), numSums = width / 2;
  // With one block, successive packed tiles of a group accumulate in the same
  // registers. If groups are smaller, a packed tile has as many parts.
  int64_t parts = reader.getFormat().getGroups();
  int64_t chain = shape.tile().getChainedTiles(reader.getFormat(), blockM);
  // Opaque zeros: `rows < 1` is never true, but LLVM and ptxas cannot prove it,
  // so that accumulators are not constant-folded.
  I32 never = (tile.rows < 1).toI32();
  F32 zero = F32::fromBits(never);
  /// Adds the group before to the sums of its block.
  auto promoteBefore = [&](State &state, int64_t block) {
    // Two of a thread's four sums of every 8 rows belong to each of its weight
    // rows.
    constexpr int64_t perOctet = 4;
    auto sums = MutableArrayRef(state.sums).slice(block * numSums, numSums);
    for (auto [i, product] : llvm::enumerate(emitter.getSums(state.products))) {
      F32 scale = F32::fromBits(state.scales[i % perOctet / 2]);
      sums[i] = fma(product, scale, sums[i]);
    }
    tieValues(b, sums);
  };
  I32 none = emitter.i32(0);
  Value products = emitter.makeSums(b.getF32Type(), width);
  SmallVector<I32> noScales(rows, emitter.i32(0));
  State start{first,
              none,
              products,
              noScales,
              SmallVector<F32>(numBlocks * numSums, zero),
              reader.loadFirst(first)};
  State end = emitter.loop(
      emitter.index(0), emitter.toIndex(gemm.countSteps()), 1, start,
      [&](Index step, State state) {
        PipelineState at = state.at;
        LoadedTile packed = state.packed;
        UnpackedTile opened = reader.open(packed);
        if (rounds > 1)
          packed = reader.load(at.stage, 1);
        for (int64_t round = 0; round < rounds; ++round) {
          SmallVector<I32> fragments;
          for (int64_t part = 0; part < parts; ++part) {
            emitter.waitProducts(0);
            bool isNew = round % chain == 0;
            if (isNew)
              promoteBefore(state,
                            (round + (part ? 0 : numBlocks - 1)) % numBlocks);
            if (part == 0)
              fragments = reader.close(opened);
            size_t inPart = fragments.size() / parts;
            state.products = reader.multiply(
                at.stage, round,
                ArrayRef(fragments).slice(part * inPart, inPart),
                state.products, isNew ? never : I32(), part, parts);
            state.scales.assign(opened.scales.begin() + part * rows,
                                opened.scales.begin() + (part + 1) * rows);
            if (round == 0 && part == 0)
              ifBehindFirst(step, [&] { releaseRead(state.before); });
          }
          if (round + 1 < rounds)
            opened = reader.open(packed);
          if (round + 2 < rounds)
            packed = reader.load(at.stage, round + 2);
        }
        PipelineState next = pipeline.next(at);
        return State{next,           at.stage,
                     state.products, state.scales,
                     state.sums,     reader.loadNext(step, next, state.packed)};
      });
  emitter.waitProducts(0);
  promoteBefore(end, numBlocks - 1);
  releaseRead(end.before);
  Sm90Sums sums{end.at, splitBlocks(end.sums, numBlocks)};
  addShares(sums.blocks);
  return sums;
}
