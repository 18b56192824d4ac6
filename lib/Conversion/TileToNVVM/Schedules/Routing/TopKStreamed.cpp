//===- TopKStreamed.cpp - routing of rows that do not fit -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TopKStreamed.h"

#include "moec/Analysis/Sm80.h"

using namespace mlir;
using namespace moec;
using sm80::kWarp;

TopKStreamed::TopKStreamed(tile::TopKOp op, WarpEmitter &emitter)
    : TopKEmission(op, emitter, kWarp), warp(emitter) {}

TopKStreamed::Place TopKStreamed::beforeAll() {
  return {emitter.i32(std::numeric_limits<int32_t>::max()), emitter.i32(-1)};
}

Value TopKStreamed::isAfter(Value key, Value number, Place last) {
  Value isLater =
      bothOf(compareKeys(arith::CmpIPredicate::eq, key, last.key),
             compareKeys(arith::CmpIPredicate::sgt, number, last.number));
  return arith::OrIOp::create(
      b, compareKeys(arith::CmpIPredicate::slt, key, last.key), isLater);
}

//===----------------------------------------------------------------------===//
// Values and keys
//===----------------------------------------------------------------------===//

void TopKStreamed::readSoftmax(Value token) {
  auto scoresOrPads = [&](Value expert, Value mask) {
    Value score = loadScores(token, expert, mask);
    return mask ? choose(mask, score, splat(-kInfinity)) : score;
  };
  SmallVector<Value> largest =
      layout.forRow(splat(-kInfinity),
                    [&](Value expert, Value, Value mask,
                        ValueRange carried) -> SmallVector<Value> {
                      return {largerOf(scoresOrPads(expert, mask), carried[0])};
                    });
  rowLargest = largestOf(largest[0]);
  SmallVector<Value> sum = layout.forRow(
      splat(0.0),
      [&](Value expert, Value, Value mask,
          ValueRange carried) -> SmallVector<Value> {
        Value power = expOfDifference(scoresOrPads(expert, mask), rowLargest);
        return {arith::AddFOp::create(b, carried[0], power)};
      });
  rowSum = sumOf(sum[0]);
}

TopKEmission::Scored TopKStreamed::scoresAt(Value token, Value expert,
                                            Value mask) {
  Value logit = emitter.loadVector(logits, {token, expert}, kWarp, mask);
  return finishScore(softmaxOf(logit), loadBias(expert, mask), mask);
}

