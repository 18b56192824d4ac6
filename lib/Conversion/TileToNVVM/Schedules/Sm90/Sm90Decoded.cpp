//===- Sm90Decoded.cpp - products of weights in registers -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Mainloop with weights decoded into registers. A packed tile of 64 weight rows
// x 64 of K is 16 or 32 bytes of quantized values and some of scales per
// thread. They become the A registers of four wgmmas (Sm90HalfUnits.cpp), or of
// two for e4m3 (Sm90ByteUnits.cpp). While tensor cores work on one packed tile,
// the next one's values are loaded and unpacked. The last step, a
// multiplication per pair, waits for the wgmmas that read the same registers:
// with two consumers those of half a packed tile; with three, where wgmmas of
// two others run meanwhile, all.
//
// Few rows are multiplied by warps: these read the input rows themselves, and
// wait only for the registers that they need.

#include "Sm90Consumer.h"
#include "Sm90Units.h"

#include "../../InlinePtx.h"

#include <numeric>

using namespace mlir;
using namespace moec;
using moe::Fragments;

void OpenUnit::tie(ImplicitLocOpBuilder &b) {
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
  const Sm90Shape &shape = gemm.shape;
  Barrier full = gemm.pipeline.full(stage);
  full.arriveExpecting(shape.getWeightBytes() + shape.getScaleBytes());
  // Results of blocks past the end are never stored.
  I32 block = tile.firstColumn / (Fragments::kRows / shape.weightsPerColumn);
  auto copy = [&](Value to, int64_t map, int64_t unitBytes) {
    int64_t share = unitBytes / 2;
    int64_t pieces = shape.getUnits() * share / shape.getUnitPiece(share);
    SmallVector<I32> begin{block, emitter.i32(0), step * pieces,
                           emitter.i32(0)};
    if (shape.isGrouped)
      begin.insert(begin.begin(), tile.group);
    emitter.copyBox(to, gemm.tensorMap(map), begin, full,
                    /*areWeights=*/true);
  };
  copy(gemm.pipeline.stageAddress(stage), 0, shape.unitBytes);
  copy(emitter.advance(gemm.sharedAddress(shape.getScaleOffset()),
                       stage * shape.getScaleBytes()),
       1, shape.unitScaleBytes);
}

//===----------------------------------------------------------------------===//
// Packed tiles
//===----------------------------------------------------------------------===//

UnitReader::UnitReader(Sm90Gemm &gemm, I32 consumer, int64_t height)
    : gemm(gemm), emitter(gemm.emitter), shape(gemm.shape),
      format(gemm.op.getWeightQuantAttr()),
      decoder(format.numbers == Fragments::Numbers::E4M3
                  ? makeByteDecoder(emitter, format)
                  : makeHalfDecoder(emitter, format,
                                    gemm.sharedAddress(shape.getBookOffset()))),
      element(getElementType(emitter.operand(gemm.op.getInput()))),
      width(shape.getProductWidth(height)), units(shape.getUnits()),
      blocks(shape.getBlocks(height)),
      rowBytes(shape.getUnitRowBytes(shape.mapRows ? height
                                                   : shape.getMaxHeight())) {
  // One half of each block for each half of the warps.
  constexpr int64_t halfThreads = Sm90Shape::kWarpgroup / 2, rowThreads = 4;
  I32 thread = emitter.warpgroupThread();
  I32 half = thread / halfThreads, inHalf = thread % halfThreads;
  auto offset = [&](int64_t unitBytes, I32 share, int64_t shareBytes) {
    I32 block = consumer * (blocks * units * unitBytes);
    I32 own = block + half * (units * unitBytes / 2);
    return own + share * shareBytes;
  };
  ownCodes = offset(shape.unitBytes, inHalf, Sm90Shape::kChunkBytes);
  ownScales =
      offset(shape.unitScaleBytes, inHalf / rowThreads, format.getQuadBytes());
}

bool UnitReader::isLoadedEarly(int64_t height) const {
  constexpr int64_t wordBytes = 4;
  int64_t words = format.getPieces() * Fragments::kThreadWords +
                  format.getQuadBytes() / wordBytes;
  int64_t sums = blocks * shape.getProductWidth(height) / 2;
  return shape.getConsumerRegisters() >=
         ptxas::kBesideEarlyWords + sums + 2 * words;
}

