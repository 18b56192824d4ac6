//===- StageOperands.cpp - operands of sm90.gemm in a stage -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Descriptors of what a consumer's wgmmas multiply of a stage.

#include "Consumer.h"

using namespace mlir;
using namespace moec;

/// Bytes of K that each of two consumers multiplies of a k tile, if they share
/// a block.
constexpr int64_t kHalfStepBytes = sm90::kStepBytes / 2;

Sm90Consumer::Factors Sm90Consumer::describe(int64_t blockM, I32 stage) {
  // Offsets at which the second consumer begins.
  int64_t weightBytes = 0, rowBytes = 0;
  if (shape.tile().sharesBlock()) {
    weightBytes = rowBytes = kHalfStepBytes;
  } else if (shape.tile().splitsRows(blockM))
    rowBytes = shape.tile().getConsumerRows(blockM) * sm90::kStepBytes;
  else
    weightBytes = shape.tile().getConsumerWeights(blockM) * sm90::kStepBytes;
  // Descriptors of the first stage are loop-invariant; those of all others need
  // one addition.
  I32 distance = stage * (shape.shared().getStageBytes() / sm90::kChunkBytes);
  auto describe = [&](int64_t offset, int64_t bytes) {
    Value address = gemm.sharedAddress(offset);
    if (bytes)
      address = emitter.advance(address, consumer * bytes);
    return emitter.describeTile(address) + distance;
  };
  return {describe(0, weightBytes), describe(gemm.getInputOffset(), rowBytes)};
}

std::pair<I32, I32> Sm90Consumer::getSides(int64_t blockM,
                                           const Factors &factors, int64_t i) {
  int64_t bytes = shape.tile().getBlockWeights(blockM) * sm90::kStepBytes;
  I32 block = factors.weights + i * bytes / sm90::kChunkBytes;
  return shape.tile().swapsAB(blockM) ? std::pair(block, factors.rows)
                                      : std::pair(factors.rows, block);
}

int64_t Sm90Consumer::getStepProducts() const {
  return shape.tile().sharesBlock() ? sm90::kStepProducts / 2
                                    : sm90::kStepProducts;
}
