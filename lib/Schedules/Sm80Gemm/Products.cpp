//===- Products.cpp - a tile of products on a CTA ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Products.h"

using namespace mlir;
using namespace moec;

using sm80::GemmShape;

/// FMA: arrangement of threads over the tile's rows and columns.
static constexpr int64_t kFmaRows = 8;
static constexpr int64_t kFmaColumns = 16;

Sm80Products::Operand Sm80Products::makeOperand(const GemmShape::Rows &rows,
                                                int64_t firstRow,
                                                moe::QuantAttr quant,
                                                Float8 floats,
                                                OperandDecoder::Side side) {
  return {rows,
          firstRow,
          OperandDecoder(emitter, quant, shape.compute, floats, side,
                         shape.weight.bits == 4 ? OperandDecoder::Order::Octets
                                                : OperandDecoder::Order::Quads),
          emitter.thread() / rows.getChunks(),
          emitter.thread() % rows.getChunks(),
          {},
          {}};
}

Sm80Products::Sm80Products(ThreadEmitter &emitter, tile::GemmOp op,
                           const GemmShape &shape, Float8 floats,
                           RowAddress weightAddress, Sm80Scales &scales)
    : emitter(emitter), b(emitter.b), shape(shape), scales(scales),
      element(getType(b.getContext(), shape.compute)),
      shared(emitter.dynamicShared()),
      input(makeOperand(shape.input, /*firstRow=*/0, op.getInputQuantAttr(),
                        floats, OperandDecoder::Side::Input)),
      weight(makeOperand(shape.weight, shape.getFirstWeightRow(),
                         op.getWeightQuantAttr(), floats,
                         OperandDecoder::Side::Weight)),
      warpRow(emitter.warp() / GemmShape::kWarpColumns),
      warpColumn(emitter.warp() % GemmShape::kWarpColumns),
      threadRow(emitter.thread() / kFmaColumns),
      threadColumn(emitter.thread() % kFmaColumns) {
  makeCopies(weight, shape.weightsPerColumn, shape.n, weightAddress);
  if (shape.hasElementFactors)
    findElementRows();
  if (!shape.hasColumnScales)
    return;
  SmallVector<I32> columns;
  I32 first = getFirstColumn();
  for (int64_t i = 0; i < getNumThreadColumns(); ++i)
    columns.push_back(first + getColumnDistance(i));
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
      Value from = address(projection, operand.copyRow + row);
      if (operand.rows.isAligned())
        from =
            emitter.advance(from, operand.copyChunk * GemmShape::kChunkBytes);
      operand.from.push_back(from);
      operand.to.push_back((operand.firstRow + projection * rows + row) *
                           operand.rows.getStride());
    }
}

I32 Sm80Products::getBytes(const Operand &operand, I32 elements) {
  int64_t bits = operand.rows.bits;
  return bits < 8 ? elements / (8 / bits) : elements * (bits / 8);
}

void Sm80Products::copyTile(I32 kTile, I32 stage) {
  copyChunks(input, kTile, stage);
  copyChunks(weight, kTile, stage);
}

void Sm80Products::copyChunks(const Operand &operand, I32 kTile, I32 stage) {
  const GemmShape::Rows &rows = operand.rows;
  I32 first = kTile * shape.k;
  I32 firstOfChunk = first + operand.copyChunk * rows.getChunkElements();
  // Past a row's end zeros are copied, in inputs and weights alike.
  I32 bytes;
  if (rows.isAligned() && shape.sizeK % shape.k)
    bytes = select(firstOfChunk < shape.sizeK,
                   emitter.i32(GemmShape::kChunkBytes), 0);
  I64 offset = getBytes(operand, first).toI64();
  I32 chunk = operand.copyChunk * GemmShape::kChunkBytes;
  I32 row = operand.copyRow * rows.getStride();
  Value to = emitter.advance(shared, stage + (row + chunk));
  for (auto [from, distance] : llvm::zip(operand.from, operand.to)) {
    Value here = emitter.advance(to, distance);
    if (rows.isAligned())
      emitter.copyAsync(here, emitter.advance(from, offset), bytes);
    else
      emitter.store(loadElements(operand, from, firstOfChunk), here,
                    GemmShape::kChunkBytes);
  }
}

