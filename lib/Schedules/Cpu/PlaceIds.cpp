//===- PlaceIds.cpp - the schedule cpu.place_ids ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns some tokens.

#include "Schedules/Routing/PlaceIds.h"
#include "Emit.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitPlaceIds(tile::PlaceIdsOp op, KernelEmitter &emitter) {
  auto config = requireConfig<tile::CpuPlaceIdsAttr>(op, op.getConfigAttr());
  if (failed(config) ||
      failed(requirePositive(op, "rows_per_cta", config->getRowsPerCta())))
    return failure();
  int64_t topK = cast<MemRefType>(op.getIds().getType()).getDimSize(1);
  RowRange range = emitter.rowsOfCta(config->getRowsPerCta());
  emitter.loop(range.begin, range.end, 1, [&](Index token) {
    emitter.loop(emitter.index(0), emitter.index(topK), 1, [&](Index choice) {
      emitPlacedId(op, emitter, token, choice);
    });
  });
  return success();
}
