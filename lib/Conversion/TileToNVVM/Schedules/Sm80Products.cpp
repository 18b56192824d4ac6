//===- Sm80Products.cpp - a tile of products on a CTA -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Sm80Products.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

using sm80::Contract;

/// FMA: threads side by side over the tile's rows and columns.
static constexpr int64_t kFmaRows = 8;
static constexpr int64_t kFmaColumns = 16;

Sm80Products::Sm80Products(ThreadEmitter &emitter, const Contract &shape,
                           Type element, Float8 floats,
                           RowAddress weightAddress, ValueRange weightScales)
    : emitter(emitter), b(emitter.b), shape(shape), element(element),
      shared(emitter.dynamicShared()),
      copyRow(emitter.divide(emitter.thread(), shape.getRowChunks())),
      copyChunk(emitter.remainder(emitter.thread(), shape.getRowChunks())),
      warpRow(emitter.divide(emitter.warp(), Contract::kWarpColumns)),
      warpColumn(emitter.remainder(emitter.warp(), Contract::kWarpColumns)),
      threadRow(emitter.divide(emitter.thread(), kFmaColumns)),
      threadColumn(emitter.remainder(emitter.thread(), kFmaColumns)),
      floats(floats), weightScales(weightScales) {
  weightCopies = makeCopies(shape.m, shape.planes, shape.n, weightAddress);
}

//===----------------------------------------------------------------------===//
// Copies to shared memory
//===----------------------------------------------------------------------===//

/// For rows of which the first is row `firstRow` of a buffer.
Sm80Products::Copies Sm80Products::makeCopies(int64_t firstRow, int64_t planes,
                                              int64_t rows,
                                              RowAddress address) {
  Copies copies;
  for (int64_t plane = 0; plane < planes; ++plane)
    for (int64_t row = 0; row < rows; row += shape.getRowsPerCopy()) {
      Value here = emitter.scale(copyRow, 1, row);
      Value from = address(plane, here);
      if (shape.isAligned())
        from = emitter.advance(from,
                               emitter.scale(copyChunk, Contract::kChunkBytes));
      copies.from.push_back(from);
      copies.to.push_back((firstRow + plane * rows + row) *
                          shape.getRowStride());
    }
  return copies;
}

void Sm80Products::copyStep(Value step, Value stage) {
  copyChunks(inputCopies, step, stage);
  copyChunks(weightCopies, step, stage);
}

void Sm80Products::copyChunks(const Copies &copies, Value step, Value stage) {
  Value first = emitter.scale(step, shape.k);
  Value firstOfChunk =
      addI32(first, emitter.scale(copyChunk, shape.getChunkElements()));
  // Past a row's end zeros take its place, in inputs and weights alike.
  Value bytes;
  if (shape.isAligned() && shape.depth % shape.k)
    bytes = arith::SelectOp::create(
        b, emitter.isLess(firstOfChunk, emitter.i32(shape.depth)),
        emitter.i32(Contract::kChunkBytes), emitter.i32(0));
  Value offset = arith::ExtUIOp::create(
      b, b.getI64Type(), emitter.scale(first, shape.elementBytes));
  Value chunk = emitter.scale(copyChunk, Contract::kChunkBytes);
  Value to = emitter.advance(
      shared, addI32(stage, addI32(emitter.scale(copyRow, shape.getRowStride()),
                                   chunk)));
  for (auto [from, distance] : llvm::zip(copies.from, copies.to)) {
    Value here = emitter.advance(to, distance);
    if (shape.isAligned())
      emitter.copyAsync(here, emitter.advance(from, offset), bytes);
    else
      emitter.store(loadElements(from, firstOfChunk), here,
                    Contract::kChunkBytes);
  }
}

/// A chunk, element by element. What lies past the row's end is not read.
Value Sm80Products::loadElements(Value from, Value first) {
  Type bits = b.getIntegerType(shape.elementBytes * 8);
  Value zero = arith::ConstantOp::create(b, b.getIntegerAttr(bits, 0));
  Value last = emitter.i32(shape.depth - 1);
  SmallVector<Value> elements;
  for (int64_t i = 0; i < shape.getChunkElements(); ++i) {
    Value here = emitter.scale(first, 1, i);
    Value inside = arith::MinSIOp::create(b, here, last);
    Value at = arith::ExtUIOp::create(
        b, b.getI64Type(), emitter.scale(inside, shape.elementBytes));
    Value loaded =
        emitter.load(bits, emitter.advance(from, at), shape.elementBytes);
    Value isInside =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sle, here, last);
    elements.push_back(arith::SelectOp::create(b, isInside, loaded, zero));
  }
  auto type = VectorType::get(elements.size(), bits);
  return vector::FromElementsOp::create(b, type, elements);
}

