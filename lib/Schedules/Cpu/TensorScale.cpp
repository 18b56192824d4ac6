//===- TensorScale.cpp - the schedule cpu.tensor_scale ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// One CTA reads all rows, in vectors of `lanes`, and keeps the largest
// magnitude per lane. Magnitudes are compared as integers, which orders
// infinity and NaN last.

#include "Emit.h"

#include "moec/Dialect/Moe/QuantLayout.h"

using namespace mlir;
using namespace moec;

namespace {

class TensorScale {
public:
  TensorScale(tile::TensorScaleOp op, KernelEmitter &emitter, int64_t lanes)
      : emitter(emitter), lanes(lanes), input(emitter.operand(op.getInput())),
        isPadding(emitter.operand(op.getIsPadding())),
        columns(getColumns(input)),
        largest(emitter.scratch({lanes}, emitter.b.getF32Type())) {}

  void emit(Index rows, Value scale, moe::QuantAttr quant);

private:
  void addVector(Index row, Index column, int64_t count);

  KernelEmitter &emitter;
  int64_t lanes;
  Value input, isPadding;
  int64_t columns;
  Value largest;
};

void TensorScale::addVector(Index row, Index column, int64_t count) {
  constexpr int64_t lastFinite = 0x7F7FFFFF;
  Flag mask;
  if (count < lanes)
    mask = emitter.mask(emitter.index(count), lanes);
  F32 values = emitter.loadVector(input, {row, column}, lanes, mask);
  I32 bits = values.bits() & 0x7FFFFFFF;
  bits = select(bits <= lastFinite, bits, 0);
  Index begin = emitter.index(0);
  I32 before = emitter.loadVector(largest, {begin}, lanes).bits();
  emitter.storeVector(F32::fromBits(max(before, bits)), largest, {begin});
}

void TensorScale::emit(Index rows, Value scale, moe::QuantAttr quant) {
  Index begin = emitter.index(0);
  emitter.storeVector(emitter.splat(moe::getMinMagnitude(quant), lanes),
                      largest, {begin});
  auto addRow = [&](Index row) {
    Index whole = emitter.index(columns / lanes * lanes);
    emitter.loop(begin, whole, lanes,
                 [&](Index column) { addVector(row, column, lanes); });
    if (columns % lanes)
      addVector(row, whole, columns % lanes);
  };
  emitter.loop(begin, rows, 1, [&](Index row) {
    if (!isPadding)
      return addRow(row);
    emitter.ifThen(~emitter.loadFlag(isPadding, row), [&] { addRow(row); });
  });
  I32 bits =
      emitter.maximum(emitter.loadVector(largest, {begin}, lanes).bits());
  emitter.storeF32(F32::fromBits(bits) / moe::getLargestValue(quant), scale,
                   {begin});
}

} // namespace

LogicalResult moec::emitTensorScale(tile::TensorScaleOp op,
                                    KernelEmitter &emitter) {
  auto config = requireConfig<tile::CpuTensorScaleAttr>(op, op.getConfigAttr());
  if (failed(config) || failed(requireLanes(op, config->getLanes())))
    return failure();
  Index rows = emitter.validTokens(op.getNumValidTokens());
  if (Value offsets = emitter.operand(op.getOffsets())) {
    int64_t last = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
    rows = emitter.loadIndex(offsets, emitter.index(last));
  }
  TensorScale(op, emitter, config->getLanes())
      .emit(rows, emitter.operand(op.getScale()), op.getQuant());
  return success();
}