Value TopKStreamed::readRow(Value token) {
  if (routing.getSoftmax() == moe::Softmax::All)
    readSoftmax(token);
  if (!hasDeadRows())
    return {};
  Value out = emitter.i32(KeyTable::kOutKey);
  SmallVector<Value> largest =
      layout.forRow(out,
                    [&](Value expert, Value, Value mask,
                        ValueRange carried) -> SmallVector<Value> {
                      Value key = scoresAt(token, expert, mask).key;
                      if (mask)
                        key = choose(mask, key, out);
                      return {arith::MaxSIOp::create(b, carried[0], key)};
                    });
  return KeyTable::isAboveMinusInfinity(emitter, largest[0]);
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

void TopKStreamed::select(Value token) {
  Value zero = emitter.index(0);
  switch (routing.getSelect()) {
  case moe::Select::TopK:
    if (layout.numGroups > 1)
      floor = lastGroup(token);
    return selectBest(token, /*group=*/{}, zero, topK);
  case moe::Select::PerGroup: {
    int64_t share = topK / layout.numGroups;
    emitter.forLoop(zero, emitter.index(layout.numGroups), 1, [&](Value group) {
      selectBest(token, group, emitter.mul(group, share), share);
    });
    return;
  }
  case moe::Select::Hash:
    return selectByHash(token);
  case moe::Select::SparseMixer:
    return selectSparseMixer(token);
  }
}

TopKStreamed::Place TopKStreamed::best(Value token, Value group, Place last) {
  auto over = [&](Value isKept) {
    return [&, isKept](Value expert, Value, Value mask,
                       ValueRange carried) -> SmallVector<Value> {
      Value key = scoresAt(token, expert, mask).key;
      Value number = arith::AddIOp::create(b, toI32(expert), warp.lane());
      Value isBetter =
          bothOf(isAfter(key, number, last),
                 compareKeys(arith::CmpIPredicate::sgt, key, carried[0]));
      for (Value condition : {mask, isKept})
        if (condition)
          isBetter = bothOf(isBetter, condition);
      return {choose(isBetter, key, carried[0]),
              choose(isBetter, number, carried[1])};
    };
  };
  SmallVector<Value> found{emitter.i32(KeyTable::kOutKey), emitter.i32(0)};
  if (group)
    found = layout.forGroup(group, found, over({}));
  else if (!floor.key)
    found = layout.forRow(found, over({}));
  else
    found = emitter.forLoop(
        emitter.index(0), emitter.index(layout.numGroups), 1, found,
        [&](Value each, ValueRange carried) {
          Value isOut = isAfter(groupKey(token, each), toI32(each), floor);
          Value yes = arith::ConstantOp::create(b, b.getBoolAttr(true));
          Value isKept = arith::XOrIOp::create(b, isOut, yes);
          return layout.forGroup(each, carried, over(isKept));
        });
  KeyTable::Best first =
      KeyTable::reduceBest(emitter, kWarp, found[0], found[1]);
  return {first.key, first.place};
}

/// Assigns the expert `id` and its value to slot `slot`.
void TopKStreamed::take(Value token, Value slot, Value id, Value value) {
  Value owner = warp.remainder(toI32(slot), kWarp);
  emitter.ifThen(
      compareKeys(arith::CmpIPredicate::eq, owner, warp.lane()), [&] {
        emitter.KernelEmitter::storeI32(id, ids, {token, slot});
        emitter.KernelEmitter::storeF32(value, weights, {token, slot});
      });
}

void TopKStreamed::selectBest(Value token, Value group, Value firstSlot,
                              int64_t count) {
  emitter.forLoop(emitter.index(0), emitter.index(count), 1,
                  unpack(beforeAll()), [&](Value i, ValueRange last) {
                    Place place = best(token, group, pack(last));
                    take(token, emitter.add(firstSlot, i), place.number,
                         valueAt(token, toIndex(place.number)));
                    return unpack(place);
                  });
}

void TopKStreamed::selectByHash(Value token) {
  HashRow row = loadHashRow(token);
  emitter.forLoop(
      toIndex(warp.lane()), emitter.index(topK), kWarp, [&](Value slot) {
        emitter.KernelEmitter::storeI32(emitter.i32(-1), ids, {token, slot});
        emitter.KernelEmitter::storeF32(emitter.f32(kNaN), weights,
                                        {token, slot});
        emitter.ifThen(row.hasRow, [&] {
          Value id = loadHashId(row, slot);
          emitter.KernelEmitter::storeI32(id, ids, {token, slot});
          emitter.ifThen(isExpert(id), [&] {
            emitter.KernelEmitter::storeF32(valueAt(token, toIndex(id)),
                                            weights, {token, slot});
          });
        });
      });
}

void TopKStreamed::selectSparseMixer(Value token) {
  emitter.forLoop(
      emitter.index(0), emitter.index(topK), 1, unpack(beforeAll()),
      [&](Value slot, ValueRange carried) {
        Place last = pack(carried);
        Place place = best(token, /*group=*/{}, last);
        Value largest = KeyTable::toFloat(emitter, place.key);
        SmallVector<Value> sum = layout.forRow(
            splat(0.0),
            [&](Value expert, Value, Value mask,
                ValueRange sums) -> SmallVector<Value> {
              Scored scored = scoresAt(token, expert, mask);
              Value number =
                  arith::AddIOp::create(b, toI32(expert), warp.lane());
              Value value = choose(isAfter(scored.key, number, last),
                                   scored.value, splat(kNaN));
              return {
                  arith::AddFOp::create(b, sums[0], mixerTerm(value, largest))};
            });
        Value weight =
            arith::DivFOp::create(b, emitter.f32(1.0), sumOf(sum[0]));
        Value value = valueAt(token, toIndex(place.number));
        take(token, slot, place.number,
             choose(countsOf(value), weight, emitter.f32(kNaN)));
        return unpack(place);
      });
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

Value TopKStreamed::groupKey(Value token, Value group) {
  Value out = emitter.i32(KeyTable::kOutKey);
  SmallVector<Value> two = layout.forGroup(
      group, {out, out},
      [&](Value expert, Value, Value mask, ValueRange carried) {
        Value key = scoresAt(token, expert, mask).key;
        return KeyTable::nextTwo(emitter, mask ? choose(mask, key, out) : key,
                                 carried);
      });
  return KeyTable::reduceGroup(emitter, kWarp, routing.getGroupScore(), two);
}

TopKStreamed::Place TopKStreamed::lastGroup(Value token) {
  SmallVector<Value> last = emitter.forLoop(
      emitter.index(0), emitter.index(routing.getTopkGroups()), 1,
      unpack(beforeAll()), [&](Value, ValueRange before) {
        return emitter.forLoop(
            emitter.index(0), emitter.index(layout.numGroups), 1,
            {emitter.i32(KeyTable::kOutKey), emitter.i32(0)},
            [&](Value group, ValueRange found) -> SmallVector<Value> {
              Value key = groupKey(token, group);
              Value number = toI32(group);
              Value isBetter =
                  bothOf(isAfter(key, number, pack(before)),
                         compareKeys(arith::CmpIPredicate::sgt, key, found[0]));
              return {choose(isBetter, key, found[0]),
                      choose(isBetter, number, found[1])};
            });
      });
  return pack(last);
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

Value TopKStreamed::forSlots(Value token, double init,
                             function_ref<Value(Value, Value, Value)> body) {
  return emitter.forLoop(
      toIndex(warp.lane()), emitter.index(topK), kWarp, emitter.f32(init),
      [&](Value slot, ValueRange carried) -> SmallVector<Value> {
        Value chosen = emitter.loadF32(weights, {token, slot});
        return {body(slot, chosen, carried[0])};
      })[0];
}

Value TopKStreamed::expertScaleAt(Value token, Value slot) {
  Value id = emitter.loadI32(ids, {token, slot});
  Value exists = isExpert(id);
  Value safe = choose(exists, id, emitter.i32(0));
  return choose(exists, emitter.loadF32(expertScale, toIndex(safe)),
                emitter.f32(1.0));
}

void TopKStreamed::weighRow(Value token) {
  bool isSoftmax = routing.getSoftmax() == moe::Softmax::Selected;
  Value none = emitter.f32(0.0);
  Value largest, sum, denominator;
  if (isSoftmax) {
    largest = largestOf(
        forSlots(token, -kInfinity, [&](Value, Value chosen, Value carried) {
          Value left = choose(countsOf(chosen), weightOf(chosen),
                              emitter.f32(-kInfinity));
          return largerOf(left, carried);
        }));
    sum = sumOf(
        forSlots(token, 0.0, [&](Value, Value chosen, Value carried) -> Value {
          Value power = expOfDifference(weightOf(chosen), largest);
          return arith::AddFOp::create(b, carried,
                                       choose(countsOf(chosen), power, none));
        }));
  }
  auto shareOf = [&](Value chosen) {
    Value weight = weightOf(chosen);
    if (isSoftmax)
      weight = arith::DivFOp::create(b, expOfDifference(weight, largest), sum);
    return choose(countsOf(chosen), weight, none);
  };
  if (routing.getRenormalize())
    denominator = denominatorOf(sumOf(
        forSlots(token, 0.0, [&](Value, Value chosen, Value carried) -> Value {
          return arith::AddFOp::create(b, carried, shareOf(chosen));
        })));
  forSlots(token, 0.0, [&](Value slot, Value chosen, Value carried) {
    Value weight = shareOf(chosen);
    if (denominator)
      weight = arith::DivFOp::create(b, weight, denominator);
    if (expertScale)
      weight = arith::MulFOp::create(b, weight, expertScaleAt(token, slot));
    emitter.KernelEmitter::storeF32(scaled(weight), weights, {token, slot});
    return carried;
  });
}
