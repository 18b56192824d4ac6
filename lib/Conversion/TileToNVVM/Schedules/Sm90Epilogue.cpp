//===- Sm90Epilogue.cpp - the results of sm90.contract ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A thread has, of every 64 columns, two columns of two neighbouring rows out
// of every 8; with a layout it has gate and up of them, so that the epilogue
// runs in registers.
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
/// f32 of a thread per 8 input rows: two columns of two rows.
constexpr int64_t kFragment = 4;

/// A block of 64 results of a row, as a thread has them: one value with
/// `width / 2` f32 per plane.
using BlockSums = SmallVector<SmallVector<Value>>;

class Sm90Epilogue {
public:
  Sm90Epilogue(Sm90Contract &contract, Value consumer);
  /// The body of that width.
  LogicalResult emit(int64_t width, const ContractTile &tile,
                     ArrayRef<BlockSums> blocks);

private:
  /// The results of `matrices` times 8 rows from row `first` of the tile on, of
  /// one block; 4 f32 per matrix.
  Value emitRegion(const ContractTile &tile, int64_t blockNumber,
                   const BlockSums &block, int64_t first, int64_t matrices);
  void stage(int64_t blockNumber, int64_t stagedRow, Value buffer,
             Value results);
  void copyOut(const ContractTile &tile, int64_t first, int64_t rows,
               Value buffer);
  void storeSingly(const ContractTile &tile, int64_t blockNumber, int64_t first,
                   Value results);

  /// Of a fragment's element: its result column and its row of the tile, the
  /// latter counted from the first of 8; i32.
  Value getColumn(const ContractTile &tile, int64_t blockNumber,
                  int64_t element);
  Value getRow(int64_t first, int64_t element);
  /// The same, moved into the result where it lies outside; of type index.
  Value getSafeColumn(const ContractTile &tile, int64_t blockNumber,
                      int64_t element);
  Value getSafePosition(const ContractTile &tile, int64_t first,
                        int64_t element);
  SmallVector<Value> getLeading(const ContractTile &tile, Value last);

  /// One f32 per element of `matrices` fragments. `load(matrix, element)`.
  Value gather(int64_t matrices, function_ref<Value(int64_t, int64_t)> load);

  Sm90Contract &contract;
  AsyncEmitter &emitter;
  ImplicitLocOpBuilder &b;
  const sm90::Contract &shape;
  tile::ContractOp op;
  Value result;
  /// 0 or 1, i32.
  Value consumer;
  /// The thread's first column of 64, and its first row of 8; i32.
  Value ownColumn, ownRow;
  LogicalResult status = success();
};

Sm90Epilogue::Sm90Epilogue(Sm90Contract &contract, Value consumer)
    : contract(contract), emitter(contract.emitter), b(contract.b),
      shape(contract.shape), op(contract.op),
      result(emitter.operand(op.getResult())), consumer(consumer) {
  constexpr int64_t warpColumns = 16;
  ownColumn =
      contract.addI32(emitter.scale(emitter.warpgroupWarp(), warpColumns),
                      emitter.divide(emitter.lane(), 4));
  ownRow = emitter.scale(emitter.remainder(emitter.lane(), 4), 2);
}

//===----------------------------------------------------------------------===//
// Where elements lie
//===----------------------------------------------------------------------===//

Value Sm90Epilogue::getColumn(const ContractTile &tile, int64_t blockNumber,
                              int64_t element) {
  int64_t offset = blockNumber * Contract::kBlockRows + element / 2 * kMatrix;
  Value first = contract.addI32(
      tile.firstColumn, emitter.scale(consumer, shape.getConsumerColumns()));
  return emitter.scale(contract.addI32(first, ownColumn), 1, offset);
}

Value Sm90Epilogue::getRow(int64_t first, int64_t element) {
  return emitter.scale(ownRow, 1, first + element % 2);
}