/// Loads a chunk element by element. Elements past the row's end are not read.
Value Sm80Products::loadElements(const Operand &operand, Value from,
                                 I32 first) {
  int64_t bytes = operand.rows.getBytes(1);
  Type bits = b.getIntegerType(bytes * 8);
  Value zero = emitter.constant(bits, b.getIntegerAttr(bits, 0));
  I32 last = emitter.i32(shape.sizeK - 1);
  SmallVector<Value> elements;
  for (int64_t i = 0; i < operand.rows.getChunkElements(); ++i) {
    I32 element = first + i;
    I64 offset = (min(element, last) * bytes).toI64();
    Value loaded = emitter.load(bits, emitter.advance(from, offset), bytes);
    elements.push_back(select(element <= last, loaded, zero));
  }
  return emitter.makeVector<Value>(elements);
}

I32 Sm80Products::nextStage(I32 stage) {
  int64_t bytes = shape.getStageBytes();
  I32 next = stage + bytes;
  return select(next == GemmShape::kStages * bytes, next.like(0), next);
}

//===----------------------------------------------------------------------===//
// The loop
//===----------------------------------------------------------------------===//

int64_t Sm80Products::getNumSums() const {
  return shape.m * shape.getWeightRows() / GemmShape::kThreads;
}

int64_t Sm80Products::getNumRowSums() const {
  if (!shape.hasMinima)
    return 0;
  return shape.usesTensorCores() ? getWarpRows() / kCoreRows * kCoreSums
                                 : shape.m / kFmaRows;
}

Sm80Products::Sums Sm80Products::getRowSums(ArrayRef<F32> sums) const {
  // An mma by ones gives a thread two columns of two rows.
  int64_t columns = shape.usesTensorCores() ? kCoreSums / 2 : 1;
  Sums ofRows;
  for (int64_t i = 0, end = sums.size(); i < end; i += columns)
    ofRows.push_back(sums[i]);
  return ofRows;
}

void Sm80Products::emit(RowAddress inputAddress, RowAddress scaleAddress) {
  makeCopies(input, /*projections=*/1, shape.m, inputAddress);
  if (scales.hasRowsInLoop()) {
    SmallVector<Value> addresses;
    I32 first = getFirstRow();
    for (int64_t i = 0; i < getNumThreadRows(); ++i)
      addresses.push_back(scaleAddress(0, first + getRowDistance(i)));
    scales.setRows(addresses);
  }
  constexpr int64_t ahead = GemmShape::kStages - 1;
  int64_t kTiles = shape.getSteps();
  for (int64_t kTile = 0; kTile < ahead; ++kTile) {
    if (kTile < kTiles)
      copyTile(emitter.i32(kTile), emitter.i32(kTile * shape.getStageBytes()));
    emitter.commitCopies();
  }
  /// Offsets of the stages to read and to write, and the sums.
  struct State {
    I32 read, write;
    Sums sums;
    auto fields() { return std::tie(read, write, sums); }
  };
  State start{emitter.i32(0), emitter.i32(ahead * shape.getStageBytes()),
              Sums(getNumSums(), emitter.f32(0))};
  State end = emitter.loop(
      emitter.index(0), emitter.index(kTiles), 1, start,
      [&](Index i, const State &state) -> State {
        // After this barrier no thread reads the buffer that the next copies
        // fill.
        emitter.waitCopies(ahead - 1);
        emitter.barrier();
        I32 kTile = emitter.toI32(i);
        I32 copied = kTile + ahead;
        emitter.ifThen(copied < kTiles, [&] { copyTile(copied, state.write); });
        emitter.commitCopies();
        I32 read = nextStage(state.read), write = nextStage(state.write);
        return {read, write, multiplyTile(kTile, state.read, state.sums)};
      });
  // Sums reuse the memory of the buffers.
  emitter.waitCopies(0);
  emitter.barrier();
  storeSums(end.sums);
  emitter.barrier();
}

