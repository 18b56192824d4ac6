//===- Cost.cpp - how long slots take to be ranked --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Cost model of counting and ranking. CTAs run in parallel without
// communication, so that a launch takes the time of one CTA with a whole chunk.
// Times do not depend on the routing.

#include "Choice.h"

#include "moec/Schedules/Device.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

namespace {

/// Division of a call's slots into chunks.
struct CutSlots {
  CutSlots(Value ids, TokenChunks chunks, int64_t tokens) {
    int64_t topK = cast<MemRefType>(ids.getType()).getDimSize(1);
    int64_t chunkTokens = std::max(llvm::divideCeil(tokens, chunks.most),
                                   uint64_t(chunks.tokens));
    slots = tokens * topK;
    ofChunk = std::min(slots, chunkTokens * topK);
    numChunks = llvm::divideCeil(tokens, chunkTokens);
  }
  int64_t slots, ofChunk, numChunks;
};

} // namespace

double anygpu::predictCountSlots(tile::CountSlotsOp op, int64_t tokens,
                                 const DeviceRates &device) {
  CountSlots shape(op, op.getConfigAttr());
  CutSlots cut(op.getIds(), shape.chunks, tokens);
  int64_t rounds = llvm::divideCeil(shape.numLocal, shape.expertsAtOnce);
  return device.rankUs + double(rounds * cut.ofChunk) * device.countSlotUs;
}

double anygpu::predictSort(tile::SortByExpertOp op, int64_t tokens,
                           const DeviceRates &device) {
  SortByExpert shape(op, op.getConfigAttr());
  CutSlots cut(op.getIds(), shape.chunks, tokens);
  if (cut.slots <= shape.getFewSlots())
    return device.rankUs;
  int64_t counters = (shape.getRuns() + 1) * shape.getStride();
  double us = double(counters) * device.rankCounterUs;
  if (shape.hasCounts)
    us += double(cut.numChunks * shape.expertsAtOnce) * device.readCountUs;
  else if (cut.numChunks > 1)
    us += device.otherSlotsUs +
          double(cut.slots - cut.ofChunk) * device.countSlotUs;
  int64_t rounds = llvm::divideCeil(shape.numLocal, shape.expertsAtOnce);
  return device.rankUs + double(cut.ofChunk) * device.rankSlotUs +
         double(rounds) * us;
}
