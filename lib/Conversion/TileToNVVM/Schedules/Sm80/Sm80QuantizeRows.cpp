//===- Sm80QuantizeRows.cpp - scales of whole rows --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Quantization with one scale per row. If rows fit in a warp's registers, each
// warp has one at a time, or a few short ones: it reads them once, and waits
// for no other warp.
//
// Longer rows are processed by a CTA each, every gridDim-th. Its threads go
// through the row twice, in adjacent vectors: for the largest magnitude, which
// is reduced by shuffles and in shared memory, and for the quantized values.
// The second time the row comes from a cache. With a given scale it is read
// once.

#include "Sm80QuantizeRows.h"

#include "moec/Dialect/Moe/QuantLayout.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;
using namespace moec;

namespace {

/// Shared code for whole rows.
class Rows : public QuantizingThreads {
public:
  Rows(tile::QuantizeOp op, ThreadEmitter &emitter, bool convertsFloat8)
      : QuantizingThreads(op, emitter, convertsFloat8),
        given(emitter.operand(op.getTensorScale())) {}

protected:
  /// Maximum over the lanes of the warp, in all of them.
  Value shareInWarp(Value largest);

  /// The scale of all rows; null if each has its own.
  Value given;
};

/// Rows that a warp holds in registers.
class HeldRows : public Rows {
public:
  using Rows::Rows;

  /// Quantizes the rows `first`, `first + step`, ... below `rows`, `atOnce` of
  /// them at a time.
  void emit(Value first, Value step, Value rows, int64_t atOnce);

private:
  struct Row {
    /// The row, clamped to the last one, and whether it exists (null: yes).
    Value number, isThere;
    /// The lane's vectors, in f32.
    SmallVector<Value> values;
  };
  Row load(Value number, Value rows, bool isFirst);
  void quantize(const Row &row);
  /// The first column of the lane's vector, and whether it is inside the row
  /// (null: yes).
  std::pair<Value, Value> getColumn(int64_t vector);
};

/// Rows that a CTA processes one at a time.
class RowQuantizer : public Rows {
public:
  RowQuantizer(tile::QuantizeOp op, ThreadEmitter &emitter, bool convertsFloat8)
      : Rows(op, emitter, convertsFloat8) {
    if (!given)
      ofWarps = emitter.scratch({emitter.getNumWarps()}, b.getF32Type());
  }

  void emitRow(Value row);

private:
  /// Vectors of a thread in flight.
  static constexpr int64_t kAtOnce = 4;

  /// Some of the thread's vectors of a row: first columns, and f32 values.
  struct Vectors {
    SmallVector<Value> columns, values;
  };
  /// Loads vectors from `column` on; past the row's end they repeat its last
  /// one.
  Vectors load(Value row, Value column);
  Value findLargest(Value row);
  /// Maximum over all threads, in all of them.
  Value share(Value largest);
  /// Stores the row's vectors, converted by `toCodes`.
  void encode(Value row, function_ref<Value(Value)> toCodes);
  /// The first column of the thread, and the stride between iterations.
  Value getFirst() {
    return emitter.mul(emitter.toIndex(emitter.thread()), shape.lanes);
  }
  int64_t getStep() const { return kAtOnce * shape.panel; }

  /// One largest magnitude per warp, in shared memory.
  Value ofWarps;
};

Value Rows::shareInWarp(Value largest) {
  for (int64_t mask = 1; mask < sm80::kWarp; mask *= 2)
    largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
  return largest;
}

//===----------------------------------------------------------------------===//
// A row of a warp
//===----------------------------------------------------------------------===//

std::pair<Value, Value> HeldRows::getColumn(int64_t vector) {
  Value column = emitter.toIndex(emitter.scale(
      emitter.lane(), shape.lanes, vector * sm80::kWarp * shape.lanes));
  if ((vector + 1) * sm80::kWarp * shape.lanes <= shape.columns)
    return {column, Value()};
  Value isInside = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, column,
                                         emitter.index(shape.columns));
  return {column, isInside};
}

HeldRows::Row HeldRows::load(Value number, Value rows, bool isFirst) {
  Row row{number, Value(), {}};
  if (!isFirst) {
    row.isThere =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, number, rows);
    row.number =
        emitter.min(number, arith::SubIOp::create(b, rows, emitter.index(1)));
  }
  // Past the row's end vectors repeat its last one.
  Value last = emitter.index(shape.columns - shape.lanes);
  for (int64_t i = 0; i < shape.getHeldVectors(); ++i) {
    auto [column, isInside] = getColumn(i);
    row.values.push_back(emitter.loadVector(
        input, {row.number, isInside ? emitter.min(column, last) : column},
        shape.lanes));
  }
  return row;
}

void HeldRows::quantize(const Row &row) {
  Quantizer::Divisor divisor;
  Value byGiven;
  if (given)
    byGiven = emitter.loadF32(given, emitter.index(0));
  else
    divisor =
        quantizer.getDivisor(shareInWarp(quantizer.findLargest(row.values)));
  auto storeIf = [&](Value condition, function_ref<void()> body) {
    if (condition && row.isThere)
      condition = arith::AndIOp::create(b, condition, row.isThere);
    else if (row.isThere)
      condition = row.isThere;
    condition ? emitter.ifThen(condition, body) : body();
  };
  for (auto [i, values] : llvm::enumerate(row.values)) {
    Value codes = given ? quantizer.encodeBy(values, byGiven)
                        : quantizer.encode(values, divisor);
    auto [column, isInside] = getColumn(i);
    storeIf(isInside, [&, column = column] {
      emitter.store(codes, emitter.address(quantized, {row.number, column}),
                    shape.lanes * quantizer.getCodeBytes());
    });
  }
  if (given)
    return;
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                        emitter.lane(), emitter.i32(0));
  storeIf(isFirst, [&] {
    emitter.storeF32(divisor.scale, scale, {row.number, emitter.index(0)});
  });
}