Sm80Products::Sums Sm80Products::multiplyTile(I32 kTile, I32 stage, Sums sums) {
  if (!shape.scales.areInLoop())
    return multiplyPart(kTile, stage, /*part=*/0, sums);
  for (int64_t part = 0; part < shape.getParts(); ++part) {
    // Loaded early to hide latency.
    Sm80Scales::Factors factors = scales.load(kTile, part);
    Sums zeros(getNumSums() + getNumRowSums(), emitter.f32(0));
    Sums products = multiplyPart(kTile, stage, part, zeros);
    ArrayRef<F32> ofPart(products);
    sums = scales.add(factors, ofPart.take_front(getNumSums()),
                      getRowSums(ofPart.drop_front(getNumSums())), sums,
                      [&](int64_t i) { return getIndex(i); });
  }
  return sums;
}

Sm80Products::Sums Sm80Products::multiplyPart(I32 kTile, I32 stage,
                                              int64_t part, Sums sums) {
  if (!shape.usesTensorCores())
    return multiplyByFma(kTile, stage, part, sums);
  if (!input.decoder.isPlain() || !weight.decoder.isPlain())
    return multiplyDecoded(kTile, stage, part, sums);
  return multiplyOnCores(stage, sums);
}

//===----------------------------------------------------------------------===//
// Tensor cores
//===----------------------------------------------------------------------===//

Value Sm80Products::stageAddress(I32 stage, const Operand &operand, I32 row,
                                 I32 bytes) {
  I32 offset = (row + operand.firstRow) * operand.rows.getStride();
  if (bytes)
    offset = offset + bytes;
  return emitter.advance(shared, stage + offset);
}

Sm80Products::StageRows Sm80Products::findRows(I32 stage, bool asMatrices) {
  auto getOffset = [&](OperandDecoder &decoder, I32 first) {
    return asMatrices ? decoder.getMatrixOffset(first)
                      : decoder.getChunkOffset(first);
  };
  auto [inputRow, inputBytes] =
      getOffset(input.decoder, warpRow * getWarpRows());
  auto [weightRow, weightBytes] =
      getOffset(weight.decoder, warpColumn * getWarpColumns());
  return {stageAddress(stage, input, inputRow, inputBytes),
          stageAddress(stage, weight, weightRow, weightBytes)};
}

void Sm80Products::addProduct(ValueRange a, ValueRange w, Sums &sums,
                              int64_t first) {
  MutableArrayRef<F32> own = MutableArrayRef(sums).slice(first, kCoreSums);
  SmallVector<Value> before(own);
  for (auto [sum, product] :
       llvm::zip(own, emitter.multiply(element, a, w, before)))
    sum = {b, product};
}

/// Sums are ordered by projection, block of rows, block of columns, element.
Sm80Products::Sums Sm80Products::multiplyOnCores(I32 stage, Sums sums) {
  int64_t stride = input.rows.getStride();
  StageRows rows = findRows(stage, /*asMatrices=*/true);
  int64_t rowBlocks = getWarpRows() / kCoreRows;
  int64_t columnBlocks = getWarpColumns() / kCoreColumns;
  for (int64_t k = 0; k < shape.k; k += kCoreK) {
    int64_t offset = input.rows.getBytes(k);
    SmallVector<SmallVector<Value>> a;
    for (int64_t row = 0; row < rowBlocks; ++row)
      a.push_back(emitter.loadMatrices(
          emitter.advance(rows.inputs, row * kCoreRows * stride + offset)));
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      for (int64_t pair = 0; pair < columnBlocks; pair += 2) {
        int64_t row = projection * shape.n + pair * kCoreColumns;
        SmallVector<Value> w = emitter.loadMatrices(
            emitter.advance(rows.weights, row * stride + offset));
        for (int64_t half = 0; half < 2; ++half)
          for (int64_t block = 0; block < rowBlocks; ++block) {
            int64_t first = ((projection * rowBlocks + block) * columnBlocks +
                             pair + half) *
                            kCoreSums;
            addProduct(a[block], ArrayRef<Value>(w).slice(2 * half, 2), sums,
                       first);
          }
      }
  }
  return sums;
}

