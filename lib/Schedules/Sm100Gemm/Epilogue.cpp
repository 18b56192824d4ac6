//===- Epilogue.cpp - the results of sm100.gemm -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Epilogue of the Blackwell gemm. A thread has a lane of tensor memory: a
// result column of each block, with both gate and up sums. It processes some
// rows at a time; the lanes of a warp store adjacent columns of a row.

#include "Kernel.h"
#include "KernelBuilder/AdapterUpdates.h"
#include "KernelBuilder/GemmOperands.h"

using namespace mlir;
using namespace moec;

using Shape = sm100::GemmShape;

namespace {

class Epilogue {
public:
  explicit Epilogue(Sm100Gemm &gemm)
      : gemm(gemm), emitter(gemm.emitter), op(gemm.op), shape(gemm.shape),
        result(emitter.operand(op.getResult())) {}

  LogicalResult emit();

private:
  /// A result column of the thread: its index, whether it exists (null: yes),
  /// the first block that has its sums, and its values of column operands.
  struct Column {
    Index number;
    Flag exists;
    int64_t block;
    SmallVector<F32> operands;
  };
  Column findColumn(int64_t block);
  void emitRows(const Sm100Gemm::Tile &tile, I32 set, I32 first,
                const Column &column);
  /// Null if the region cannot be emitted.
  Value emitRegion(ArrayRef<F32> sums, Index row, const Column &column);

  Sm100Gemm &gemm;
  TensorEmitter &emitter;
  tile::GemmOp op;
  const Shape &shape;
  Value result;
  LogicalResult status = success();
};

Epilogue::Column Epilogue::findColumn(int64_t block) {
  Index first = gemm.getBlockColumn(block);
  Column column{first + emitter.toIndex(emitter.thread()), {}, block, {}};
  Index inside = column.number;
  if (!gemm.areWhole()) {
    column.exists = column.number < shape.columns;
    inside = min(inside, shape.columns - 1);
  }
  for (Value operand : op.getColumnOperands())
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      column.operands.push_back(emitter.loadF32(
          emitter.operand(operand),
          gemm.getLeading(getWeightRow(emitter, op, projection, inside))));
  return column;
}

Value Epilogue::emitRegion(ArrayRef<F32> sums, Index row,
                           const Column &column) {
  SmallVector<Value> args(sums);
  for (Value operand : op.getRowOperands())
    args.push_back(loadRowOperand(emitter, operand, row));
  llvm::append_range(args, column.operands);
  for (Value operand : op.getElementwiseOperands())
    args.push_back(
        emitter.loadF32(emitter.operand(operand), {row, column.number}));
  for (size_t i = 0; i < op.getMatrices().size(); ++i)
    args.push_back(loadAdapterUpdate(emitter, op, int64_t(i),
                                     gemm.getLeading(column.number).front(),
                                     row, column.number));
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return *value;
  status = failure();
  return {};
}

void Epilogue::emitRows(const Sm100Gemm::Tile &tile, I32 set, I32 first,
                        const Column &column) {
  // Each warp accesses its own quarter of the lanes.
  I32 lane = emitter.warp() * (Shape::kWarp * sm100::kTensorLane);
  // Lanes without a column have skipped the stores: reconverge for the
  // collective load.
  if (!gemm.areWhole())
    emitter.warpBarrier();
  SmallVector<SmallVector<F32>> sums;
  for (int64_t projection = 0; projection < shape.weightsPerColumn;
       ++projection) {
    I32 from = gemm.sumsOf(set, column.block + projection);
    sums.push_back(emitter.loadTensor(from + lane + first, Shape::kRowUnit));
  }
  for (int64_t i = 0; i < Shape::kRowUnit; ++i) {
    I32 inTile = first + i;
    Flag isThere = inTile < tile.rows;
    if (!column.exists.isNull())
      isThere = isThere & column.exists;
    emitter.ifThen(isThere, [&] {
      auto own = llvm::map_to_vector(
          sums, [&](ArrayRef<F32> rows) { return rows[i]; });
      Index row = tile.firstRow + emitter.toIndex(inTile);
      if (Value value = emitRegion(own, row, column))
        emitter.storeF32(value, result, {row, column.number});
    });
  }
}

LogicalResult Epilogue::emit() {
  SmallVector<Column> columns;
  for (int64_t block = 0; block < shape.getColumnBlocks(); ++block)
    columns.push_back(findColumn(block));
  const Pipeline &accumulators = gemm.accumulators;
  gemm.forTiles(accumulators.first(), [&](Sm100Gemm::Tile tile,
                                          PipelineState set) {
    accumulators.waitUntilFull(set);
    emitter.fenceTensorAfter();
    emitter.loop(emitter.i32(0), tile.rows, Shape::kRowUnit, [&](I32 first) {
      for (const Column &column : columns)
        emitRows(tile, set.stage, first, column);
    });
    emitter.fenceTensorBefore();
    accumulators.empty(set.stage).arrive();
    return accumulators.next(set);
  });
  return status;
}

} // namespace

LogicalResult moec::emitSm100Epilogue(Sm100Gemm &gemm) {
  return Epilogue(gemm).emit();
}