Value Sm90Epilogue::getSafeColumn(const ContractTile &tile, int64_t blockNumber,
                                  int64_t element) {
  Value column = getColumn(tile, blockNumber, element);
  if (shape.columns % shape.n)
    column = contract.minI32(column, emitter.i32(shape.columns - 1));
  return emitter.toIndex(column);
}

Value Sm90Epilogue::getSafePosition(const ContractTile &tile, int64_t first,
                                    int64_t element) {
  Value last = emitter.scale(tile.rows, 1, -1);
  Value row = contract.minI32(getRow(first, element), last);
  return emitter.toIndex(contract.addI32(tile.firstRow, row));
}

SmallVector<Value> Sm90Epilogue::getLeading(const ContractTile &tile,
                                            Value last) {
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
    for (int64_t element = 0; element < kFragment; ++element)
      elements.push_back(load(matrix, element));
  auto type = VectorType::get(elements.size(), b.getF32Type());
  return vector::FromElementsOp::create(b, type, elements);
}

Value Sm90Epilogue::emitRegion(const ContractTile &tile, int64_t blockNumber,
                               const BlockSums &block, int64_t first,
                               int64_t matrices) {
  SmallVector<Value> args;
  for (const SmallVector<Value> &sums : block)
    args.push_back(gather(matrices, [&](int64_t matrix, int64_t element) {
      return sums[(first / kMatrix + matrix) * kFragment + element];
    }));
  for (Value operand : op.getRowOperands()) {
    Value rows = emitter.operand(operand);
    // Two rows of each matrix, in both columns.
    SmallVector<Value> values;
    for (int64_t i = 0; i < 2 * matrices; ++i)
      values.push_back(emitter.loadF32(
          rows, {getSafePosition(tile, first + i / 2 * kMatrix, i % 2),
                 emitter.index(0)}));
    args.push_back(gather(matrices, [&](int64_t matrix, int64_t element) {
      return values[2 * matrix + element % 2];
    }));
  }
  for (Value operand : op.getColumnOperands())
    for (int64_t plane = 0; plane < shape.planes; ++plane) {
      SmallVector<Value> values;
      for (int64_t element : {0, 2}) {
        Value column = getSafeColumn(tile, blockNumber, element);
        Value row = getWeightRow(emitter, op, plane, column);
        values.push_back(
            emitter.loadF32(emitter.operand(operand), getLeading(tile, row)));
      }
      args.push_back(gather(matrices, [&](int64_t, int64_t element) {
        return values[element / 2];
      }));
    }
  for (Value operand : op.getElementwiseOperands())
    args.push_back(gather(matrices, [&](int64_t matrix, int64_t element) {
      return emitter.loadF32(
          emitter.operand(operand),
          {getSafePosition(tile, first + matrix * kMatrix, element),
           getSafeColumn(tile, blockNumber, element)});
    }));
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return *value;
  status = failure();
  return args.front();
}

LogicalResult Sm90Epilogue::emit(int64_t width, const ContractTile &tile,
                                 ArrayRef<BlockSums> blocks) {
  bool isStaged = shape.resultBytes == 2;
  int64_t portion = shape.getStagedRows();
  for (int64_t first = 0; first < width; first += portion) {
    int64_t rows = std::min(portion, width - first);
    auto emitPortion = [&] {
      int64_t number = first / portion;
      Value buffer = contract.sharedAddress(shape.getStagingOffset() +
                                            number % Contract::kStagings *
                                                shape.getStagingBytes());
      buffer = emitter.advance(
          buffer, emitter.scale(consumer,
                                Contract::kStagings * shape.getStagingBytes()));
      if (isStaged) {
        // Of the tile before, no copy may be left; else only the latest one,
        // which reads the other buffer.
        emitter.waitSharedReads(number == 0 ? 0 : Contract::kStagings - 1);
        emitter.warpgroupBarrier();
      }
      for (int64_t row = 0; row < rows; row += 2 * kMatrix)
        for (auto [i, block] : llvm::enumerate(blocks)) {
          int64_t matrices = std::min<int64_t>(2, (rows - row) / kMatrix);
          Value results = emitRegion(tile, i, block, first + row, matrices);
          if (isStaged)
            stage(i, row, buffer, results);
          else
            storeSingly(tile, i, first + row, results);
        }
      if (isStaged)
        copyOut(tile, first, rows, buffer);
    };
    if (first == 0)
      emitPortion();
    else
      emitter.ifThen(emitter.isLess(emitter.i32(first), tile.rows),
                     emitPortion);
  }
  return status;
}