//===----------------------------------------------------------------------===//
// FMA
//===----------------------------------------------------------------------===//

/// Sums are ordered by projection, row, column.
Sm80Products::Sums Sm80Products::multiplyByFma(I32 kTile, I32 stage,
                                               int64_t part, Sums sums) {
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
  int64_t first = part * shape.partK;
  for (int64_t k = first; k < first + shape.partK; k += width) {
    if (shape.hasElementFactors && k % elementsWithFactors == 0)
      for (int64_t projection = 0; projection < shape.weightsPerColumn;
           ++projection)
        factors[projection] =
            scales.loadForElements(projection, kTile * shape.k + k);
    SmallVector<SmallVector<F32>> x;
    for (int64_t row = 0; row < rows; ++row)
      x.push_back(load(input, inputs, row * kFmaRows, k));
    for (int64_t row = 0; row < getNumRowSums(); ++row)
      for (F32 value : x[row]) {
        F32 &sum = sums[getNumSums() + row];
        sum = sum + value;
      }
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      for (int64_t column = 0; column < columns; ++column) {
        ElementFactors own;
        if (shape.hasElementFactors)
          own = factors[projection][column];
        SmallVector<F32> w =
            load(weight, weights, projection * shape.n + column * kFmaColumns,
                 k, own);
        for (int64_t row = 0; row < rows; ++row) {
          F32 &sum = sums[(projection * rows + row) * columns + column];
          for (int64_t i = 0; i < width; ++i)
            sum = fma(x[row][i], w[i], sum);
        }
      }
  }
  return sums;
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

Value Sm80Products::sumAddress(int64_t projection, I32 row, I32 column) {
  constexpr int64_t bytes = 4;
  int64_t stride = shape.getSumStride();
  I32 offset = row * (stride * bytes) + column * bytes;
  return emitter.advance(emitter.advance(shared, offset),
                         projection * shape.m * stride * bytes);
}

Sm80Scales::SumIndex Sm80Products::getIndex(int64_t i) const {
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

I32 Sm80Products::getFirstRow() {
  if (!shape.usesTensorCores())
    return threadRow;
  return warpRow * getWarpRows() + emitter.lane() / 4;
}

I32 Sm80Products::getFirstColumn() {
  if (!shape.usesTensorCores())
    return threadColumn;
  return warpColumn * getWarpColumns() + emitter.lane() % 4 * 2;
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
  scales.findElementRows(warpColumn * getWarpColumns() + emitter.lane() / 4,
                         distances);
}

void Sm80Products::storeSums(ArrayRef<F32> sums) {
  I32 row = getFirstRow(), column = getFirstColumn();
  // Neighbours are stored together if tensor cores have made them.
  int64_t atOnce = shape.usesTensorCores() ? 2 : 1;
  for (int64_t i = 0, end = sums.size(); i < end; i += atOnce) {
    Sm80Scales::SumIndex index = getIndex(i);
    Value stored = sums[i];
    if (atOnce > 1)
      stored = emitter.makeVector(sums.slice(i, atOnce));
    I32 sumRow = row + getRowDistance(index.row);
    I32 sumColumn = column + getColumnDistance(index.column);
    emitter.store(stored, sumAddress(index.projection, sumRow, sumColumn),
                  4 * atOnce);
  }
}

F32 Sm80Products::loadSums(int64_t projection, Index row, Index column,
                           int64_t lanes) {
  constexpr int64_t bytes = 4;
  I32 sumRow = emitter.toI32(row), sumColumn = emitter.toI32(column);
  return {b, emitter.load(VectorType::get(lanes, b.getF32Type()),
                          sumAddress(projection, sumRow, sumColumn),
                          std::min<int64_t>(lanes * bytes, 16))};
}
