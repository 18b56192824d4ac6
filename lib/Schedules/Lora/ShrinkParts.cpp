//===- ShrinkParts.cpp - the schedule gpu.lora_parts ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The first product of gpu.lora_update alone: parts of up to 32 rows of one
// expert and adapter, wherever they lie in the group, so that a matrix is read
// once for them. A CTA has some tiles of 8 columns of all matrices side by
// side. With few positions, it has one tile of columns of one row, so that
// there are more CTAs, which start to read the matrix earlier.

#include "KernelBuilder/InlinePtx.h"
#include "Parts.h"
#include "Product.h"
#include "Schedules/Interface/Emit.h"
#include "Slot.h"

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
                kRowTiles * config.getColumnTiles()),
        parts(op, emitter, LoraShape::kPartRows) {}

  void emit();

private:
  /// Tiles that a CTA computes, and the first one of columns.
  struct Tiles {
    int64_t rows, columns;
    I32 first;
  };

  /// Asks for the part's columns of the matrices while the launch before runs.
  void prefetchMatrices(const Part &part, int64_t columns);
  void emitPart(const Part &part, int64_t columns);
  void emitTiles(const Part &part, Tiles tiles);
  void multiply(const Part &part, Tiles tiles);
  /// Stores `value(number)`, the four sums of a lane (SharedProduct), for the
  /// part's rows.
  void store(const Part &part, Tiles tiles,
             function_ref<SmallVector<F32>(I32)> value);

  static constexpr int64_t kChunk = SharedProduct::kChunk;
  static constexpr int64_t kRowTiles =
      LoraShape::kPartRows / LoraShape::kTileRows;

  tile::LoraShrinkOp op;
  ThreadEmitter &emitter;
  LoraShape shape;
  tile::GpuLoraPartsAttr config;
  Value input, result;
  SharedProduct product;
  PartTable parts;
  /// The CTA's first tile of columns.
  I32 firstTile;
};

void GpuLoraParts::store(const Part &part, Tiles tiles,
                         function_ref<SmallVector<F32>(I32)> value) {
  int64_t perMatrix = shape.getColumnTiles();
  emitter.loop(
      readThread(emitter.b), emitter.i32(tiles.rows * tiles.columns * kWarp),
      emitter.i32(emitter.getNumThreads()), [&](I32 own) {
        SmallVector<F32> sums = value(own);
        I32 tile = own / kWarp, lane = own % kWarp;
        I32 row = tile / tiles.columns * LoraShape::kTileRows +
                  lane / SharedProduct::kLanesOfRow;
        tile = tiles.first + tile % tiles.columns;
        I32 matrix = tile / perMatrix;
        I32 first =
            tile % perMatrix * kChunk + lane % SharedProduct::kLanesOfRow * 2;
        for (int64_t half : {0, 1})
          for (int64_t j : {0, 1}) {
            I32 place = row + half * kChunk, column = first + j;
            Flag isThere = (place < part.count) & (matrix < shape.matrices);
            if (shape.rank % kChunk)
              isThere = isThere & (column < shape.rank);
            emitter.ifThen(isThere, [&] {
              emitter.storeF32(sums[2 * half + j], result,
                               {parts.getRow(part, place),
                                emitter.toIndex(matrix * shape.rank + column)});
            });
          }
      });
}

void GpuLoraParts::multiply(const Part &part, Tiles tiles) {
  I32 own = emitter.lane() / SharedProduct::kLanesOfRow;
  SmallVector<Value> rows, columns;
  for (int64_t half = 0; half < 2 * tiles.rows; ++half) {
    Index row = parts.getRow(part, min(own + half * kChunk, part.count - 1));
    if (op.getGather())
      row = emitter.loadIndex(emitter.operand(op.getSource()), row);
    rows.push_back(emitter.address(input, {row, emitter.index(0)}));
  }
  int64_t perMatrix = shape.getColumnTiles();
  SmallVector<Value> matrices;
  for (Value matrix : op.getMatrices())
    matrices.push_back(emitter.address(
        emitter.operand(matrix), {emitter.toIndex(part.adapter), part.group,
                                  emitter.toIndex(own), emitter.index(0)}));
  constexpr int64_t elementBytes = 2;
  for (int64_t i = 0; i < tiles.columns; ++i) {
    I32 tile = min(tiles.first + i, shape.matrices * perMatrix - 1);
    I32 column = tile % perMatrix * kChunk;
    if (shape.rank % kChunk)
      column = min(column + own, shape.rank - 1) - own;
    Value chosen = matrices.front();
    for (int64_t number = 1; number < shape.matrices; ++number)
      chosen = select(tile < number * perMatrix, chosen, matrices[number]);
    columns.push_back(
        emitter.advance(chosen, column * (elementBytes * shape.width)));
  }
  product.exchange(product.multiply(rows, columns));
}

