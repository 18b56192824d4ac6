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
// Results of 16 bits go through shared memory, transposed on their way to rows
// of columns, which the copy engine takes to memory.

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

class Sm90Epilogue {
public:
  Sm90Epilogue(Sm90Contract &contract, Value consumer,
               const ContractSums &sums);
  LogicalResult emit();

private:
  void emitPortion(int64_t first, int64_t rows);
  /// The results of `matrices` times 8 rows from row `first` on, of one block;
  /// a fragment per matrix.
  Value emitRegion(int64_t block, int64_t first, int64_t matrices);
  void stage(int64_t block, int64_t stagedRow, Value buffer, Value results);
  void copyOut(int64_t first, int64_t rows, Value buffer);
  void storeSingly(int64_t block, int64_t first, Value results);

  /// Results of a thread per block and 8 input rows; neighbours are in
  /// neighbouring rows.
  int64_t getFragment() const { return kSums / shape.planes; }
  /// Columns of a warp in a block.
  int64_t getWarpColumns() const { return shape.getBlockColumns() / 4; }
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
  const ContractSums &sums;
  const ContractTile &tile;
  Value result;
  /// 0 or 1, i32.
  Value consumer;
  /// The consumer's first column; the thread's first one of it, and its first
  /// row of 8; i32.
  Value firstColumn, ownColumn, ownRow;
  LogicalResult status = success();
};

Sm90Epilogue::Sm90Epilogue(Sm90Contract &contract, Value consumer,
                           const ContractSums &sums)
    : contract(contract), emitter(contract.emitter), b(contract.b),
      shape(contract.shape), op(contract.op), sums(sums), tile(sums.tile),
      result(emitter.operand(op.getResult())), consumer(consumer),
      firstColumn(tile.firstColumn) {
  if (!shape.sharesBlock())
    firstColumn = contract.addI32(
        firstColumn, emitter.scale(consumer, shape.getConsumerColumns()));
  Value column =
      contract.addI32(emitter.scale(emitter.warpgroupWarp(), getWarpColumns()),
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
  for (Value operand : op.getRowOperands()) {
    Value rows = emitter.operand(operand);
    // Two rows of each matrix, in all columns.
    SmallVector<Value> values;
    for (int64_t i = 0; i < 2 * matrices; ++i)
      values.push_back(emitter.loadF32(
          rows,
          {getSafePosition(first + i / 2 * kMatrix, i % 2), emitter.index(0)}));
    args.push_back(gather(matrices, [&](int64_t matrix, int64_t element) {
      return values[2 * matrix + element % 2];
    }));
  }
  for (Value operand : op.getColumnOperands())
    for (int64_t plane = 0; plane < shape.planes; ++plane) {
      SmallVector<Value> values;
      for (int64_t element = 0; element < getFragment(); element += 2) {
        Value row =
            getWeightRow(emitter, op, plane, getSafeColumn(block, element));
        values.push_back(
            emitter.loadF32(emitter.operand(operand), getLeading(row)));
      }
      args.push_back(gather(matrices, [&](int64_t, int64_t element) {
        return values[element / 2];
      }));
    }
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

LogicalResult Sm90Epilogue::emit() {
  int64_t portion = shape.getStagedRows();
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

/// Rows whose results wait for their copy together.
void Sm90Epilogue::emitPortion(int64_t first, int64_t rows) {
  bool isStaged = shape.resultBytes == 2;
  int64_t number = first / shape.getStagedRows();
  Value buffer = contract.sharedAddress(shape.getStagingOffset() +
                                        number % Contract::kStagings *
                                            shape.getStagingBytes());
  buffer = emitter.advance(
      buffer,
      emitter.scale(consumer, Contract::kStagings * shape.getStagingBytes()));
  if (isStaged) {
    // Of the tile before, no copy may be left; else only the latest one,
    // which reads the other buffer.
    emitter.waitSharedReads(number == 0 ? 0 : Contract::kStagings - 1);
    emitter.warpgroupBarrier();
  }
  for (int64_t row = 0; row < rows; row += 2 * kMatrix)
    for (int64_t block = 0; block < shape.getBlocks(); ++block) {
      int64_t matrices = std::min<int64_t>(2, (rows - row) / kMatrix);
      Value results = emitRegion(block, first + row, matrices);
      if (isStaged)
        stage(block, row, buffer, results);
      else
        storeSingly(block, first + row, results);
    }
  if (isStaged)
    copyOut(first, rows, buffer);
}

/// Puts 8 or 16 rows of one block into the buffer, where they are rows of
/// columns.
void Sm90Epilogue::stage(int64_t block, int64_t stagedRow, Value buffer,
                         Value results) {
  constexpr int64_t bytes = 2;
  Value rounded = castFloat(b, results, getElementType(result));
  int64_t numMatrices =
      cast<VectorType>(rounded.getType()).getNumElements() / 2;
  Value words = vector::BitCastOp::create(
      b, VectorType::get(numMatrices, b.getI32Type()), rounded);
  SmallVector<Value> matrices;
  for (int64_t i = 0; i < numMatrices; ++i)
    matrices.push_back(vector::ExtractOp::create(b, words, i));
  // Matrices: all columns of a warp by 8, then the same of 8 more rows.
  int64_t across = getWarpColumns() / kMatrix;
  Value matrix =
      emitter.remainder(emitter.divide(emitter.lane(), kMatrix), numMatrices);
  Value row =
      contract.addI32(emitter.remainder(emitter.lane(), kMatrix),
                      emitter.scale(emitter.divide(matrix, across), kMatrix));
  Value column = contract.addI32(
      emitter.scale(emitter.warpgroupWarp(), getWarpColumns()),
      emitter.scale(emitter.remainder(matrix, across), kMatrix));
  Value offset = contract.addI32(emitter.scale(row, shape.getStagedStride()),
                                 emitter.scale(column, bytes));
  int64_t constant = stagedRow * shape.getStagedStride() +
                     block * shape.getBlockColumns() * bytes;
  emitter.storeTransposed(
      emitter.advance(buffer, emitter.scale(offset, 1, constant)), matrices);
}

/// Starts the copies of a buffer's rows, one per thread.
void Sm90Epilogue::copyOut(int64_t first, int64_t rows, Value buffer) {
  emitter.fenceAsync();
  emitter.warpgroupBarrier();
  Value own = emitter.warpgroupThread();
  Value row = emitter.scale(own, 1, first);
  Value hasRow =
      arith::AndIOp::create(b, emitter.isLess(own, emitter.i32(rows)),
                            emitter.isLess(row, tile.rows));
  Value columns = emitter.i32(shape.getConsumerColumns());
  if (shape.columns % shape.n) {
    Value left =
        arith::SubIOp::create(b, emitter.i32(shape.columns), firstColumn);
    columns = contract.minI32(columns, left);
    hasRow = arith::AndIOp::create(b, hasRow,
                                   emitter.isLess(emitter.i32(0), columns));
  }
  emitter.ifThen(hasRow, [&] {
    Value position = emitter.toIndex(contract.addI32(tile.firstRow, row));
    Value to =
        emitter.address(result, {position, emitter.toIndex(firstColumn)});
    Value from =
        emitter.advance(buffer, emitter.scale(own, shape.getStagedStride()));
    emitter.copyToGlobal(to, from, emitter.scale(columns, shape.resultBytes));
  });
  emitter.commitGlobalCopies();
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

LogicalResult moec::emitSm90Epilogue(Sm90Contract &contract, Value consumer,
                                     const ContractSums &sums) {
  LogicalResult status = Sm90Epilogue(contract, consumer, sums).emit();
  endApart(contract.b);
  return status;
}
