//===- Sm90Prefetch.cpp - weights of a launch to come -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The warp that starts copies has nothing to do once it has started the last
// one of its CTA, and where other CTAs have one tile more, neither has the bus.
// It asks for its share of what `prefetch` names: every gridDim-th chunk, a
// chunk per lane.

#include "../WeightPrefetch.h"
#include "Sm90Contract.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;

void Sm90Contract::emitPrefetch() {
  if (!op.getPrefetch())
    return;
  WeightPrefetch weights(emitter, op.getPrefetch(),
                         static_cast<int64_t>(*op.getPrefetchBytes()));
  Value ctas = emitter.toIndex(NVVM::GridDimXOp::create(b, b.getI32Type()));
  Value lane = emitter.toIndex(emitter.lane());
  Value own = emitter.add(emitter.cta(), emitter.mul(lane, ctas));
  // The chunks of one matrix below `end`, each `step`-th one of them.
  auto requestMatrix = [&](Value matrix, Value step, Value end) {
    constexpr int64_t warp = 32;
    auto loop = scf::ForOp::create(b, emitter.mul(own, step), end,
                                   emitter.mul(emitter.mul(ctas, warp), step));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    weights.request(matrix, loop.getInductionVar());
  };
  int64_t size = weights.getMatrixChunks(), span = weights.getSpan();
  if (weights.isOne())
    return requestMatrix(emitter.i32(0), weights.getStep(emitter.i32(1)),
                         emitter.index(std::min(size, span)));
  // Groups with rows, as the launch to come will take them. If they have one
  // tile each there are as many as tiles, and no more in any case.
  Value tiles = loadEntry(emitter.i32(shape.groups)).tile;
  Value step = weights.getStep(tiles);
  Value most = minI32(tiles, emitter.i32(weights.getMostMatrices()));
  emitter.forLoop(emitter.index(0), emitter.toIndex(most), 1,
                  {emitter.i32(0), emitter.index(span)},
                  [&](Value, ValueRange carried) -> SmallVector<Value> {
                    Value tile = carried[0], left = carried[1];
                    Value isThere = emitter.isLess(tile, tiles);
                    Value group =
                        findGroup(minI32(tile, emitter.scale(tiles, 1, -1)));
                    Value end = arith::SelectOp::create(
                        b, isThere, emitter.min(left, emitter.index(size)),
                        emitter.index(0));
                    requestMatrix(group, step, end);
                    return {loadEntry(emitter.scale(group, 1, 1)).tile,
                            emitter.add(left, -size)};
                  });
}
