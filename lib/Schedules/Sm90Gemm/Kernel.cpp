//===- Kernel.cpp - the schedule sm90.gemm ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel of the Hopper gemm, in three files. This one has the roles, which
// begin when the prologue (Prologue.cpp) is over. The producer warpgroup
// (Producer.cpp) copies k tiles to the stages of a pipeline; the consumer
// warpgroups (Consumer.cpp) multiply them and run the epilogue. All roles take
// the same tiles from the tile scheduler.

#include "Schedules/Interface/Emit.h"
#include "Schedules/Sm90Gemm/PrepackedWeights/PackedTiles.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitSm90Gemm(Operation *phase, KernelBody body) {
  auto op = cast<tile::GemmOp>(phase);
  AsyncEmitter emitter(body.func, body.kernel, body.threads);
  Sm90Gemms gemms;
  Sm90Gemm &first = gemms.emplace_back(op, emitter);
  if (tile::GemmOp partner = sm90::getPartner(op))
    gemms.emplace_back(partner, emitter, &first);
  const sm90::RegisterBudget &registers = first.shape.registers();
  first.setForm(body);
  emitSm90Prologue(first);
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
        first.waitForRowsAsConsumers();
        first.quantizeRows();
        status = emitSm90Consumer(gemms);
        if (first.awaitsRows())
          first.waitInRole();
      });
  // No CTA ends while the other one may arrive at its barriers.
  if (first.shape.tile().getClusterCtas() > 1)
    first.meet();
  return status;
}
