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

/// A row of slots, and the adapter of each.
class LoraRows {
public:
  template <typename OpT>
  LoraRows(OpT op, KernelEmitter &emitter, int64_t lanes)
      : emitter(emitter), lanes(lanes), input(emitter.operand(op.getInput())),
        offsets(emitter.operand(op.getOffsets())),
        source(emitter.operand(op.getSource())),
        adapterIds(emitter.operand(op.getAdapterIds())) {
    for (Value matrix : op.getMatrices())
      matrices.push_back(emitter.operand(matrix));
  }

protected:
  struct Slot {
    Index token, adapter, group;
    /// Whether the token has an adapter.
    Flag isAdapted;
  };

  Slot findSlot(Index row) {
    Slot slot;
    slot.token = emitter.loadIndex(source, row);
    slot.adapter = emitter.loadIndex(adapterIds, slot.token);
    slot.group = findGroup(emitter, offsets, row);
    auto type = cast<MemRefType>(matrices.front().getType());
    slot.isAdapted = slot.adapter.isBelow(type.getDimSize(0));
    return slot;
  }

  /// The dot product of a row of the input from a column on and row n of a
  /// slot's matrix.
  F32 multiply(Index row, Index column, Value matrix, const Slot &slot,
               Index n) {
    int64_t length = cast<MemRefType>(matrix.getType()).getDimSize(3);
    auto add = [&](Index k, Flag mask, F32 sums) {
      // Lanes past the end are 0.
      F32 x = emitter.loadVector(input, {row, column + k}, lanes, mask);
      F32 weights = emitter.loadVector(matrix, {slot.adapter, slot.group, n, k},
                                       lanes, mask);
      return fma(x, weights, sums);
    };
    int64_t left = length % lanes;
    Index whole = emitter.index(length - left);
    F32 sums = emitter.splat(0.0, lanes);
    sums =
        emitter.loop(emitter.index(0), whole, lanes, sums,
                     [&](Index k, F32 sums) { return add(k, Flag(), sums); });
    if (left)
      sums = add(whole, emitter.mask(emitter.index(left), lanes), sums);
    return emitter.sum(sums);
  }

  KernelEmitter &emitter;
  int64_t lanes;
  Value input, offsets, source, adapterIds;
  SmallVector<Value, 2> matrices;
};

class LoraShrink : public LoraRows {
public:
  LoraShrink(tile::LoraShrinkOp op, KernelEmitter &emitter, int64_t lanes)
      : LoraRows(op, emitter, lanes), gathers(op.getGather()),
        result(emitter.operand(op.getResult())) {}

  void emitRow(Index row) {
    Slot slot = findSlot(row);
    int64_t first = 0;
    for (Value matrix : matrices) {
      int64_t rank = cast<MemRefType>(matrix.getType()).getDimSize(2);
      auto store = [&](function_ref<F32(Index)> value) {
        emitter.loop(emitter.index(0), emitter.index(rank), 1, [&](Index j) {
          emitter.storeF32(value(j), result, {row, j + first});
        });
      };
      emitter.ifThen(
          slot.isAdapted,
          [&] {
            store([&](Index j) {
              return multiply(gathers ? slot.token : row, emitter.index(0),
                              matrix, slot, j);
            });
          },
          [&] { store([&](Index) { return emitter.f32(0); }); });
      first += rank;
    }
  }

private:
  bool gathers;
  Value result;
};

class LoraExpand : public LoraRows {
public:
  LoraExpand(tile::LoraExpandOp op, KernelEmitter &emitter, int64_t lanes)
      : LoraRows(op, emitter, lanes) {
    for (Value result : op.getResults())
      results.push_back(emitter.operand(result));
  }

  void emitRow(Index row) {
    Slot slot = findSlot(row);
    int64_t first = 0;
    for (auto [matrix, result] : llvm::zip(matrices, results)) {
      auto store = [&, result = result](function_ref<F32(Index)> value) {
        emitter.loop(
            emitter.index(0), emitter.index(getColumns(result)), 1,
            [&](Index n) { emitter.storeF32(value(n), result, {row, n}); });
      };
      emitter.ifThen(
          slot.isAdapted,
          [&, matrix = matrix] {
            store([&](Index n) {
              return multiply(row, emitter.index(first), matrix, slot, n);
            });
          },
          [&] { store([&](Index) { return emitter.f32(0); }); });
      first += cast<MemRefType>(matrix.getType()).getDimSize(3);
    }
  }

private:
  SmallVector<Value, 2> results;
};

} // namespace

LogicalResult moec::emitLoraShrink(tile::LoraShrinkOp op,
                                   KernelEmitter &emitter) {
  return emitRows<LoraShrink, tile::CpuLoraShrinkAttr>(op, emitter);
}

LogicalResult moec::emitLoraExpand(tile::LoraExpandOp op,
                                   KernelEmitter &emitter) {
  return emitRows<LoraExpand, tile::CpuLoraExpandAttr>(op, emitter);
}
