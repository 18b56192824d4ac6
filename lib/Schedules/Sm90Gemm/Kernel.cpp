//===- Kernel.cpp - the schedule sm90.gemm ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel of the Hopper gemm, in three files. This one has the prologue and the
// roles. The producer warpgroup (Producer.cpp) copies k tiles to the stages
// of a pipeline; the consumer warpgroups (Consumer.cpp) multiply them and
// run the epilogue. All roles take the same tiles from the tile scheduler.

#include "Schedules/Interface/Emit.h"
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

/// All threads, once per kernel; in parallel warps, because each part is a wait
/// for memory or a long sequence of instructions. The last warps have the
/// fewest groups of the table.
static void emitPrologue(Sm90Gemm &gemm) {
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

LogicalResult moec::emitSm90Gemm(Operation *phase, KernelBody body) {
  auto op = cast<tile::GemmOp>(phase);
  AsyncEmitter emitter(body.func, body.kernel, body.threads);
  Sm90Gemms gemms;
  Sm90Gemm &first = gemms.emplace_back(op, emitter);
  if (tile::GemmOp partner = sm90::getPartner(op))
    gemms.emplace_back(partner, emitter, &first);
  const sm90::RegisterBudget &registers = first.shape.registers();
  first.setForm(body);
  emitPrologue(first);
  if (op.getNumValidTokens())
    storeSm90ZeroRows(first);
  LogicalResult status = success();
  bool splitsK = first.shape.tile().splitK > 1;
  emitter.ifThen(
      emitter.warpgroup() == 0,
      [&] {
        emitter.decreaseRegisters(registers.getProducerRegisters());
        emitSm90Producer(gemms);
        // All threads, before they exit.
        first.waitInRole();
        if (splitsK)
          emitter.clusterWait();
      },
      [&] {
        emitter.increaseRegisters(registers.getConsumerRegisters());
        if (splitsK)
          emitter.clusterWait();
        first.waitInRole();
        first.quantizeRows();
        status = emitSm90Consumer(gemms);
      });
  // No CTA ends while the other one may arrive at its barriers.
  if (first.shape.tile().getClusterCtas() > 1)
    first.meet();
  return status;
}