PackedUnit UnitReader::load(I32 stage, int64_t turn) {
  int64_t unit = turn / blocks, block = turn % blocks;
  auto at = [&](int64_t unitBytes) {
    return block * units * unitBytes + unit * unitBytes / 2;
  };
  constexpr int64_t wordBytes = 4,
                    pieceBytes = Fragments::kPieceWords * wordBytes;
  int64_t scaleBytes = format.getQuadBytes();
  // Several loads if the scales exceed one load or are no power of two.
  int64_t scaleAlignment = std::gcd(scaleBytes, Sm90Shape::kChunkBytes);
  Type scalesType = emitter.b.getI32Type();
  if (scaleBytes > wordBytes)
    scalesType = VectorType::get(scaleBytes / wordBytes, scalesType);
  SmallVector<Value> codes;
  for (int64_t piece = 0; piece < format.getPieces(); ++piece)
    codes.push_back(
        emitter.advance(gemm.pipeline.stageAddress(
                            stage, at(shape.unitBytes) + piece * pieceBytes),
                        ownCodes));
  Value scales = emitter.advance(
      gemm.sharedAddress(shape.getScaleOffset() + at(shape.unitScaleBytes)),
      stage * shape.getScaleBytes() + ownScales);
  for (Value &piece : codes)
    piece = emitter.loadWords(piece, Fragments::kThreadWords);
  return {codes, emitter.load(scalesType, scales, scaleAlignment)};
}

PackedUnit UnitReader::loadFirst(PipelineState at) {
  gemm.pipeline.waitUntilFull(at);
  return load(at.stage, 0);
}

PackedUnit UnitReader::loadNext(Index step, PipelineState next,
                                const PackedUnit &any) {
  return emitter.choose(
      step == shape.getSteps() - 1, [&] { return any; },
      [&] { return loadFirst(next); });
}

Value UnitReader::multiply(I32 stage, int64_t turn, ArrayRef<I32> fragments,
                           Value sums, I32 keeps, int64_t part, int64_t parts) {
  // The first stage's descriptor is loop-invariant.
  I32 first = emitter.describeTile(
      gemm.sharedAddress(gemm.getInputOffset() + turn / blocks * rowBytes));
  I32 rows = first + stage * (shape.getStageBytes() / Sm90Shape::kChunkBytes);
  constexpr int64_t registers = Fragments::kRegisters;
  // The first wgmma of a chain, with `keeps`, comes with a fence.
  if (!keeps)
    emitter.fenceProducts();
  int64_t inPart = format.getProducts() / parts;
  for (int64_t i = 0; i < inPart; ++i) {
    sums = emitter.multiplyAsync(
        element, width, fragments.slice(i * registers, registers), rows,
        shape.swizzledBytes, part * inPart + i, sums, keeps);
    keeps = {};
  }
  emitter.commitProducts();
  return sums;
}

//===----------------------------------------------------------------------===//
// Mainloops
//===----------------------------------------------------------------------===//

