//===- SharedBlock.cpp - consumers that share a block -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Consumers that share one block of 64 weight rows each multiply half of every
// k tile. They exchange sums, so that each finishes half of the input rows.

#include "Consumer.h"

using namespace mlir;
using namespace moec;

/// Deterministic: both consumers add the same two numbers, and addition
/// commutes.
template <typename Sum>
void Sm90Consumer::exchange(SmallVector<SmallVector<Sum>> &blocks) {
  if (!shape.tile().sharesBlock())
    return;
  ArrayRef<Sum> all = blocks.front();
  constexpr int64_t lanes = 4, laneBytes = lanes * 4;
  constexpr int64_t chunkBytes = laneBytes * kWarpgroup;
  int64_t half = int64_t(all.size()) / 2, chunks = half / lanes;
  Flag isFirst = consumer == 0;
  SmallVector<Sum> own, others;
  for (int64_t i = 0; i < half; ++i) {
    own.push_back(select(isFirst, all[i], all[half + i]));
    others.push_back(select(isFirst, all[half + i], all[i]));
  }
  auto address = [&](I32 owner, int64_t chunk) {
    I32 offset =
        owner * (chunks * chunkBytes) + emitter.warpgroupThread() * laneBytes;
    return emitter.advance(
        gemm.sharedAddress(shape.shared().getExchangeOffset() +
                           chunk * chunkBytes),
        offset);
  };
  // The other consumer has read the buffer's contents of the tile before.
  emitter.consumerBarrier();
  for (int64_t i = 0; i < chunks; ++i) {
    Value chunk = emitter.makeVector(ArrayRef(others).slice(i * lanes, lanes));
    emitter.store(chunk, address(consumer, i), laneBytes);
  }
  emitter.consumerBarrier();
  I32 other = 1 - consumer;
  for (int64_t i = 0; i < chunks; ++i) {
    Value chunk = emitter.load(VectorType::get(lanes, all[0].getType()),
                               address(other, i), laneBytes);
    for (auto [lane, more] : llvm::enumerate(emitter.elements<Sum>(chunk))) {
      Sum &sum = own[i * lanes + int64_t(lane)];
      sum = sum + more;
    }
  }
  blocks.front() = own;
}

namespace moec {
template void Sm90Consumer::exchange(SmallVector<SmallVector<F32>> &);
template void Sm90Consumer::exchange(SmallVector<SmallVector<I32>> &);
} // namespace moec