void GpuLoraParts::emitTiles(const Part &part, Tiles tiles) {
  multiply(part, tiles);
  store(part, tiles, [&](I32 own) { return product.getOfLane(own); });
}

void GpuLoraParts::prefetchMatrices(const Part &part, int64_t columns) {
  constexpr int64_t lineBytes = 128, elementBytes = 2;
  int64_t perMatrix = shape.getColumnTiles(),
          pitch = elementBytes * shape.width;
  for (int64_t i = 0; i < columns; ++i) {
    I32 tile = min(firstTile + i, shape.matrices * perMatrix - 1);
    I32 column = tile % perMatrix * kChunk;
    Value chosen;
    for (auto [number, matrix] : llvm::enumerate(op.getMatrices())) {
      Value start = emitter.address(
          emitter.operand(matrix), {emitter.toIndex(part.adapter), part.group,
                                    emitter.toIndex(column), emitter.index(0)});
      chosen = chosen
                   ? select(tile < int64_t(number) * perMatrix, chosen, start)
                   : start;
    }
    I32 bytes = min(emitter.i32(kChunk), shape.rank - column) * pitch;
    emitter.loop(readThread(emitter.b), divideUp(bytes, lineBytes),
                 emitter.i32(emitter.getNumThreads()), [&](I32 line) {
                   emitter.prefetchWeights(
                       emitter.advance(chosen, line.toI64() * lineBytes));
                 });
  }
}

void GpuLoraParts::emitPart(const Part &part, int64_t columns) {
  if (op.getSignals())
    emitter.ifThen(part.adapter >= 0, [&] { prefetchMatrices(part, columns); });
  waitForInput(op, emitter);
  emitter.ifThen((firstTile == 0) & (emitter.thread() < part.count), [&] {
    emitter.storeI32(part.adapter, emitter.operand(op.getAdapter()),
                     {parts.getRow(part, emitter.thread()), emitter.index(0)});
  });
  // Addresses differ by constants if a CTA has all columns.
  I32 first = columns < shape.matrices * shape.getColumnTiles()
                  ? firstTile
                  : emitter.i32(0);
  Tiles one{1, columns, first}, all{kRowTiles, columns, first};
  emitter.ifThen(
      part.adapter >= 0,
      [&] {
        if (part.row)
          emitTiles(part, one);
        else
          emitter.ifThen(
              part.count > LoraShape::kTileRows, [&] { emitTiles(part, all); },
              [&] { emitTiles(part, one); });
      },
      [&] {
        store(part, part.row ? one : all,
              [&](I32) { return SmallVector<F32>(4, emitter.f32(0.0)); });
      });
}

void GpuLoraParts::emit() {
  auto wide = int64_t(config.getColumnTiles());
  int64_t narrowCtas = shape.matrices * shape.getColumnTiles();
  int64_t wideCtas = llvm::divideCeil(narrowCtas, wide);
  Index positions = emitter.tokens() * int64_t(op.getTopK());
  I32 cta = emitter.cta().toI32();
  emitter.ifThen(
      positions <= LoraShape::kFewPositions,
      [&] {
        firstTile = cta % narrowCtas;
        parts.ifRow(cta / narrowCtas,
                    [&](const Part &part) { emitPart(part, 1); });
      },
      [&] {
        firstTile = cta % wideCtas * wide;
        parts.ifPart(cta / wideCtas,
                     [&](const Part &part) { emitPart(part, wide); });
      });
}

} // namespace

LogicalResult moec::emitGpuLoraParts(Operation *phase, KernelBody body) {
  SharedProduct::limitRegisters(body);
  auto op = cast<tile::LoraShrinkOp>(phase);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  beginEarly(op, emitter);
  GpuLoraParts(op, emitter).emit();
  waitForInput(op, emitter);
  return success();
}
