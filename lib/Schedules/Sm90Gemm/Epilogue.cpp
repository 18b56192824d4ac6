//===- Epilogue.cpp - the results of sm90.gemm ------------------*- C++ -*-===//
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

#include "Epilogue.h"
#include "KernelBuilder/AdapterUpdates.h"

#include "KernelBuilder/InlinePtx.h"

using namespace mlir;
using namespace moec;

/// Rows of a matrix of stmatrix.
static constexpr int64_t kMatrix = 8;

//===----------------------------------------------------------------------===//
// Epilogue
//===----------------------------------------------------------------------===//

F32 Sm90Epilogue::gather(int64_t first, int64_t octets,
                         function_ref<F32(int64_t, int64_t)> load) {
  SmallVector<F32> elements;
  for (int64_t octet = first; octet < first + octets; ++octet)
    for (int64_t element = 0; element < accumulators.getSize(); ++element)
      elements.push_back(load(octet, element));
  return emitter.makeVector(ArrayRef(elements));
}

Value Sm90Epilogue::emitRegion(int64_t block, int64_t first, int64_t octets) {
  SmallVector<Value> args;
  auto add = [&](function_ref<F32(int64_t, int64_t)> load) {
    args.push_back(gather(first, octets, load));
  };
  for (int64_t projection = 0; projection < shape.problem().weightsPerColumn;
       ++projection)
    add([&](int64_t octet, int64_t element) {
      return sums
          .blocks[block][accumulators.getSum(projection, octet, element)];
    });
  applyScales(args, block, first, octets);
  for (ArrayRef<F32> rows : operands.rows)
    add([&](int64_t octet, int64_t element) {
      return accumulators.getOfRow(rows, octet, element);
    });
  for (ArrayRef<F32> columns : operands.columns)
    add([&](int64_t octet, int64_t element) {
      return accumulators.getOfColumn(columns, block, octet, element);
    });
  for (Value operand : op.getElementwiseOperands())
    add([&](int64_t octet, int64_t element) {
      return emitter.loadF32(
          emitter.operand(operand),
          {accumulators.getSafePosition(octet, element),
           accumulators.getSafeColumn(block, octet, element)});
    });
  for (size_t i = 0; i < op.getMatrices().size(); ++i)
    add([&](int64_t octet, int64_t element) {
      // Sums include updates that further k tiles have added.
      if (shape.problem().adapters)
        return emitter.f32(0.0);
      return loadAdapterUpdate(
          emitter, op, int64_t(i), emitter.toIndex(tile.group),
          accumulators.getSafePosition(octet, element),
          accumulators.getSafeColumn(block, octet, element));
    });
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return *value;
  status = failure();
  return args.front();
}

void Sm90Epilogue::applyScales(MutableArrayRef<Value> projections,
                               int64_t block, int64_t first, int64_t octets) {
  F32 rows;
  if (!operands.rowScales.empty())
    rows = gather(first, octets, [&](int64_t octet, int64_t element) {
      return accumulators.getOfRow(operands.rowScales, octet, element);
    });
  for (auto [projection, values] : llvm::enumerate(projections)) {
    F32 factor = rows;
    if (!operands.columnScales.empty()) {
      ArrayRef<F32> scales = operands.columnScales[projection];
      factor = gather(first, octets, [&](int64_t octet, int64_t element) {
        return accumulators.getOfColumn(scales, block, octet, element);
      });
      if (rows)
        factor = rows * factor;
    }
    if (factor)
      values = F32(b, values) * factor;
  }
}

void Sm90Epilogue::ifAny(Flag flag, function_ref<void()> body) {
  I32 lanes = emitter.countLanes(flag);
  emitter.ifThen(emitter.i32(0) < lanes, body);
}

LogicalResult Sm90Epilogue::emit() {
  if (isOnM) {
    takeBuffer(/*isFirst=*/true);
    ifAny(getWarpRow() < tile.rows, [&] { emitColumns(); });
    return status;
  }
  // Rows that are skipped together if the tile ends before them.
  constexpr int64_t portion = 32;
  for (int64_t first = 0; first < part.maxRows; first += portion) {
    int64_t rows = std::min(portion, part.maxRows - first);
    if (first == 0)
      emitRows(first, rows);
    else
      emitter.ifThen(emitter.i32(first) < tile.rows,
                     [&] { emitRows(first, rows); });
  }
  return status;
}

