//===- Sm80TopK.cpp - the schedule sm80.top_k -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A warp routes a token: a row's experts are spread over its lanes.

#include "../../Emission/TopKStored.h"
#include "../Emit.h"
#include "TopKHeld.h"
#include "TopKStreamed.h"
#include "moec/Analysis/Schedules.h"
#include "moec/Analysis/Sm80.h"
#include "moert/GpuTarget.h"

using namespace mlir;
using namespace moec;

LogicalResult moec::emitSm80TopK(Operation *phase, KernelBody body) {
  auto op = cast<tile::TopKOp>(phase);
  WarpEmitter emitter(body.func, body.kernel, body.threads);
  if (TopKHeld::suits(op)) {
    auto gpu = moert::GpuTarget::parse(body.target.name);
    return TopKHeld(op, emitter, gpu && gpu->hasDependentLaunches())
        .run(/*rows=*/1);
  }
  if (sm80::keepsTopKRow(op))
    return TopKStored(op, emitter, sm80::kWarp).run(/*rows=*/1);
  return TopKStreamed(op, emitter).run(/*rows=*/1);
}
