//===- RmsNorm.cpp - the schedule cpu.rms_norm ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns some rows. Each is read twice, in vectors of `lanes`: for the sum
// of squares and for the results.

#include "Emit.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

namespace {

class RmsNorm {
public:
  RmsNorm(tile::RmsNormOp op, KernelEmitter &emitter, int64_t lanes)
      : emitter(emitter), b(emitter.b), norm(op.getNorm()), lanes(lanes),
        input(emitter.operand(op.getInput())),
        weight(emitter.operand(op.getWeight())),
        rowWeight(emitter.operand(op.getRowWeight())),
        result(emitter.operand(op.getResult())), columns(getColumns(result)) {}

  void emitRow(Index row);

private:
  /// The row's vector at a column, times its weights if these come first.
  F32 load(Index row, Index column, Flag mask);
  F32 loadWeights(Index column, Flag mask) {
    return emitter.loadVector(weight, column, lanes, mask) +
           norm.getOffsetValue();
  }
  F32 sumSquares(Index row);

  KernelEmitter &emitter;
  ImplicitLocOpBuilder &b;
  moe::NormAttr norm;
  int64_t lanes;
  Value input, weight, rowWeight, result;
  int64_t columns;
};

F32 RmsNorm::load(Index row, Index column, Flag mask) {
  F32 values = emitter.loadVector(input, {row, column}, lanes, mask);
  if (!norm.getWeightFirst())
    return values;
  Value rounded =
      castFloat(b, values * loadWeights(column, mask), getElementType(input));
  return {b, castFloat(b, rounded, b.getF32Type())};
}

F32 RmsNorm::sumSquares(Index row) {
  auto add = [&](Index column, Flag mask, F32 sums) {
    // Lanes past the row's end are 0.
    F32 values = load(row, column, mask);
    return sums + values * values;
  };
  int64_t left = columns % lanes;
  Index whole = emitter.index(columns - left);
  F32 sums(b, emitter.splat(0.0, lanes));
  sums = emitter.loop(
      emitter.index(0), whole, lanes, sums,
      [&](Index column, F32 sums) { return add(column, Flag(), sums); });
  if (left)
    sums = add(whole, emitter.mask(emitter.index(left), lanes), sums);
  return emitter.sum(sums);
}

void RmsNorm::emitRow(Index row) {
  F32 mean = sumSquares(row) * (1.0 / static_cast<double>(columns));
  F32 root(b, math::SqrtOp::create(b, mean + norm.getEpsilonValue()));
  F32 scale = root.like(1) / root;
  if (rowWeight)
    scale = scale * emitter.loadF32(rowWeight, {row, emitter.index(0)});
  F32 scales(b, emitter.splat(scale, lanes));
  emitter.forColumns(emitter.index(0), emitter.index(columns), lanes, columns,
                     [&](Index column, Flag mask) {
                       F32 values = load(row, column, mask) * scales;
                       if (!norm.getWeightFirst())
                         values = values * loadWeights(column, mask);
                       emitter.storeVector(values, result, {row, column}, mask);
                     });
}

} // namespace

LogicalResult moec::emitRmsNorm(tile::RmsNormOp op, KernelEmitter &emitter) {
  return emitRows<RmsNorm, tile::CpuRmsNormAttr>(op, emitter);
}
