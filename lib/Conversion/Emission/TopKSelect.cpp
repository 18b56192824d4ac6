//===- TopKSelect.cpp - the best keys of a row ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TopKSelect.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

/// The key of -inf: its bits 0xff800000 with all but the sign inverted.
static constexpr int64_t kMinusInfinityKey = -0x7f800001ll;

//===----------------------------------------------------------------------===//
// RowLayout
//===----------------------------------------------------------------------===//

/// Groups without pads are one run of experts.
RowLayout::RowLayout(KernelEmitter &emitter, int64_t numGroups,
                     int64_t groupSize, int64_t lanes)
    : emitter(emitter), numGroups(numGroups), groupSize(groupSize),
      lanes(lanes), stride(llvm::alignTo(groupSize, lanes)) {}

/// The experts `0 .. count - 1` from `firstExpert` on.
static SmallVector<Value> forExperts(KernelEmitter &emitter, int64_t lanes,
                                     int64_t count, Value firstExpert,
                                     Value firstPosition, ValueRange init,
                                     RowLayout::Body body) {
  SmallVector<Value> carried(init);
  int64_t tail = count % lanes;
  auto step = [&](Value column, Value mask, ValueRange values) {
    return body(emitter.add(firstExpert, column),
                emitter.add(firstPosition, column), mask, values);
  };
  if (count != tail)
    carried =
        emitter.forLoop(emitter.index(0), emitter.index(count - tail), lanes,
                        carried, [&](Value column, ValueRange values) {
                          return step(column, Value(), values);
                        });
  if (tail != 0)
    carried = step(emitter.index(count - tail),
                   emitter.mask(emitter.index(tail), lanes), carried);
  return carried;
}

SmallVector<Value> RowLayout::forRow(ValueRange init, Body body) {
  Value zero = emitter.index(0);
  if (stride == groupSize || numGroups == 1)
    return forExperts(emitter, lanes, numGroups * groupSize, zero, zero, init,
                      body);
  return emitter.forLoop(zero, emitter.index(numGroups), 1, init,
                         [&](Value group, ValueRange values) {
                           return forGroup(group, values, body);
                         });
}

SmallVector<Value> RowLayout::forGroup(Value group, ValueRange init,
                                       Body body) {
  return forExperts(emitter, lanes, groupSize, emitter.mul(group, groupSize),
                    emitter.mul(group, stride), init, body);
}

Value RowLayout::expertAt(Value position) {
  if (stride == groupSize || numGroups == 1)
    return position;
  ImplicitLocOpBuilder &b = emitter.b;
  Value group = arith::DivUIOp::create(b, position, emitter.index(stride));
  Value pads = emitter.mul(group, stride - groupSize);
  return arith::SubIOp::create(b, position, pads);
}

//===----------------------------------------------------------------------===//
// KeyTable
//===----------------------------------------------------------------------===//

KeyTable::KeyTable(RowLayout &layout)
    : layout(layout), emitter(layout.emitter), b(emitter.b) {
  keys = emitter.scratch(layout.size(), b.getI32Type());
  if (layout.numGroups == 1)
    return;
  int64_t size = llvm::alignTo(layout.numGroups, layout.lanes);
  groupKeys = emitter.scratch(size, b.getI32Type());
  for (int64_t i = 0; i < size; i += layout.lanes)
    emitter.storeI32Vector(splatKey(kOutKey), groupKeys, emitter.index(i));
}

/// i32 with the shape of `like`.
static Type intTypeOf(OpBuilder &b, Value like) {
  if (auto vector = dyn_cast<VectorType>(like.getType()))
    return vector.clone(b.getI32Type());
  return b.getI32Type();
}

/// Negative floats have descending bits: invert all but the sign. The same
/// again gives the bits back.
static Value flipNegative(KernelEmitter &emitter, Value bits) {
  ImplicitLocOpBuilder &b = emitter.b;
  auto constant = [&](int32_t value) {
    return emitter.constant(bits.getType(), b.getI32IntegerAttr(value));
  };
  Value sign = arith::ShRSIOp::create(b, bits, constant(31));
  Value flips = arith::AndIOp::create(
      b, sign, constant(std::numeric_limits<int32_t>::max()));
  return arith::XOrIOp::create(b, bits, flips);
}

