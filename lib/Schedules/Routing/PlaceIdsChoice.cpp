//===- PlaceIdsChoice.cpp - choice of gpu.place_ids -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Schedules/Interface/ScheduleTables.h"
#include "moec/Support/GpuInstructions.h"

using namespace mlir;
using namespace moec;

namespace {

int64_t getSlotsPerCta(tile::ConfigAttr config) {
  return cast<tile::GpuPlaceIdsAttr>(config).getSlotsPerCta();
}

std::string placeIdsIllegal(Operation *, tile::ConfigAttr config,
                            const Target &) {
  constexpr int64_t maxThreads = 1024;
  int64_t slots = getSlotsPerCta(config);
  if (slots > 0 && slots <= maxThreads && slots % kWarp == 0)
    return {};
  return "slots_per_cta = " + number(slots) + "; give a multiple of " +
         number(kWarp) + " up to " + number(maxThreads);
}

tile::ConfigAttr choosePlaceIds(Operation *op, const Target &) {
  constexpr int64_t slots = 256;
  return tile::GpuPlaceIdsAttr::get(op->getContext(), slots);
}

moert::Expr placeIdsGrid(Operation *op, tile::ConfigAttr config,
                         const Target &) {
  auto ids = cast<tile::PlaceIdsOp>(op).getIds();
  return positionBlocks(cast<MemRefType>(ids.getType()).getDimSize(1),
                        getSlotsPerCta(config));
}

int64_t placeIdsBlock(Operation *, tile::ConfigAttr config) {
  return getSlotsPerCta(config);
}

struct PlaceIdsSchedule final
    : ScheduleOf<placeIdsIllegal, choosePlaceIds, placeIdsGrid, placeIdsBlock> {
  PlaceIdsSchedule() : ScheduleOf("gpu.place_ids", "tile.place_ids") {}
};

} // namespace

const Schedule &moec::getGpuPlaceIdsSchedule() {
  return getOnly<PlaceIdsSchedule>();
}
