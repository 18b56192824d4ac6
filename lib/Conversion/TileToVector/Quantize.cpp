//===- Quantize.cpp - the schedule cpu.quantize -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA owns some rows; the scale groups of a row are quantized one after the
// other, in vectors of `lanes`. Groups of many vectors are read twice. With a
// given scale rows are read once. Magnitudes are compared as integers, so that
// NaN is largest.

#include "Emit.h"

#include "moec/Dialect/Moe/QuantLayout.h"

using namespace mlir;
using namespace moec;

namespace {

class Quantize {
public:
  Quantize(tile::QuantizeOp op, KernelEmitter &emitter, int64_t lanes)
      : emitter(emitter), b(emitter.b), lanes(lanes),
        input(emitter.operand(op.getInput())),
        quantized(emitter.operand(op.getQuantized())),
        scale(emitter.operand(op.getScale())), quant(op.getQuant()) {
    columns = getColumns(input);
    if (Value given = emitter.operand(op.getTensorScale())) {
      divisor = emitter.splat(emitter.loadF32(given, emitter.index(0)), lanes);
      return;
    }
    size = moe::getScaleGroup(op.getQuant()).columns;
    if (size == moe::ScaleGroup::kAll)
      size = columns;
    if (isLong())
      largest = emitter.scratch({lanes}, b.getF32Type());
  }

  void emitRow(Value row);

private:
  /// Quantizes a whole row with the given scale.
  void emitByGiven(Value row);
  /// Quantizes the `size` elements from `first` on, with scale number `group`.
  void emitGroup(Value row, Value group, Value first, int64_t size);
  /// `emitGroup` with loops, for groups that do not fit in registers.
  void emitLongGroup(Value row, Value group, Value first, int64_t size);
  bool isLong() const { return size > kMaxVectors * lanes; }
  /// Calls `body` with each vector's first column and element count.
  void forVectors(Value first, int64_t size,
                  function_ref<void(Value, int64_t)> body);
  Value load(Value row, Value column, int64_t count);
  Value getScale(ArrayRef<Value> vectors);
  /// Clamps to the range of the type; NaN stays NaN.
  Value saturate(Value values);
  /// Rounds a vector of f32 to quantized values, as i8.
  Value round(Value values);
  Value roundE4M3(Value values);
  Value roundInteger(Value values);
  void store(Value codes, Value row, Value column, int64_t count);

  Value ints(int64_t value) { return emitter.splatI32(value, lanes); }
  Value asInts(Value floats) {
    return arith::BitcastOp::create(b, VectorType::get(lanes, b.getI32Type()),
                                    floats);
  }
  Value asFloats(Value ints) {
    return arith::BitcastOp::create(b, VectorType::get(lanes, b.getF32Type()),
                                    ints);
  }

  KernelEmitter &emitter;
  ImplicitLocOpBuilder &b;
  /// Vectors of a group that fit in registers.
  static constexpr int64_t kMaxVectors = 32;

  int64_t lanes;
  /// Elements of a row, and of a group.
  int64_t columns, size = 0;
  Value input, quantized, scale;
  moe::QuantAttr quant;
  /// The given scale in each lane; null if rows have their own scales.
  Value divisor;
  /// The largest magnitudes of a long group so far.
  Value largest;
};

void Quantize::emitRow(Value row) {
  if (divisor)
    return emitByGiven(row);
  int64_t left = columns % size, groups = columns / size;
  auto emit = [&](Value group, Value first, int64_t count) {
    if (isLong())
      emitLongGroup(row, group, first, count);
    else
      emitGroup(row, group, first, count);
  };
  emitter.forLoop(emitter.index(0), emitter.index(groups), 1, [&](Value group) {
    emit(group, emitter.mul(group, size), size);
  });
  if (left)
    emit(emitter.index(groups), emitter.index(columns - left), left);
}

void Quantize::emitByGiven(Value row) {
  forVectors(emitter.index(0), columns, [&](Value column, int64_t count) {
    Value values = arith::DivFOp::create(b, load(row, column, count), divisor);
    store(round(saturate(values)), row, column, count);
  });
}

Value Quantize::saturate(Value values) {
  constexpr int64_t infinity = 0x7F800000;
  int64_t largest = llvm::bit_cast<int32_t>(moe::getLargestCode(quant));
  Value bits = asInts(values);
  Value magnitude = arith::AndIOp::create(b, bits, ints(0x7FFFFFFF));
  Value sign = arith::XOrIOp::create(b, bits, magnitude);
  Value isNaN = arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, magnitude,
                                      ints(infinity));
  Value limited = arith::SelectOp::create(
      b, isNaN, magnitude, arith::MinSIOp::create(b, magnitude, ints(largest)));
  return asFloats(arith::OrIOp::create(b, limited, sign));
}

