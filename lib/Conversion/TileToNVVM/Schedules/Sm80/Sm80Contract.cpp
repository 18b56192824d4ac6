//===- Sm80Contract.cpp - the schedule sm80.contract ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel of sm80.contract. A CTA computes `n` result columns of one group, `m`
// rows at a time, or `n` columns of one block of `m` rows of a dense gemm.
// After the mainloop the epilogue runs over the tile, `lanes` columns per
// thread; `lanes` divides the number of columns, so that no thread has a
// partial vector.

#include "../../../Emission/ContractOperands.h"
#include "../../Emit.h"
#include "Sm80Products.h"
#include "moec/Analysis/Schedules.h"

using namespace mlir;
using namespace moec;

namespace {

class Sm80Contract {
public:
  Sm80Contract(tile::ContractOp op, ThreadEmitter &emitter, bool convertsFloat8)
      : op(op), emitter(emitter), b(emitter.b), floats(b, convertsFloat8),
        shape(op, op.getConfigAttr()), input(emitter.operand(op.getInput())),
        weight(emitter.operand(op.getWeight())),
        source(emitter.operand(op.getSource())),
        result(emitter.operand(op.getResult())) {}

  LogicalResult emit();

private:
  void emitGrouped(Sm80Products &products);
  void emitDense(Sm80Products &products, Value block);
  /// Multiplies `count` rows from `firstRow` on; at least one, at most `m`.
  void emitRows(Sm80Products &products, Value firstRow, Value count);
  Value emitEpilogue(ArrayRef<Value> sums, Value row, Value column);
  SmallVector<Value> loadColumnOperand(Value operand, Value column);
  void storeZeros(Value begin, Value end);
  /// Calls `body(row, column)` for the tile's columns of rows `0 .. count - 1`;
  /// `column` is relative to the tile.
  void forTile(Value count, function_ref<void(Value, Value)> body);

  Value getWeightRow(int64_t projection, Value column) {
    return moec::getWeightRow(emitter, op, projection, column);
  }
  SmallVector<Value> getLeading(Value last) {
    return group ? SmallVector<Value>{group, last} : SmallVector<Value>{last};
  }
  Value addressOf(Value memref, SmallVector<Value> row) {
    row.push_back(emitter.index(0));
    return emitter.address(memref, row);
  }

