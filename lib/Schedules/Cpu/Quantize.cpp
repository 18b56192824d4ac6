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

/// The bits of magnitudes, which are in the order of these; NaN is largest.
static I32 magnitudeBits(F32 values) { return values.bits() & 0x7FFFFFFF; }

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

  void emitRow(Index row);

private:
  /// Quantizes a whole row with the given scale.
  void emitByGiven(Index row);
  /// Quantizes the `size` elements from `first` on, with scale number `group`.
  void emitGroup(Index row, Index group, Index first, int64_t size);
  /// `emitGroup` with loops, for groups that do not fit in registers.
  void emitLongGroup(Index row, Index group, Index first, int64_t size);
  bool isLong() const { return size > kMaxVectors * lanes; }
  /// Calls `body` with each vector's first column and element count.
  void forVectors(Index first, int64_t size,
                  function_ref<void(Index, int64_t)> body);
  F32 load(Index row, Index column, int64_t count);
  /// The scale of the vectors' elements, from the bits of their magnitudes.
  F32 getScale(I32 largest);
  /// Clamps to the range of the type; NaN stays NaN.
  F32 saturate(F32 values);
  /// Rounds a vector of f32 to quantized values, as i8.
  Value round(F32 values);
  Value roundE4M3(F32 values);
  Value roundInteger(F32 values);
  void store(Value rounded, Index row, Index column, int64_t count);

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
  F32 divisor;
  /// The largest magnitudes of a long group so far.
  Value largest;
};

void Quantize::emitRow(Index row) {
  if (divisor)
    return emitByGiven(row);
  int64_t left = columns % size, groups = columns / size;
  auto emit = [&](Index group, Index first, int64_t count) {
    if (isLong())
      emitLongGroup(row, group, first, count);
    else
      emitGroup(row, group, first, count);
  };
  emitter.loop(emitter.index(0), emitter.index(groups), 1,
               [&](Index group) { emit(group, group * size, size); });
  if (left)
    emit(emitter.index(groups), emitter.index(columns - left), left);
}

void Quantize::emitByGiven(Index row) {
  forVectors(emitter.index(0), columns, [&](Index column, int64_t count) {
    F32 values = load(row, column, count) / divisor;
    store(round(saturate(values)), row, column, count);
  });
}

F32 Quantize::saturate(F32 values) {
  constexpr int64_t infinity = 0x7F800000;
  int64_t largest = llvm::bit_cast<int32_t>(moe::getLargestValue(quant));
  I32 bits = values.bits();
  I32 magnitude = bits & 0x7FFFFFFF;
  I32 sign = bits ^ magnitude;
  Flag isNaN = magnitude > infinity;
  I32 limited = select(isNaN, magnitude, min(magnitude, largest));
  return F32::fromBits(limited | sign);
}

F32 Quantize::load(Index row, Index column, int64_t count) {
  Flag mask;
  if (count < lanes)
    mask = emitter.mask(emitter.index(count), lanes);
  return emitter.loadVector(input, {row, column}, lanes, mask);
}

void Quantize::forVectors(Index first, int64_t size,
                          function_ref<void(Index, int64_t)> body) {
  Index whole = first + size / lanes * lanes;
  emitter.loop(first, whole, lanes, [&](Index column) { body(column, lanes); });
  if (size % lanes)
    body(whole, size % lanes);
}

void Quantize::emitLongGroup(Index row, Index group, Index first,
                             int64_t size) {
  Index begin = emitter.index(0);
  emitter.storeVector(emitter.splat(0.0, lanes), largest, {begin});
  forVectors(first, size, [&](Index column, int64_t count) {
    I32 bits = magnitudeBits(load(row, column, count));
    I32 before = emitter.loadVector(largest, {begin}, lanes).bits();
    emitter.storeVector(F32::fromBits(max(before, bits)), largest, {begin});
  });
  F32 factor =
      getScale(magnitudeBits(emitter.loadVector(largest, {begin}, lanes)));
  emitter.storeF32(factor, scale, {row, group});
  F32 divisor = emitter.splat(factor, lanes);
  forVectors(first, size, [&](Index column, int64_t count) {
    F32 values = load(row, column, count) / divisor;
    store(round(values), row, column, count);
  });
}