Value Quantize::load(Value row, Value column, int64_t count) {
  Value mask;
  if (count < lanes)
    mask = emitter.mask(emitter.index(count), lanes);
  return emitter.loadVector(input, {row, column}, lanes, mask);
}

void Quantize::forVectors(Value first, int64_t size,
                          function_ref<void(Value, int64_t)> body) {
  Value whole = emitter.add(first, size / lanes * lanes);
  emitter.forLoop(first, whole, lanes,
                  [&](Value column) { body(column, lanes); });
  if (size % lanes)
    body(whole, size % lanes);
}

void Quantize::emitLongGroup(Value row, Value group, Value first,
                             int64_t size) {
  Value begin = emitter.index(0);
  emitter.storeVector(emitter.splat(0.0, lanes), largest, {begin});
  forVectors(first, size, [&](Value column, int64_t count) {
    Value bits = arith::AndIOp::create(b, asInts(load(row, column, count)),
                                       ints(0x7FFFFFFF));
    Value before = asInts(emitter.loadVector(largest, {begin}, lanes));
    emitter.storeVector(asFloats(arith::MaxSIOp::create(b, before, bits)),
                        largest, {begin});
  });
  Value factor = getScale({emitter.loadVector(largest, {begin}, lanes)});
  emitter.storeF32(factor, scale, {row, group});
  Value divisor = emitter.splat(factor, lanes);
  forVectors(first, size, [&](Value column, int64_t count) {
    Value values = arith::DivFOp::create(b, load(row, column, count), divisor);
    store(round(values), row, column, count);
  });
}

void Quantize::emitGroup(Value row, Value group, Value first, int64_t size) {
  SmallVector<Value> vectors;
  for (int64_t done = 0; done < size; done += lanes)
    vectors.push_back(
        load(row, emitter.add(first, done), std::min(lanes, size - done)));
  Value factor = getScale(vectors);
  emitter.storeF32(factor, scale, {row, group});
  Value divisor = emitter.splat(factor, lanes);
  for (auto [i, values] : llvm::enumerate(vectors)) {
    int64_t done = i * lanes;
    store(round(arith::DivFOp::create(b, values, divisor)), row,
          emitter.add(first, done), std::min(lanes, size - done));
  }
}

Value Quantize::getScale(ArrayRef<Value> vectors) {
  Value largest;
  for (Value values : vectors) {
    Value bits = arith::AndIOp::create(b, asInts(values), ints(0x7FFFFFFF));
    largest = largest ? Value(arith::MaxSIOp::create(b, largest, bits)) : bits;
  }
  Value bits = emitter.reduce(vector::CombiningKind::MAXSI, largest);
  Value minBits = arith::BitcastOp::create(
      b, b.getI32Type(), emitter.f32(moe::getMinMagnitude(quant)));
  bits = arith::MaxSIOp::create(b, bits, minBits);
  Value found = arith::DivFOp::create(
      b, arith::BitcastOp::create(b, b.getF32Type(), bits),
      emitter.f32(moe::getLargestCode(quant)));
  return quant.getPowerOfTwo() ? roundUpToPowerOfTwo(b, found) : found;
}