void HeldRows::emit(Value first, Value step, Value rows, int64_t atOnce) {
  Value stride = emitter.mul(step, atOnce);
  auto loop = scf::ForOp::create(b, first, rows, stride);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Row> held;
  Value number = loop.getInductionVar();
  for (int64_t i = 0; i < atOnce; ++i) {
    held.push_back(load(number, rows, /*isFirst=*/i == 0));
    number = emitter.add(number, step);
  }
  for (const Row &row : held)
    quantize(row);
}

//===----------------------------------------------------------------------===//
// A row of a CTA
//===----------------------------------------------------------------------===//

RowQuantizer::Vectors RowQuantizer::load(Value row, Value column) {
  Vectors vectors;
  Value last = emitter.index(shape.columns - shape.lanes);
  for (int64_t i = 0; i < kAtOnce; ++i) {
    vectors.columns.push_back(emitter.add(column, i * shape.panel));
    vectors.values.push_back(emitter.loadVector(
        input, {row, emitter.min(vectors.columns.back(), last)}, shape.lanes));
  }
  return vectors;
}

Value RowQuantizer::findLargest(Value row) {
  return emitter.forLoop(getFirst(), emitter.index(shape.columns), getStep(),
                         {emitter.f32(0)},
                         [&](Value column, ValueRange carried) {
                           return SmallVector<Value>{quantizer.findLargest(
                               load(row, column).values, carried.front())};
                         })[0];
}

Value RowQuantizer::share(Value largest) {
  largest = shareInWarp(largest);
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                        emitter.lane(), emitter.i32(0));
  // All threads have read the contents for the row before.
  emitter.barrier();
  emitter.ifThen(isFirst, [&] {
    emitter.storeF32(largest, ofWarps, emitter.toIndex(emitter.warp()));
  });
  emitter.barrier();
  for (int64_t warp = 0; warp < emitter.getNumWarps(); ++warp) {
    Value other = emitter.loadF32(ofWarps, emitter.index(warp));
    largest = warp ? quantizer.larger(largest, other) : other;
  }
  return largest;
}

void RowQuantizer::encode(Value row, function_ref<Value(Value)> toCodes) {
  emitter.forLoop(
      getFirst(), emitter.index(shape.columns), getStep(), [&](Value column) {
        Vectors vectors = load(row, column);
        for (auto [at, values] : llvm::zip(vectors.columns, vectors.values)) {
          Value codes = toCodes(values);
          Value isInside = arith::CmpIOp::create(
              b, arith::CmpIPredicate::slt, at, emitter.index(shape.columns));
          emitter.ifThen(isInside, [&, at = at] {
            emitter.store(codes, emitter.address(quantized, {row, at}),
                          shape.lanes * quantizer.getCodeBytes());
          });
        }
      });
}

void RowQuantizer::emitRow(Value row) {
  if (given)
    return encode(
        row, [&, scale = emitter.loadF32(given, emitter.index(0))](
                 Value values) { return quantizer.encodeBy(values, scale); });
  Quantizer::Divisor divisor = quantizer.getDivisor(share(findLargest(row)));
  encode(row, [&](Value values) { return quantizer.encode(values, divisor); });
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                        emitter.thread(), emitter.i32(0));
  emitter.ifThen(isFirst, [&] {
    emitter.storeF32(divisor.scale, scale, {row, emitter.index(0)});
  });
}

} // namespace

QuantizingThreads::QuantizingThreads(tile::QuantizeOp op,
                                     ThreadEmitter &emitter,
                                     bool convertsFloat8)
    : emitter(emitter), b(emitter.b), shape(op, op.getConfigAttr()),
      input(emitter.operand(op.getInput())),
      quantizer(b, getElementType(input), op.getQuant(), convertsFloat8),
      quantized(emitter.operand(op.getQuantized())),
      scale(emitter.operand(op.getScale())) {}

Value moec::countQuantizedRows(tile::QuantizeOp op, ThreadEmitter &emitter) {
  Value offsets = emitter.operand(op.getOffsets());
  if (!offsets)
    return emitter.tokens();
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  return emitter.loadIndex(offsets, emitter.index(groups));
}

void moec::emitHeldRows(tile::QuantizeOp op, ThreadEmitter &emitter,
                        bool convertsFloat8, Value first, Value step,
                        Value rows, int64_t atOnce) {
  HeldRows(op, emitter, convertsFloat8).emit(first, step, rows, atOnce);
}

void moec::emitRowQuantization(tile::QuantizeOp op, ThreadEmitter &emitter,
                               bool convertsFloat8) {
  ImplicitLocOpBuilder &b = emitter.b;
  Value ctas = emitter.toIndex(NVVM::GridDimXOp::create(b, b.getI32Type()));
  sm80::Quantize shape(op, op.getConfigAttr());
  if (shape.areHeld()) {
    int64_t warps = emitter.getNumWarps();
    Value first = emitter.add(emitter.mul(emitter.cta(), warps),
                              emitter.toIndex(emitter.warp()));
    return emitHeldRows(op, emitter, convertsFloat8, first,
                        emitter.mul(ctas, warps),
                        countQuantizedRows(op, emitter), shape.getHeldRows());
  }
  RowQuantizer quantizer(op, emitter, convertsFloat8);
  auto loop = scf::ForOp::create(b, emitter.cta(),
                                 countQuantizedRows(op, emitter), ctas);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  quantizer.emitRow(loop.getInductionVar());
}
