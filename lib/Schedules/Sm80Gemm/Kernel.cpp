//===- Kernel.cpp - the schedule sm80.gemm ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel of sm80.gemm. A CTA computes `n` result columns of one group, `m`
// rows at a time, or `n` columns of one block of `m` rows of a dense gemm.
// After the mainloop the epilogue runs over the tile, `lanes` columns per
// thread; `lanes` divides the number of columns, so that no thread has a
// partial vector.

#include "KernelBuilder/AdapterUpdates.h"
#include "KernelBuilder/GemmOperands.h"
#include "Products.h"
#include "Schedules/Interface/Emit.h"
#include "moec/Schedules/Schedules.h"

using namespace mlir;
using namespace moec;

namespace {

class Sm80Gemm {
public:
  Sm80Gemm(tile::GemmOp op, ThreadEmitter &emitter, bool convertsFloat8)
      : op(op), emitter(emitter), b(emitter.b), floats(b, convertsFloat8),
        shape(op, op.getConfigAttr()), input(emitter.operand(op.getInput())),
        weight(emitter.operand(op.getWeight())),
        source(emitter.operand(op.getSource())),
        result(emitter.operand(op.getResult())) {}

  LogicalResult emit();

private:
  void emitGrouped(Sm80Products &products);
  void emitDense(Sm80Products &products, Index block);
  /// Multiplies `count` rows from `firstRow` on; at least one, at most `m`.
  void emitRows(Sm80Products &products, Index firstRow, Index count);
  Value emitEpilogue(ArrayRef<F32> sums, Index row, Index column);
  SmallVector<Value> loadColumnOperand(Value operand, Index column);
  void storeZeros(Index begin, Index end);
  /// Calls `body(row, column)` for the tile's columns of rows `0 .. count - 1`;
  /// `column` is relative to the tile.
  void forTile(Index count, function_ref<void(Index, Index)> body);

  Index getWeightRow(int64_t projection, Index column) {
    return {b, moec::getWeightRow(emitter, op, projection, column)};
  }
  SmallVector<Value> getLeading(Index last) {
    return group ? SmallVector<Value>{group, last} : SmallVector<Value>{last};
  }
  Value addressOf(Value memref, SmallVector<Value> row) {
    row.push_back(emitter.index(0));
    return emitter.address(memref, row);
  }

