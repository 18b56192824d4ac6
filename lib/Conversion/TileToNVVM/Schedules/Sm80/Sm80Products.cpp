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

/// FMA: arrangement of threads over the tile's rows and columns.
static constexpr int64_t kFmaRows = 8;
static constexpr int64_t kFmaColumns = 16;

Sm80Products::Operand Sm80Products::makeOperand(const Contract::Rows &rows,
                                                int64_t firstRow,
                                                moe::QuantAttr quant,
                                                Float8 floats,
                                                OperandDecoder::Side side) {
  return {rows,
          firstRow,
          OperandDecoder(emitter, quant, shape.compute, floats, side,
                         shape.weight.bits == 4 ? OperandDecoder::Order::Octets
                                                : OperandDecoder::Order::Quads),
          emitter.divide(emitter.thread(), rows.getChunks()),
          emitter.remainder(emitter.thread(), rows.getChunks()),
          {},
          {}};
}

Sm80Products::Sm80Products(ThreadEmitter &emitter, tile::ContractOp op,
                           const Contract &shape, Float8 floats,
                           RowAddress weightAddress, Sm80Scales &scales)
    : emitter(emitter), b(emitter.b), shape(shape), scales(scales),
      element(getType(b.getContext(), shape.compute)),
      shared(emitter.dynamicShared()),
      input(makeOperand(shape.input, /*firstRow=*/0, op.getInputQuantAttr(),
                        floats, OperandDecoder::Side::Input)),
      weight(makeOperand(shape.weight, shape.getFirstWeightRow(),
                         op.getWeightQuantAttr(), floats,
                         OperandDecoder::Side::Weight)),
      warpRow(emitter.divide(emitter.warp(), Contract::kWarpColumns)),
      warpColumn(emitter.remainder(emitter.warp(), Contract::kWarpColumns)),
      threadRow(emitter.divide(emitter.thread(), kFmaColumns)),
      threadColumn(emitter.remainder(emitter.thread(), kFmaColumns)) {
  makeCopies(weight, shape.weightsPerColumn, shape.n, weightAddress);
  if (shape.hasElementFactors)
    findElementRows();
  if (!shape.hasColumnScales)
    return;
  SmallVector<Value> columns;
  Value first = getFirstColumn();
  for (int64_t i = 0; i < getNumThreadColumns(); ++i)
    columns.push_back(emitter.scale(first, 1, getColumnDistance(i)));
  scales.findColumns(columns);
}

//===----------------------------------------------------------------------===//
// Copies to shared memory
//===----------------------------------------------------------------------===//

void Sm80Products::makeCopies(Operand &operand, int64_t projections,
                              int64_t rows, RowAddress address) {
  operand.from.clear();
  operand.to.clear();
  for (int64_t projection = 0; projection < projections; ++projection)
    for (int64_t row = 0; row < rows; row += operand.rows.getRowsPerCopy()) {
      Value here = emitter.scale(operand.copyRow, 1, row);
      Value from = address(projection, here);
      if (operand.rows.isAligned())
        from = emitter.advance(
            from, emitter.scale(operand.copyChunk, Contract::kChunkBytes));
      operand.from.push_back(from);
      operand.to.push_back((operand.firstRow + projection * rows + row) *
                           operand.rows.getStride());
    }
}

Value Sm80Products::getBytes(const Operand &operand, Value elements) {
  int64_t bits = operand.rows.bits;
  return bits < 8 ? emitter.divide(elements, 8 / bits)
                  : emitter.scale(elements, bits / 8);
}

void Sm80Products::copyStep(Value step, Value stage) {
  copyChunks(input, step, stage);
  copyChunks(weight, step, stage);
}

