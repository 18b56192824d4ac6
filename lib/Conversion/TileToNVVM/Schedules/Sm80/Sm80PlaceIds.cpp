//===- Sm80PlaceIds.cpp - the schedule sm80.place_ids -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A thread owns an id.

#include "../../../Emission/PlaceIds.h"
#include "../../Emit.h"
#include "../../ThreadEmitter.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitSm80PlaceIds(Operation *phase, KernelBody body) {
  auto op = cast<tile::PlaceIdsOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto config = cast<tile::Sm80PlaceIdsAttr>(op.getConfigAttr());
  int64_t topK = cast<MemRefType>(op.getIds().getType()).getDimSize(1);
  Index first = emitter.cta() * config.getSlotsPerCta();
  Index slot = first + emitter.toIndex(emitter.thread());
  Flag isSlot = slot.isBelow(emitter.tokens() * topK);
  emitter.ifThen(isSlot,
                 [&] { emitPlacedId(op, emitter, slot / topK, slot % topK); });
  return success();
}
