//===- ShrinkParts.cpp - the schedule gpu.lora_parts ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The first product of gpu.lora_update alone: parts of up to 16 rows of one
// expert and adapter, wherever they lie in the group, so that a matrix is read
// once for them. A CTA has some tiles of 8 columns of all matrices side by
// side.

#include "KernelBuilder/AdapterUpdates.h"
#include "Parts.h"
#include "Product.h"
#include "Schedules/Interface/Emit.h"

using namespace mlir;
using namespace moec;
using namespace moec::lora;

namespace {

class GpuLoraParts {
public:
  GpuLoraParts(tile::LoraShrinkOp op, ThreadEmitter &emitter)
      : op(op), emitter(emitter), shape(op),
        config(cast<tile::GpuLoraPartsAttr>(op.getConfigAttr())),
        input(emitter.operand(op.getInput())),
        result(emitter.operand(op.getResult())),
        product(emitter, getElementType(input), shape.width, config.getWarps(),
                config.getColumnTiles()),
        parts(op, emitter, config.getWarps()) {}

  void emit();

private:
  void emitPart(const Part &part);
  void multiply(const Part &part);
  /// Stores `value(row, column)` for the CTA's results of the part's rows.
  void store(const Part &part, function_ref<F32(I32, I32)> value);

  static constexpr int64_t kChunk = SharedProduct::kChunk;

  tile::LoraShrinkOp op;
  ThreadEmitter &emitter;
  LoraShape shape;
  tile::GpuLoraPartsAttr config;
  Value input, result;
  SharedProduct product;
  PartTable parts;
  /// The CTA's first tile.
  I32 firstTile;
};

void GpuLoraParts::store(const Part &part, function_ref<F32(I32, I32)> value) {
  int64_t across = int64_t(config.getColumnTiles()) * kChunk;
  int64_t perMatrix = shape.getColumnTiles();
  emitter.loop(emitter.thread(), part.count * across,
               emitter.i32(emitter.getNumThreads()), [&](I32 own) {
                 I32 row = own / across, column = own % across;
                 I32 tile = firstTile + column / kChunk;
                 I32 matrix = tile / perMatrix;
                 I32 inMatrix = tile % perMatrix * kChunk + column % kChunk;
                 Flag isThere = matrix < shape.matrices;
                 if (shape.rank % kChunk)
                   isThere = isThere & (inMatrix < shape.rank);
                 emitter.ifThen(isThere, [&] {
                   storeShrunk(emitter, value(row, column), result,
                               parts.getRow(row),
                               emitter.toIndex(matrix * shape.rank + inMatrix));
                 });
               });
}

void GpuLoraParts::multiply(const Part &part) {
  I32 own = emitter.lane() / SharedProduct::kLanesOfRow;
  SmallVector<Value> rows, columns;
  for (int64_t half : {0, 8}) {
    Index row = parts.getRow(min(own + half, part.count - 1));
    if (op.getGather())
      row = emitter.loadIndex(emitter.operand(op.getSource()), row);
    rows.push_back(emitter.address(input, {row, emitter.index(0)}));
  }
  int64_t perMatrix = shape.getColumnTiles();
  for (int64_t i = 0; i < int64_t(config.getColumnTiles()); ++i) {
    I32 tile = min(firstTile + i, shape.matrices * perMatrix - 1);
    I32 column = min(tile % perMatrix * kChunk + own, shape.rank - 1);
    SmallVector<Value> at{emitter.toIndex(part.adapter), part.group,
                          emitter.toIndex(column), emitter.index(0)};
    ValueRange matrices = op.getMatrices();
    Value chosen = emitter.address(emitter.operand(matrices.front()), at);
    for (int64_t number = 1; number < shape.matrices; ++number)
      chosen = select(tile < number * perMatrix, chosen,
                      emitter.address(emitter.operand(matrices[number]), at));
    columns.push_back(chosen);
  }
  product.exchange(product.multiply(rows, columns));
}

void GpuLoraParts::emitPart(const Part &part) {
  emitter.ifThen((firstTile == 0) & (emitter.thread() < part.count), [&] {
    emitter.storeI32(part.adapter, emitter.operand(op.getAdapter()),
                     {parts.getRow(emitter.thread()), emitter.index(0)});
  });
  emitter.ifThen(
      part.adapter >= 0,
      [&] {
        multiply(part);
        store(part,
              [&](I32 row, I32 column) { return product.get(row, column); });
      },
      [&] { store(part, [&](I32, I32) { return emitter.f32(0.0); }); });
}

void GpuLoraParts::emit() {
  auto tiles = int64_t(config.getColumnTiles());
  int64_t perWindow =
      llvm::divideCeil(shape.matrices * shape.getColumnTiles(), tiles);
  Index window = emitter.cta() / perWindow;
  firstTile = (emitter.cta() % perWindow).toI32() * tiles;
  parts.forParts(window, [&](const Part &part) { emitPart(part); });
}

} // namespace

LogicalResult moec::emitGpuLoraParts(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  GpuLoraParts(cast<tile::LoraShrinkOp>(phase), emitter).emit();
  return success();
}
