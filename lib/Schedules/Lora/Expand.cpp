//===- Expand.cpp - the schedule gpu.lora_expand ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA has one slot and some columns of one result. Neighbouring threads
// (`threads_per_column`) share a column: each multiplies vectors of the row of
// the matrix, and shuffles add their sums.

#include "Schedules/Interface/Emit.h"
#include "Shape.h"
#include "Slot.h"

using namespace mlir;
using namespace moec;
using namespace moec::lora;

namespace {

class GpuLoraExpand {
public:
  GpuLoraExpand(tile::LoraExpandOp op, ThreadEmitter &emitter)
      : op(op), emitter(emitter), shape(op),
        config(cast<tile::GpuLoraExpandAttr>(op.getConfigAttr())),
        lanes(config.getVectorWidth()), shared(config.getThreadsPerColumn()),
        input(emitter.operand(op.getInput())) {}

  void emit();

private:
  /// The columns of the thread.
  SmallVector<Index> getColumns(Index tile);
  /// This thread's products of the columns' rows, of matrix `number`.
  SmallVector<F32> multiply(int64_t number, const Slot &slot,
                            ArrayRef<Index> columns);
  void store(Value result, const Slot &slot, ArrayRef<Index> columns,
             ArrayRef<F32> sums);

  tile::LoraExpandOp op;
  ThreadEmitter &emitter;
  LoraShape shape;
  tile::GpuLoraExpandAttr config;
  int64_t lanes, shared;
  Value input;
};

SmallVector<Index> GpuLoraExpand::getColumns(Index tile) {
  int64_t perPass = config.getThreads() / shared;
  Index own = emitter.toIndex(emitter.thread() / shared);
  SmallVector<Index> columns;
  for (int64_t i = 0; i < config.getColumnsPerThread(); ++i)
    columns.push_back(tile * (perPass * config.getColumnsPerThread()) + own +
                      i * perPass);
  return columns;
}

SmallVector<F32> GpuLoraExpand::multiply(int64_t number, const Slot &slot,
                                         ArrayRef<Index> columns) {
  Value matrix = emitter.operand(op.getMatrices()[number]);
  SmallVector<F32> sums(columns.size(), emitter.splat(0.0, lanes));
  Index own = emitter.toIndex(emitter.thread() % shared) * lanes;
  int64_t step = shared * lanes;
  auto add = [&](Index at, SmallVector<F32> sums) {
    F32 x =
        emitter.loadVector(input, {slot.row, at + number * shape.rank}, lanes);
    SmallVector<F32> weights;
    for (Index column : columns)
      weights.push_back(emitter.loadVector(
          matrix, {slot.adapter, slot.group, min(column, shape.width - 1), at},
          lanes));
    for (auto [sum, own] : llvm::zip(sums, weights))
      sum = fma(x, own, sum);
    return sums;
  };
  constexpr int64_t mostUnrolled = 4;
  if (shape.rank / step <= mostUnrolled) {
    for (int64_t from = 0; from < shape.rank; from += step)
      sums = add(own + from, sums);
    return sums;
  }
  return emitter.loop(
      emitter.index(0), emitter.index(shape.rank), step, sums,
      [&](Index from, SmallVector<F32> sums) { return add(own + from, sums); });
}

void GpuLoraExpand::store(Value result, const Slot &slot,
                          ArrayRef<Index> columns, ArrayRef<F32> sums) {
  Flag isFirst = emitter.thread() % shared == 0;
  for (auto [column, vector] : llvm::zip(columns, sums)) {
    F32 sum = isa<VectorType>(vector.getType()) ? emitter.sum(vector) : vector;
    for (int64_t mask = 1; mask < shared; mask *= 2)
      sum = sum + emitter.shuffleXor(sum, mask);
    Flag exists = column < shape.width;
    emitter.ifThen(shared > 1 ? exists & isFirst : exists,
                   [&, column = column] {
                     emitter.storeF32(sum, result, {slot.row, column});
                   });
  }
}

void GpuLoraExpand::emit() {
  int64_t tiles = shape.getExpandTiles(config);
  int64_t perRow = tiles * shape.matrices;
  Index row = emitter.cta() / perRow, rest = emitter.cta() % perRow;
  Index number = rest / tiles;
  SmallVector<Index> columns = getColumns(rest % tiles);
  SlotTable(op, emitter).ifSlot(row, [&](const Slot &slot) {
    for (auto [i, operand] : llvm::enumerate(op.getResults()))
      emitter.ifThen(number == int64_t(i), [&, i = i, operand = operand] {
        Value result = emitter.operand(operand);
        SmallVector<F32> zeros(columns.size(), emitter.f32(0.0));
        SmallVector<F32> sums;
        emitter.ifThen(
            slot.isAdapted,
            [&] {
              store(result, slot, columns, multiply(int64_t(i), slot, columns));
            },
            [&] { store(result, slot, columns, zeros); });
      });
  });
}

} // namespace

LogicalResult moec::emitGpuLoraExpand(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  GpuLoraExpand(cast<tile::LoraExpandOp>(phase), emitter).emit();
  return success();
}
