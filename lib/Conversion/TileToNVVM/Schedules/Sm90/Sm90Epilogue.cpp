//===- Sm90Epilogue.cpp - the results of sm90.contract ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Epilogue of the Hopper gemm, in registers: a thread has gate and up of a
// result.
//
// Results of 16 bits are staged in shared memory, where rows become contiguous:
// those of a consumer's columns, of which each warp has some, or with rows on M
// those of some columns of a warp. Ordinary stores then write whole lines. A
// warp's own part of a row is 16 or 32 bytes, and each direct store of it would
// occupy the memory pipe as long as a line. TMA stores were slower, because all
// warps had to wait for them in turn.

#include "Sm90Epilogue.h"

#include "../../InlinePtx.h"

using namespace mlir;
using namespace moec;
using sm90::Contract;

/// Rows of a matrix of stmatrix.
static constexpr int64_t kMatrix = 8;

//===----------------------------------------------------------------------===//
// Epilogue
//===----------------------------------------------------------------------===//

Value Sm90Epilogue::gather(int64_t first, int64_t octets,
                           function_ref<Value(int64_t, int64_t)> load) {
  SmallVector<Value> elements;
  for (int64_t octet = first; octet < first + octets; ++octet)
    for (int64_t element = 0; element < fragments.getSize(); ++element)
      elements.push_back(load(octet, element));
  auto type = VectorType::get(elements.size(), b.getF32Type());
  return vector::FromElementsOp::create(b, type, elements);
}

Value Sm90Epilogue::emitRegion(int64_t block, int64_t first, int64_t octets) {
  SmallVector<Value> args;
  auto add = [&](function_ref<Value(int64_t, int64_t)> load) {
    args.push_back(gather(first, octets, load));
  };
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection)
    add([&](int64_t octet, int64_t element) {
      return sums.blocks[block][fragments.getSum(projection, octet, element)];
    });
  applyScales(args, block, first, octets);
  for (ArrayRef<Value> rows : operands.rows)
    add([&](int64_t octet, int64_t element) {
      return fragments.getOfRow(rows, octet, element);
    });
  for (ArrayRef<Value> columns : operands.columns)
    add([&](int64_t octet, int64_t element) {
      return fragments.getOfColumn(columns, block, octet, element);
    });
  for (Value operand : op.getElementwiseOperands())
    add([&](int64_t octet, int64_t element) {
      return emitter.loadF32(emitter.operand(operand),
                             {fragments.getSafePosition(octet, element),
                              fragments.getSafeColumn(block, octet, element)});
    });
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return *value;
  status = failure();
  return args.front();
}

void Sm90Epilogue::applyScales(MutableArrayRef<Value> projections,
                               int64_t block, int64_t first, int64_t octets) {
  Value rows;
  if (!operands.rowScales.empty())
    rows = gather(first, octets, [&](int64_t octet, int64_t element) {
      return fragments.getOfRow(operands.rowScales, octet, element);
    });
  for (auto [projection, values] : llvm::enumerate(projections)) {
    Value factor = rows;
    if (!operands.columnScales.empty()) {
      ArrayRef<Value> scales = operands.columnScales[projection];
      factor = gather(first, octets, [&](int64_t octet, int64_t element) {
        return fragments.getOfColumn(scales, block, octet, element);
      });
      if (rows)
        factor = arith::MulFOp::create(b, rows, factor);
    }
    if (factor)
      values = arith::MulFOp::create(b, values, factor);
  }
}

void Sm90Epilogue::ifAny(Value flag, function_ref<void()> body) {
  Value lanes = emitter.countLanes(flag);
  emitter.ifThen(emitter.isLess(emitter.i32(0), lanes), body);
}

LogicalResult Sm90Epilogue::emit() {
  if (isOnM) {
    takeBuffer(/*isFirst=*/true);
    ifAny(emitter.isLess(getWarpRow(), tile.rows), [&] { emitColumns(); });
    return status;
  }
  // Rows that are skipped together if the tile ends before them.
  constexpr int64_t portion = 32;
  for (int64_t first = 0; first < part.height; first += portion) {
    int64_t rows = std::min(portion, part.height - first);
    if (first == 0)
      emitRows(first, rows);
    else
      emitter.ifThen(emitter.isLess(emitter.i32(first), tile.rows),
                     [&] { emitRows(first, rows); });
  }
  return status;
}

