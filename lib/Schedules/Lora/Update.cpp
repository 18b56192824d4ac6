//===- Update.cpp - the schedule gpu.lora_update ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Both products of an update in one kernel. Rows of one expert and adapter are
// computed in parts of 16, in their order: a CTA reads both matrices of the
// adapter once for a part, wherever its rows lie. The shrunk rows stay in
// shared memory, as sums of two 16-bit numbers. For the second product each
// warp has 32 columns at a time.

#include "Parts.h"
#include "Product.h"
#include "Schedules/Interface/Emit.h"

using namespace mlir;
using namespace moec;
using namespace moec::lora;

namespace {

class GpuLoraUpdate {
public:
  GpuLoraUpdate(tile::LoraUpdateOp op, ThreadEmitter &emitter)
      : op(op), emitter(emitter), b(emitter.b), shape(op),
        warps(cast<tile::GpuLoraUpdateAttr>(op.getConfigAttr()).getWarps()),
        columns(LoraShape::getColumns(op)),
        input(emitter.operand(op.getInput())),
        product(emitter, getElementType(input), shape.width, warps, kTiles,
                ptxas::kAdapterUpdateRegisters),
        parts(op, emitter, kRows),
        shrunk(emitter.scratch({2 * kRows * getStride()},
                               getElementType(input))) {}

  void emit();

private:
  void storeZeros(const Part &part);
  void shrink(const Part &part);
  void shrinkColumns(const Part &part, ArrayRef<Value> rows, int64_t first);
  void expand(const Part &part, int64_t number);
  /// Columns `32 * unit` and so on, for each unit.
  void expandUnits(const Part &part, int64_t number, ArrayRef<I32> units);
  SmallVector<Value> loadShrunk(int64_t number, int64_t k, int64_t part);
  /// Four elements of K as two words, for each 16 of K.
  SmallVector<Value> loadSecond(Value matrix, const Part &part, I32 column);

  /// Elements of a shrunk row.
  int64_t getStride() const { return shape.matrices * shape.getPaddedRank(); }

  static constexpr int64_t kRows = LoraShape::kTileRows;
  static constexpr int64_t kChunk = SharedProduct::kChunk;
  /// Tiles of 8 columns that a warp computes at once.
  static constexpr int64_t kTiles = 4, kUnit = kTiles * kChunk;
  /// Elements of K of a lane in a product of depth 16.
  static constexpr int64_t kQuarter = 4;

