//===- Prologue.cpp - what precedes the roles of sm90.gemm ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// All threads, once per kernel: tensor maps, barriers and the table of groups.
// With few tokens the first copy of weights waits for little else.

#include "Schedules/Sm90Gemm/PrepackedWeights/PackedTiles.h"

using namespace mlir;
using namespace moec;

/// One thread.
static void initBarriers(Sm90Gemm &gemm) {
  const sm90::GemmShape &shape = gemm.shape;
  // Arrivals at full stages: the thread that issues copies of boxes, once per
  // box, and the threads that copy rows or scales.
  int64_t copying =
      1 + shape.tile().mapRows + shape.hasRowThreads() * sm90::kRowThreads;
  int64_t consumerWarps = shape.tile().getConsumers() * kWarpgroup / kWarp;
  gemm.pipeline.init(copying, consumerWarps * shape.tile().getClusterTiles());
  gemm.scheduler.initBarriers();
  gemm.initShares(consumerWarps);
  gemm.emitter.fenceBarriers();
}

/// Parts run in parallel warps, because each is a wait for memory or a long
/// sequence of instructions. The last warps have the fewest groups of the
/// table.
void moec::emitSm90Prologue(Sm90Gemm &gemm) {
  AsyncEmitter &emitter = gemm.emitter;
  int64_t last = emitter.getNumWarps() - 1;
  emitter.ifThen(emitter.thread() == (last - 1) * kWarp, [&] {
    for (int64_t i = 0; i < emitter.getNumTensorMaps(); ++i)
      emitter.prefetchTensorMap(i);
  });
  emitter.ifThen(emitter.thread() == last * kWarp, [&] { initBarriers(gemm); });
  if (gemm.shape.problem().hasBook())
    storeBook(emitter, moe::PrepackedFormat(gemm.op.getWeightQuantAttr()),
              gemm.sharedAddress(gemm.shape.shared().getBookOffset()));
  gemm.scheduler.table.build();
  if (gemm.shape.tile().splitK == 1)
    return gemm.meet();
  // Only consumers arrive at barriers of other CTAs, late: copies begin before
  // all CTAs of the cluster are there.
  emitter.clusterArrive();
  emitter.barrier();
}