void Sm90Epilogue::put(int64_t block, int64_t first, int64_t octets,
                       int64_t chunk) {
  Value results = emitRegion(block, first, octets);
  if (shape.resultBytes == 2)
    stage(chunk, round(results));
  else
    storeSingly(block, first, results);
}

Value Sm90Epilogue::getWarpRow() {
  return emitter.scale(fragments.getConsumerWarp(), Contract::kStagedRows);
}

Value Sm90Epilogue::getColumnOfPiece(Value piece) {
  return contract.addI32(tile.firstColumn,
                         emitter.scale(piece, shape.getStoredColumns()));
}

void Sm90Epilogue::emitRows(int64_t first, int64_t rows) {
  int64_t across = shape.getBlockColumns(part.tileHeight) / kMatrix;
  for (int64_t row = first; row < first + rows; row += Contract::kStagedRows) {
    int64_t staged = std::min(Contract::kStagedRows, first + rows - row);
    takeBuffer(/*isFirst=*/row == 0);
    for (int64_t block = 0; block < shape.getBlocks(part.tileHeight); ++block)
      put(block, row / kMatrix, staged / kMatrix, block * across);
    storeStaged(emitter.i32(row), staged,
                [&](Value piece) { return getColumnOfPiece(piece); });
  }
}

void Sm90Epilogue::emitColumns() {
  constexpr int64_t atOnce = 2;
  int64_t columns = shape.getStagedColumns(part.tileHeight);
  int64_t inBlock = shape.getBlockColumns(part.tileHeight);
  for (int64_t block = 0; block < shape.getBlocks(part.tileHeight); ++block)
    for (int64_t first = 0; first < inBlock; first += columns) {
      if (block + first)
        takeBuffer(/*isFirst=*/false);
      for (int64_t column = 0; column < columns; column += atOnce * kMatrix)
        put(block, (first + column) / kMatrix, atOnce, column / kMatrix);
      storeStaged(getWarpRow(), Contract::kStagedRows, [&](Value piece) {
        return contract.addI32(
            tile.firstColumn,
            emitter.scale(piece, kMatrix, block * inBlock + first));
      });
    }
}

//===----------------------------------------------------------------------===//
// Stores
//===----------------------------------------------------------------------===//

Value Sm90Epilogue::isThere(Value row, Value column) {
  Value isThere = emitter.isLess(row, tile.rows);
  if (shape.columns % shape.n)
    isThere = arith::AndIOp::create(
        b, isThere, emitter.isLess(column, emitter.i32(shape.columns)));
  return isThere;
}

Value Sm90Epilogue::getConsumer() {
  return emitter.scale(
      emitter.divide(fragments.getThread(), Contract::kWarpgroup), 1, -1);
}

Value Sm90Epilogue::getBuffer() {
  Value buffer =
      emitter.advance(contract.sharedAddress(shape.getStagingOffset()),
                      emitter.scale(getConsumer(), shape.getStagingBytes()));
  if (!isOnM)
    return buffer;
  return emitter.advance(buffer,
                         emitter.scale(fragments.getConsumerWarp(),
                                       shape.getBufferBytes(part.tileHeight)));
}

void Sm90Epilogue::takeBuffer(bool isFirst) {
  if (shape.resultBytes > 2)
    return;
  if (!isFirst) {
    bufferBarrier();
    return;
  }
  // A barrier of both consumers came before, so that all have finished the tile
  // before.
  bool hasShared = shape.sharesBlock() ||
                   (shape.findsScales && !shape.splitsRows(part.tileHeight));
  if (hasShared)
    return;
  // In a tile of another BLOCK_M, the consumer's warps may have used other
  // parts of the buffer.
  if (shape.hasOneBuffer())
    bufferBarrier();
  else
    emitter.warpgroupBarrier();
}

void Sm90Epilogue::bufferBarrier() {
  if (isOnM)
    emitter.warpBarrier();
  else
    emitter.warpgroupBarrier();
}

Value Sm90Epilogue::round(Value results) {
  return castFloat(b, results, getElementType(result));
}