Value Sm80Products::nextStage(Value stage) {
  int64_t bytes = shape.getStageBytes();
  Value next = emitter.scale(stage, 1, bytes);
  Value isLast = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, next,
                                       emitter.i32(Contract::kStages * bytes));
  return arith::SelectOp::create(b, isLast, emitter.i32(0), next);
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

int64_t Sm80Products::getNumSums() const {
  return shape.m * shape.getWeightRows() / Contract::kThreads;
}

void Sm80Products::emit(RowAddress inputAddress, RowAddress scaleAddress) {
  inputCopies = makeCopies(0, 1, shape.m, inputAddress);
  if (shape.hasScales())
    findScales(scaleAddress);
  constexpr int64_t ahead = Contract::kStages - 1;
  int64_t steps = shape.getSteps();
  for (int64_t step = 0; step < ahead; ++step) {
    if (step < steps)
      copyStep(emitter.i32(step), emitter.i32(step * shape.getStageBytes()));
    emitter.commitCopies();
  }
  SmallVector<Value> carried{emitter.i32(0),
                             emitter.i32(ahead * shape.getStageBytes())};
  carried.append(getNumSums(), emitter.f32(0.0));
  SmallVector<Value> done = emitter.forLoop(
      emitter.index(0), emitter.index(steps), 1, carried,
      [&](Value index, ValueRange values) {
        Value read = values[0], write = values[1];
        // The barrier also says that no thread reads the buffer that the next
        // copies fill.
        emitter.waitCopies(ahead - 1);
        emitter.barrier();
        Value next = emitter.scale(emitter.toI32(index), 1, ahead);
        emitter.ifThen(emitter.isLess(next, emitter.i32(steps)),
                       [&] { copyStep(next, write); });
        emitter.commitCopies();
        SmallVector<Value> results{nextStage(read), nextStage(write)};
        llvm::append_range(results, multiplyStep(emitter.toI32(index), read,
                                                 values.drop_front(2)));
        return results;
      });
  // Sums take the place of the buffers.
  emitter.waitCopies(0);
  emitter.barrier();
  storeSums(ArrayRef<Value>(done).drop_front(2));
  emitter.barrier();
}

SmallVector<Value> Sm80Products::multiplyStep(Value step, Value stage,
                                              ValueRange sums) {
  if (shape.hasScales())
    return multiplyScaled(step, stage, sums);
  return shape.usesTensorCores() ? multiplyOnCores(stage, sums)
                                 : multiplyByFma(stage, sums);
}

//===----------------------------------------------------------------------===//
// Tensor cores
//===----------------------------------------------------------------------===//

std::pair<Value, Value> Sm80Products::findMatrices(Value stage) {
  int64_t stride = shape.getRowStride();
  Value lane = emitter.lane();
  // Of input rows, lanes 0 .. 15 address the first 8 elements and the others
  // the second.
  Value inputRow = addI32(emitter.scale(warpRow, getWarpRows()),
                          emitter.remainder(lane, kCoreRows));
  Value inputPart =
      emitter.scale(emitter.divide(lane, kCoreRows), Contract::kChunkBytes);
  // Of weight rows, every 8 lanes one half of 8 rows.
  Value weightRow =
      emitter.scale(addI32(emitter.scale(warpColumn, getWarpColumns()),
                           addI32(emitter.scale(emitter.divide(lane, 16), 8),
                                  emitter.remainder(lane, 8))),
                    1, shape.m);
  Value weightPart = emitter.scale(
      emitter.remainder(emitter.divide(lane, 8), 2), Contract::kChunkBytes);
  auto at = [&](Value row, Value part) {
    Value offset = addI32(emitter.scale(row, stride), part);
    return emitter.advance(shared, addI32(stage, offset));
  };
  return {at(inputRow, inputPart), at(weightRow, weightPart)};
}

/// Sums are ordered by plane, block of rows, block of columns, element.
SmallVector<Value> Sm80Products::multiplyOnCores(Value stage, ValueRange sums) {
  int64_t stride = shape.getRowStride();
  auto [inputs, weights] = findMatrices(stage);
  SmallVector<Value> next(sums);
  int64_t rowBlocks = getWarpRows() / kCoreRows;
  int64_t columnBlocks = getWarpColumns() / kCoreColumns;
  for (int64_t k = 0; k < shape.k; k += kCoreDepth) {
    int64_t step = k * shape.elementBytes;
    SmallVector<SmallVector<Value>> a;
    for (int64_t row = 0; row < rowBlocks; ++row)
      a.push_back(emitter.loadMatrices(
          emitter.advance(inputs, row * kCoreRows * stride + step)));
    for (int64_t plane = 0; plane < shape.planes; ++plane)
      for (int64_t pair = 0; pair < columnBlocks; pair += 2) {
        int64_t row = plane * shape.n + pair * kCoreColumns;
        SmallVector<Value> w =
            emitter.loadMatrices(emitter.advance(weights, row * stride + step));
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t block = 0; block < rowBlocks; ++block) {
            int64_t first =
                ((plane * rowBlocks + block) * columnBlocks + pair + half) *
                kCoreSums;
            auto place = MutableArrayRef<Value>(next).slice(first, kCoreSums);
            SmallVector<Value> product = emitter.multiply(
                element, a[block], ArrayRef<Value>(w).slice(2 * half, 2),
                SmallVector<Value>(place));
            llvm::copy(product, place.begin());
          }
      }
  }
  return next;
}