/// Puts 8 or 16 rows of one block into the buffer, where they are rows of
/// columns.
void Sm90Epilogue::stage(int64_t blockNumber, int64_t stagedRow, Value buffer,
                         Value results) {
  constexpr int64_t bytes = 2, warpColumns = 16;
  Value rounded = castFloat(b, results, getElementType(result));
  int64_t numMatrices =
      cast<VectorType>(rounded.getType()).getNumElements() / 2;
  Value words = vector::BitCastOp::create(
      b, VectorType::get(numMatrices, b.getI32Type()), rounded);
  SmallVector<Value> matrices;
  for (int64_t i = 0; i < numMatrices; ++i)
    matrices.push_back(vector::ExtractOp::create(b, words, i));
  // Matrices: 8 columns, the next 8, then the same of 8 more rows.
  Value matrix = emitter.divide(emitter.lane(), kMatrix);
  Value row =
      contract.addI32(emitter.remainder(emitter.lane(), kMatrix),
                      emitter.scale(emitter.divide(matrix, 2), kMatrix));
  Value column =
      contract.addI32(emitter.scale(emitter.warpgroupWarp(), warpColumns),
                      emitter.scale(emitter.remainder(matrix, 2), kMatrix));
  if (numMatrices == 2)
    row = emitter.remainder(row, kMatrix);
  Value offset = contract.addI32(emitter.scale(row, shape.getStagedStride()),
                                 emitter.scale(column, bytes));
  int64_t constant = stagedRow * shape.getStagedStride() +
                     blockNumber * Contract::kBlockRows * bytes;
  emitter.storeTransposed(
      emitter.advance(buffer, emitter.scale(offset, 1, constant)), matrices);
}

/// Starts the copies of a buffer's rows, one per thread.
void Sm90Epilogue::copyOut(const ContractTile &tile, int64_t first,
                           int64_t rows, Value buffer) {
  emitter.fenceAsync();
  emitter.warpgroupBarrier();
  Value own = emitter.warpgroupThread();
  Value row = emitter.scale(own, 1, first);
  Value firstColumn = contract.addI32(
      tile.firstColumn, emitter.scale(consumer, shape.getConsumerColumns()));
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

void Sm90Epilogue::storeSingly(const ContractTile &tile, int64_t blockNumber,
                               int64_t first, Value results) {
  int64_t size = cast<VectorType>(results.getType()).getNumElements();
  for (int64_t i = 0; i < size; ++i) {
    int64_t element = i % kFragment;
    Value row = getRow(first + i / kFragment * kMatrix, element);
    Value column = getColumn(tile, blockNumber, element);
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
                                     int64_t width, const ContractTile &tile,
                                     const ContractSums &sums) {
  const sm90::Contract &shape = contract.shape;
  SmallVector<SmallVector<Value>> planes(sums.blocks);
  // In memory, up comes before gate in one of the orders.
  tile::ContractOp op = contract.op;
  if (op.getLayout() &&
      op.getLayoutAttr().getOrder() == moe::GateUpOrder::UpGate)
    std::rotate(planes.begin(), planes.begin() + shape.getResultBlocks(),
                planes.end());
  SmallVector<BlockSums> blocks(shape.getResultBlocks());
  for (auto [i, values] : llvm::enumerate(planes))
    blocks[i % blocks.size()].push_back(values);
  LogicalResult status =
      Sm90Epilogue(contract, consumer).emit(width, tile, blocks);
  endApart(contract.b);
  return status;
}
