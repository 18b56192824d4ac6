//===- Shrink.cpp - the schedule gpu.lora_shrink ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA has one slot and some columns of its result, each of its warps
// `columns_per_warp` of them. The lanes of a warp share a row of the matrix in
// vectors, several of which are loaded at once; shuffles add their sums. The
// order of a sum depends on the width of the rows alone.

#include "Schedules/Interface/Emit.h"
#include "Shape.h"
#include "Slot.h"

using namespace mlir;
using namespace moec;
using namespace moec::lora;

namespace {

class GpuLoraShrink {
public:
  GpuLoraShrink(tile::LoraShrinkOp op, ThreadEmitter &emitter)
      : op(op), emitter(emitter), shape(op),
        config(cast<tile::GpuLoraShrinkAttr>(op.getConfigAttr())),
        lanes(config.getVectorWidth()), input(emitter.operand(op.getInput())),
        result(emitter.operand(op.getResult())) {}

  void emit();

private:
  void emitColumns(Value matrix, int64_t number, const Slot &slot, Index first);
  /// Adds the products of `count` vectors of each column, from column `from` of
  /// the input on.
  void addVectors(SmallVectorImpl<F32> &sums, Value matrix, const Slot &slot,
                  ArrayRef<Index> columns, Index from, int64_t count);

  tile::LoraShrinkOp op;
  ThreadEmitter &emitter;
  LoraShape shape;
  tile::GpuLoraShrinkAttr config;
  int64_t lanes;
  Value input, result;
};

void GpuLoraShrink::addVectors(SmallVectorImpl<F32> &sums, Value matrix,
                               const Slot &slot, ArrayRef<Index> columns,
                               Index from, int64_t count) {
  Index row = op.getGather() ? slot.token : slot.row;
  SmallVector<F32> x;
  SmallVector<SmallVector<F32>> weights(columns.size());
  for (int64_t i = 0; i < count; ++i) {
    Index at = from + i * kWarp * lanes;
    x.push_back(emitter.loadVector(input, {row, at}, lanes));
    for (auto [own, column] : llvm::zip(weights, columns))
      own.push_back(emitter.loadVector(
          matrix, {slot.adapter, slot.group, column, at}, lanes));
  }
  for (auto [sum, own] : llvm::zip(sums, weights))
    for (int64_t i = 0; i < count; ++i)
      sum = fma(x[i], own[i], sum);
}

void GpuLoraShrink::emitColumns(Value matrix, int64_t number, const Slot &slot,
                                Index first) {
  constexpr int64_t atOnce = 8;
  SmallVector<Index> columns;
  for (int64_t i = 0; i < config.getColumnsPerWarp(); ++i)
    columns.push_back(min(first + i, shape.rank - 1));
  SmallVector<F32> sums(columns.size(), emitter.splat(0.0, lanes));
  int64_t step = kWarp * lanes,
          most = std::max<int64_t>(1, atOnce / int64_t(columns.size()));
  int64_t rounds = shape.width / step, last = rounds % most;
  Index own = emitter.toIndex(emitter.lane()) * lanes;
  if (rounds > last)
    sums = emitter.loop(
        emitter.index(0), emitter.index((rounds - last) * step), most * step,
        sums, [&](Index from, SmallVector<F32> sums) {
          addVectors(sums, matrix, slot, columns, from + own, most);
          return sums;
        });
  if (last)
    addVectors(sums, matrix, slot, columns, own + (rounds - last) * step, last);
  if (shape.width % step) {
    Index from = own + rounds * step;
    sums = emitter.choose(
        from < shape.width,
        [&] {
          SmallVector<F32> more = sums;
          addVectors(more, matrix, slot, columns, from, 1);
          return more;
        },
        [&] { return sums; });
  }
  for (auto [i, vector] : llvm::enumerate(sums)) {
    F32 sum = emitter.sum(vector);
    for (int64_t mask = 1; mask < kWarp; mask *= 2)
      sum = sum + emitter.shuffleXor(sum, mask);
    Index column = first + int64_t(i);
    emitter.ifThen((emitter.lane() == 0) & (column < shape.rank), [&] {
      emitter.storeF32(sum, result, {slot.row, column + number * shape.rank});
    });
  }
}

void GpuLoraShrink::emit() {
  int64_t tiles = shape.getTiles(config);
  int64_t perRow = tiles * shape.matrices;
  Index row = emitter.cta() / perRow, rest = emitter.cta() % perRow;
  Index number = rest / tiles;
  Index first =
      (rest % tiles * config.getWarps() + emitter.toIndex(emitter.warp())) *
      config.getColumnsPerWarp();
  SlotTable(op, emitter).ifSlot(row, [&](const Slot &slot) {
    emitter.ifThen((emitter.thread() == 0) & (rest == 0), [&] {
      emitter.storeI32(select(slot.isAdapted, slot.adapter.toI32(), -1),
                       emitter.operand(op.getAdapter()),
                       {slot.row, emitter.index(0)});
    });
    emitter.ifThen(
        slot.isAdapted,
        [&] {
          for (auto [i, matrix] : llvm::enumerate(op.getMatrices()))
            emitter.ifThen(number == int64_t(i), [&, i = i, matrix = matrix] {
              emitColumns(emitter.operand(matrix), int64_t(i), slot, first);
            });
        },
        [&] {
          Index column = first + emitter.toIndex(emitter.lane());
          Flag isOwn = emitter.lane() < config.getColumnsPerWarp();
          emitter.ifThen(isOwn & (column < shape.rank), [&] {
            emitter.storeF32(emitter.f32(0.0), result,
                             {slot.row, number * shape.rank + column});
          });
        });
  });
}

} // namespace

LogicalResult moec::emitGpuLoraShrink(Operation *phase, KernelBody body) {
  auto op = cast<tile::LoraShrinkOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  signalStart(op, emitter);
  GpuLoraShrink(op, emitter).emit();
  return success();
}
