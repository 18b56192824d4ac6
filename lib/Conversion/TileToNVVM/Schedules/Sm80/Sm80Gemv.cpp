//===- Sm80Gemv.cpp - the schedule sm80.gemv --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Kernel of sm80.gemv. A CTA multiplies up to `m` rows with `n` columns of a
// dense gemm, and its threads split K: each has every `threads`-th chunk of 16
// bytes of all rows. The sums are then reduced: across the lanes of a warp,
// halving the number of sums per lane in each step, then across warps, in
// order. A single row, which is all that one token has, has code of its own.

#include "../../../Emission/ContractOperands.h"
#include "../../Emit.h"
#include "../../ThreadEmitter.h"
#include "GemvTensor.h"
#include "moec/Analysis/Sm80.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;
using sm80::kWarp;

namespace {

class Sm80Gemv {
public:
  Sm80Gemv(tile::ContractOp op, ThreadEmitter &emitter)
      : op(op), emitter(emitter), b(emitter.b), shape(op, op.getConfigAttr()),
        input(emitter.operand(op.getInput())),
        weight(emitter.operand(op.getWeight())),
        result(emitter.operand(op.getResult())) {}

  LogicalResult emit();

private:
  void findPlace();
  /// Computes results of up to `count` rows. Columns or rows past the end
  /// repeat the last one; their sums are never read.
  void emitRows(int64_t count);
  void emitTensor();
  void addProducts();
  /// Adds the products of `count` chunks, `shape.threads` apart.
  void addPieces(Value first, int64_t count, SmallVector<Value> &sums);
  /// Adds the products of the last chunks, which not all threads have.
  void addRest(SmallVector<Value> &sums);
  void addPiece(ArrayRef<Value> weights, ArrayRef<Value> inputs,
                SmallVector<Value> &sums);
  Value loadPiece(Value memref, Value row, Value piece);

  /// Reduces the sums across the warp. Returns the number of the lane's first
  /// sum; neighbouring lanes have different sums or equal ones.
  Value addLanes();
  void storeSums(Value firstSum);
  /// The sum over all warps, given the address of the first one's.
  Value addWarps(Value place);
  void storeResult(Value number);
  Value emitEpilogue(Value sum, Value row, Value column);

  int64_t getNumSums() const {
    return static_cast<int64_t>(rows.size()) * shape.n;
  }
  Value isBelow(Value x, Value y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, x, y);
  }

  tile::ContractOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  sm80::Gemv shape;
  Value input, weight, result;
  Value firstRow, firstColumn, end;
  SmallVector<Value> columns, rows, sums;
  Value table;
  /// Sums per warp in the table.
  int64_t warpSums = 0;
  LogicalResult status = success();
};

