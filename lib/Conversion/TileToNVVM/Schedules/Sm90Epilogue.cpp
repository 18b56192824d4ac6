//===- Sm90Epilogue.cpp - the results of sm90.contract ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A thread has, of every 64 weight rows and 8 input rows, two weight rows of
// two neighbouring input rows: two columns, or gate and up of one, so that the
// epilogue runs in registers.
//
// Results of 16 bits go through shared memory, where each warp turns its own
// columns around to rows of them. Ordinary stores take them to memory: copies
// by the copy engine were slower, for all warps had to wait for them in turn.

#include "../../Emission/ContractOperands.h"
#include "../InlinePtx.h"
#include "Sm90Products.h"

using namespace mlir;
using namespace moec;
using sm90::Contract;

namespace {

/// Rows of the matrices that stmatrix knows.
constexpr int64_t kMatrix = 8;
/// Sums of a thread per block of weights and 8 input rows.
constexpr int64_t kSums = 4;
constexpr int64_t kWarp = 32;

class Sm90Epilogue {
public:
  /// Of the consumer's part of a tile.
  Sm90Epilogue(Sm90Contract &contract, Value consumer,
               const ContractTile &tile);
  ContractOperands load(int64_t height);
  LogicalResult emit(const ContractOperands &given, const ContractSums &made);

private:
  void emitPortion(int64_t first, int64_t rows);
  /// The results of `matrices` times 8 rows from row `first` on, of one block;
  /// a fragment per matrix.
  Value emitRegion(int64_t block, int64_t first, int64_t matrices);
  Value getBuffer();
  void stage(int64_t block, Value results);
  void storeStaged(int64_t first, int64_t rows);
  void storeSingly(int64_t block, int64_t first, Value results);

  /// Results of a thread per block and 8 input rows; neighbours are in
  /// neighbouring rows.
  int64_t getFragment() const { return kSums / shape.planes; }
  /// The sum of a plane that an element of a fragment is made of.
  Value getSum(int64_t block, int64_t plane, int64_t matrix, int64_t element);
  /// Of a fragment's element: its result column and its row of the tile; i32.
  Value getColumn(int64_t block, int64_t element);
  Value getRow(int64_t first, int64_t element);
  /// The same, moved into the result where it lies outside; of type index.
  Value getSafeColumn(int64_t block, int64_t element);
  Value getSafePosition(int64_t first, int64_t element);
  SmallVector<Value> getLeading(Value last);