//===----------------------------------------------------------------------===//
// FMA
//===----------------------------------------------------------------------===//

/// Sums are ordered by plane, row, column.
SmallVector<Value> Sm80Products::multiplyByFma(Value stage, ValueRange sums) {
  constexpr int64_t width = 4;
  int64_t stride = shape.getRowStride();
  int64_t rows = shape.m / kFmaRows, columns = shape.n / kFmaColumns;
  auto type = VectorType::get(width, b.getF32Type());
  auto at = [&](Value row) {
    return emitter.advance(shared, addI32(stage, emitter.scale(row, stride)));
  };
  Value inputs = at(threadRow);
  Value weights = at(emitter.scale(threadColumn, 1, shape.m));
  auto load = [&](Value base, int64_t row, int64_t k) {
    Value from = emitter.advance(base, row * stride + k * shape.elementBytes);
    Value four = emitter.load(type, from, Contract::kChunkBytes);
    SmallVector<Value> parts;
    for (int64_t i = 0; i < width; ++i)
      parts.push_back(vector::ExtractOp::create(b, four, i));
    return parts;
  };
  SmallVector<Value> next(sums);
  for (int64_t k = 0; k < shape.k; k += width) {
    SmallVector<SmallVector<Value>> x;
    for (int64_t row = 0; row < rows; ++row)
      x.push_back(load(inputs, row * kFmaRows, k));
    for (int64_t plane = 0; plane < shape.planes; ++plane)
      for (int64_t column = 0; column < columns; ++column) {
        SmallVector<Value> w =
            load(weights, plane * shape.n + column * kFmaColumns, k);
        for (int64_t row = 0; row < rows; ++row) {
          Value &sum = next[(plane * rows + row) * columns + column];
          for (int64_t i = 0; i < width; ++i)
            sum = math::FmaOp::create(b, x[row][i], w[i], sum);
        }
      }
  }
  return next;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

Value Sm80Products::sumAddress(int64_t plane, Value row, Value column) {
  constexpr int64_t bytes = 4;
  int64_t stride = shape.getSumStride();
  Value offset =
      addI32(emitter.scale(row, stride * bytes), emitter.scale(column, bytes));
  return emitter.advance(emitter.advance(shared, offset),
                         plane * shape.m * stride * bytes);
}

void Sm80Products::storeSums(ValueRange sums) {
  if (!shape.usesTensorCores()) {
    int64_t rows = shape.m / kFmaRows, columns = shape.n / kFmaColumns;
    for (auto [i, sum] : llvm::enumerate(sums)) {
      int64_t plane = i / (rows * columns);
      int64_t row = i / columns % rows, column = i % columns;
      emitter.store(
          sum,
          sumAddress(plane, emitter.scale(threadRow, 1, row * kFmaRows),
                     emitter.scale(threadColumn, 1, column * kFmaColumns)),
          4);
    }
    return;
  }
  // A thread holds neighbours of two rows, 8 apart.
  int64_t rowBlocks = getWarpRows() / kCoreRows;
  int64_t columnBlocks = getWarpColumns() / kCoreColumns;
  Value row = addI32(emitter.scale(warpRow, getWarpRows()),
                     emitter.divide(emitter.lane(), 4));
  Value column = addI32(emitter.scale(warpColumn, getWarpColumns()),
                        emitter.scale(emitter.remainder(emitter.lane(), 4), 2));
  auto pair = VectorType::get(2, b.getF32Type());
  for (size_t i = 0; i < sums.size(); i += 2) {
    int64_t block = i / kCoreSums, half = i / 2 % 2;
    int64_t plane = block / (rowBlocks * columnBlocks);
    int64_t rowBlock = block / columnBlocks % rowBlocks;
    int64_t columnBlock = block % columnBlocks;
    Value two =
        vector::FromElementsOp::create(b, pair, ValueRange(sums.slice(i, 2)));
    emitter.store(
        two,
        sumAddress(plane,
                   emitter.scale(row, 1, rowBlock * kCoreRows + half * 8),
                   emitter.scale(column, 1, columnBlock * kCoreColumns)),
        8);
  }
}

Value Sm80Products::loadSums(int64_t plane, Value row, Value column,
                             int64_t lanes) {
  constexpr int64_t bytes = 4;
  Value from = sumAddress(plane, emitter.toI32(row), emitter.toI32(column));
  return emitter.load(VectorType::get(lanes, b.getF32Type()), from,
                      std::min<int64_t>(lanes * bytes, 16));
}