void Sm80Gemv::findPlace() {
  Value panels = emitter.index(shape.getPanels());
  Value block = arith::DivUIOp::create(b, emitter.cta(), panels);
  Value panel = arith::RemUIOp::create(b, emitter.cta(), panels);
  firstRow = emitter.mul(block, shape.m);
  firstColumn = emitter.mul(panel, shape.n);
  end = emitter.min(emitter.add(firstRow, shape.m), emitter.tokens());
  Value lastColumn = emitter.index(shape.columns - 1);
  for (int64_t i = 0; i < shape.n; ++i) {
    Value column = emitter.add(firstColumn, i);
    if (shape.columns % shape.n)
      column = emitter.min(column, lastColumn);
    columns.push_back(column);
  }
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

Value Sm80Gemv::loadPiece(Value memref, Value row, Value piece) {
  int64_t elements = shape.getPieceElements();
  return emitter.loadVector(memref, {row, emitter.mul(piece, elements)},
                            elements);
}

/// Sums are ordered by row, then by column.
void Sm80Gemv::addPiece(ArrayRef<Value> weights, ArrayRef<Value> inputs,
                        SmallVector<Value> &sums) {
  auto split = [&](Value vector) {
    SmallVector<Value> parts;
    for (int64_t i = 0; i < shape.getPieceElements(); ++i)
      parts.push_back(vector::ExtractOp::create(b, vector, i));
    return parts;
  };
  SmallVector<SmallVector<Value>> w = llvm::map_to_vector(weights, split);
  for (auto [row, vector] : llvm::enumerate(inputs)) {
    SmallVector<Value> x = split(vector);
    for (int64_t column = 0; column < shape.n; ++column) {
      Value &sum = sums[row * shape.n + column];
      for (auto [a, c] : llvm::zip(x, w[column]))
        sum = math::FmaOp::create(b, a, c, sum);
    }
  }
}

void Sm80Gemv::addPieces(Value first, int64_t count, SmallVector<Value> &sums) {
  SmallVector<Value> pieces;
  SmallVector<SmallVector<Value>> weights(count);
  for (int64_t i = 0; i < count; ++i) {
    pieces.push_back(emitter.add(first, i * shape.threads));
    for (Value column : columns)
      weights[i].push_back(loadPiece(weight, column, pieces[i]));
  }
  for (int64_t i = 0; i < count; ++i)
    addPiece(
        weights[i],
        llvm::map_to_vector(
            rows, [&](Value row) { return loadPiece(input, row, pieces[i]); }),
        sums);
}

void Sm80Gemv::addRest(SmallVector<Value> &sums) {
  int64_t rest = shape.getPieces() % shape.threads;
  if (rest == 0)
    return;
  SmallVector<Type> types(sums.size(), b.getF32Type());
  auto branch = scf::IfOp::create(
      b, types, emitter.isLess(emitter.thread(), emitter.i32(rest)),
      /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, sums);
  b.setInsertionPointToEnd(branch.thenBlock());
  addPieces(
      emitter.add(emitter.toIndex(emitter.thread()), shape.getPieces() - rest),
      1, sums);
  scf::YieldOp::create(b, sums);
  sums = SmallVector<Value>(branch.getResults());
}

void Sm80Gemv::addProducts() {
  sums.assign(getNumSums(), emitter.f32(0.0));
  Value thread = emitter.toIndex(emitter.thread());
  int64_t steps = shape.getPieces() / shape.threads;
  int64_t atOnce = std::max<int64_t>(ptxas::kGemvPieces / shape.n, 1);
  int64_t whole = steps - steps % atOnce;
  if (whole)
    sums = emitter.forLoop(
        emitter.index(0), emitter.index(whole * shape.threads),
        atOnce * shape.threads, sums, [&](Value first, ValueRange carried) {
          SmallVector<Value> next(carried);
          addPieces(emitter.add(first, thread), atOnce, next);
          return next;
        });
  if (steps > whole)
    addPieces(emitter.add(thread, whole * shape.threads), steps - whole, sums);
  addRest(sums);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

Value Sm80Gemv::addLanes() {
  Value first = emitter.i32(0);
  for (int64_t distance = kWarp / 2; distance > 0; distance /= 2) {
    size_t half = sums.size() / 2;
    if (half == 0) {
      sums[0] = arith::AddFOp::create(b, sums[0],
                                      emitter.shuffleXor(sums[0], distance));
      continue;
    }
    // The lane keeps one half of its sums, and exchanges the other for its
    // neighbour's.
    Value bit = emitter.remainder(emitter.divide(emitter.lane(), distance), 2);
    Value isUpper = emitter.isLess(emitter.i32(0), bit);
    for (size_t i = 0; i < half; ++i) {
      Value lower = sums[i], upper = sums[i + half];
      Value kept = arith::SelectOp::create(b, isUpper, upper, lower);
      Value given = arith::SelectOp::create(b, isUpper, lower, upper);
      sums[i] =
          arith::AddFOp::create(b, kept, emitter.shuffleXor(given, distance));
    }
    sums.resize(half);
    first = arith::AddIOp::create(
        b, first, emitter.scale(bit, static_cast<int64_t>(half)));
  }
  return first;
}

void Sm80Gemv::storeSums(Value firstSum) {
  int64_t number = getNumSums();
  // Lanes with equal sums, the first of which writes.
  int64_t same = std::max<int64_t>(kWarp / number, 1);
  Value at = emitter.toIndex(arith::AddIOp::create(
      b, firstSum, emitter.scale(emitter.warp(), number)));
  Value isWriter =
      emitter.isLess(emitter.remainder(emitter.lane(), same), emitter.i32(1));
  emitter.ifThen(isWriter, [&] {
    for (auto [i, sum] : llvm::enumerate(sums))
      emitter.storeF32(sum, table, emitter.add(at, static_cast<int64_t>(i)));
  });
  // LLVM loads three of four neighbours as four, so that all four have to
  // exist.
  constexpr int64_t atOnce = 4;
  int64_t used = shape.getWarps() * number;
  int64_t pads = llvm::alignTo(used, atOnce) - used;
  if (number == 1 && pads)
    emitter.ifThen(emitter.isLess(emitter.thread(), emitter.i32(pads)), [&] {
      Value pad = emitter.add(emitter.toIndex(emitter.thread()), used);
      emitter.storeF32(emitter.f32(0.0), table, pad);
    });
}

Value Sm80Gemv::addWarps(Value place) {
  Value sum = emitter.loadF32(table, place);
  for (int64_t warp = 1; warp < shape.getWarps(); ++warp) {
    Value at = emitter.add(place, warp * warpSums);
    sum = arith::AddFOp::create(b, sum, emitter.loadF32(table, at));
  }
  return sum;
}

/// Null if the region cannot be emitted.
Value Sm80Gemv::emitEpilogue(Value sum, Value row, Value column) {
  SmallVector<Value> args{sum};
  for (Value operand : op.getRowOperands())
    args.push_back(loadRowOperand(emitter, operand, row));
  for (Value operand : op.getColumnOperands())
    args.push_back(emitter.loadF32(emitter.operand(operand), column));
  for (Value operand : op.getElementwiseOperands())
    args.push_back(emitter.loadF32(emitter.operand(operand), {row, column}));
  FailureOr<Value> value = emitter.inlineRegion(op.getEpilogue(), args);
  if (succeeded(value))
    return *value;
  status = failure();
  return {};
}

void Sm80Gemv::storeResult(Value number) {
  Value columnsOfCta = emitter.index(shape.n);
  Value rowOfCta = arith::DivUIOp::create(b, number, columnsOfCta);
  Value columnOfCta = arith::RemUIOp::create(b, number, columnsOfCta);
  Value row = emitter.add(firstRow, rowOfCta);
  Value column = emitter.add(firstColumn, columnOfCta);
  Value place =
      emitter.add(emitter.mul(rowOfCta, shape.getSumStride()), columnOfCta);
  Value exists = arith::AndIOp::create(
      b, isBelow(row, end), isBelow(column, emitter.index(shape.columns)));
  emitter.ifThen(exists, [&] {
    auto store = [&] {
      if (Value value = emitEpilogue(addWarps(place), row, column))
        emitter.storeF32(value, result, {row, column});
    };
    if (!op.getNumValidTokens())
      return store();
    Value valid = emitter.validTokens(op.getNumValidTokens());
    emitter.ifThen(isBelow(row, valid), store, [&] {
      emitter.storeF32(emitter.f32(0.0), result, {row, column});
    });
  });
}

void Sm80Gemv::emitRows(int64_t count) {
  Value last = arith::SubIOp::create(b, end, emitter.index(1));
  rows.clear();
  for (int64_t i = 0; i < count; ++i)
    rows.push_back(i ? emitter.min(emitter.add(firstRow, i), last) : firstRow);
  addProducts();
  warpSums = getNumSums();
  storeSums(addLanes());
  emitter.barrier();
  Value thread = emitter.toIndex(emitter.thread());
  emitter.ifThen(isBelow(thread, emitter.index(getNumSums())),
                 [&] { storeResult(thread); });
}

void Sm80Gemv::emitTensor() {
  Value last = arith::SubIOp::create(b, end, emitter.index(1));
  GemvTensor(shape, emitter, input, weight)
      .emit(firstRow, last, firstColumn, table);
  warpSums = shape.getWarpSums();
  emitter.barrier();
  emitter.forThreads(emitter.index(0), emitter.index(shape.m * shape.n),
                     [&](Value number) { storeResult(number); });
}

LogicalResult Sm80Gemv::emit() {
  table = emitter.scratch(shape.getSumBytes() / 4, b.getF32Type());
  findPlace();
  if (shape.usesTensorCores()) {
    emitTensor();
    return status;
  }
  if (shape.m == 1) {
    emitRows(1);
    return status;
  }
  Value isOne = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, end,
                                      emitter.add(firstRow, 1));
  auto emitOne = [&] { emitRows(1); };
  auto emitAll = [&] { emitRows(shape.m); };
  emitter.ifThen(isOne, emitOne, emitAll);
  return status;
}

} // namespace

LogicalResult moec::emitSm80Gemv(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  return Sm80Gemv(cast<tile::ContractOp>(phase), emitter).emit();
}