void Quantize::emitGroup(Index row, Index group, Index first, int64_t size) {
  SmallVector<F32> vectors;
  for (int64_t done = 0; done < size; done += lanes)
    vectors.push_back(load(row, first + done, std::min(lanes, size - done)));
  I32 largest = magnitudeBits(vectors.front());
  for (F32 values : ArrayRef(vectors).drop_front())
    largest = max(largest, magnitudeBits(values));
  F32 factor = getScale(largest);
  emitter.storeF32(factor, scale, {row, group});
  F32 divisor = emitter.splat(factor, lanes);
  for (auto [i, values] : llvm::enumerate(vectors)) {
    int64_t done = i * lanes;
    store(round(values / divisor), row, first + done,
          std::min(lanes, size - done));
  }
}

F32 Quantize::getScale(I32 largest) {
  I32 least = emitter.f32(moe::getMinMagnitude(quant)).bits();
  I32 bits = max(emitter.maximum(largest), least);
  F32 found = F32::fromBits(bits) / moe::getLargestValue(quant);
  return quant.getPowerOfTwo() ? roundUpToPowerOfTwo(b, found) : found;
}

Value Quantize::round(F32 values) {
  return quant.getStorage().isInteger(8) ? roundInteger(values)
                                         : roundE4M3(values);
}

/// Adds 1.5 * 2^23, where the last digit of f32 is 1, so that the low bits of
/// the sum are the rounded integer. NaN becomes 0.
Value Quantize::roundInteger(F32 values) {
  Flag isNumber = values.isNumber();
  I32 bits = (values + 0x1.8p23).bits();
  return arith::TruncIOp::create(b, VectorType::get(lanes, b.getI8Type()),
                                 select(isNumber, bits, 0));
}

Value Quantize::roundE4M3(F32 values) {
  I32 bits = values.bits();
  I32 magnitude = bits & 0x7FFFFFFF;
  // Rounds 23 digits to three: adds half of the last one, less one bit if it is
  // even. A carry goes to the exponent, whose bias is 120 smaller.
  I32 even = magnitude >> 20 & 1;
  I32 normal = ((magnitude + 0x7FFFF + even) >> 20) + -120 * 8;
  // Below 2^-6 values are multiples of 2^-9, the last digit of 2^14 in f32.
  constexpr int64_t minNormal = 0x3C800000, infinity = 0x7F800000;
  constexpr int64_t anchor = 0x46800000, nan = 0x7F;
  I32 small = (F32::fromBits(magnitude) + 0x1p14).bits() + -anchor;
  I32 code = select(magnitude > minNormal - 1, normal, small);
  code = select(magnitude > infinity, code.like(nan), code);
  I32 sign = bits >> 24 & 0x80;
  return arith::TruncIOp::create(b, VectorType::get(lanes, b.getI8Type()),
                                 code | sign);
}

void Quantize::store(Value rounded, Index row, Index column, int64_t count) {
  Type element = getElementType(quantized);
  Value values =
      vector::BitCastOp::create(b, VectorType::get(lanes, element), rounded);
  if (count == lanes) {
    vector::StoreOp::create(b, values, quantized, ValueRange{row, column});
    return;
  }
  for (int64_t i = 0; i < count; ++i)
    memref::StoreOp::create(b, vector::ExtractOp::create(b, values, i),
                            quantized, ValueRange{row, column + i});
}

} // namespace

LogicalResult moec::emitQuantize(tile::QuantizeOp op, KernelEmitter &emitter) {
  return emitRows<Quantize, tile::CpuQuantizeAttr>(op, emitter);
}
