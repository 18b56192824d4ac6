//===- Tile.cpp - the schedule gpu.lora_tile --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Tensor cores multiply 16 rows by some columns of one matrix. A CTA has as
// many neighbouring slots as there are per CTA, at least one, and takes those
// of one expert and adapter at a time; others are computed too and dropped.
// Each row's sum has the same order, whatever the number of slots.

#include "KernelBuilder/GroupColumns.h"
#include "Product.h"
#include "Schedules/Interface/Emit.h"
#include "Shape.h"
#include "Slot.h"

using namespace mlir;
using namespace moec;
using namespace moec::lora;

namespace {

class GpuLoraTile {
public:
  GpuLoraTile(tile::LoraShrinkOp op, ThreadEmitter &emitter)
      : op(op), emitter(emitter), shape(op),
        config(cast<tile::GpuLoraTileAttr>(op.getConfigAttr())),
        tiles(config.getColumnTiles()), input(emitter.operand(op.getInput())),
        result(emitter.operand(op.getResult())),
        product(emitter, getElementType(input), shape.width, config.getWarps(),
                tiles) {}

  void emit();

private:
  /// The slot of a lane: lanes 16 to 31 repeat the others.
  struct Slot {
    Index row;
    I32 inputRow, group, adapter;
    /// Whether the CTA has the slot, and whether its token has an adapter.
    Flag exists, isAdapted;
  };
  /// The slots of one expert and adapter, as bits.
  struct Part {
    I32 rows;
    Index group, adapter;
  };

  Slot findSlot(Index first, Index rows, Index last);
  void storeAdapter(const Slot &slot, Index rest);
  /// Calls `body(row, column)` for the thread's results of the tile; `column`
  /// counts from its first one.
  void forResults(function_ref<void(I32, I32)> body);
  void storeRows(I32 rows, Index first, function_ref<F32(I32, I32)> value);
  void emitPart(const Part &part, const Slot &slot, Index first);
  /// The warp's sums: four for each 8 columns.
  SmallVector<Value> multiply(const Part &part, const Slot &slot, Value matrix);

  static constexpr int64_t kChunk = SharedProduct::kChunk;