  tile::ContractOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  Float8 floats;
  sm80::Contract shape;
  Value input, weight, source, result;
  /// Null for a dense gemm.
  Value group;
  Value firstColumn;
  Sm80Scales *scales = nullptr;
  LogicalResult status = success();
};

LogicalResult Sm80Contract::emit() {
  Value panels = emitter.index(shape.getPanels());
  Value major = arith::DivUIOp::create(b, emitter.cta(), panels);
  Value minor = arith::RemUIOp::create(b, emitter.cta(), panels);
  firstColumn = emitter.mul(minor, shape.n);
  if (op.getOffsets())
    group = major;
  // Columns past the end repeat the last one; their sums are never read.
  Value last = emitter.index(shape.columns - 1);
  auto weightAddress = [&](int64_t projection, Value row) {
    Value column = emitter.add(firstColumn, emitter.toIndex(row));
    if (shape.columns % shape.n)
      column = emitter.min(column, last);
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

void Sm80Contract::emitGrouped(Sm80Products &products) {
  Value offsets = emitter.operand(op.getOffsets());
  Value begin = emitter.loadIndex(offsets, group);
  Value end = emitter.loadIndex(offsets, emitter.add(group, 1));
  emitter.forLoop(begin, end, shape.m, [&](Value row) {
    Value left = arith::SubIOp::create(b, end, row);
    emitRows(products, row, emitter.min(left, emitter.index(shape.m)));
  });
}

void Sm80Contract::emitDense(Sm80Products &products, Value block) {
  Value begin = emitter.mul(block, shape.m);
  Value end = emitter.min(emitter.add(begin, shape.m), emitter.tokens());
  if (!op.getNumValidTokens()) {
    emitRows(products, begin, arith::SubIOp::create(b, end, begin));
    return;
  }
  Value valid = emitter.validTokens(op.getNumValidTokens());
  Value validEnd = emitter.min(end, valid);
  Value hasRows =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, begin, validEnd);
  emitter.ifThen(hasRows, [&] {
    emitRows(products, begin, arith::SubIOp::create(b, validEnd, begin));
  });
  storeZeros(emitter.max(begin, valid), end);
}

void Sm80Contract::emitRows(Sm80Products &products, Value firstRow,
                            Value count) {
  // Rows past the end repeat the last one; their sums are never read.
  Value last = arith::SubIOp::create(b, count, emitter.index(1));
  auto sourceOf = [&](Value position) {
    return source ? emitter.loadIndex(source, position) : position;
  };
  auto addressIn = [&](Value memref, Value row) {
    Value inside = emitter.min(emitter.toIndex(row), last);
    return addressOf(memref, {sourceOf(emitter.add(firstRow, inside))});
  };
  products.emit([&](int64_t, Value row) { return addressIn(input, row); },
                [&](int64_t, Value row) {
                  return addressIn(emitter.operand(op.getInputScale()), row);
                });
  forTile(count, [&](Value row, Value column) {
    SmallVector<Value> sums;
    for (int64_t projection = 0; projection < shape.weightsPerColumn;
         ++projection)
      sums.push_back(products.loadSums(projection, row, column, shape.lanes));
    Value position = emitter.add(firstRow, row);
    Value resultColumn = emitter.add(firstColumn, column);
    if (shape.scales.areInEpilogue() || op.getWeightGlobalScale()) {
      Value from = shape.scales.input == ScaleTime::InEpilogue
                       ? sourceOf(position)
                       : Value();
      for (auto [projection, sum] : llvm::enumerate(sums))
        sum = scales->apply(projection, sum, from, resultColumn);
    }
    Value value = emitEpilogue(sums, position, resultColumn);
    if (value)
      emitter.storeVector(value, result, {position, resultColumn});
  });
  products.release();
}

void Sm80Contract::forTile(Value count, function_ref<void(Value, Value)> body) {
  Value pieces = emitter.index(shape.n / shape.lanes);
  emitter.forThreads(
      emitter.index(0), emitter.mul(count, shape.n / shape.lanes),
      [&](Value piece) {
        Value row = arith::DivUIOp::create(b, piece, pieces);
        Value column =
            emitter.mul(arith::RemUIOp::create(b, piece, pieces), shape.lanes);
        if (shape.columns % shape.n == 0)
          return body(row, column);
        Value exists = arith::CmpIOp::create(b, arith::CmpIPredicate::slt,
                                             emitter.add(firstColumn, column),
                                             emitter.index(shape.columns));
        emitter.ifThen(exists, [&] { body(row, column); });
      });
}

void Sm80Contract::storeZeros(Value begin, Value end) {
  Value zero = emitter.splat(0.0, shape.lanes);
  Value count =
      emitter.max(arith::SubIOp::create(b, end, begin), emitter.index(0));
  forTile(count, [&](Value row, Value column) {
    emitter.storeVector(
        zero, result,
        {emitter.add(begin, row), emitter.add(firstColumn, column)});
  });
}

//===----------------------------------------------------------------------===//
// Epilogue
//===----------------------------------------------------------------------===//

/// The values of a column operand: one, or two for gate and up.
SmallVector<Value> Sm80Contract::loadColumnOperand(Value operand,
                                                   Value column) {
  int64_t lanes = shape.lanes;
  if (shape.weightsPerColumn == 1)
    return {emitter.loadVector(operand, getLeading(column), lanes)};
  if (op.getLayoutAttr().getOrder() != moe::GateUpOrder::Interleaved)
    return {
        emitter.loadVector(operand, getLeading(getWeightRow(0, column)), lanes),
        emitter.loadVector(operand, getLeading(getWeightRow(1, column)),
                           lanes)};
  Value pairs = emitter.loadVector(operand, getLeading(emitter.mul(column, 2)),
                                   2 * lanes);
  SmallVector<int64_t> even, odd;
  for (int64_t i = 0; i < lanes; ++i) {
    even.push_back(2 * i);
    odd.push_back(2 * i + 1);
  }
  return {vector::ShuffleOp::create(b, pairs, pairs, even),
          vector::ShuffleOp::create(b, pairs, pairs, odd)};
}

/// Null if the region cannot be emitted.
Value Sm80Contract::emitEpilogue(ArrayRef<Value> sums, Value row,
                                 Value column) {
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
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return *value;
  status = failure();
  return {};
}

} // namespace

LogicalResult moec::emitSm80Contract(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  return Sm80Contract(cast<tile::ContractOp>(phase), emitter,
                      body.target.convertsFloat8())
      .emit();
}