  tile::LoraUpdateOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  LoraShape shape;
  int64_t warps, columns;
  Value input;
  SharedProduct product;
  PartTable parts;
  /// The shrunk rows of a part.
  Value shrunk;
};

void GpuLoraUpdate::storeZeros(const Part &part) {
  int64_t chunks = columns / kChunk;
  emitter.loop(emitter.thread(), part.count * chunks,
               emitter.i32(emitter.getNumThreads()), [&](I32 own) {
                 Index row = parts.getRow(part, own / chunks);
                 Index column = emitter.toIndex(own % chunks * kChunk);
                 for (Value result : op.getResults())
                   emitter.storeVector(emitter.splat(0.0, kChunk),
                                       emitter.operand(result), {row, column});
               });
}

/// Computes kTiles tiles of the shrunk rows, from tile `first` of all matrices
/// on.
void GpuLoraUpdate::shrinkColumns(const Part &part, ArrayRef<Value> rows,
                                  int64_t first) {
  int64_t perMatrix = shape.getPaddedRank() / kChunk;
  int64_t count = std::min(kTiles, shape.matrices * perMatrix - first);
  I32 own = emitter.lane() / SharedProduct::kLanesOfRow;
  SmallVector<Value> addresses;
  constexpr int64_t elementBytes = 2;
  for (int64_t tile = first; tile < first + count; ++tile) {
    Value matrix = emitter.operand(op.getMatrices()[tile / perMatrix]);
    int64_t column = tile % perMatrix * kChunk;
    // Columns behind the rank repeat others; their sums become zeros. Addresses
    // of whole tiles differ by constants.
    bool isWhole = column + kChunk <= shape.rank;
    I32 from = isWhole ? own : min(own + column, shape.rank - 1);
    Value address =
        emitter.address(matrix, {emitter.toIndex(part.adapter), part.group,
                                 emitter.toIndex(from), emitter.index(0)});
    addresses.push_back(
        isWhole ? emitter.advance(address, column * shape.width * elementBytes)
                : address);
  }
  product.exchange(product.multiply(rows, addresses));
  int64_t across = count * kChunk;
  emitter.loop(
      emitter.thread(), emitter.i32(kRows * across),
      emitter.i32(emitter.getNumThreads()), [&](I32 result) {
        I32 row = result / across, column = result % across;
        F32 sum = product.get(row, column);
        I32 at = column + first * kChunk;
        if (shape.rank % LoraShape::kProductDepth)
          sum = select(at % shape.getPaddedRank() < shape.rank, sum, 0.0);
        F32 high(b, castFloat(b, castFloat(b, sum, getElementType(input)),
                              b.getF32Type()));
        Index place = emitter.toIndex(row * getStride() + at);
        emitter.storeF32(high, shrunk, place);
        emitter.storeF32(sum - high, shrunk, place + kRows * getStride());
      });
}

void GpuLoraUpdate::shrink(const Part &part) {
  I32 own = emitter.lane() / SharedProduct::kLanesOfRow;
  SmallVector<Value> rows;
  for (int64_t half : {0, 8}) {
    Index row = parts.getRow(part, min(own + half, part.count - 1));
    if (op.getGather())
      row = emitter.loadIndex(emitter.operand(op.getSource()), row);
    rows.push_back(emitter.address(input, {row, emitter.index(0)}));
  }
  int64_t all = getStride() / kChunk;
  for (int64_t first = 0; first < all; first += kTiles)
    shrinkColumns(part, rows, first);
  emitter.barrier();
}

/// 16 of K from `k` on of the high (0) or low (1) numbers: two words of a row,
/// each with that of the row 8 below.
SmallVector<Value> GpuLoraUpdate::loadShrunk(int64_t number, int64_t k,
                                             int64_t part) {
  I32 own = emitter.lane() / SharedProduct::kLanesOfRow;
  I32 quarter = emitter.lane() % SharedProduct::kLanesOfRow * kQuarter;
  SmallVector<I32> halves[2];
  for (int64_t half : {0, 1}) {
    I32 at = (own + (half * 8 + part * kRows)) * getStride() + quarter +
             (number * shape.getPaddedRank() + k);
    halves[half] = emitter.pairs(
        emitter.loadElements(shrunk, {emitter.toIndex(at)}, kQuarter));
  }
  SmallVector<Value> words;
  for (int64_t word : {0, 1})
    for (ArrayRef<I32> half : halves)
      words.push_back(half[word]);
  return words;
}

SmallVector<Value> GpuLoraUpdate::loadSecond(Value matrix, const Part &part,
                                             I32 column) {
  constexpr int64_t bytes = 8, elementBytes = 2;
  I32 quarter = emitter.lane() % SharedProduct::kLanesOfRow * kQuarter;
  Value row = emitter.address(
      matrix, {emitter.toIndex(part.adapter), part.group,
               emitter.toIndex(min(column, columns - 1)), emitter.index(0)});
  SmallVector<Value> words;
  for (int64_t k = 0; k < shape.getPaddedRank();
       k += LoraShape::kProductDepth) {
    // Elements behind the rank, maybe NaNs, are multiplied by zeros.
    I32 from = quarter + k, safe = min(from, shape.rank - kQuarter);
    I32 loaded =
        emitter.loadWords(emitter.advance(row, safe * elementBytes), bytes / 4);
    if (shape.rank % LoraShape::kProductDepth)
      loaded =
          select(from < shape.rank, loaded, emitter.splat(emitter.i32(0), 2));
    words.append(emitter.elements<Value>(loaded));
  }
  return words;
}

void GpuLoraUpdate::expandUnits(const Part &part, int64_t number,
                                ArrayRef<I32> units) {
  Value matrix = emitter.operand(op.getSecond()[number]);
  Value result = emitter.operand(op.getResults()[number]);
  I32 own = emitter.lane() / SharedProduct::kLanesOfRow;
  I32 across = emitter.lane() % SharedProduct::kLanesOfRow;
  // Column `own` of a tile is one of a pair; a lane's pairs of the tiles are
  // neighbours, which it stores together.
  SmallVector<SmallVector<Value>> loaded;
  for (I32 unit : units)
    for (int64_t tile = 0; tile < kTiles; ++tile) {
      I32 column = unit * kUnit + own / 2 * kChunk + own % 2 + 2 * tile;
      loaded.push_back(loadSecond(matrix, part, column));
    }
  Type element = getElementType(input);
  SmallVector<SmallVector<Value>> all(loaded.size(),
                                      SmallVector<Value>(4, emitter.f32(0.0)));
  for (int64_t k = 0; k < shape.getPaddedRank(); k += LoraShape::kProductDepth)
    for (int64_t lowest : {0, 1}) {
      SmallVector<Value> rows = loadShrunk(number, k, lowest);
      for (auto [made, words] : llvm::zip(all, loaded))
        made = emitter.multiply(
            element, rows,
            ArrayRef(words).slice(2 * (k / LoraShape::kProductDepth), 2), made);
    }
  for (auto [i, unit] : llvm::enumerate(units)) {
    SmallVector<F32> sums[2];
    for (int64_t tile = 0; tile < kTiles; ++tile)
      for (int64_t half : {0, 1})
        for (int64_t j : {0, 1})
          sums[half].push_back(F32(b, all[i * kTiles + tile][2 * half + j]));
    I32 column = unit * kUnit + across * kChunk;
    for (int64_t half : {0, 1}) {
      I32 row = own + half * 8;
      emitter.ifThen((row < part.count) & (column < columns), [&] {
        emitter.storeVector(emitter.makeVector(ArrayRef(sums[half])), result,
                            {parts.getRow(part, row), emitter.toIndex(column)});
      });
    }
  }
}

void GpuLoraUpdate::expand(const Part &part, int64_t number) {
  // Loads of so many products are in flight.
  constexpr int64_t mostSteps = 2;
  int64_t steps = shape.getPaddedRank() / LoraShape::kProductDepth;
  int64_t atOnce = std::max<int64_t>(1, mostSteps / steps);
  int64_t units = llvm::divideCeil(columns, kUnit);
  emitter.loop(emitter.warp(), emitter.i32(units), emitter.i32(atOnce * warps),
               [&](I32 unit) {
                 SmallVector<I32> all;
                 for (int64_t i = 0; i < atOnce; ++i)
                   all.push_back(unit + i * warps);
                 expandUnits(part, number, all);
               });
}

void GpuLoraUpdate::emit() {
  parts.ifPart(emitter.cta().toI32(), [&](const Part &part) {
    emitter.ifThen(
        part.adapter >= 0,
        [&] {
          shrink(part);
          for (int64_t i = 0; i < shape.matrices; ++i)
            expand(part, i);
        },
        [&] { storeZeros(part); });
  });
}

} // namespace

LogicalResult moec::emitGpuLoraUpdate(Operation *phase, KernelBody body) {
  SharedProduct::limitRegisters(body);
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  GpuLoraUpdate(cast<tile::LoraUpdateOp>(phase), emitter).emit();
  return success();
}
