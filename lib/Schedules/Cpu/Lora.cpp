//===- Lora.cpp - the schedules cpu.lora_shrink, cpu.lora_expand *- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns some slots. Each result is a dot product, summed in vectors of
// `lanes`.

#include "Emit.h"
#include "KernelBuilder/GroupColumns.h"

using namespace mlir;
using namespace moec;

namespace {

class LoraShrink {
public:
  LoraShrink(tile::LoraShrinkOp op, KernelEmitter &emitter, int64_t lanes)
      : op(op), emitter(emitter), lanes(lanes),
        input(emitter.operand(op.getInput())),
        result(emitter.operand(op.getResult())) {}

  void emitRow(Index row);

private:
  /// The dot product of a row of the input and of a matrix at these leading
  /// indices.
  F32 multiply(Index row, Value matrix, Index adapter, Index group, Index j);

  tile::LoraShrinkOp op;
  KernelEmitter &emitter;
  int64_t lanes;
  Value input, result;
};

F32 LoraShrink::multiply(Index row, Value matrix, Index adapter, Index group,
                         Index j) {
  int64_t length = getColumns(input), left = length % lanes;
  auto add = [&](Index k, Flag mask, F32 sums) {
    // Lanes past the end are 0.
    F32 x = emitter.loadVector(input, {row, k}, lanes, mask);
    F32 weights =
        emitter.loadVector(matrix, {adapter, group, j, k}, lanes, mask);
    return fma(x, weights, sums);
  };
  Index whole = emitter.index(length - left);
  F32 sums = emitter.splat(0.0, lanes);
  sums = emitter.loop(emitter.index(0), whole, lanes, sums,
                      [&](Index k, F32 sums) { return add(k, Flag(), sums); });
  if (left)
    sums = add(whole, emitter.mask(emitter.index(left), lanes), sums);
  return emitter.sum(sums);
}

void LoraShrink::emitRow(Index row) {
  Index token = emitter.loadIndex(emitter.operand(op.getSource()), row);
  Index adapter = emitter.loadIndex(emitter.operand(op.getAdapterIds()), token);
  Index group = findGroup(emitter, emitter.operand(op.getOffsets()), row);
  auto type = cast<MemRefType>(op.getMatrices().front().getType());
  Flag isAdapted = adapter.isBelow(type.getDimSize(0));
  emitter.storeI32(select(isAdapted, adapter.toI32(), -1),
                   emitter.operand(op.getAdapter()), {row, emitter.index(0)});
  int64_t rank = type.getDimSize(2), first = 0;
  auto store = [&](function_ref<F32(Index)> value) {
    emitter.loop(emitter.index(0), emitter.index(rank), 1, [&](Index j) {
      emitter.storeF32(value(j), result, {row, j + first});
    });
  };
  for (Value operand : op.getMatrices()) {
    Value matrix = emitter.operand(operand);
    emitter.ifThen(
        isAdapted,
        [&] {
          store([&](Index j) {
            return multiply(op.getGather() ? token : row, matrix, adapter,
                            group, j);
          });
        },
        [&] { store([&](Index) { return emitter.f32(0); }); });
    first += rank;
  }
}

} // namespace

LogicalResult moec::emitLoraShrink(tile::LoraShrinkOp op,
                                   KernelEmitter &emitter) {
  return emitRows<LoraShrink, tile::CpuLoraShrinkAttr>(op, emitter);
}
