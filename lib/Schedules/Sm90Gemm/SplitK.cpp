//===- SplitK.cpp - one tile for the CTAs of a cluster ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The CTAs of a cluster that takes one tile multiply every so many k tiles of
// it. The others send their sums to the first one, whose threads add them to
// their own in the order of CTAs, and run the epilogue. The others go on with
// the next tile, whose sums wait until those of this tile were read.

#include "Consumer.h"
#include "KernelBuilder/InlinePtx.h"

using namespace mlir;
using namespace moec;

I32 Sm90Gemm::countSteps() {
  int64_t steps = shape.tile().getKTiles(), ctas = shape.tile().splitK;
  if (steps % ctas == 0)
    return emitter.i32(steps / ctas);
  return (emitter.i32(steps + ctas - 1) - emitter.clusterRank(ctas)) / ctas;
}

I32 Sm90Gemm::getKTile(I32 step) {
  int64_t ctas = shape.tile().splitK;
  if (ctas == 1)
    return step;
  return multiplyNoWrap(step, emitter.i32(ctas)) + emitter.clusterRank(ctas);
}

void Sm90Gemm::initShares(int64_t consumerWarps) {
  if (shape.tile().splitK > 1)
    shares.init(shape.tile().getConsumers(), consumerWarps);
}

PipelineState Sm90Consumer::emitShares(PipelineState first) {
  // The parity of the number of tiles before.
  std::tuple start(first, emitter.i32(0));
  auto end = gemm.scheduler.forTiles(
      start,
      [&](Sm90Tile tile, auto state) {
        shareParity = std::get<1>(state);
        PipelineState next = emitTile(tile, std::get<0>(state));
        return std::tuple(next, shareParity ^ 1);
      },
      /*draws=*/Flag(), /*isConsumer=*/true);
  return std::get<0>(end);
}

void Sm90Consumer::ifComplete(function_ref<void()> body) {
  int64_t ctas = shape.tile().splitK;
  if (ctas == 1)
    return body();
  emitter.ifThen(emitter.clusterRank(ctas) == 0, body);
}

/// Each thread adds the sums of the threads with its index, which are stored so
/// that successive threads have successive 16 bytes.
template <typename Sum>
void Sm90Consumer::addShares(SmallVector<SmallVector<Sum>> &blocks) {
  int64_t ctas = shape.tile().splitK;
  if (ctas == 1)
    return;
  SmallVector<Sum> own;
  for (ArrayRef<Sum> block : blocks)
    llvm::append_range(own, block);
  constexpr int64_t lanes = 4, laneBytes = lanes * 4;
  constexpr int64_t chunkBytes = laneBytes * kWarpgroup;
  int64_t chunks = int64_t(own.size()) / lanes;
  int64_t consumerBytes = chunks * chunkBytes;
  int64_t ctaBytes = shape.tile().getConsumers() * consumerBytes;
  I32 zero = emitter.i32(0), rank = emitter.clusterRank(ctas);
  Barrier full = gemm.shares.full(zero), empty = gemm.shares.empty(zero);
  Value ownPlace = emitter.advance(gemm.shares.stageAddress(zero),
                                   consumer * consumerBytes +
                                       emitter.warpgroupThread() * laneBytes);
  auto receive = [&] {
    emitter.ifThen(emitter.warpgroupThread() == 0,
                   [&] { full.arriveExpecting((ctas - 1) * consumerBytes); });
    full.wait(shareParity);
    SmallVector<Sum> sums = own;
    for (int64_t other = 0; other < ctas - 1; ++other)
      for (int64_t chunk = 0; chunk < chunks; ++chunk) {
        Value more = emitter.load(
            VectorType::get(lanes, own[0].getType()),
            emitter.advance(ownPlace, other * ctaBytes + chunk * chunkBytes),
            laneBytes);
        for (auto [lane, share] :
             llvm::enumerate(emitter.elements<Sum>(more))) {
          Sum &sum = sums[chunk * lanes + int64_t(lane)];
          sum = sum + share;
        }
      }
    // All lanes have read their sums.
    emitter.warpBarrier();
    emitter.ifThen(emitter.lane() == 0, [&] {
      for (int64_t other = 1; other < ctas; ++other)
        empty.arriveAt(emitter.i32(other));
    });
    return sums;
  };
  auto send = [&] {
    I32 before = shareParity ^ 1;
    empty.wait(before);
    Value barrier = emitter.mapShared(full.getAddress(), zero);
    Value to = emitter.mapShared(
        emitter.advance(ownPlace, (rank + -1) * ctaBytes), zero);
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      SmallVector<Value> four(ArrayRef(own).slice(chunk * lanes, lanes));
      storeAsync(b, emitter.advance(to, chunk * chunkBytes), four, barrier);
    }
    return own;
  };
  ArrayRef<Sum> sums = own = emitter.choose(rank == 0, receive, send);
  for (SmallVector<Sum> &block : blocks) {
    llvm::copy(sums.take_front(block.size()), block.begin());
    sums = sums.drop_front(block.size());
  }
}

namespace moec {
template void Sm90Consumer::addShares(SmallVector<SmallVector<F32>> &);
template void Sm90Consumer::addShares(SmallVector<SmallVector<I32>> &);
} // namespace moec