void Sm90Epilogue::put(int64_t block, int64_t first, int64_t octets,
                       int64_t chunk) {
  Value results = emitRegion(block, first, octets);
  if (shape.problem().resultBytes == 2)
    stage(chunk, round(results));
  else
    storeSingly(block, first, results);
}

I32 Sm90Epilogue::getWarpRow() {
  return accumulators.getConsumerWarp() * sm90::kStagedRows;
}

I32 Sm90Epilogue::getColumnOfChunk(I32 chunk) {
  return tile.firstColumn +
         chunk * (sm90::kChunkBytes / shape.problem().resultBytes);
}

void Sm90Epilogue::emitRows(int64_t first, int64_t rows) {
  int64_t across = shape.tile().getBlockColumns(part.blockM) / kMatrix;
  for (int64_t row = first; row < first + rows; row += sm90::kStagedRows) {
    int64_t staged = std::min(sm90::kStagedRows, first + rows - row);
    takeBuffer(/*isFirst=*/row == 0);
    for (int64_t block = 0; block < shape.tile().getBlocks(part.blockM);
         ++block)
      put(block, row / kMatrix, staged / kMatrix, block * across);
    storeStaged(emitter.i32(row), staged,
                [&](I32 chunk) { return getColumnOfChunk(chunk); });
  }
}

void Sm90Epilogue::emitColumns() {
  constexpr int64_t atOnce = 2;
  int64_t columns = staging.columns;
  int64_t inBlock = shape.tile().getBlockColumns(part.blockM);
  for (int64_t block = 0; block < shape.tile().getBlocks(part.blockM); ++block)
    for (int64_t first = 0; first < inBlock; first += columns) {
      if (block + first)
        takeBuffer(/*isFirst=*/false);
      for (int64_t column = 0; column < columns; column += atOnce * kMatrix)
        put(block, (first + column) / kMatrix, atOnce, column / kMatrix);
      storeStaged(getWarpRow(), sm90::kStagedRows, [&](I32 chunk) {
        return tile.firstColumn + (chunk * kMatrix + (block * inBlock + first));
      });
    }
}

//===----------------------------------------------------------------------===//
// Stores
//===----------------------------------------------------------------------===//

Flag Sm90Epilogue::isThere(I32 row, I32 column) {
  Flag isThere = row < tile.rows;
  if (shape.problem().columns % shape.tile().blockN)
    isThere = isThere & (column < shape.problem().columns);
  return isThere;
}

Value Sm90Epilogue::getBuffer() {
  Value buffer =
      emitter.advance(gemm.sharedAddress(shape.shared().getStagingOffset()),
                      getConsumer() * shape.shared().getStagingBytes());
  if (!isOnM)
    return buffer;
  return emitter.advance(buffer,
                         accumulators.getConsumerWarp() * staging.getBytes());
}

void Sm90Epilogue::takeBuffer(bool isFirst) {
  if (shape.problem().resultBytes > 2)
    return;
  if (!isFirst) {
    bufferBarrier();
    return;
  }
  // A barrier of both consumers came before, so that all have finished the tile
  // before.
  bool hasShared =
      shape.tile().sharesBlock() ||
      (shape.problem().findsScales && !shape.tile().splitsRows(part.blockM));
  if (hasShared)
    return;
  // In a tile of another BLOCK_M, the consumer's warps may have used other
  // parts of the buffer.
  if (shape.shared().hasOneBuffer())
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
  SmallVector<I32> matrices = emitter.pairs(rounded);
  // Order of matrices: those of a fragment, which are adjacent in a row or,
  // with rows on M, in a column; then those of the next fragment. A row of a
  // matrix is a chunk.
  int64_t perOctet = accumulators.getMatrices();
  I32 matrix = accumulators.getLane() / kMatrix % int64_t(matrices.size());
  I32 down = matrix / perOctet;
  I32 right = matrix % perOctet;
  if (isOnM)
    std::swap(down, right);
  I32 row = accumulators.getLane() % kMatrix + down * kMatrix;
  I32 offset = row * staging.stride + (right + chunk) * sm90::kChunkBytes;
  if (!isOnM)
    offset = offset + getWarpOffset();
  emitter.storeMatrices(emitter.advance(getBuffer(), offset), matrices,
                        /*isTransposed=*/!isOnM);
}

