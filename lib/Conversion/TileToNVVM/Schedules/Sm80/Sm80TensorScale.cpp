//===- Sm80TensorScale.cpp - the schedule sm80.tensor_scale -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// One CTA reads all rows as one list, in adjacent vectors of `vector_width`,
// several of which are loaded before the first is used. The largest magnitude
// is reduced by shuffles and shared memory.

#include "../../Emit.h"
#include "../../Quantizer.h"
#include "../../ThreadEmitter.h"
#include "moec/Analysis/Sm80.h"
#include "moec/Dialect/Moe/QuantLayout.h"

using namespace mlir;
using namespace moec;

namespace {

class Sm80TensorScale {
public:
  Sm80TensorScale(tile::TensorScaleOp op, ThreadEmitter &emitter,
                  bool convertsFloat8)
      : op(op), emitter(emitter), b(emitter.b),
        lanes(cast<tile::Sm80TensorScaleAttr>(op.getConfigAttr())
                  .getVectorWidth()),
        input(emitter.operand(op.getInput())),
        isPadding(emitter.operand(op.getIsPadding())),
        quantizer(b, getElementType(input), op.getQuant(), convertsFloat8),
        ofWarps(emitter.scratch({emitter.getNumWarps()}, b.getF32Type())) {}

  void emit();

private:
  /// Vectors of a thread in flight.
  static constexpr int64_t kAtOnce = 8;

  Value countElements();
  Value findLargest(Value elements);
  /// The larger magnitude; values that are not finite are ignored.
  Value addFinite(Value largest, Value value);

  tile::TensorScaleOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  int64_t lanes;
  Value input, isPadding;
  Quantizer quantizer;
  /// Per-warp largest magnitudes in shared memory.
  Value ofWarps;
};

Value Sm80TensorScale::countElements() {
  Value rows = emitter.validTokens(op.getNumValidTokens());
  if (Value offsets = emitter.operand(op.getOffsets())) {
    int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
    rows = emitter.loadIndex(offsets, emitter.index(groups));
  }
  return emitter.mul(rows, cast<MemRefType>(input.getType()).getDimSize(1));
}

Value Sm80TensorScale::addFinite(Value largest, Value value) {
  constexpr int64_t magnitudeBits = 0x7FFFFFFF, lastFinite = 0x7F7FFFFF;
  Value bits = arith::AndIOp::create(
      b, arith::BitcastOp::create(b, b.getI32Type(), value),
      emitter.i32(magnitudeBits));
  // Compared as integers: LLVM would narrow a float comparison to the original
  // 16 bits.
  Value isFinite = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, bits,
                                         emitter.i32(lastFinite));
  Value magnitude = arith::BitcastOp::create(b, b.getF32Type(), bits);
  magnitude = arith::SelectOp::create(b, isFinite, magnitude, emitter.f32(0));
  return quantizer.larger(largest, magnitude);
}

Value Sm80TensorScale::findLargest(Value elements) {
  int64_t threads = emitter.getNumWarps() * sm80::kWarp;
  Value first = emitter.mul(emitter.toIndex(emitter.thread()), lanes);
  // There may be no element; vectors past the last one load the first.
  return emitter.forLoop(
      first, elements, kAtOnce * threads * lanes, {emitter.f32(0)},
      [&](Value element, ValueRange carried) {
        SmallVector<Value> vectors, skipped;
        for (int64_t i = 0; i < kAtOnce; ++i) {
          Value at = emitter.add(element, i * threads * lanes);
          Value isInside =
              arith::CmpIOp::create(b, arith::CmpIPredicate::slt, at, elements);
          at = arith::SelectOp::create(b, isInside, at, emitter.index(0));
          vectors.push_back(
              emitter.loadVector(input, {emitter.index(0), at}, lanes));
          // A vector never spans two rows.
          if (isPadding)
            skipped.push_back(emitter.loadFlag(
                isPadding,
                arith::DivUIOp::create(b, at, emitter.index(getColumns(input)))
                    .getResult()));
        }
        Value largest = carried.front();
        for (auto [number, vector] : llvm::enumerate(vectors)) {
          Value before = largest;
          for (int64_t i = 0; i < lanes; ++i)
            largest =
                addFinite(largest, vector::ExtractOp::create(b, vector, i));
          if (isPadding)
            largest =
                arith::SelectOp::create(b, skipped[number], before, largest);
        }
        return SmallVector<Value>{largest};
      })[0];
}

void Sm80TensorScale::emit() {
  Value largest = findLargest(countElements());
  for (int64_t mask = 1; mask < sm80::kWarp; mask *= 2)
    largest = quantizer.larger(largest, emitter.shuffleXor(largest, mask));
  auto isZero = [&](Value number) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, number,
                                 emitter.i32(0));
  };
  emitter.ifThen(isZero(emitter.lane()), [&] {
    emitter.storeF32(largest, ofWarps, emitter.toIndex(emitter.warp()));
  });
  emitter.barrier();
  emitter.ifThen(isZero(emitter.thread()), [&] {
    Value all = emitter.f32(0);
    for (int64_t warp = 0; warp < emitter.getNumWarps(); ++warp)
      all =
          quantizer.larger(all, emitter.loadF32(ofWarps, emitter.index(warp)));
    Quantizer::Divisor divisor = quantizer.getDivisor(all);
    emitter.storeF32(divisor.scale, emitter.operand(op.getScale()),
                     emitter.index(0));
  });
}

} // namespace

LogicalResult moec::emitSm80TensorScale(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  Sm80TensorScale(cast<tile::TensorScaleOp>(phase), emitter,
                  body.target.convertsFloat8())
      .emit();
  return success();
}
