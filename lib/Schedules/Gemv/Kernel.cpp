//===- Kernel.cpp - the schedule gpu.gemv -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel of gpu.gemv. A CTA multiplies up to `m` rows with `n` columns of a
// dense gemm, and its threads split K: each has every `threads`-th chunk of 16
// bytes of all rows. The sums are then reduced: across the lanes of a warp,
// halving the number of sums per lane in each step, then across warps, in
// order. A single row, which is all that one token has, has code of its own.

#include "KernelBuilder/GemmOperands.h"
#include "KernelBuilder/ThreadEmitter.h"
#include "Schedules/Interface/Emit.h"
#include "Shape.h"
#include "TensorCores.h"
#include "moec/Support/GpuInstructions.h"

using namespace mlir;
using namespace moec;

namespace {

class GpuGemv {
public:
  GpuGemv(tile::GemmOp op, ThreadEmitter &emitter)
      : op(op), emitter(emitter), b(emitter.b), shape(op, op.getConfigAttr()),
        input(emitter.operand(op.getInput())),
        weight(emitter.operand(op.getWeight())),
        result(emitter.operand(op.getResult())) {}

  LogicalResult emit();

private:
  /// Sets `cleared` to 0 for later launches.
  void clearCounter();
  void emitProducts();
  void findPlace();
  /// Computes results of up to `count` rows. Columns or rows past the end
  /// repeat the last one; their sums are never read.
  void emitRows(int64_t count);
  void emitTensor();
  void addProducts();
  /// Adds the products of `count` chunks, `shape.threads` apart.
  void addChunks(Index first, int64_t count, SmallVector<F32> &sums);
  /// Adds the products of the last chunks, which not all threads have.
  void addRest(SmallVector<F32> &sums);
  void addChunk(ArrayRef<F32> weights, ArrayRef<F32> inputs,
                SmallVector<F32> &sums);
  /// The elements of a chunk, as a vector of f32.
  F32 loadChunk(Value memref, Index row, Index chunk);

  /// Reduces the sums across the warp. Returns the number of the lane's first
  /// sum; neighbouring lanes have different sums or equal ones.
  I32 addLanes();
  void storeSums(I32 firstSum);
  /// The sum over all warps, given the address of the first one's.
  F32 addWarps(Index place);
  void storeResult(Index number);
  F32 emitEpilogue(F32 sum, Index row, Index column);

  int64_t getNumSums() const {
    return static_cast<int64_t>(rows.size()) * shape.n;
  }

