//===- Promoted.cpp - sums of steps, added in f32 ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Consumer.h"
#include "KernelBuilder/InlinePtx.h"
#include "Scales.h"

using namespace mlir;
using namespace moec;

/// Whether a tile's row scales fit in registers beside its accumulators. They
/// are then loaded while the first wgmmas run, once for all blocks. True also
/// without row scales.
static bool keepsRowScales(const sm90::GemmShape &shape, int64_t blockM) {
  int64_t blocks = shape.tile().getBlocks(blockM);
  return !shape.tile().swapsAB(blockM) || !shape.problem().copiesScales() ||
         (blocks + 1) * blockM / 2 + blockM / 4 <=
             ptxas::getMaxSumsAndScales(blocks);
}

/// Mainloop with promotion, one block after the other. The wgmmas of a k tile
/// make new sums, which are added to the accumulators, times their scales if
/// those are per k tile. Meanwhile the other consumer uses the tensor cores.
///
/// With rows on M two sets of sums would not fit in registers, and without
/// scales ptxas would keep two, so that each chain of wgmmas explicitly
/// overwrites the one before.
Sm90Sums Sm90Consumer::multiplyPromoted(int64_t blockM, const Sm90Tile &tile,
                                        PipelineState first) {
  Sm90Scales scales(gemm);
  int64_t numBlocks = shape.tile().getBlocks(blockM);
  int64_t width = shape.tile().getProductWidth(blockM), numSums = width / 2;
  bool hasScales = shape.problem().copiesScales();
  bool overwrites = !shape.tile().swapsAB(blockM) || !hasScales;
  bool keepsScales = keepsRowScales(shape, blockM);
  Value rows = hasScales ? scales.findRows(blockM, consumer) : Value();
  F32 zero = emitter.f32(0);
  I32 never;
  if (overwrites) {
    // Opaque zeros (`rows < 1` is never true), which depend on the tile's rows
    // so that they take no registers while the tile is looked up.
    never = (tile.rows < 1).toI32();
    zero = F32::fromBits(never);
  }
  struct State {
    PipelineState at;
    /// Prefetched at the end of the k tile before: the values needed for the
    /// first wgmma of a k tile, perhaps even whether the stage is full.
    Factors factors;
    Flag isFull;
    SmallVector<F32> sums;
    /// The previous sums, if those are overwritten.
    SmallVector<F32> old;
    auto fields() { return std::tie(at, factors, isFull, sums, old); }
  };
  /// Starts the wgmmas of a block.
  auto multiplyBlock = [&](const State &state, int64_t block) {
    auto [rows64, other] = getSides(blockM, state.factors, block);
    Value products;
    if (overwrites) {
      I64 a = emitter.getDescriptor(rows64, 0);
      I64 c = emitter.getDescriptor(other, 0);
      products =
          multiplyE4M3(b, SmallVector<Value>(ArrayRef(state.old)), a, c, never);
    } else {
      emitter.fenceProducts();
      products = emitter.multiplyAsync(element, width, rows64, other,
                                       /*step=*/0, emitter.makeUnsetSums(width),
                                       /*isFirst=*/true);
    }
    for (int64_t i = 1; i < getStepProducts(); ++i)
      products =
          emitter.multiplyAsync(element, width, rows64, other, i, products);
    emitter.commitProducts();
    return products;
  };
  auto step = [&](I32, State state) {
    PipelineState at = state.at;
    emitter.ifThen(~state.isFull, [&] { pipeline.waitUntilFull(at); });
    State next;
    SmallVector<F32> rowScales, weightScales;
    for (int64_t block = 0; block < numBlocks; ++block) {
      bool isLast = block + 1 == numBlocks;
      Value products = multiplyBlock(state, block);
      if (hasScales && (block == 0 || !scales.areSame(blockM)))
        weightScales = scales.loadWeights(at.stage, blockM, consumer, block);
      if (hasScales && block == 0 && keepsScales)
        rowScales = scales.loadRows(rows, at.stage, blockM);
      if (isLast) {
        next.at = pipeline.next(at);
        next.isFull = pipeline.isFull(next.at);
        Factors factors = describe(blockM, next.at.stage);
        I32 words[] = {factors.weights, factors.rows};
        tieValues<I32>(b, words);
        next.factors = {words[0], words[1]};
      }
      emitter.waitProducts(0);
      state.old = emitter.getSums(products);
      // All lanes have read the stage for the last time.
      if (isLast && keepsScales)
        releaseRead(at.stage);
      if (!keepsScales)
        rowScales = scales.loadRows(rows, at.stage, blockM);
      promote(blockM,
              MutableArrayRef(state.sums).slice(block * numSums, numSums),
              state.old, rowScales, weightScales);
    }
    if (!keepsScales)
      releaseRead(at.stage);
    next.sums = state.sums;
    if (overwrites)
      next.old = state.old;
    return next;
  };
  Factors factors = describe(blockM, first.stage);
  State start{first, factors, emitter.flag(false),
              SmallVector<F32>(numBlocks * numSums, zero),
              SmallVector<F32>(overwrites ? numSums : 0, zero)};
  // A counter in one register, because few are left.
  State end = emitter.loop(emitter.i32(0), gemm.countSteps(), 1, start, step);
  Sm90Sums result{end.at, splitBlocks(end.sums, numBlocks)};
  exchange(result.blocks);
  addShares(result.blocks);
  return result;
}

/// `rowScales`: two for every four sums, or two for all of them.
void Sm90Consumer::promote(int64_t blockM, MutableArrayRef<F32> sums,
                           ArrayRef<F32> products, ArrayRef<F32> rowScales,
                           ArrayRef<F32> weightScales) {
  // A thread has four sums of every 8 columns of N: two neighbours, then two
  // for the row 8 further on M, which in weights is the other projection.
  constexpr int64_t perOctet = 4;
  bool isOnM = !shape.tile().swapsAB(blockM);
  for (int64_t i = 0, end = sums.size(); i < end; ++i) {
    if (rowScales.empty()) {
      sums[i] = sums[i] + products[i];
      continue;
    }
    int64_t octet = i / perOctet, half = i % perOctet / 2;
    F32 row = rowScales[isOnM ? half : octet * 2 + i % 2];
    int64_t projection =
        (isOnM ? octet : half) % shape.problem().weightsPerColumn;
    sums[i] = fma(products[i], row * weightScales[projection], sums[i]);
  }
  // Forces the additions here and not at their use in the next k tile, to free
  // the registers of the wgmmas for the next block.
  tieValues(b, sums);
}