I32 Sm90Epilogue::getWarpOffset() {
  return accumulators.getConsumerWarp() *
         (shape.tile().getWarpColumns(part.blockM) *
          shape.problem().resultBytes);
}

void Sm90Epilogue::storeStaged(I32 firstRow, int64_t rows, ColumnOf columnOf) {
  if (shape.problem().resultBytes > 2)
    return;
  bufferBarrier();
  constexpr int64_t bytes = sm90::kChunkBytes;
  int64_t chunks = staging.columns * shape.problem().resultBytes / bytes;
  int64_t threads = isOnM ? kWarp : kWarpgroup;
  I32 thread = accumulators.getThread() % threads;
  for (int64_t start = 0; start < rows * chunks; start += threads) {
    I32 own = thread + start;
    I32 row = own / chunks, chunk = own % chunks;
    I32 offset = row * staging.stride + chunk * bytes;
    I32 column = columnOf(chunk);
    I32 tileRow = row + firstRow;
    Flag isStored = isThere(tileRow, column);
    if (rows * chunks - start < threads)
      isStored = isStored & (row < rows);
    Value from = emitter.advance(getBuffer(), offset);
    Index position = emitter.toIndex(tile.firstRow + tileRow);
    Value to = emitter.address(result, {position, emitter.toIndex(column)});
    if (shape.problem().quantizes)
      to = tieAddress(b, to);
    emitter.ifThen(isStored, [&] {
      emitter.store(emitter.loadWords(from, bytes / 4), to, bytes);
    });
  }
}

void Sm90Epilogue::storeSingly(int64_t block, int64_t first, Value results) {
  int64_t size = cast<VectorType>(results.getType()).getNumElements();
  for (int64_t i = 0; i < size; ++i) {
    int64_t octet = first + i / accumulators.getSize();
    int64_t element = i % accumulators.getSize();
    I32 row = accumulators.getRow(octet, element);
    I32 column = accumulators.getColumn(block, octet, element);
    emitter.ifThen(isThere(row, column), [&] {
      Index position = emitter.toIndex(tile.firstRow + row);
      F32 value = emitter.element<F32>(results, i);
      emitter.storeF32(value, result, {position, emitter.toIndex(column)});
    });
  }
}

LogicalResult moec::emitSm90Epilogue(Sm90Gemm &gemm, const Sm90Part &part,
                                     const Sm90EpilogueOperands &operands,
                                     const Sm90Sums &sums) {
  LogicalResult status = gemm.op.quantizesResult()
                             ? emitSm90Quantized(gemm, part, operands, sums)
                             : Sm90Epilogue(gemm, part, operands, sums).emit();
  endApart(gemm.b);
  return status;
}

void moec::storeSm90ZeroRows(Sm90Gemm &gemm) {
  AsyncEmitter &emitter = gemm.emitter;
  Value result = emitter.operand(gemm.op.getResult());
  // Chunks of 16 bytes, or of a divisor of the columns.
  int64_t lanes = 16 / gemm.shape.problem().resultBytes;
  while (gemm.shape.problem().columns % lanes)
    lanes /= 2;
  Index chunks = emitter.index(gemm.shape.problem().columns / lanes);
  Index begin = emitter.validTokens(gemm.op.getNumValidTokens()) * chunks;
  Index end = emitter.tokens() * chunks;
  Index threads = emitter.index(emitter.getNumThreads());
  Index own = emitter.cta() * threads + emitter.toIndex(emitter.thread());
  Index ctas = emitter.toIndex(emitter.numCtas());
  emitter.loop(begin + own, end, ctas * threads, [&](Index chunk) {
    Index row = chunk / chunks, column = chunk % chunks * lanes;
    emitter.storeVector(emitter.splat(0.0, lanes), result, {row, column});
  });
}
