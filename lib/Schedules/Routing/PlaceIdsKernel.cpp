//===- PlaceIdsKernel.cpp - the schedule gpu.place_ids ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A thread owns an id.

#include "KernelBuilder/ThreadEmitter.h"
#include "PlaceIds.h"
#include "Schedules/Interface/Emit.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitGpuPlaceIds(Operation *phase, KernelBody body) {
  auto op = cast<tile::PlaceIdsOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto config = cast<tile::GpuPlaceIdsAttr>(op.getConfigAttr());
  int64_t topK = cast<MemRefType>(op.getIds().getType()).getDimSize(1);
  Index first = emitter.cta() * config.getSlotsPerCta();
  Index slot = first + emitter.toIndex(emitter.thread());
  Flag isSlot = slot.isBelow(emitter.tokens() * topK);
  emitter.ifThen(isSlot,
                 [&] { emitPlacedId(op, emitter, slot / topK, slot % topK); });
  return success();
}