Value KeyTable::fromFloat(KernelEmitter &emitter, Value value) {
  ImplicitLocOpBuilder &b = emitter.b;
  // -0 + 0 is +0.
  Value zero = emitter.constant(value.getType(), b.getF32FloatAttr(0.0f));
  Value canonical = arith::AddFOp::create(b, value, zero);
  Value bits = arith::BitcastOp::create(b, intTypeOf(b, value), canonical);
  return flipNegative(emitter, bits);
}

Value KeyTable::toFloat(KernelEmitter &emitter, Value key) {
  ImplicitLocOpBuilder &b = emitter.b;
  Type type = b.getF32Type();
  if (auto vector = dyn_cast<VectorType>(key.getType()))
    type = vector.clone(type);
  return arith::BitcastOp::create(b, type, flipNegative(emitter, key));
}

static Value largestOf(KernelEmitter &emitter, Value keys) {
  return emitter.reduce(vector::CombiningKind::MAXSI, keys);
}

static Value smallestOf(KernelEmitter &emitter, int64_t lanes, Value condition,
                        Value places) {
  Value far = emitter.splatI32(std::numeric_limits<int32_t>::max(), lanes);
  return emitter.reduce(
      vector::CombiningKind::MINSI,
      arith::SelectOp::create(emitter.b, condition, places, far));
}

static Value isEqualTo(KernelEmitter &emitter, int64_t lanes, Value keys,
                       Value key) {
  return arith::CmpIOp::create(emitter.b, arith::CmpIPredicate::eq, keys,
                               emitter.splat(key, lanes));
}

KeyTable::Best KeyTable::reduceBest(KernelEmitter &emitter, int64_t lanes,
                                    Value keys, Value places) {
  Value largest = largestOf(emitter, keys);
  Value isLargest = isEqualTo(emitter, lanes, keys, largest);
  return {largest, smallestOf(emitter, lanes, isLargest, places)};
}

SmallVector<Value> KeyTable::nextTwo(KernelEmitter &emitter, Value here,
                                     ValueRange two) {
  ImplicitLocOpBuilder &b = emitter.b;
  Value smaller = arith::MinSIOp::create(b, here, two[0]);
  return {arith::MaxSIOp::create(b, here, two[0]),
          arith::MaxSIOp::create(b, smaller, two[1])};
}

/// The second of all is the largest of what is left when the largest leaves its
/// lane.
Value KeyTable::reduceGroup(KernelEmitter &emitter, int64_t lanes,
                            moe::GroupScore score, ValueRange two) {
  ImplicitLocOpBuilder &b = emitter.b;
  Value first = largestOf(emitter, two[0]);
  if (score != moe::GroupScore::Top2Sum)
    return first;
  Value isFirst = isEqualTo(emitter, lanes, two[0], first);
  // Only one of several lanes with the largest key gives it up.
  Value lane = emitter.laneNumbers(lanes);
  Value owner = smallestOf(emitter, lanes, isFirst, lane);
  Value isOwner = isEqualTo(emitter, lanes, lane, owner);
  Value second =
      largestOf(emitter, arith::SelectOp::create(b, isOwner, two[1], two[0]));
  Value sum = arith::AddFOp::create(b, toFloat(emitter, first),
                                    toFloat(emitter, second));
  // A NaN, of opposite infinities from a bias, is below all.
  Value isNumber =
      arith::CmpFOp::create(b, arith::CmpFPredicate::ORD, sum, sum);
  return arith::SelectOp::create(b, isNumber, fromFloat(emitter, sum),
                                 emitter.i32(kMinusInfinityKey));
}

Value KeyTable::isAboveMinusInfinity(KernelEmitter &emitter, Value largest) {
  return arith::CmpIOp::create(emitter.b, arith::CmpIPredicate::sgt,
                               largestOf(emitter, largest),
                               emitter.i32(kMinusInfinityKey));
}

