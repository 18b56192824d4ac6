//===- TopK.cpp - the schedule gpu.top_k ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A warp routes one token at a time, with the row's experts spread over its
// lanes.

#include "Schedules/Interface/Emit.h"
#include "Shape.h"
#include "SlotCounters.h"
#include "TopKHeld.h"
#include "TopKStored.h"
#include "TopKStreamed.h"
#include "moec/Schedules/Schedules.h"
#include "moec/Support/GpuInstructions.h"
#include "moert/GpuTarget.h"

using namespace mlir;
using namespace moec;

/// The CTA's tokens, from the warp's first one on.
static RowRange findTokens(ThreadEmitter &emitter, TokenChunks chunks) {
  Index size = chunks.most ? emitChunkTokens(emitter, chunks)
                           : emitter.index(chunks.tokens);
  Index begin = emitter.cta() * size;
  Index end = min(begin + size, emitter.tokens());
  return {begin + emitter.toIndex(emitter.warp()), end};
}

LogicalResult moec::emitGpuTopK(Operation *phase, KernelBody body) {
  auto op = cast<tile::TopKOp>(phase);
  anygpu::TopK shape(op, op.getConfigAttr());
  ThreadEmitter cta(body.func, body.kernel, body.threads);
  if (body.kernel.getPrivateRowsOf(op.getIds()))
    cta.becomeFirstCta();
  RowRange tokens = findTokens(cta, shape.chunks);
  WarpEmitter emitter(body.func, body.kernel, body.threads);
  int64_t step = shape.getWarps();
  switch (shape.row) {
  case anygpu::TopK::Row::Held: {
    auto gpu = moert::GpuTarget::parse(body.target.name);
    return TopKHeld(op, emitter, gpu && gpu->hasDependentLaunches())
        .run(tokens, step);
  }
  case anygpu::TopK::Row::Stored:
    return TopKStored(op, emitter, kWarp).run(tokens, step);
  case anygpu::TopK::Row::Streamed:
    return TopKStreamed(op, emitter).run(tokens, step);
  }
  llvm_unreachable("a row is kept in one of three ways");
}
