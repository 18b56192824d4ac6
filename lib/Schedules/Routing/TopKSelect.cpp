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

Index RowLayout::expertAt(Index position) {
  if (stride == groupSize || numGroups == 1)
    return position;
  return position - position / stride * (stride - groupSize);
}

Index RowLayout::positionOf(Index expert) {
  if (stride == groupSize || numGroups == 1)
    return expert;
  return expert + expert / groupSize * (stride - groupSize);
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

/// Negative floats have descending bits: invert all but the sign. The same
/// again gives the bits back.
static I32 flipNegative(I32 bits) {
  return bits ^
         (bits.shiftRightSigned(31) & std::numeric_limits<int32_t>::max());
}

/// -0 + 0 is +0.
I32 KeyTable::fromFloat(F32 value) {
  return flipNegative((value + 0.0).bits());
}

F32 KeyTable::toFloat(I32 key) { return F32::fromBits(flipNegative(key)); }

static I32 smallestOf(KernelEmitter &emitter, Flag condition, I32 places) {
  return emitter.minimum(
      select(condition, places, std::numeric_limits<int32_t>::max()));
}

KeyTable::Best KeyTable::reduceBest(KernelEmitter &emitter, int64_t lanes,
                                    I32 keys, I32 places) {
  I32 largest = emitter.maximum(keys);
  Flag isLargest = keys == emitter.splat(largest, lanes);
  return {largest, smallestOf(emitter, isLargest, places)};
}

KeyTable::TwoKeys KeyTable::nextTwo(I32 here, TwoKeys two) {
  I32 smaller = min(here, two.first);
  return {max(here, two.first), max(smaller, two.second)};
}

/// The second of all is the largest of what is left when the largest leaves its
/// lane.
I32 KeyTable::reduceGroup(KernelEmitter &emitter, int64_t lanes,
                          moe::GroupScore score, TwoKeys two) {
  I32 first = emitter.maximum(two.first);
  if (score != moe::GroupScore::Top2Sum)
    return first;
  Flag isFirst = two.first == emitter.splat(first, lanes);
  // Only one of several lanes with the largest key gives it up.
  I32 lane = emitter.laneNumbers(lanes);
  I32 owner = smallestOf(emitter, isFirst, lane);
  Flag isOwner = lane == emitter.splat(owner, lanes);
  I32 second = emitter.maximum(select(isOwner, two.second, two.first));
  F32 sum = toFloat(first) + toFloat(second);
  // A NaN, of opposite infinities from a bias, is below all.
  return select(sum.isNumber(), fromFloat(sum), kMinusInfinityKey);
}

Flag KeyTable::isAboveMinusInfinity(KernelEmitter &emitter, I32 largest) {
  return emitter.maximum(largest) > kMinusInfinityKey;
}

I32 KeyTable::splatKey(int64_t key) {
  return emitter.splatI32(key, layout.lanes);
}

I32 KeyTable::maskedKeys(I32 keys, Flag mask) {
  return mask.isNull() ? keys : select(mask, keys, kOutKey);
}

void KeyTable::store(I32 vector, Index position, Flag mask) {
  emitter.storeI32Vector(maskedKeys(vector, mask), keys, position);
}

I32 KeyTable::load(Index position) { return emitter.loadI32(keys, position); }

void KeyTable::remove(Index position) {
  emitter.storeI32(emitter.i32(kOutKey), keys, position);
}

Index KeyTable::argmax(Index begin, Index end) {
  return argmaxIn(keys, begin, end);
}

/// Each lane keeps its first largest key and the position of that key's vector.
Index KeyTable::argmaxIn(Value table, Index begin, Index end) {
  struct Found {
    I32 key, start;
    auto fields() { return std::tie(key, start); }
  };
  int64_t lanes = layout.lanes;
  Found best =
      emitter.loop(begin, end, lanes, Found{splatKey(kOutKey), splatKey(0)},
                   [&](Index position, Found found) -> Found {
                     I32 here = emitter.loadI32Vector(table, position, lanes);
                     I32 start = emitter.splat(position.toI32(), lanes);
                     Flag isLarger = here > found.key;
                     return {select(isLarger, here, found.key),
                             select(isLarger, start, found.start)};
                   });
  I32 places = best.start + emitter.laneNumbers(lanes);
  return reduceBest(emitter, lanes, best.key, places).place.toIndex();
}

I32 KeyTable::initialLargest() { return splatKey(kOutKey); }

I32 KeyTable::nextLargest(I32 largest, I32 vector, Flag mask) {
  return max(largest, maskedKeys(vector, mask));
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// The largest key of a group, or that of the sum of its two largest.
I32 KeyTable::groupKey(Index group, moe::GroupScore score) {
  int64_t lanes = layout.lanes;
  Index begin = group * layout.stride;
  TwoKeys two = emitter.loop(begin, begin + layout.stride, lanes,
                             TwoKeys{splatKey(kOutKey), splatKey(kOutKey)},
                             [&](Index position, TwoKeys before) {
                               I32 here =
                                   emitter.loadI32Vector(keys, position, lanes);
                               return nextTwo(here, before);
                             });
  return reduceGroup(emitter, lanes, score, two);
}

void KeyTable::keepBestGroups(moe::GroupScore score, int64_t count) {
  Index zero = emitter.index(0);
  Index numGroups = emitter.index(layout.numGroups);
  emitter.loop(zero, numGroups, 1, [&](Index group) {
    emitter.storeI32(groupKey(group, score), groupKeys, group);
  });
  Index end = emitter.index(llvm::alignTo(layout.numGroups, layout.lanes));
  I32 out = emitter.i32(kOutKey);
  emitter.loop(zero, emitter.index(count), 1, [&](Index) {
    emitter.storeI32(out, groupKeys, argmaxIn(groupKeys, zero, end));
  });
  // Groups whose key is still there were not taken.
  emitter.loop(zero, numGroups, 1, [&](Index group) {
    emitter.ifThen(emitter.loadI32(groupKeys, group) != out, [&] {
      Index begin = group * layout.stride;
      emitter.loop(begin, begin + layout.stride, layout.lanes,
                   [&](Index position) {
                     emitter.storeI32Vector(splatKey(kOutKey), keys, position);
                   });
    });
  });
}
