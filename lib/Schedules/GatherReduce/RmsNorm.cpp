//===- RmsNorm.cpp - the schedule gpu.rms_norm ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA normalizes every gridDim-th row. Its threads go through a row twice, in
// vectors of `lanes`: for the sum of squares, which is reduced by shuffles and
// in shared memory, and for the results. The second time the row comes from a
// cache.

#include "KernelBuilder/ThreadEmitter.h"
#include "Schedules/Interface/Emit.h"
#include "moec/Support/GpuInstructions.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

namespace {

class GpuRmsNorm {
public:
  GpuRmsNorm(tile::RmsNormOp op, ThreadEmitter &emitter)
      : emitter(emitter), b(emitter.b), norm(op.getNorm()),
        lanes(cast<tile::GpuRmsNormAttr>(op.getConfigAttr()).getVectorWidth()),
        input(emitter.operand(op.getInput())),
        weight(emitter.operand(op.getWeight())),
        rowWeight(emitter.operand(op.getRowWeight())),
        result(emitter.operand(op.getResult())), columns(getColumns(result)),
        warpSums(emitter.scratch({emitter.getNumWarps()}, b.getF32Type())) {}

  void emitRow(Index row);

private:
  /// The row's vector at a column, times its weights if these come first.
  F32 load(Index row, Index column);
  F32 loadWeights(Index column) {
    return emitter.loadVector(weight, column, lanes) + norm.getOffsetValue();
  }
  /// The sum over all threads, in all of them.
  F32 share(F32 sum);
  Index getFirst() { return emitter.toIndex(emitter.thread()) * lanes; }
  int64_t getStep() { return emitter.getNumWarps() * kWarp * lanes; }

  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  moe::NormAttr norm;
  int64_t lanes;
  Value input, weight, rowWeight, result;
  int64_t columns;
  /// Per-warp sums in shared memory.
  Value warpSums;
};

F32 GpuRmsNorm::load(Index row, Index column) {
  F32 values = emitter.loadVector(input, {row, column}, lanes);
  if (!norm.getWeightFirst())
    return values;
  Value rounded =
      castFloat(b, values * loadWeights(column), getElementType(input));
  return {b, castFloat(b, rounded, b.getF32Type())};
}

F32 GpuRmsNorm::share(F32 sum) {
  for (int64_t mask = 1; mask < kWarp; mask *= 2)
    sum = sum + emitter.shuffleXor(sum, mask);
  Flag isFirst = emitter.lane() == 0;
  // All threads have read the sums of the row before.
  emitter.barrier();
  emitter.ifThen(isFirst, [&] {
    emitter.storeF32(sum, warpSums, emitter.toIndex(emitter.warp()));
  });
  emitter.barrier();
  F32 all = emitter.loadF32(warpSums, emitter.index(0));
  for (int64_t warp = 1; warp < emitter.getNumWarps(); ++warp)
    all = all + emitter.loadF32(warpSums, emitter.index(warp));
  return all;
}

void GpuRmsNorm::emitRow(Index row) {
  Index end = emitter.index(columns);
  F32 squares = emitter.loop(getFirst(), end, getStep(), emitter.f32(0),
                             [&](Index column, F32 sum) {
                               F32 values = load(row, column);
                               return sum + emitter.sum(values * values);
                             });
  F32 mean = share(squares) * (1.0 / static_cast<double>(columns));
  F32 root(b, math::SqrtOp::create(b, mean + norm.getEpsilonValue()));
  F32 scale = emitter.f32(1) / root;
  if (rowWeight)
    scale = scale * emitter.loadF32(rowWeight, {row, emitter.index(0)});
  F32 scales = emitter.splat(scale, lanes);
  emitter.loop(getFirst(), end, getStep(), [&](Index column) {
    F32 values = load(row, column) * scales;
    if (!norm.getWeightFirst())
      values = values * loadWeights(column);
    emitter.storeVector(values, result, {row, column});
  });
}

} // namespace

LogicalResult moec::emitGpuRmsNorm(Operation *phase, KernelBody body) {
  auto op = cast<tile::RmsNormOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  Index rows = emitter.tokens();
  if (Value offsets = emitter.operand(op.getOffsets())) {
    int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
    rows = emitter.loadIndex(offsets, emitter.index(groups));
  }
  GpuRmsNorm norm(op, emitter);
  emitter.loop(emitter.cta(), rows, emitter.toIndex(emitter.numCtas()),
               [&](Index row) { norm.emitRow(row); });
  return success();
}