Value Quantize::round(Value values) {
  return quant.getStorage().isInteger(8) ? roundInteger(values)
                                         : roundE4M3(values);
}

/// Adds 1.5 * 2^23, where the last digit of f32 is 1, so that the low bits of
/// the sum are the rounded integer. NaN becomes 0.
Value Quantize::roundInteger(Value values) {
  Value isNumber =
      arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, values, values);
  Value bits = asInts(
      arith::AddFOp::create(b, values, emitter.splat(double(0x1.8p23), lanes)));
  return arith::TruncIOp::create(
      b, VectorType::get(lanes, b.getI8Type()),
      arith::SelectOp::create(b, isNumber, bits, ints(0)));
}

Value Quantize::roundE4M3(Value values) {
  Value bits = asInts(values);
  Value magnitude = arith::AndIOp::create(b, bits, ints(0x7FFFFFFF));
  auto shift = [&](Value x, int64_t by) -> Value {
    return arith::ShRUIOp::create(b, x, ints(by));
  };
  auto add = [&](Value x, Value y) -> Value {
    return arith::AddIOp::create(b, x, y);
  };
  auto select = [&](Value from, int64_t limit, Value above, Value other) {
    Value isAbove =
        arith::CmpIOp::create(b, arith::CmpIPredicate::sgt, from, ints(limit));
    return arith::SelectOp::create(b, isAbove, above, other);
  };
  // Rounds 23 digits to three: adds half of the last one, less one bit if it is
  // even. A carry goes to the exponent, whose bias is 120 smaller.
  Value even = arith::AndIOp::create(b, shift(magnitude, 20), ints(1));
  Value normal = shift(add(add(magnitude, ints(0x7FFFF)), even), 20);
  normal = add(normal, ints(-120 * 8));
  // Below 2^-6 values are multiples of 2^-9, the last digit of 2^14 in f32.
  constexpr int64_t minNormal = 0x3C800000, infinity = 0x7F800000;
  constexpr int64_t anchor = 0x46800000, nan = 0x7F;
  Value anchored = arith::AddFOp::create(b, asFloats(magnitude),
                                         emitter.splat(double(0x1p14), lanes));
  Value small = add(asInts(anchored), ints(-anchor));
  Value code = select(magnitude, minNormal - 1, normal, small);
  code = select(magnitude, infinity, ints(nan), code);
  Value sign = arith::AndIOp::create(b, shift(bits, 24), ints(0x80));
  return arith::TruncIOp::create(b, VectorType::get(lanes, b.getI8Type()),
                                 arith::OrIOp::create(b, code, sign));
}

void Quantize::store(Value codes, Value row, Value column, int64_t count) {
  Type element = getElementType(quantized);
  Value values =
      vector::BitCastOp::create(b, VectorType::get(lanes, element), codes);
  if (count == lanes) {
    vector::StoreOp::create(b, values, quantized, ValueRange{row, column});
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    memref::StoreOp::create(b, vector::ExtractOp::create(b, values, i),
                            quantized, ValueRange{row, emitter.add(column, i)});
}

} // namespace

LogicalResult moec::emitQuantize(tile::QuantizeOp op, KernelEmitter &emitter) {
  auto config = requireConfig<tile::CpuQuantizeAttr>(op, op.getConfigAttr());
  if (failed(config) ||
      failed(requirePositive(op, "rows_per_cta", config->getRowsPerCta())) ||
      failed(requireLanes(op, config->getLanes())))
    return failure();
  RowRange range = emitter.rowsOfCta(config->getRowsPerCta());
  if (Value offsets = emitter.operand(op.getOffsets())) {
    int64_t last = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
    Index rows = emitter.loadIndex(offsets, emitter.index(last));
    range.end = min(range.begin + config->getRowsPerCta(), rows);
  }
  Quantize quantize(op, emitter, config->getLanes());
  emitter.forLoop(range.begin, range.end, 1,
                  [&](Value row) { quantize.emitRow(row); });
  return success();
}
