//===- Sm90Promoted.cpp - sums of steps, added in f32 -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../InlinePtx.h"
#include "Sm90Products.h"
#include "Sm90Scales.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;
using sm90::Contract;

/// Whether a tile's row scales fit in registers beside its accumulators. They
/// are then loaded while the first wgmmas run, once for all blocks. True also
/// without row scales.
static bool keepsRowScales(const Contract &shape, int64_t height) {
  int64_t blocks = shape.getBlocks(height);
  return shape.hasRowsOnM(height) || !shape.copiesScales() ||
         (blocks + 1) * height / 2 + height / 4 <=
             ptxas::getMaxSumsAndScales(blocks);
}

/// Mainloop with promotion, one block after the other. The wgmmas of a k tile
/// make new sums, which are added to the accumulators, times their scales if
/// those are per k tile. Meanwhile the other consumer uses the tensor cores.
///
/// With rows on M two sets of sums would not fit in registers, and without
/// scales ptxas would keep two, so that each chain of wgmmas explicitly
/// overwrites the one before.
ContractSums Sm90Products::multiplyPromoted(int64_t height,
                                            const ContractTile &tile,
                                            RingPlace place) {
  Sm90Scales scales(contract);
  int64_t numBlocks = shape.getBlocks(height);
  int64_t width = shape.getProductWidth(height), numSums = width / 2;
  bool hasScales = shape.copiesScales();
  bool overwrites = shape.hasRowsOnM(height) || !hasScales;
  bool keepsScales = keepsRowScales(shape, height);
  Value rows = hasScales ? scales.findRows(height, consumer) : Value();
  Value zero = emitter.f32(0), never;
  if (overwrites) {
    // Opaque zeros (`rows < 1` is never true), which depend on the tile's rows
    // so that they take no registers while the tile is looked up.
    never = arith::ExtUIOp::create(b, b.getI32Type(),
                                   emitter.isLess(tile.rows, emitter.i32(1)));
    zero = arith::BitcastOp::create(b, b.getF32Type(), never);
  }
  // Prefetched at the end of the k tile before: the values needed for the first
  // wgmma of a k tile, perhaps even whether the stage is full.
  struct Stage {
    RingPlace place;
    Factors factors;
    Value isFull;
  };
  Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
  Value no = arith::ConstantOp::create(b, b.getBoolAttr(false));
  // `old`: the previous sums, if those are overwritten.
  auto step = [&](Stage at, MutableArrayRef<Value> sums,
                  SmallVector<Value> &old) {
    Value stage = at.place.stage;
    emitter.ifThen(arith::XOrIOp::create(b, at.isFull, yes), [&] {
      emitter.waitBarrier(contract.fullBarrier(stage), at.place.parity);
    });
    Stage next;
    SmallVector<Value> rowScales, weightScales;
    // All lanes have read the stage for the last time.
    auto giveBack = [&] {
      emitter.warpBarrier();
      release(stage);
    };
    for (int64_t block = 0; block < numBlocks; ++block) {
      auto [rows64, other] = getSides(height, at.factors, block);
      Value products;
      if (overwrites) {
        products = multiplyE4M3(b, old, emitter.getDescriptor(rows64, 0),
                                emitter.getDescriptor(other, 0), never);
      } else {
        emitter.fenceProducts();
        products =
            emitter.multiplyAsync(element, width, rows64, other,
                                  /*step=*/0, emitter.makeUnsetSums(width),
                                  /*isFirst=*/true);
      }
      for (int64_t i = 1; i < getStepProducts(); ++i)
        products =
            emitter.multiplyAsync(element, width, rows64, other, i, products);
      emitter.commitProducts();
      if (hasScales && (block == 0 || !scales.areSame(height)))
        weightScales = scales.loadWeights(stage, height, consumer, block);
      if (hasScales && block == 0 && keepsScales)
        rowScales = scales.loadRows(rows, stage, height);
      if (block + 1 == numBlocks) {
        next.place = contract.next(at.place);
        next.isFull = emitter.testBarrier(
            contract.fullBarrier(next.place.stage), next.place.parity);
        Factors factors = describe(height, next.place.stage);
        auto words = tieWords(b, {factors.weights, factors.rows});
        next.factors = {words[0], words[1]};
      }
      emitter.waitProducts(0);
      old = emitter.getSums(products);
      if (block + 1 == numBlocks && keepsScales)
        giveBack();
      if (!keepsScales)
        rowScales = scales.loadRows(rows, stage, height);
      auto own = sums.slice(block * numSums, numSums);
      promote(height, own, old, rowScales, weightScales);
    }
    if (!keepsScales)
      giveBack();
    return next;
  };
  Factors first = describe(height, place.stage);
  SmallVector<Value> carried{place.stage, place.parity, first.weights,
                             first.rows, no};
  int64_t numOwn = carried.size(), numAll = numBlocks * numSums;
  carried.append(numAll + (overwrites ? numSums : 0), zero);
  // A counter in one register, because few are left.
  SmallVector<Value> end = emitter.forLoop(
      emitter.i32(0), emitter.i32(shape.getSteps()), 1, carried,
      [&](Value, ValueRange values) {
        Stage at{{values[0], values[1]}, {values[2], values[3]}, values[4]};
        values = values.drop_front(numOwn);
        SmallVector<Value> sums(values.take_front(numAll));
        SmallVector<Value> old(values.drop_front(numAll));
        Stage next = step(at, sums, old);
        SmallVector<Value> all{next.place.stage, next.place.parity,
                               next.factors.weights, next.factors.rows,
                               next.isFull};
        all.append(sums);
        if (overwrites)
          all.append(old);
        return all;
      });
  ContractSums result{{end[0], end[1]}, {}};
  for (int64_t block = 0; block < numBlocks; ++block)
    result.blocks.emplace_back(
        ArrayRef<Value>(end).slice(numOwn + block * numSums, numSums));
  return result;
}

/// `rowScales`: two for every four sums, or two for all of them.
void Sm90Products::promote(int64_t height, MutableArrayRef<Value> sums,
                           ArrayRef<Value> products, ArrayRef<Value> rowScales,
                           ArrayRef<Value> weightScales) {
  // A thread has four sums of every 8 columns of N: two neighbours, then two
  // for the row 8 further on M, which in weights is the other projection.
  constexpr int64_t perOctet = 4;
  bool isOnM = shape.hasRowsOnM(height);
  for (int64_t i = 0, end = sums.size(); i < end; ++i) {
    if (rowScales.empty()) {
      sums[i] = arith::AddFOp::create(b, sums[i], products[i]);
      continue;
    }
    int64_t octet = i / perOctet, half = i % perOctet / 2;
    Value row = rowScales[isOnM ? half : octet * 2 + i % 2];
    int64_t projection = (isOnM ? octet : half) % shape.weightsPerColumn;
    Value scale = arith::MulFOp::create(b, row, weightScales[projection]);
    sums[i] = math::FmaOp::create(b, products[i], scale, sums[i]);
  }
  // Forces the additions here and not at their use in the next k tile, to free
  // the registers of the wgmmas for the next block.
  llvm::copy(tieSums(b, sums), sums.begin());
}
