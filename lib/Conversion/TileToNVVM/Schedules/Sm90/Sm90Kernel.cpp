//===- Sm90Kernel.cpp - the schedule sm90.contract --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel of the Hopper gemm, in three files. This one has the prologue and the
// roles. The producer warpgroup (Sm90Producer.cpp) copies k tiles to the stages
// of a pipeline; the consumer warpgroups (Sm90Consumer.cpp) multiply them and
// run the epilogue. All roles take the same tiles from the tile scheduler.

#include "../../Emit.h"
#include "Sm90Units.h"

using namespace mlir;
using namespace moec;

/// Runs in a warp that does not build the table.
static void initBarriers(Sm90Gemm &gemm) {
  static_assert(Sm90Shape::kMaxStages <= Sm90Shape::kWarp);
  const Sm90Shape &shape = gemm.shape;
  // Arrivals at full stages: the thread that issues copies of boxes, once per
  // box, and the threads that copy rows or scales.
  int64_t copying =
      1 + shape.mapRows + shape.hasRowThreads() * Sm90Shape::kRowThreads;
  int64_t consumerWarps =
      shape.getConsumers() * Sm90Shape::kWarpgroup / Sm90Shape::kWarp;
  gemm.pipeline.init(copying, consumerWarps);
  gemm.scheduler.initBarriers();
  gemm.emitter.fenceBarriers();
}

/// All threads, once per kernel; in parallel warps, because each part is a wait
/// for memory or a long sequence of instructions.
static void emitPrologue(Sm90Gemm &gemm) {
  AsyncEmitter &emitter = gemm.emitter;
  emitter.ifThen(emitter.thread() == Sm90Shape::kWarp, [&] {
    for (int64_t i = 0; i < emitter.getNumTensorMaps(); ++i)
      emitter.prefetchTensorMap(i);
  });
  emitter.ifThen(emitter.warp() == 2, [&] { initBarriers(gemm); });
  if (gemm.shape.hasBook)
    storeBook(emitter, moe::Fragments(gemm.op.getWeightQuantAttr()),
              gemm.sharedAddress(gemm.shape.getBookOffset()));
  gemm.scheduler.table.build();
  emitter.barrier();
}

LogicalResult moec::emitSm90Contract(Operation *phase, KernelBody body) {
  auto op = cast<tile::ContractOp>(phase);
  AsyncEmitter emitter(body.func, body.kernel, body.threads);
  Sm90Gemms gemms;
  Sm90Gemm &first = gemms.emplace_back(op, emitter);
  if (tile::ContractOp partner = sm90::getPartner(op))
    gemms.emplace_back(partner, emitter, &first);
  if (first.shape.hasReducedRegisters())
    body.func->setAttr(kFormAttr,
                       tile::KernelFormAttr::get(
                           op.getContext(), body.kernel.getIndependent(),
                           body.kernel.getAhead(), body.kernel.getResident(),
                           first.shape.getRegisters()));
  emitPrologue(first);
  if (op.getNumValidTokens())
    storeSm90ZeroRows(first);
  LogicalResult status = success();
  emitter.ifThen(
      emitter.warpgroup() == 0,
      [&] {
        emitter.decreaseRegisters(first.shape.getProducerRegisters());
        emitSm90Producer(gemms);
        // All threads, before they exit.
        first.waitInRole();
      },
      [&] {
        emitter.increaseRegisters(first.shape.getConsumerRegisters());
        first.waitInRole();
        first.quantizeRows();
        status = emitSm90Consumer(gemms);
      });
  return status;
}