  tile::LoraShrinkOp op;
  ThreadEmitter &emitter;
  LoraShape shape;
  tile::GpuLoraTileAttr config;
  int64_t tiles;
  Value input, result;
  SharedProduct product;
  /// The matrix of this CTA, and its first column.
  Index number, firstColumn;
};

GpuLoraTile::Slot GpuLoraTile::findSlot(Index first, Index rows, Index last) {
  Value offsets = emitter.operand(op.getOffsets());
  Slot slot;
  Index own = emitter.toIndex(emitter.lane() % LoraShape::kTileRows);
  slot.row = first + own;
  slot.exists = (own < rows) & (slot.row < last);
  slot.row = select(slot.exists, slot.row, first);
  Index token = emitter.loadIndex(emitter.operand(op.getSource()), slot.row);
  slot.adapter = emitter.loadI32(emitter.operand(op.getAdapterIds()), token);
  slot.isAdapted = slot.exists & slot.adapter.isBelow(shape.adapters);
  slot.inputRow = emitter.toI32(op.getGather() ? token : slot.row);
  // A single slot's group is found by all lanes at once.
  slot.group = emitter.choose(
      rows == 1,
      [&] { return findGroupByLanes(emitter, offsets, first).toI32(); },
      [&] { return findGroup(emitter, offsets, slot.row).toI32(); });
  return slot;
}

void GpuLoraTile::storeAdapter(const Slot &slot, Index rest) {
  Flag isFirst = emitter.thread() < LoraShape::kTileRows;
  emitter.ifThen(isFirst & (rest == 0) & slot.exists, [&] {
    emitter.storeI32(select(slot.isAdapted, slot.adapter, -1),
                     emitter.operand(op.getAdapter()),
                     {slot.row, emitter.index(0)});
  });
}

void GpuLoraTile::forResults(function_ref<void(I32, I32)> body) {
  int64_t columns = tiles * kChunk, all = LoraShape::kTileRows * columns;
  int64_t threads = emitter.getNumThreads();
  for (int64_t from = 0; from < all; from += threads) {
    I32 own = emitter.thread() + from;
    auto emitOne = [&] { body(own / columns, own % columns); };
    if (from + threads <= all)
      emitOne();
    else
      emitter.ifThen(own < all, emitOne);
  }
}

/// Stores the results of rows with a bit in `rows`; `first` is the first row.
void GpuLoraTile::storeRows(I32 rows, Index first,
                            function_ref<F32(I32, I32)> value) {
  forResults([&](I32 row, I32 column) {
    Index inMatrix = firstColumn + emitter.toIndex(column);
    I32 bit = emitter.i32(1) << row;
    emitter.ifThen(((rows & bit) != 0) & (inMatrix < shape.rank), [&] {
      emitter.storeF32(
          value(row, column), result,
          {first + emitter.toIndex(row), number * shape.rank + inMatrix});
    });
  });
}

SmallVector<Value> GpuLoraTile::multiply(const Part &part, const Slot &slot,
                                         Value matrix) {
  I32 own = emitter.lane() / SharedProduct::kLanesOfRow;
  Value zero = emitter.index(0);
  SmallVector<Value> rows, columns;
  for (int64_t half : {0, 8}) {
    I32 row = emitter.getFromLane(slot.inputRow, own + half);
    rows.push_back(emitter.address(input, {emitter.toIndex(row), zero}));
  }
  for (int64_t tile = 0; tile < tiles; ++tile) {
    Index column = firstColumn + emitter.toIndex(own) + tile * kChunk;
    columns.push_back(emitter.address(
        matrix, {part.adapter, part.group, min(column, shape.rank - 1), zero}));
  }
  return product.multiply(rows, columns);
}

void GpuLoraTile::emitPart(const Part &part, const Slot &slot, Index first) {
  for (auto [i, operand] : llvm::enumerate(op.getMatrices()))
    emitter.ifThen(number == int64_t(i), [&, operand = operand] {
      SmallVector<Value> sums = multiply(part, slot, emitter.operand(operand));
      product.exchange(sums);
    });
  storeRows(part.rows, first,
            [&](I32 row, I32 column) { return product.get(row, column); });
}

void GpuLoraTile::emit() {
  int64_t parts = llvm::divideCeil(shape.rank, tiles * kChunk);
  int64_t perWindow = parts * shape.matrices;
  Index window = emitter.cta() / perWindow, rest = emitter.cta() % perWindow;
  number = rest / parts;
  firstColumn = rest % parts * (tiles * kChunk);
  Index positions = emitter.tokens() * int64_t(op.getTopK());
  Index rows = emitter.index(LoraShape::kTileRows);
  for (const LoraShape::Window &each : llvm::reverse(LoraShape::kWindows))
    rows = select(positions <= each.positions, emitter.index(each.rows), rows);
  Index first = window * rows;
  Value offsets = emitter.operand(op.getOffsets());
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  Index last = emitter.loadIndex(offsets, emitter.index(groups));
  emitter.ifThen(first < last, [&] {
    Slot slot = findSlot(first, rows, last);
    storeAdapter(slot, rest);
    // Bits of lanes 16 to 31 are those of the others.
    constexpr int64_t own = (1 << LoraShape::kTileRows) - 1;
    I32 without = emitter.ballot(slot.exists & ~slot.isAdapted) & own;
    storeRows(without, first, [&](I32, I32) { return emitter.f32(0.0); });
    emitter.whileLoop(
        emitter.ballot(slot.isAdapted) & own,
        [&](I32 left) { return left != 0; },
        [&](I32 left) {
          I32 leader = emitter.lowestBit(left);
          I32 group = emitter.getFromLane(slot.group, leader);
          I32 adapter = emitter.getFromLane(slot.adapter, leader);
          Flag isSame = (slot.group == group) & (slot.adapter == adapter);
          Part part;
          part.rows = emitter.ballot(slot.isAdapted & isSame) & own;
          part.group = emitter.toIndex(group);
          part.adapter = emitter.toIndex(adapter);
          emitPart(part, slot, first);
          return left & ~part.rows;
        });
  });
}

} // namespace

LogicalResult moec::emitGpuLoraTile(Operation *phase, KernelBody body) {
  auto op = cast<tile::LoraShrinkOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  signalStart(op, emitter);
  GpuLoraTile(op, emitter).emit();
  return success();
}