Value KeyTable::splatKey(int64_t key) {
  return emitter.splatI32(key, layout.lanes);
}

Value KeyTable::maskedKeys(Value keys, Value mask) {
  return mask ? arith::SelectOp::create(b, mask, keys, splatKey(kOutKey))
              : keys;
}

void KeyTable::store(Value vector, Value position, Value mask) {
  emitter.storeI32Vector(maskedKeys(vector, mask), keys, position);
}

Value KeyTable::load(Value position) { return emitter.loadI32(keys, position); }

void KeyTable::remove(Value position) {
  emitter.storeI32(emitter.i32(kOutKey), keys, position);
}

Value KeyTable::argmax(Value begin, Value end) {
  return argmaxIn(keys, begin, end);
}

/// Each lane keeps its first largest key and where it was.
Value KeyTable::argmaxIn(Value table, Value begin, Value end) {
  int64_t lanes = layout.lanes;
  Type i32 = b.getI32Type();
  SmallVector<Value> best = emitter.forLoop(
      begin, end, lanes, {splatKey(kOutKey), splatKey(0)},
      [&](Value position, ValueRange carried) -> SmallVector<Value> {
        Value here = emitter.loadI32Vector(table, position, lanes);
        Value start =
            emitter.splat(arith::IndexCastOp::create(b, i32, position), lanes);
        Value isLarger = arith::CmpIOp::create(b, arith::CmpIPredicate::sgt,
                                               here, carried[0]);
        return {arith::SelectOp::create(b, isLarger, here, carried[0]),
                arith::SelectOp::create(b, isLarger, start, carried[1])};
      });
  // Carried were the first places of vectors.
  best[1] = arith::AddIOp::create(b, best[1], emitter.laneNumbers(lanes));
  Value first = reduceBest(emitter, lanes, best[0], best[1]).place;
  return arith::IndexCastOp::create(b, b.getIndexType(), first);
}

Value KeyTable::initialLargest() { return splatKey(kOutKey); }

Value KeyTable::nextLargest(Value largest, Value vector, Value mask) {
  return arith::MaxSIOp::create(b, largest, maskedKeys(vector, mask));
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// The largest key of a group, or that of the sum of its two largest.
Value KeyTable::groupKey(Value group, moe::GroupScore score) {
  int64_t lanes = layout.lanes;
  Value begin = emitter.mul(group, layout.stride);
  SmallVector<Value> two = emitter.forLoop(
      begin, emitter.add(begin, layout.stride), lanes,
      {splatKey(kOutKey), splatKey(kOutKey)},
      [&](Value position, ValueRange carried) {
        return nextTwo(emitter, emitter.loadI32Vector(keys, position, lanes),
                       carried);
      });
  return reduceGroup(emitter, lanes, score, two);
}

void KeyTable::keepBestGroups(moe::GroupScore score, int64_t count) {
  Value zero = emitter.index(0);
  Value numGroups = emitter.index(layout.numGroups);
  emitter.forLoop(zero, numGroups, 1, [&](Value group) {
    emitter.storeI32(groupKey(group, score), groupKeys, group);
  });
  Value end = emitter.index(llvm::alignTo(layout.numGroups, layout.lanes));
  Value out = emitter.i32(kOutKey);
  emitter.forLoop(zero, emitter.index(count), 1, [&](Value) {
    emitter.storeI32(out, groupKeys, argmaxIn(groupKeys, zero, end));
  });
  // Groups whose key is still there were not taken.
  emitter.forLoop(zero, numGroups, 1, [&](Value group) {
    Value isLeft = arith::CmpIOp::create(
        b, arith::CmpIPredicate::ne, emitter.loadI32(groupKeys, group), out);
    emitter.ifThen(isLeft, [&] {
      Value begin = emitter.mul(group, layout.stride);
      emitter.forLoop(begin, emitter.add(begin, layout.stride), layout.lanes,
                      [&](Value position) {
                        emitter.storeI32Vector(splatKey(kOutKey), keys,
                                               position);
                      });
    });
  });
}