void Sm80Products::copyChunks(const Operand &operand, Value step, Value stage) {
  const Contract::Rows &rows = operand.rows;
  Value first = emitter.scale(step, shape.k);
  Value firstOfChunk =
      addI32(first, emitter.scale(operand.copyChunk, rows.getChunkElements()));
  // Past a row's end zeros are copied, in inputs and weights alike.
  Value bytes;
  if (rows.isAligned() && shape.depth % shape.k)
    bytes = arith::SelectOp::create(
        b, emitter.isLess(firstOfChunk, emitter.i32(shape.depth)),
        emitter.i32(Contract::kChunkBytes), emitter.i32(0));
  Value offset =
      arith::ExtUIOp::create(b, b.getI64Type(), getBytes(operand, first));
  Value chunk = emitter.scale(operand.copyChunk, Contract::kChunkBytes);
  Value row = emitter.scale(operand.copyRow, rows.getStride());
  Value to = emitter.advance(shared, addI32(stage, addI32(row, chunk)));
  for (auto [from, distance] : llvm::zip(operand.from, operand.to)) {
    Value here = emitter.advance(to, distance);
    if (rows.isAligned())
      emitter.copyAsync(here, emitter.advance(from, offset), bytes);
    else
      emitter.store(loadElements(operand, from, firstOfChunk), here,
                    Contract::kChunkBytes);
  }
}

