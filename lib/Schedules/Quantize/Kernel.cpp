//===- Kernel.cpp - the schedule gpu.quantize -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The scale groups of all rows form one list. A CTA takes ranges of it, strided
// by the grid. Some lanes of a warp share a group: each loads all its vectors
// before it uses the first, and the largest magnitude is reduced by shuffles.
// Threads that only another phase of the kernel needs are idle. For one scale
// per row, see QuantizeRows.cpp.

#include "QuantizeRows.h"
#include "Schedules/Interface/Emit.h"
#include "moec/Schedules/Schedules.h"

using namespace mlir;
using namespace moec;

namespace {

class GpuQuantize : public QuantizingThreads {
public:
  GpuQuantize(tile::QuantizeOp op, ThreadEmitter &emitter, bool convertsFloat8)
      : QuantizingThreads(op, emitter, convertsFloat8), op(op) {}

  void emit();

private:
  /// A thread's share of one scale group.
  struct Share {
    /// The group's row and its index in the row.
    Index row, number;
    Flag exists;
    /// First columns of the thread's vectors, and whether these are inside the
    /// row (null: always).
    SmallVector<Index> columns;
    SmallVector<Flag> inside;
    SmallVector<F32> values;
  };
  Share load(Index group, Index groups);
  void quantize(const Share &share);
  void store(const Share &share, const Quantizer::Divisor &divisor,
             size_t vector);

  tile::QuantizeOp op;
};

void GpuQuantize::emit() {
  Index groups = countQuantizedRows(op, emitter) * shape.getRowGroups();
  Index ctas = emitter.toIndex(emitter.numCtas());
  Index first = emitter.cta() * shape.getCtaGroups();
  // All threads of a CTA take part in the shuffles, or none does.
  emitter.loop(first, groups, ctas * shape.getCtaGroups(), [&](Index first) {
    Index own = first + emitter.toIndex(emitter.thread() / shape.getLanes());
    SmallVector<Share> shares;
    for (int64_t i = 0; i < shape.getCtaGroups(); i += shape.getGroupsAtOnce())
      shares.push_back(load(own + i, groups));
    for (const Share &share : shares)
      quantize(share);
  });
}

GpuQuantize::Share GpuQuantize::load(Index group, Index groups) {
  Share share;
  share.exists = group < groups;
  // Groups past the end load the last one, and store nothing.
  Index safe = min(group, groups - 1);
  if (shape.columns % shape.size == 0) {
    // Groups are in memory order, so the list is a single row.
    share.row = emitter.index(0);
    share.number = safe;
  } else {
    share.row = safe / shape.getRowGroups();
    share.number = safe % shape.getRowGroups();
  }
  Index lane = emitter.toIndex(emitter.thread() % shape.getLanes());
  for (int64_t i = 0; i < shape.getVectors(); ++i) {
    Index inGroup = lane * shape.lanes + i * shape.getLanes() * shape.lanes;
    Index column = share.number * shape.size + inGroup;
    Flag isInside;
    if (shape.columns % shape.size) {
      // The vector size divides the row's length, so no vector is partial.
      isInside = column < shape.columns;
      column = min(column, shape.columns - shape.lanes);
    }
    F32 values = emitter.loadVector(input, {share.row, column}, shape.lanes);
    share.columns.push_back(column);
    share.inside.push_back(isInside);
    share.values.push_back(isInside.isNull() ? values
                                             : select(isInside, values, 0));
  }
  return share;
}

void GpuQuantize::quantize(const Share &share) {
  F32 largest = quantizer.findLargest(share.values);
  for (int64_t mask = 1; mask < shape.getLanes(); mask *= 2)
    largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
  Quantizer::Divisor divisor = quantizer.getDivisor(largest);
  for (size_t i = 0; i < share.values.size(); ++i)
    store(share, divisor, i);
  if (!scale)
    return;
  Flag isFirst = emitter.thread() % shape.getLanes() == 0;
  emitter.ifThen(share.exists & isFirst, [&] {
    emitter.storeF32(divisor.scale, scale, {share.row, share.number});
  });
}

void GpuQuantize::store(const Share &share, const Quantizer::Divisor &divisor,
                        size_t vector) {
  Value quantizedValues = quantizer.encode(share.values[vector], divisor);
  Flag isInside = share.inside[vector];
  emitter.ifThen(
      isInside.isNull() ? share.exists : share.exists & isInside, [&] {
        emitter.store(
            quantizedValues,
            emitter.address(quantized, {share.row, share.columns[vector]}),
            shape.lanes * quantizer.getValueBytes());
      });
}

} // namespace

LogicalResult moec::emitGpuQuantize(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto op = cast<tile::QuantizeOp>(phase);
  bool convertsFloat8 = body.target.convertsFloat8();
  if (anygpu::Quantize(op, op.getConfigAttr()).areRows()) {
    emitRowQuantization(op, emitter, convertsFloat8);
    return success();
  }
  GpuQuantize quantize(op, emitter, convertsFloat8);
  constexpr int64_t threads = anygpu::Quantize::kThreads;
  if (body.threads == threads)
    quantize.emit();
  else
    emitter.ifThen(emitter.thread() < threads, [&] { quantize.emit(); });
  return success();
}