  tile::GemmOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  Float8 floats;
  sm80::GemmShape shape;
  Value input, weight, source, result;
  /// Null for a dense gemm.
  Index group;
  Index firstColumn;
  Sm80Scales *scales = nullptr;
  LogicalResult status = success();
};

LogicalResult Sm80Gemm::emit() {
  Index major = emitter.cta() / shape.getNTiles();
  Index minor = emitter.cta() % shape.getNTiles();
  firstColumn = minor * shape.n;
  if (op.getOffsets())
    group = major;
  // Columns past the end repeat the last one; their sums are never read.
  auto weightAddress = [&](int64_t projection, I32 row) {
    Index column = firstColumn + emitter.toIndex(row);
    if (shape.columns % shape.n)
      column = min(column, shape.columns - 1);
    return addressOf(weight, getLeading(getWeightRow(projection, column)));
  };
  Sm80Scales ofTile(emitter, op, shape, floats, group, firstColumn);
  scales = &ofTile;
  Sm80Products products(emitter, op, shape, floats, weightAddress, ofTile);
  if (op.getOffsets())
    emitGrouped(products);
  else
    emitDense(products, major);
  return status;
}

void Sm80Gemm::emitGrouped(Sm80Products &products) {
  Value offsets = emitter.operand(op.getOffsets());
  Index begin = emitter.loadIndex(offsets, group);
  Index end = emitter.loadIndex(offsets, group + 1);
  emitter.loop(begin, end, shape.m, [&](Index row) {
    emitRows(products, row, min(end - row, shape.m));
  });
}

void Sm80Gemm::emitDense(Sm80Products &products, Index block) {
  Index begin = block * shape.m;
  Index end = min(begin + shape.m, emitter.tokens());
  if (!op.getNumValidTokens())
    return emitRows(products, begin, end - begin);
  Index valid = emitter.validTokens(op.getNumValidTokens());
  Index validEnd = min(end, valid);
  emitter.ifThen(begin < validEnd,
                 [&] { emitRows(products, begin, validEnd - begin); });
  storeZeros(max(begin, valid), end);
}

void Sm80Gemm::emitRows(Sm80Products &products, Index firstRow, Index count) {
  // Rows past the end repeat the last one; their sums are never read.
  Index last = count - 1;
  auto sourceOf = [&](Index position) {
    return source ? emitter.loadIndex(source, position) : position;
  };
  auto addressIn = [&](Value memref, I32 row) {
    Index inside = min(emitter.toIndex(row), last);
    return addressOf(memref, {sourceOf(firstRow + inside)});
  };
  products.emit([&](int64_t, I32 row) { return addressIn(input, row); },
                [&](int64_t, I32 row) {
                  return addressIn(emitter.operand(op.getInputScale()), row);
                });
  forTile(count, [&](Index row, Index column) {
    SmallVector<F32> sums;
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      sums.push_back(products.loadSums(projection, row, column, shape.lanes));
    Index position = firstRow + row;
    Index resultColumn = firstColumn + column;
    if (shape.scales.areInEpilogue() || op.getWeightGlobalScale()) {
      Index from = shape.scales.input == ScaleTime::InEpilogue
                       ? sourceOf(position)
                       : Index();
      for (auto [projection, sum] : llvm::enumerate(sums))
        sum = scales->apply(projection, sum, from, resultColumn);
    }
    Value value = emitEpilogue(sums, position, resultColumn);
    if (value)
      emitter.storeVector(value, result, {position, resultColumn});
  });
  products.release();
}

void Sm80Gemm::forTile(Index count, function_ref<void(Index, Index)> body) {
  int64_t chunks = shape.n / shape.lanes;
  emitter.forThreads(emitter.index(0), count * chunks, [&](Index chunk) {
    Index row = chunk / chunks;
    Index column = chunk % chunks * shape.lanes;
    if (shape.columns % shape.n == 0)
      return body(row, column);
    emitter.ifThen(firstColumn + column < shape.columns,
                   [&] { body(row, column); });
  });
}

void Sm80Gemm::storeZeros(Index begin, Index end) {
  Value zero = emitter.splat(0.0, shape.lanes);
  forTile(max(end - begin, 0), [&](Index row, Index column) {
    emitter.storeVector(zero, result, {begin + row, firstColumn + column});
  });
}

//===----------------------------------------------------------------------===//
// Epilogue
//===----------------------------------------------------------------------===//

/// The values of a column operand: one, or two for gate and up.
SmallVector<Value> Sm80Gemm::loadColumnOperand(Value operand, Index column) {
  int64_t lanes = shape.lanes;
  auto load = [&](Index first, int64_t lanes) {
    return emitter.loadVector(operand, getLeading(first), lanes);
  };
  if (shape.weightsPerColumn == 1)
    return {load(column, lanes)};
  if (op.getLayoutAttr().getOrder() != moe::GateUpOrder::Interleaved) {
    Value gate = load(getWeightRow(0, column), lanes);
    return {gate, load(getWeightRow(1, column), lanes)};
  }
  Value pairs = load(column * 2, 2 * lanes);
  auto everySecond = [&](int64_t first) {
    SmallVector<int64_t> lanesOfPairs;
    for (int64_t i = 0; i < lanes; ++i)
      lanesOfPairs.push_back(2 * i + first);
    return vector::ShuffleOp::create(b, pairs, pairs, lanesOfPairs);
  };
  Value gate = everySecond(0);
  return {gate, everySecond(1)};
}

/// Null if the region cannot be emitted.
Value Sm80Gemm::emitEpilogue(ArrayRef<F32> sums, Index row, Index column) {
  SmallVector<Value> args(sums);
  for (Value operand : op.getRowOperands()) {
    Value scalar = loadRowOperand(emitter, operand, row);
    args.push_back(emitter.splat(scalar, shape.lanes));
  }
  for (Value operand : op.getColumnOperands())
    llvm::append_range(args,
                       loadColumnOperand(emitter.operand(operand), column));
  for (Value operand : op.getElementwiseOperands())
    args.push_back(emitter.loadVector(emitter.operand(operand), {row, column},
                                      shape.lanes));
  for (size_t i = 0; i < op.getMatrices().size(); ++i) {
    SmallVector<F32> updates;
    for (int64_t lane = 0; lane < shape.lanes; ++lane)
      updates.push_back(loadAdapterUpdate(emitter, op, int64_t(i), group, row,
                                          column + lane));
    args.push_back(emitter.makeVector(ArrayRef(updates)));
  }
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return *value;
  status = failure();
  return {};
}

} // namespace

LogicalResult moec::emitSm80Gemm(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  return Sm80Gemm(cast<tile::GemmOp>(phase), emitter,
                  body.target.convertsFloat8())
      .emit();
}