Sm90Sums Sm90Consumer::multiplyDecoded(int64_t height, const Sm90Tile &tile,
                                       PipelineState first) {
  if (shape.multipliesByWarps(height))
    return multiplyByWarps(height, tile, first);
  /// `before`: the stage of the k tile before; `early`: the first packed tile,
  /// if it is loaded early.
  struct State {
    PipelineState at;
    I32 before;
    SmallVector<Value> sums;
    SmallVector<PackedUnit, 1> early;
    auto fields() { return std::tie(at, before, sums, early); }
  };
  UnitReader reader(gemm, consumer, height);
  int64_t numBlocks = shape.getBlocks(height), turns = reader.getTurns();
  bool isEarly = reader.isLoadedEarly(height);
  // Half of a packed tile's wgmmas run while the other half is decoded. With
  // three consumers, wgmmas of two others run meanwhile, and one more wait
  // gains nothing (H200, gpt-oss-120b, 1024 tokens: 683 and 688 us).
  int64_t parts = shape.getConsumers() == Sm90Shape::kConsumers ? 2 : 1;
  I32 none = emitter.i32(0);
  Value zeros = emitter.makeSums(b.getF32Type(), shape.getProductWidth(height));
  State start{first, none, SmallVector<Value>(numBlocks, zeros), {}};
  if (isEarly)
    start.early.push_back(reader.loadFirst(first));
  State end = emitter.loop(
      emitter.index(0), emitter.index(shape.getSteps()), 1, start,
      [&](Index step, State state) {
        PipelineState at = state.at;
        PackedUnit packed =
            isEarly ? state.early.front() : reader.loadFirst(at);
        OpenUnit opened = reader.open(packed);
        auto load = [&](int64_t turn) {
          if (turn < turns)
            packed = reader.load(at.stage, turn);
        };
        if (isEarly)
          load(1);
        for (int64_t turn = 0; turn < turns; ++turn) {
          Value &sum = state.sums[turn % numBlocks];
          for (int64_t part = 0; part < parts; ++part) {
            // Waits for the same part of the packed tile before.
            emitter.waitProducts(parts - 1);
            sum = reader.multiply(at.stage, turn,
                                  reader.close(opened, part, parts), sum,
                                  /*keeps=*/{}, part, parts);
          }
          // All wgmmas of the k tile before are complete.
          if (turn == 0)
            ifBehindFirst(step, [&] { releaseRead(state.before); });
          if (!isEarly)
            load(turn + 1);
          if (turn + 1 < turns)
            opened = reader.open(packed);
          if (isEarly)
            load(turn + 2);
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
  return sums;
}

/// Promotion by scale group. The sums of a group are separate, in registers
/// that the next group's reuse, and are added, times its scale, when its wgmmas
/// are complete: one group after the other, each of which begins when those
/// before have been added.
Sm90Sums Sm90Consumer::multiplyDecodedPromoted(int64_t height,
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
    PackedUnit packed;
    auto fields() {
      return std::tie(at, before, products, scales, sums, packed);
    }
  };
  constexpr int64_t rows = Fragments::kQuadRows;
  UnitReader reader(gemm, consumer, height);
  int64_t numBlocks = shape.getBlocks(height), turns = reader.getTurns();
  int64_t width = shape.getProductWidth(height), numSums = width / 2;
  // With one block, successive packed tiles of a group accumulate in the same
  // registers. If groups are smaller, a packed tile has as many parts.
  int64_t parts = reader.getFormat().getGroups();
  int64_t chain =
      numBlocks > 1 || parts > 1 ? 1 : reader.getFormat().getGroupUnits();
  if (turns % chain)
    chain = 1;
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
      emitter.index(0), emitter.index(shape.getSteps()), 1, start,
      [&](Index step, State state) {
        PipelineState at = state.at;
        PackedUnit packed = state.packed;
        OpenUnit opened = reader.open(packed);
        if (turns > 1)
          packed = reader.load(at.stage, 1);
        for (int64_t turn = 0; turn < turns; ++turn) {
          SmallVector<I32> fragments;
          for (int64_t part = 0; part < parts; ++part) {
            emitter.waitProducts(0);
            bool isNew = turn % chain == 0;
            if (isNew)
              promoteBefore(state,
                            (turn + (part ? 0 : numBlocks - 1)) % numBlocks);
            if (part == 0)
              fragments = reader.close(opened);
            size_t inPart = fragments.size() / parts;
            state.products = reader.multiply(
                at.stage, turn,
                ArrayRef(fragments).slice(part * inPart, inPart),
                state.products, isNew ? never : I32(), part, parts);
            state.scales.assign(opened.scales.begin() + part * rows,
                                opened.scales.begin() + (part + 1) * rows);
            if (turn == 0 && part == 0)
              ifBehindFirst(step, [&] { releaseRead(state.before); });
          }
          if (turn + 1 < turns)
            opened = reader.open(packed);
          if (turn + 2 < turns)
            packed = reader.load(at.stage, turn + 2);
        }
        PipelineState next = pipeline.next(at);
        return State{next,           at.stage,
                     state.products, state.scales,
                     state.sums,     reader.loadNext(step, next, state.packed)};
      });
  emitter.waitProducts(0);
  promoteBefore(end, numBlocks - 1);
  releaseRead(end.before);
  return {end.at, splitBlocks(end.sums, numBlocks)};
}