  /// One f32 per element of `matrices` fragments. `load(matrix, element)`.
  Value gather(int64_t matrices, function_ref<Value(int64_t, int64_t)> load);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  tile::ContractOp op;
  ContractTile tile;
  ContractOperands operands;
  ContractSums sums;
  Value result;
  /// 0 or 1, i32.
  Value consumer;
  /// The consumer's first column; the thread's first one of it, and its first
  /// row of 8; i32.
  Value firstColumn, ownColumn, ownRow;
  LogicalResult status = success();
};

Sm90Epilogue::Sm90Epilogue(Sm90Contract &contract, Value consumer,
                           const ContractTile &tile)
    : contract(contract), emitter(contract.emitter), b(contract.b),
      shape(contract.shape), op(contract.op), tile(tile),
      result(emitter.operand(op.getResult())), consumer(consumer),
      firstColumn(tile.firstColumn) {
  if (!shape.sharesBlock())
    firstColumn = contract.addI32(
        firstColumn, emitter.scale(consumer, shape.getConsumerColumns()));
  Value column = contract.addI32(
      emitter.scale(emitter.warpgroupWarp(), shape.getWarpColumns()),
      emitter.divide(emitter.lane(), 4));
  ownColumn = contract.addI32(firstColumn, column);
  ownRow = emitter.scale(emitter.remainder(emitter.lane(), 4), 2);
}

//===----------------------------------------------------------------------===//
// Where elements lie
//===----------------------------------------------------------------------===//

Value Sm90Epilogue::getSum(int64_t block, int64_t plane, int64_t matrix,
                           int64_t element) {
  // In memory, up comes before gate in one of the orders.
  if (op.getLayout() &&
      op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate)
    plane = 1 - plane;
  return sums.blocks[block][matrix * kSums + plane * getFragment() + element];
}

Value Sm90Epilogue::getColumn(int64_t block, int64_t element) {
  return emitter.scale(ownColumn, 1,
                       block * shape.getBlockColumns() + element / 2 * kMatrix);
}

Value Sm90Epilogue::getRow(int64_t first, int64_t element) {
  return emitter.scale(ownRow, 1, first + element % 2);
}

Value Sm90Epilogue::getSafeColumn(int64_t block, int64_t element) {
  Value column = getColumn(block, element);
  if (shape.columns % shape.n)
    column = contract.minI32(column, emitter.i32(shape.columns - 1));
  return emitter.toIndex(column);
}

Value Sm90Epilogue::getSafePosition(int64_t first, int64_t element) {
  Value last = emitter.scale(tile.rows, 1, -1);
  Value row = contract.minI32(getRow(first, element), last);
  return emitter.toIndex(contract.addI32(tile.firstRow, row));
}

SmallVector<Value> Sm90Epilogue::getLeading(Value last) {
  if (!shape.isGrouped)
    return {last};
  return {emitter.toIndex(tile.group), last};
}

//===----------------------------------------------------------------------===//
// Epilogue
//===----------------------------------------------------------------------===//

ContractOperands Sm90Epilogue::load(int64_t height) {
  ContractOperands loaded;
  Value last = emitter.scale(tile.rows, 1, -1);
  for (Value operand : op.getRowOperands()) {
    SmallVector<Value> &rows = loaded.rows.emplace_back();
    for (int64_t first = 0; first < height; first += kWarp) {
      Value row =
          contract.minI32(emitter.scale(emitter.lane(), 1, first), last);
      Value position = emitter.toIndex(contract.addI32(tile.firstRow, row));
      rows.push_back(emitter.loadF32(emitter.operand(operand),
                                     {position, emitter.index(0)}));
    }
  }
  for (Value operand : op.getColumnOperands())
    for (int64_t plane = 0; plane < shape.planes; ++plane)
      for (int64_t block = 0; block < shape.getBlocks(); ++block) {
        SmallVector<Value> &columns = loaded.columns.emplace_back();
        for (int64_t element = 0; element < getFragment(); element += 2) {
          Value row =
              getWeightRow(emitter, op, plane, getSafeColumn(block, element));
          columns.push_back(
              emitter.loadF32(emitter.operand(operand), getLeading(row)));
        }
      }
  return loaded;
}

Value Sm90Epilogue::gather(int64_t matrices,
                           function_ref<Value(int64_t, int64_t)> load) {
  SmallVector<Value> elements;
  for (int64_t matrix = 0; matrix < matrices; ++matrix)
    for (int64_t element = 0; element < getFragment(); ++element)
      elements.push_back(load(matrix, element));
  auto type = VectorType::get(elements.size(), b.getF32Type());
  return vector::FromElementsOp::create(b, type, elements);
}

Value Sm90Epilogue::emitRegion(int64_t block, int64_t first, int64_t matrices) {
  SmallVector<Value> args;
  for (int64_t plane = 0; plane < shape.planes; ++plane)
    args.push_back(gather(matrices, [&](int64_t matrix, int64_t element) {
      return getSum(block, plane, first / kMatrix + matrix, element);
    }));
  for (ArrayRef<Value> rows : operands.rows)
    args.push_back(gather(matrices, [&](int64_t matrix, int64_t element) {
      int64_t row = first + matrix * kMatrix;
      Value lane = emitter.scale(ownRow, 1, row % kWarp + element % 2);
      return emitter.getFromLane(rows[row / kWarp], lane);
    }));
  for (size_t i = block; i < operands.columns.size(); i += shape.getBlocks())
    args.push_back(gather(matrices, [&](int64_t, int64_t element) {
      return operands.columns[i][element / 2];
    }));
  for (Value operand : op.getElementwiseOperands())
    args.push_back(gather(matrices, [&](int64_t matrix, int64_t element) {
      return emitter.loadF32(
          emitter.operand(operand),
          {getSafePosition(first + matrix * kMatrix, element),
           getSafeColumn(block, element)});
    }));
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return *value;
  status = failure();
  return args.front();
}

LogicalResult Sm90Epilogue::emit(const ContractOperands &given,
                                 const ContractSums &made) {
  operands = given;
  sums = made;
  // Rows that are skipped together if the tile ends before.
  constexpr int64_t portion = 32;
  for (int64_t first = 0; first < sums.height; first += portion) {
    int64_t rows = std::min(portion, sums.height - first);
    if (first == 0)
      emitPortion(first, rows);
    else
      emitter.ifThen(emitter.isLess(emitter.i32(first), tile.rows),
                     [&] { emitPortion(first, rows); });
  }
  return status;
}

void Sm90Epilogue::emitPortion(int64_t first, int64_t rows) {
  bool isStaged = shape.resultBytes == 2;
  for (int64_t row = 0; row < rows; row += Contract::kStagedRows) {
    int64_t staged = std::min(Contract::kStagedRows, rows - row);
    for (int64_t block = 0; block < shape.getBlocks(); ++block) {
      Value results = emitRegion(block, first + row, staged / kMatrix);
      if (isStaged)
        stage(block, results);
      else
        storeSingly(block, first + row, results);
    }
    if (!isStaged)
      continue;
    emitter.warpBarrier();
    storeStaged(first + row, staged);
    // The buffer is read before it is written again.
    emitter.warpBarrier();
  }
}

Value Sm90Epilogue::getBuffer() {
  Value warp = emitter.scale(emitter.warp(), 1, -Contract::kWarpgroup / kWarp);
  return emitter.advance(contract.sharedAddress(shape.getStagingOffset()),
                         emitter.scale(warp, shape.getStagingBytes()));
}

/// Puts 8 or 16 rows of one block into the warp's buffer, where they are rows
/// of columns.
void Sm90Epilogue::stage(int64_t block, Value results) {
  Value rounded = castFloat(b, results, getElementType(result));
  int64_t numMatrices =
      cast<VectorType>(rounded.getType()).getNumElements() / 2;
  Value words = vector::BitCastOp::create(
      b, VectorType::get(numMatrices, b.getI32Type()), rounded);
  SmallVector<Value> matrices;
  for (int64_t i = 0; i < numMatrices; ++i)
    matrices.push_back(vector::ExtractOp::create(b, words, i));
  // Matrices: all columns of a warp by 8, then the same of 8 more rows. A row
  // of a matrix is a chunk.
  int64_t across = shape.getWarpColumns() / kMatrix;
  Value matrix =
      emitter.remainder(emitter.divide(emitter.lane(), kMatrix), numMatrices);
  Value row =
      contract.addI32(emitter.remainder(emitter.lane(), kMatrix),
                      emitter.scale(emitter.divide(matrix, across), kMatrix));
  Value chunk =
      emitter.scale(emitter.remainder(matrix, across), 1, block * across);
  Value offset = contract.addI32(emitter.scale(row, shape.getStagedStride()),
                                 emitter.scale(chunk, Contract::kChunkBytes));
  emitter.storeTransposed(emitter.advance(getBuffer(), offset), matrices);
}

/// Stores what is in the warp's buffer, chunk by chunk.
void Sm90Epilogue::storeStaged(int64_t first, int64_t rows) {
  int64_t chunks = shape.getWarpChunks();
  int64_t across = shape.getWarpColumns() / kMatrix;
  auto type = VectorType::get(4, b.getI32Type());
  for (int64_t start = 0; start < rows * chunks; start += kWarp) {
    Value own = emitter.scale(emitter.lane(), 1, start);
    Value row = emitter.divide(own, chunks);
    Value chunk = emitter.remainder(own, chunks);
    Value offset = contract.addI32(emitter.scale(row, shape.getStagedStride()),
                                   emitter.scale(chunk, Contract::kChunkBytes));
    Value block = emitter.divide(chunk, across);
    Value column = contract.addI32(
        contract.addI32(firstColumn, emitter.scale(emitter.warpgroupWarp(),
                                                   shape.getWarpColumns())),
        contract.addI32(
            emitter.scale(block, shape.getBlockColumns()),
            emitter.scale(emitter.remainder(chunk, across), kMatrix)));
    Value tileRow = emitter.scale(row, 1, first);
    Value isThere = emitter.isLess(tileRow, tile.rows);
    if (rows * chunks - start < kWarp)
      isThere = arith::AndIOp::create(b, isThere,
                                      emitter.isLess(row, emitter.i32(rows)));
    if (shape.columns % shape.n)
      isThere = arith::AndIOp::create(
          b, isThere, emitter.isLess(column, emitter.i32(shape.columns)));
    emitter.ifThen(isThere, [&] {
      Value results = emitter.load(type, emitter.advance(getBuffer(), offset),
                                   Contract::kChunkBytes);
      Value position = emitter.toIndex(contract.addI32(tile.firstRow, tileRow));
      emitter.store(
          results, emitter.address(result, {position, emitter.toIndex(column)}),
          Contract::kChunkBytes);
    });
  }
}

void Sm90Epilogue::storeSingly(int64_t block, int64_t first, Value results) {
  int64_t size = cast<VectorType>(results.getType()).getNumElements();
  for (int64_t i = 0; i < size; ++i) {
    int64_t element = i % getFragment();
    Value row = getRow(first + i / getFragment() * kMatrix, element);
    Value column = getColumn(block, element);
    Value isThere = emitter.isLess(row, tile.rows);
    if (shape.columns % shape.n)
      isThere = arith::AndIOp::create(
          b, isThere, emitter.isLess(column, emitter.i32(shape.columns)));
    emitter.ifThen(isThere, [&] {
      Value position = emitter.toIndex(contract.addI32(tile.firstRow, row));
      emitter.storeF32(vector::ExtractOp::create(b, results, i), result,
                       {position, emitter.toIndex(column)});
    });
  }
}

} // namespace

ContractOperands moec::loadSm90Operands(Sm90Contract &contract, Value consumer,
                                        const ContractTile &part,
                                        int64_t height) {
  return Sm90Epilogue(contract, consumer, part).load(height);
}

LogicalResult moec::emitSm90Epilogue(Sm90Contract &contract, Value consumer,
                                     const ContractOperands &operands,
                                     const ContractSums &sums) {
  LogicalResult status =
      Sm90Epilogue(contract, consumer, sums.tile).emit(operands, sums);
  endApart(contract.b);
  return status;
}