/// Loads a chunk element by element. Elements past the row's end are not read.
Value Sm80Products::loadElements(const Operand &operand, Value from,
                                 Value first) {
  int64_t bytes = operand.rows.getBytes(1);
  Type bits = b.getIntegerType(bytes * 8);
  Value zero = arith::ConstantOp::create(b, b.getIntegerAttr(bits, 0));
  Value last = emitter.i32(shape.depth - 1);
  SmallVector<Value> elements;
  for (int64_t i = 0; i < operand.rows.getChunkElements(); ++i) {
    Value here = emitter.scale(first, 1, i);
    Value inside = arith::MinSIOp::create(b, here, last);
    Value at =
        arith::ExtUIOp::create(b, b.getI64Type(), emitter.scale(inside, bytes));
    Value loaded = emitter.load(bits, emitter.advance(from, at), bytes);
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

int64_t Sm80Products::getNumRowSums() const {
  if (!shape.hasMinima)
    return 0;
  return shape.usesTensorCores() ? getWarpRows() / kCoreRows * kCoreSums
                                 : shape.m / kFmaRows;
}

SmallVector<Value> Sm80Products::getRowSums(ValueRange sums) const {
  // An mma by ones gives a thread two columns of two rows.
  int64_t columns = shape.usesTensorCores() ? kCoreSums / 2 : 1;
  SmallVector<Value> ofRows;
  for (int64_t i = 0, end = sums.size(); i < end; i += columns)
    ofRows.push_back(sums[i]);
  return ofRows;
}

void Sm80Products::emit(RowAddress inputAddress, RowAddress scaleAddress) {
  makeCopies(input, /*projections=*/1, shape.m, inputAddress);
  if (scales.hasRowsInLoop()) {
    SmallVector<Value> addresses;
    Value first = getFirstRow();
    for (int64_t i = 0; i < getNumThreadRows(); ++i)
      addresses.push_back(
          scaleAddress(0, emitter.scale(first, 1, getRowDistance(i))));
    scales.setRows(addresses);
  }
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
        // After this barrier no thread reads the buffer that the next copies
        // fill.
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
  // Sums reuse the memory of the buffers.
  emitter.waitCopies(0);
  emitter.barrier();
  storeSums(ArrayRef<Value>(done).drop_front(2));
  emitter.barrier();
}

SmallVector<Value> Sm80Products::multiplyStep(Value step, Value stage,
                                              ValueRange sums) {
  if (!shape.scales.areInLoop())
    return multiplyPart(step, stage, /*part=*/0, sums);
  SmallVector<Value> next(sums);
  for (int64_t part = 0; part < shape.getParts(); ++part) {
    // Loaded early to hide latency.
    Sm80Scales::Factors factors = scales.load(step, part);
    SmallVector<Value> zeros(getNumSums() + getNumRowSums(), emitter.f32(0));
    SmallVector<Value> products = multiplyPart(step, stage, part, zeros);
    ArrayRef<Value> ofPart(products);
    next = scales.add(factors, ofPart.take_front(getNumSums()),
                      getRowSums(ofPart.drop_front(getNumSums())), next,
                      [&](int64_t i) { return getPlace(i); });
  }
  return next;
}

SmallVector<Value> Sm80Products::multiplyPart(Value step, Value stage,
                                              int64_t part, ValueRange sums) {
  if (!shape.usesTensorCores())
    return multiplyByFma(step, stage, part, sums);
  if (!input.decoder.isPlain() || !weight.decoder.isPlain())
    return multiplyDecoded(step, stage, part, sums);
  return multiplyOnCores(stage, sums);
}

//===----------------------------------------------------------------------===//
// Tensor cores
//===----------------------------------------------------------------------===//

Value Sm80Products::stageAddress(Value stage, const Operand &operand, Value row,
                                 Value bytes) {
  Value offset = emitter.scale(emitter.scale(row, 1, operand.firstRow),
                               operand.rows.getStride());
  if (bytes)
    offset = addI32(offset, bytes);
  return emitter.advance(shared, addI32(stage, offset));
}

std::pair<Value, Value> Sm80Products::findRows(Value stage, bool asMatrices) {
  auto getPlace = [&](OperandDecoder &decoder, Value first) {
    return asMatrices ? decoder.getMatrixPlace(first)
                      : decoder.getPiecePlace(first);
  };
  auto [inputRow, inputBytes] =
      getPlace(input.decoder, emitter.scale(warpRow, getWarpRows()));
  auto [weightRow, weightBytes] =
      getPlace(weight.decoder, emitter.scale(warpColumn, getWarpColumns()));
  return {stageAddress(stage, input, inputRow, inputBytes),
          stageAddress(stage, weight, weightRow, weightBytes)};
}

/// Sums are ordered by projection, block of rows, block of columns, element.
SmallVector<Value> Sm80Products::multiplyOnCores(Value stage, ValueRange sums) {
  int64_t stride = input.rows.getStride();
  auto [inputs, weights] = findRows(stage, /*asMatrices=*/true);
  SmallVector<Value> next(sums);
  int64_t rowBlocks = getWarpRows() / kCoreRows;
  int64_t columnBlocks = getWarpColumns() / kCoreColumns;
  for (int64_t k = 0; k < shape.k; k += kCoreDepth) {
    int64_t step = input.rows.getBytes(k);
    SmallVector<SmallVector<Value>> a;
    for (int64_t row = 0; row < rowBlocks; ++row)
      a.push_back(emitter.loadMatrices(
          emitter.advance(inputs, row * kCoreRows * stride + step)));
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      for (int64_t pair = 0; pair < columnBlocks; pair += 2) {
        int64_t row = projection * shape.n + pair * kCoreColumns;
        SmallVector<Value> w =
            emitter.loadMatrices(emitter.advance(weights, row * stride + step));
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t block = 0; block < rowBlocks; ++block) {
            int64_t first = ((projection * rowBlocks + block) * columnBlocks +
                             pair + half) *
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

/// Sums are ordered by projection, row, column.
SmallVector<Value> Sm80Products::multiplyByFma(Value step, Value stage,
                                               int64_t part, ValueRange sums) {
  constexpr int64_t width = 4, elementsWithFactors = 16;
  int64_t rows = shape.m / kFmaRows, columns = shape.n / kFmaColumns;
  Value inputs = stageAddress(stage, input, threadRow);
  Value weights = stageAddress(stage, weight, threadColumn);
  auto load = [&](Operand &operand, Value base, int64_t row, int64_t k,
                  ElementFactors factors = {}) {
    return operand.decoder.loadFour(
        emitter.advance(base, row * operand.rows.getStride() +
                                  operand.rows.getBytes(k)),
        factors);
  };
  SmallVector<SmallVector<ElementFactors>> factors(shape.weightsPerColumn);
  SmallVector<Value> next(sums);
  int64_t first = part * shape.partDepth;
  for (int64_t k = first; k < first + shape.partDepth; k += width) {
    if (shape.hasElementFactors && k % elementsWithFactors == 0)
      for (int64_t projection = 0; projection < shape.weightsPerColumn;
           ++projection)
        factors[projection] =
            scales.loadForElements(projection, emitter.scale(step, shape.k, k));
    SmallVector<SmallVector<Value>> x;
    for (int64_t row = 0; row < rows; ++row)
      x.push_back(load(input, inputs, row * kFmaRows, k));
    for (int64_t row = 0; row < getNumRowSums(); ++row)
      for (Value value : x[row]) {
        Value &sum = next[getNumSums() + row];
        sum = arith::AddFOp::create(b, sum, value);
      }
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      for (int64_t column = 0; column < columns; ++column) {
        ElementFactors own;
        if (shape.hasElementFactors)
          own = factors[projection][column];
        SmallVector<Value> w =
            load(weight, weights, projection * shape.n + column * kFmaColumns,
                 k, own);
        for (int64_t row = 0; row < rows; ++row) {
          Value &sum = next[(projection * rows + row) * columns + column];
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

Value Sm80Products::sumAddress(int64_t projection, Value row, Value column) {
  constexpr int64_t bytes = 4;
  int64_t stride = shape.getSumStride();
  Value offset =
      addI32(emitter.scale(row, stride * bytes), emitter.scale(column, bytes));
  return emitter.advance(emitter.advance(shared, offset),
                         projection * shape.m * stride * bytes);
}

Sm80Scales::Place Sm80Products::getPlace(int64_t i) const {
  if (!shape.usesTensorCores()) {
    int64_t rows = shape.m / kFmaRows, columns = shape.n / kFmaColumns;
    return {i / (rows * columns), i / columns % rows, i % columns};
  }
  // A thread holds adjacent columns of two rows, 8 apart.
  int64_t rowBlocks = getWarpRows() / kCoreRows;
  int64_t columnBlocks = getWarpColumns() / kCoreColumns;
  int64_t block = i / kCoreSums;
  return {block / (rowBlocks * columnBlocks),
          block / columnBlocks % rowBlocks * 2 + i / 2 % 2,
          block % columnBlocks * 2 + i % 2};
}

Value Sm80Products::getFirstRow() {
  if (!shape.usesTensorCores())
    return threadRow;
  return addI32(emitter.scale(warpRow, getWarpRows()),
                emitter.divide(emitter.lane(), 4));
}

Value Sm80Products::getFirstColumn() {
  if (!shape.usesTensorCores())
    return threadColumn;
  return addI32(emitter.scale(warpColumn, getWarpColumns()),
                emitter.scale(emitter.remainder(emitter.lane(), 4), 2));
}

int64_t Sm80Products::getRowDistance(int64_t row) const {
  return row * (shape.usesTensorCores() ? kCoreRows / 2 : kFmaRows);
}

int64_t Sm80Products::getColumnDistance(int64_t column) const {
  return shape.usesTensorCores() ? column / 2 * kCoreColumns + column % 2
                                 : column * kFmaColumns;
}

int64_t Sm80Products::getNumThreadRows() const {
  return shape.usesTensorCores() ? getWarpRows() / (kCoreRows / 2)
                                 : shape.m / kFmaRows;
}

int64_t Sm80Products::getNumThreadColumns() const {
  return shape.usesTensorCores() ? getWarpColumns() / kCoreColumns * 2
                                 : shape.n / kFmaColumns;
}

void Sm80Products::findElementRows() {
  SmallVector<int64_t> distances;
  if (!shape.usesTensorCores()) {
    for (int64_t i = 0; i < getNumThreadColumns(); ++i)
      distances.push_back(getColumnDistance(i));
    return scales.findElementRows(threadColumn, distances);
  }
  for (int64_t column = 0; column < getWarpColumns(); column += kCoreColumns)
    distances.push_back(column);
  Value first = addI32(emitter.scale(warpColumn, getWarpColumns()),
                       emitter.divide(emitter.lane(), 4));
  scales.findElementRows(first, distances);
}

void Sm80Products::storeSums(ValueRange sums) {
  Value row = getFirstRow(), column = getFirstColumn();
  // Neighbours are stored together if tensor cores have made them.
  int64_t atOnce = shape.usesTensorCores() ? 2 : 1;
  auto type = VectorType::get(atOnce, b.getF32Type());
  for (int64_t i = 0, end = sums.size(); i < end; i += atOnce) {
    Sm80Scales::Place place = getPlace(i);
    Value stored = sums[i];
    if (atOnce > 1)
      stored = vector::FromElementsOp::create(
          b, type, ValueRange(sums.slice(i, atOnce)));
    emitter.store(
        stored,
        sumAddress(place.projection,
                   emitter.scale(row, 1, getRowDistance(place.row)),
                   emitter.scale(column, 1, getColumnDistance(place.column))),
        4 * atOnce);
  }
}

Value Sm80Products::loadSums(int64_t projection, Value row, Value column,
                             int64_t lanes) {
  constexpr int64_t bytes = 4;
  Value from =
      sumAddress(projection, emitter.toI32(row), emitter.toI32(column));
  return emitter.load(VectorType::get(lanes, b.getF32Type()), from,
                      std::min<int64_t>(lanes * bytes, 16));
}