/// Writes rounded results to the buffer as rows of columns. The first column is
/// at `chunk`; if all warps stage together, that is the first warp's column.
void Sm90Epilogue::stage(int64_t chunk, Value rounded) {
  int64_t numMatrices =
      cast<VectorType>(rounded.getType()).getNumElements() / 2;
  Value words = vector::BitCastOp::create(
      b, VectorType::get(numMatrices, b.getI32Type()), rounded);
  SmallVector<Value> matrices;
  for (int64_t i = 0; i < numMatrices; ++i)
    matrices.push_back(vector::ExtractOp::create(b, words, i));
  // Order of matrices: those of a fragment, which are adjacent in a row or,
  // with rows on M, in a column; then those of the next fragment. A row of a
  // matrix is a chunk.
  int64_t perOctet = fragments.getMatrices();
  Value matrix = emitter.remainder(emitter.divide(fragments.getLane(), kMatrix),
                                   numMatrices);
  Value down = emitter.divide(matrix, perOctet);
  Value right = emitter.remainder(matrix, perOctet);
  if (isOnM)
    std::swap(down, right);
  Value row = contract.addI32(emitter.remainder(fragments.getLane(), kMatrix),
                              emitter.scale(down, kMatrix));
  Value offset = contract.addI32(
      emitter.scale(row, shape.getStagedStride(part.tileHeight)),
      emitter.scale(emitter.scale(right, 1, chunk), Contract::kChunkBytes));
  if (!isOnM)
    offset = contract.addI32(offset, getWarpOffset());
  emitter.storeMatrices(emitter.advance(getBuffer(), offset), matrices,
                        /*isTransposed=*/!isOnM);
}

Value Sm90Epilogue::getWarpOffset() {
  return emitter.scale(fragments.getConsumerWarp(),
                       shape.getWarpColumns(part.tileHeight) *
                           shape.resultBytes);
}

void Sm90Epilogue::storeStaged(Value firstRow, int64_t rows,
                               ColumnOf columnOf) {
  if (shape.resultBytes > 2)
    return;
  bufferBarrier();
  constexpr int64_t bytes = Contract::kChunkBytes;
  int64_t pieces =
      shape.getStagedColumns(part.tileHeight) * shape.resultBytes / bytes;
  int64_t threads = isOnM ? Contract::kWarp : Contract::kWarpgroup;
  Value thread = emitter.remainder(fragments.getThread(), threads);
  auto type = VectorType::get(bytes / 4, b.getI32Type());
  for (int64_t start = 0; start < rows * pieces; start += threads) {
    Value own = emitter.scale(thread, 1, start);
    Value row = emitter.divide(own, pieces);
    Value piece = emitter.remainder(own, pieces);
    Value offset = contract.addI32(
        emitter.scale(row, shape.getStagedStride(part.tileHeight)),
        emitter.scale(piece, bytes));
    Value column = columnOf(piece);
    Value tileRow = contract.addI32(row, firstRow);
    Value isStored = isThere(tileRow, column);
    if (rows * pieces - start < threads)
      isStored = arith::AndIOp::create(b, isStored,
                                       emitter.isLess(row, emitter.i32(rows)));
    Value from = emitter.advance(getBuffer(), offset);
    Value position = emitter.toIndex(contract.addI32(tile.firstRow, tileRow));
    Value to = emitter.address(result, {position, emitter.toIndex(column)});
    if (shape.quantizes)
      to = tieAddress(b, to);
    emitter.ifThen(isStored, [&] {
      emitter.store(emitter.load(type, from, bytes), to, bytes);
    });
  }
}

void Sm90Epilogue::storeSingly(int64_t block, int64_t first, Value results) {
  int64_t size = cast<VectorType>(results.getType()).getNumElements();
  for (int64_t i = 0; i < size; ++i) {
    int64_t octet = first + i / fragments.getSize();
    int64_t element = i % fragments.getSize();
    Value row = fragments.getRow(octet, element);
    Value column = fragments.getColumn(block, octet, element);
    emitter.ifThen(isThere(row, column), [&] {
      Value position = emitter.toIndex(contract.addI32(tile.firstRow, row));
      emitter.storeF32(vector::ExtractOp::create(b, results, i), result,
                       {position, emitter.toIndex(column)});
    });
  }
}

LogicalResult moec::emitSm90Epilogue(Sm90Contract &contract,
                                     const ContractPart &part,
                                     const ContractOperands &operands,
                                     const ContractSums &sums) {
  LogicalResult status =
      contract.op.quantizesResult()
          ? emitSm90Quantized(contract, part, operands, sums)
          : Sm90Epilogue(contract, part, operands, sums).emit();
  endApart(contract.b);
  return status;
}
