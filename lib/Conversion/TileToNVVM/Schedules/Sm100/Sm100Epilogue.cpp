//===- Sm100Epilogue.cpp - the results of sm100.contract --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Epilogue of the Blackwell gemm. A thread has a lane of tensor memory: a
// result column of each block, with both gate and up sums. It processes some
// rows at a time; the lanes of a warp store adjacent columns of a row.

#include "../../../Emission/ContractOperands.h"
#include "Sm100Contract.h"

using namespace mlir;
using namespace moec;

using Shape = sm100::Contract;

namespace {

class Epilogue {
public:
  explicit Epilogue(Sm100Contract &contract)
      : contract(contract), emitter(contract.emitter), b(contract.b),
        op(contract.op), shape(contract.shape),
        result(emitter.operand(op.getResult())) {}

  LogicalResult emit();

private:
  /// A result column of the thread: its index, whether it exists (i1, null:
  /// yes), the first block that has its sums, and its values of column
  /// operands.
  struct Column {
    Value number, exists;
    int64_t block;
    SmallVector<Value> operands;
  };
  Column findColumn(int64_t block);
  void emitRows(const Sm100Contract::Tile &tile, Value set, Value first,
                const Column &column);
  /// Null if the region cannot be emitted.
  Value emitRegion(ArrayRef<Value> sums, Value row, const Column &column);

  Sm100Contract &contract;
  TensorEmitter &emitter;
  ImplicitLocOpBuilder &b;
  tile::ContractOp op;
  const Shape &shape;
  Value result;
  LogicalResult status = success();
};

Epilogue::Column Epilogue::findColumn(int64_t block) {
  Column column{emitter.add(contract.getBlockColumn(block),
                            emitter.toIndex(emitter.thread())),
                {},
                block,
                {}};
  Value inside = column.number;
  if (!contract.areWhole()) {
    Value columns = emitter.index(shape.columns);
    column.exists = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                          column.number, columns);
    inside = emitter.min(inside, emitter.index(shape.columns - 1));
  }
  for (Value operand : op.getColumnOperands())
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      column.operands.push_back(emitter.loadF32(
          emitter.operand(operand),
          contract.getLeading(getWeightRow(emitter, op, projection, inside))));
  return column;
}

Value Epilogue::emitRegion(ArrayRef<Value> sums, Value row,
                           const Column &column) {
  SmallVector<Value> args(sums);
  for (Value operand : op.getRowOperands())
    args.push_back(loadRowOperand(emitter, operand, row));
  llvm::append_range(args, column.operands);
  for (Value operand : op.getElementwiseOperands())
    args.push_back(
        emitter.loadF32(emitter.operand(operand), {row, column.number}));
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return *value;
  status = failure();
  return {};
}

void Epilogue::emitRows(const Sm100Contract::Tile &tile, Value set, Value first,
                        const Column &column) {
  // Each warp accesses its own quarter of the lanes.
  Value lane = emitter.scale(emitter.warp(), Shape::kWarp * sm100::kTensorLane);
  // Lanes without a column have skipped the stores: reconverge for the
  // collective load.
  if (!contract.areWhole())
    emitter.warpBarrier();
  SmallVector<SmallVector<Value>> sums;
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection) {
    Value from = contract.sumsOf(set, column.block + projection);
    sums.push_back(emitter.loadTensor(
        contract.addI32(contract.addI32(from, lane), first), Shape::kRowUnit));
  }
  for (int64_t i = 0; i < Shape::kRowUnit; ++i) {
    Value inTile = emitter.scale(first, 1, i);
    Value isThere = emitter.isLess(inTile, tile.rows);
    if (column.exists)
      isThere = arith::AndIOp::create(b, isThere, column.exists);
    emitter.ifThen(isThere, [&] {
      auto own = llvm::map_to_vector(
          sums, [&](ArrayRef<Value> rows) { return rows[i]; });
      Value row = emitter.add(tile.firstRow, emitter.toIndex(inTile));
      if (Value value = emitRegion(own, row, column))
        emitter.storeF32(value, result, {row, column.number});
    });
  }
}

LogicalResult Epilogue::emit() {
  SmallVector<Column> columns;
  for (int64_t block = 0; block < shape.getColumnBlocks(); ++block)
    columns.push_back(findColumn(block));
  RingPlace place = contract.getFirstPlace();
  contract.forTiles({place.stage, place.parity}, [&](Sm100Contract::Tile tile,
                                                     ValueRange carried) {
    RingPlace set{carried[0], carried[1]};
    emitter.waitBarrier(contract.fullSums(set.stage), set.parity);
    emitter.fenceTensorAfter();
    emitter.forLoop(emitter.i32(0), tile.rows, Shape::kRowUnit,
                    [&](Value first) {
                      for (const Column &column : columns)
                        emitRows(tile, set.stage, first, column);
                    });
    emitter.fenceTensorBefore();
    emitter.arrive(contract.emptySums(set.stage));
    RingPlace next = contract.next(set, shape.getSumSets());
    return SmallVector<Value>{next.stage, next.parity};
  });
  return status;
}

} // namespace

LogicalResult moec::emitSm100Epilogue(Sm100Contract &contract) {
  return Epilogue(contract).emit();
}
