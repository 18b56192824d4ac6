//===- Sm80QuantizeRows.cpp - scales of whole rows --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA has a row at a time, and takes every gridDim-th one. Its threads go
// through the row twice, in vectors side by side: for the largest magnitude,
// which meets by shuffles and shared memory, and for the codes. The second time
// the row comes from a cache. By a given scale it is read once.

#include "Sm80QuantizeRows.h"

#include "../../Quantizer.h"
#include "moec/Analysis/Sm80.h"
#include "moec/Dialect/Moe/QuantLayout.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

namespace {

class RowQuantizer {
public:
  RowQuantizer(tile::QuantizeOp op, ThreadEmitter &emitter, bool convertsFloat8)
      : op(op), emitter(emitter), b(emitter.b), shape(op, op.getConfigAttr()),
        input(emitter.operand(op.getInput())),
        quantizer(b, getElementType(input), op.getQuant(), convertsFloat8),
        quantized(emitter.operand(op.getQuantized())),
        scale(emitter.operand(op.getScale())),
        given(emitter.operand(op.getTensorScale())) {
    if (!given)
      ofWarps = emitter.scratch({emitter.getNumWarps()}, b.getF32Type());
  }

  void emitRow(Value row);

private:
  /// Vectors of a thread that are loaded before the first one is needed.
  static constexpr int64_t kAtOnce = 4;

  /// Some of the thread's vectors of a row: first columns, and f32.
  struct Vectors {
    SmallVector<Value> columns, values;
  };
  /// Those from `column` on. Behind the row's end they repeat its last one.
  Vectors load(Value row, Value column);
  Value findLargest(Value row);
  /// The largest of all threads, in all of them.
  Value share(Value largest);
  /// Stores what `toCodes` makes of the row's vectors.
  void encode(Value row, function_ref<Value(Value)> toCodes);
  /// The first column of the thread, and how far on the next turn begins.
  Value getFirst() {
    return emitter.mul(emitter.toIndex(emitter.thread()), shape.lanes);
  }
  int64_t getStep() const { return kAtOnce * shape.panel; }

  tile::QuantizeOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  sm80::Quantize shape;
  Value input;
  Quantizer quantizer;
  Value quantized, scale;
  /// The scale of all rows; null where each has its own.
  Value given;
  /// Largest magnitudes, one per warp, in shared memory.
  Value ofWarps;
};

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
  auto type = VectorType::get(shape.lanes, b.getF32Type());
  return emitter.forLoop(
      getFirst(), emitter.index(shape.columns), getStep(), {emitter.f32(0)},
      [&](Value column, ValueRange carried) {
        Value largest = carried.front();
        for (Value values : load(row, column).values) {
          Value magnitudes = math::AbsFOp::create(b, type, values);
          for (int64_t i = 0; i < shape.lanes; ++i)
            largest = quantizer.larger(
                largest, vector::ExtractOp::create(b, magnitudes, i));
        }
        return SmallVector<Value>{largest};
      })[0];
}

Value RowQuantizer::share(Value largest) {
  for (int64_t mask = 1; mask < sm80::kWarp; mask *= 2)
    largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                        emitter.lane(), emitter.i32(0));
  // All have read what was there for the row before.
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
                          shape.lanes);
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

Value moec::countQuantizedRows(tile::QuantizeOp op, ThreadEmitter &emitter) {
  Value offsets = emitter.operand(op.getOffsets());
  if (!offsets)
    return emitter.tokens();
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  return emitter.loadIndex(offsets, emitter.index(groups));
}

void moec::emitRowQuantization(tile::QuantizeOp op, ThreadEmitter &emitter,
                               bool convertsFloat8) {
  ImplicitLocOpBuilder &b = emitter.b;
  RowQuantizer quantizer(op, emitter, convertsFloat8);
  Value ctas = emitter.toIndex(NVVM::GridDimXOp::create(b, b.getI32Type()));
  auto loop = scf::ForOp::create(b, emitter.cta(),
                                 countQuantizedRows(op, emitter), ctas);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  quantizer.emitRow(loop.getInductionVar());
}
