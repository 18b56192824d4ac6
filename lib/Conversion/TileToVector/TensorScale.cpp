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
      : emitter(emitter), b(emitter.b), lanes(lanes),
        input(emitter.operand(op.getInput())),
        isPadding(emitter.operand(op.getIsPadding())),
        columns(getColumns(input)),
        largest(emitter.scratch({lanes}, b.getF32Type())) {}

  void emit(Value rows, Value scale, moe::QuantAttr quant);

private:
  void addVector(Value row, Value column, int64_t count);

  KernelEmitter &emitter;
  ImplicitLocOpBuilder &b;
  int64_t lanes;
  Value input, isPadding;
  int64_t columns;
  Value largest;
};

void TensorScale::addVector(Value row, Value column, int64_t count) {
  constexpr int64_t magnitude = 0x7FFFFFFF, lastFinite = 0x7F7FFFFF;
  auto ints = [&](int64_t value) { return emitter.splatI32(value, lanes); };
  auto type = VectorType::get(lanes, b.getI32Type());
  Value mask;
  if (count < lanes)
    mask = emitter.mask(emitter.index(count), lanes);
  Value values = emitter.loadVector(input, {row, column}, lanes, mask);
  Value bits = arith::AndIOp::create(
      b, arith::BitcastOp::create(b, type, values), ints(magnitude));
  Value isFinite = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, bits,
                                         ints(lastFinite));
  bits = arith::SelectOp::create(b, isFinite, bits, ints(0));
  Value begin = emitter.index(0);
  Value before = arith::BitcastOp::create(
      b, type, emitter.loadVector(largest, {begin}, lanes));
  emitter.storeVector(
      arith::BitcastOp::create(b, VectorType::get(lanes, b.getF32Type()),
                               arith::MaxSIOp::create(b, before, bits)),
      largest, {begin});
}

void TensorScale::emit(Value rows, Value scale, moe::QuantAttr quant) {
  Value begin = emitter.index(0);
  emitter.storeVector(emitter.splat(moe::getMinMagnitude(quant), lanes),
                      largest, {begin});
  auto addRow = [&](Value row) {
    Value whole = emitter.index(columns / lanes * lanes);
    emitter.forLoop(begin, whole, lanes,
                    [&](Value column) { addVector(row, column, lanes); });
    if (columns % lanes)
      addVector(row, whole, columns % lanes);
  };
  emitter.forLoop(begin, rows, 1, [&](Value row) {
    if (!isPadding)
      return addRow(row);
    Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
    Value counts =
        arith::XOrIOp::create(b, emitter.loadFlag(isPadding, row), yes);
    emitter.ifThen(counts, [&] { addRow(row); });
  });
  Value bits =
      arith::BitcastOp::create(b, VectorType::get(lanes, b.getI32Type()),
                               emitter.loadVector(largest, {begin}, lanes));
  Value absmax = arith::BitcastOp::create(
      b, b.getF32Type(), emitter.reduce(vector::CombiningKind::MAXSI, bits));
  emitter.storeF32(
      arith::DivFOp::create(b, absmax, emitter.f32(moe::getLargestCode(quant))),
      scale, begin);
}

} // namespace

LogicalResult moec::emitTensorScale(tile::TensorScaleOp op,
                                    KernelEmitter &emitter) {
  auto config = requireConfig<tile::CpuTensorScaleAttr>(op, op.getConfigAttr());
  if (failed(config) || failed(requireLanes(op, config->getLanes())))
    return failure();
  Value rows = emitter.validTokens(op.getNumValidTokens());
  if (Value offsets = emitter.operand(op.getOffsets())) {
    int64_t last = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
    rows = emitter.loadIndex(offsets, emitter.index(last));
  }
  TensorScale(op, emitter, config->getLanes())
      .emit(rows, emitter.operand(op.getScale()), op.getQuant());
  return success();
}
