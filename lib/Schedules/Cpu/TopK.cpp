//===- TopK.cpp - the schedule cpu.top_k ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns some tokens; a row's experts are vectors of `lanes`.

#include "Emit.h"
#include "Schedules/Routing/TopKStored.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitTopK(tile::TopKOp op, KernelEmitter &emitter) {
  auto config = requireConfig<tile::CpuTopKAttr>(op, op.getConfigAttr());
  if (failed(config) ||
      failed(requirePositive(op, "rows_per_cta", config->getRowsPerCta())) ||
      failed(requireLanes(op, config->getLanes())))
    return failure();
  return TopKStored(op, emitter, config->getLanes())
      .run(emitter.rowsOfCta(config->getRowsPerCta()));
}