  tile::GemmOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  anygpu::Gemv shape;
  Value input, weight, result;
  Index firstRow, firstColumn, end;
  SmallVector<Index> columns, rows;
  SmallVector<F32> sums;
  Value table;
  /// Sums per warp in the table.
  int64_t warpSums = 0;
  LogicalResult status = success();
};

void GpuGemv::findPlace() {
  Index block = emitter.cta() / shape.getNTiles();
  Index nTile = emitter.cta() % shape.getNTiles();
  firstRow = block * shape.m;
  firstColumn = nTile * shape.n;
  end = min(firstRow + shape.m, emitter.tokens());
  for (int64_t i = 0; i < shape.n; ++i) {
    Index column = firstColumn + i;
    if (shape.columns % shape.n)
      column = min(column, shape.columns - 1);
    columns.push_back(column);
  }
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

F32 GpuGemv::loadChunk(Value memref, Index row, Index chunk) {
  int64_t elements = shape.getChunkElements();
  return emitter.loadVector(memref, {row, chunk * elements}, elements);
}

/// Sums are ordered by row, then by column.
void GpuGemv::addChunk(ArrayRef<F32> weights, ArrayRef<F32> inputs,
                       SmallVector<F32> &sums) {
  auto split = [&](F32 vector) { return emitter.elements<F32>(vector); };
  auto w = llvm::map_to_vector(weights, split);
  for (auto [row, vector] : llvm::enumerate(inputs)) {
    SmallVector<F32> x = split(vector);
    for (int64_t column = 0; column < shape.n; ++column) {
      F32 &sum = sums[row * shape.n + column];
      for (auto [a, c] : llvm::zip(x, w[column]))
        sum = fma(a, c, sum);
    }
  }
}

void GpuGemv::addChunks(Index first, int64_t count, SmallVector<F32> &sums) {
  SmallVector<Index> chunks;
  SmallVector<SmallVector<F32>> weights(count);
  for (int64_t i = 0; i < count; ++i) {
    chunks.push_back(first + i * shape.threads);
    for (Index column : columns)
      weights[i].push_back(loadChunk(weight, column, chunks[i]));
  }
  for (int64_t i = 0; i < count; ++i) {
    auto inputs = llvm::map_to_vector(
        rows, [&](Index row) { return loadChunk(input, row, chunks[i]); });
    addChunk(weights[i], inputs, sums);
  }
}

void GpuGemv::addRest(SmallVector<F32> &sums) {
  int64_t rest = shape.getChunks() % shape.threads;
  if (rest == 0)
    return;
  auto add = [&] {
    SmallVector<F32> next = sums;
    Index thread = emitter.toIndex(emitter.thread());
    addChunks(thread + (shape.getChunks() - rest), 1, next);
    return next;
  };
  sums = emitter.choose(emitter.thread() < rest, add, [&] { return sums; });
}

void GpuGemv::addProducts() {
  sums.assign(getNumSums(), emitter.f32(0.0));
  Index thread = emitter.toIndex(emitter.thread());
  int64_t steps = shape.getChunks() / shape.threads;
  int64_t atOnce = std::max<int64_t>(ptxas::kGemvChunks / shape.n, 1);
  int64_t whole = steps - steps % atOnce;
  if (whole)
    sums = emitter.loop(emitter.index(0), emitter.index(whole * shape.threads),
                        atOnce * shape.threads, sums,
                        [&](Index first, SmallVector<F32> next) {
                          addChunks(first + thread, atOnce, next);
                          return next;
                        });
  if (steps > whole)
    addChunks(thread + whole * shape.threads, steps - whole, sums);
  addRest(sums);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

I32 GpuGemv::addLanes() {
  I32 first = emitter.i32(0);
  for (int64_t distance = kWarp / 2; distance > 0; distance /= 2) {
    size_t half = sums.size() / 2;
    if (half == 0) {
      sums[0] = sums[0] + emitter.shuffleXor(sums[0], distance);
      continue;
    }
    // The lane keeps one half of its sums, and exchanges the other for its
    // neighbour's.
    I32 bit = emitter.lane() / distance % 2;
    Flag isUpper = bit > 0;
    for (size_t i = 0; i < half; ++i) {
      F32 lower = sums[i], upper = sums[i + half];
      F32 kept = select(isUpper, upper, lower);
      F32 given = select(isUpper, lower, upper);
      sums[i] = kept + emitter.shuffleXor(given, distance);
    }
    sums.resize(half);
    first = first + bit * static_cast<int64_t>(half);
  }
  return first;
}

void GpuGemv::storeSums(I32 firstSum) {
  int64_t number = getNumSums();
  // Lanes with equal sums, the first of which writes.
  int64_t same = std::max<int64_t>(kWarp / number, 1);
  Index at = emitter.toIndex(firstSum + emitter.warp() * number);
  emitter.ifThen(emitter.lane() % same < 1, [&] {
    for (auto [i, sum] : llvm::enumerate(sums))
      emitter.storeF32(sum, table, at + static_cast<int64_t>(i));
  });
  // LLVM loads three of four neighbours as four, so that all four have to
  // exist.
  constexpr int64_t atOnce = 4;
  int64_t used = shape.getWarps() * number;
  int64_t pads = llvm::alignTo(used, atOnce) - used;
  if (number == 1 && pads)
    emitter.ifThen(emitter.thread() < pads, [&] {
      Index pad = emitter.toIndex(emitter.thread()) + used;
      emitter.storeF32(emitter.f32(0.0), table, pad);
    });
}

F32 GpuGemv::addWarps(Index place) {
  F32 sum = emitter.loadF32(table, place);
  for (int64_t warp = 1; warp < shape.getWarps(); ++warp)
    sum = sum + emitter.loadF32(table, place + warp * warpSums);
  return sum;
}

/// Null if the region cannot be emitted.
F32 GpuGemv::emitEpilogue(F32 sum, Index row, Index column) {
  SmallVector<Value> args{sum};
  for (Value operand : op.getRowOperands())
    args.push_back(loadRowOperand(emitter, operand, row));
  for (Value operand : op.getColumnOperands())
    args.push_back(emitter.loadF32(emitter.operand(operand), column));
  for (Value operand : op.getElementwiseOperands())
    args.push_back(emitter.loadF32(emitter.operand(operand), {row, column}));
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return {b, *value};
  status = failure();
  return {};
}

void GpuGemv::storeResult(Index number) {
  Index rowOfCta = number / shape.n, columnOfCta = number % shape.n;
  Index row = firstRow + rowOfCta, column = firstColumn + columnOfCta;
  Index place = rowOfCta * shape.getSumStride() + columnOfCta;
  Flag isRow = row < end, isColumn = column < shape.columns;
  emitter.ifThen(isRow & isColumn, [&] {
    auto store = [&] {
      if (F32 value = emitEpilogue(addWarps(place), row, column))
        emitter.storeF32(value, result, {row, column});
    };
    if (!op.getNumValidTokens())
      return store();
    Index valid = emitter.validTokens(op.getNumValidTokens());
    emitter.ifThen(row < valid, store, [&] {
      emitter.storeF32(emitter.f32(0.0), result, {row, column});
    });
  });
}

void GpuGemv::emitRows(int64_t count) {
  Index last = end - 1;
  rows.clear();
  for (int64_t i = 0; i < count; ++i)
    rows.push_back(i ? min(firstRow + i, last) : firstRow);
  addProducts();
  warpSums = getNumSums();
  storeSums(addLanes());
  emitter.barrier();
  Index thread = emitter.toIndex(emitter.thread());
  emitter.ifThen(thread < getNumSums(), [&] { storeResult(thread); });
}

void GpuGemv::emitTensor() {
  GemvTensor(shape, emitter, input, weight)
      .emit(firstRow, /*lastRow=*/end - 1, firstColumn, table);
  warpSums = shape.getWarpSums();
  emitter.barrier();
  emitter.forThreads(emitter.index(0), emitter.index(shape.m * shape.n),
                     [&](Index number) { storeResult(number); });
}

void GpuGemv::clearCounter() {
  Value cleared = emitter.operand(op.getCleared());
  I32 firstThread = emitter.cta().toI32() * emitter.getNumThreads();
  emitter.ifThen(firstThread + emitter.thread() < 1, [&] {
    emitter.storeI32(emitter.i32(0), cleared, {emitter.index(0)});
  });
}

void GpuGemv::emitProducts() {
  table = emitter.scratch(shape.getSumBytes() / 4, b.getF32Type());
  findPlace();
  if (shape.usesTensorCores())
    return emitTensor();
  if (shape.m == 1)
    return emitRows(1);
  auto emitOne = [&] { emitRows(1); };
  auto emitAll = [&] { emitRows(shape.m); };
  emitter.ifThen(end == firstRow + 1, emitOne, emitAll);
}

/// A counter is cleared by one CTA without tokens, too.
LogicalResult GpuGemv::emit() {
  if (op.getCleared()) {
    clearCounter();
    emitter.ifThen(emitter.tokens() > 0, [&] { emitProducts(); });
  } else {
    emitProducts();
  }
  return status;
}

} // namespace

LogicalResult moec::emitGpuGemv(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  return GpuGemv(cast<tile::GemmOp>(phase), emitter).emit();
}
