//===- TopKStreamed.cpp - routing of rows that do not fit -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TopKStreamed.h"

#include "moec/Support/GpuInstructions.h"

using namespace mlir;
using namespace moec;

TopKStreamed::TopKStreamed(tile::TopKOp op, WarpEmitter &emitter)
    : TopKEmission(op, emitter, kWarp), warp(emitter) {}

TopKStreamed::Place TopKStreamed::beforeAll() {
  return {emitter.i32(std::numeric_limits<int32_t>::max()), emitter.i32(-1)};
}

Flag TopKStreamed::isAfter(I32 key, I32 number, Place last) {
  Flag isLater = (key == last.key) & (number > last.number);
  return (key < last.key) | isLater;
}

//===----------------------------------------------------------------------===//
// Values and keys
//===----------------------------------------------------------------------===//

void TopKStreamed::readSoftmax(Index token) {
  auto scoresOrPads = [&](Index expert, Flag mask) {
    F32 score = loadScores(token, expert, mask);
    return mask.isNull() ? score : select(mask, score, -kInfinity);
  };
  F32 largest = layout.forRow(
      splat(-kInfinity), [&](Index expert, Index, Flag mask, F32 before) {
        return largerOf(scoresOrPads(expert, mask), before);
      });
  rowLargest = emitter.maximum(largest);
  F32 sum = layout.forRow(
      splat(0.0), [&](Index expert, Index, Flag mask, F32 before) {
        return before + expOfDifference(scoresOrPads(expert, mask), rowLargest);
      });
  rowSum = emitter.sum(sum);
}

TopKEmission::Scored TopKStreamed::scoresAt(Index token, Index expert,
                                            Flag mask) {
  F32 logit = emitter.loadVector(logits, {token, expert}, kWarp, mask);
  F32 score = softmaxOf(logit);
  return finishScore(score, loadBias(expert, mask), mask);
}

Flag TopKStreamed::readRow(Index token) {
  if (routing.getSoftmax() == moe::Softmax::All)
    readSoftmax(token);
  if (!hasDeadRows())
    return {};
  I32 out = emitter.i32(KeyTable::kOutKey);
  I32 largest =
      layout.forRow(out, [&](Index expert, Index, Flag mask, I32 before) {
        I32 key = scoresAt(token, expert, mask).key;
        return max(before, mask.isNull() ? key : select(mask, key, out));
      });
  return KeyTable::isAboveMinusInfinity(emitter, largest);
}

//===----------------------------------------------------------------------===//
// Selection
//===----------------------------------------------------------------------===//

void TopKStreamed::selectExperts(Index token) {
  if (givenIds)
    return takeGiven(token);
  Index zero = emitter.index(0);
  switch (routing.getSelect()) {
  case moe::Select::TopK:
    if (layout.numGroups > 1)
      floor = lastGroup(token);
    return selectBest(token, /*group=*/{}, zero, topK);
  case moe::Select::PerGroup: {
    int64_t share = topK / layout.numGroups;
    emitter.loop(zero, emitter.index(layout.numGroups), 1, [&](Index group) {
      selectBest(token, group, group * share, share);
    });
    return;
  }
  case moe::Select::Hash:
    return selectByHash(token);
  case moe::Select::SparseMixer:
    return selectSparseMixer(token);
  }
}

TopKStreamed::Place TopKStreamed::best(Index token, Index group, Place last) {
  auto over = [&](Flag isKept) {
    return [&, isKept](Index expert, Index, Flag mask, Place found) -> Place {
      I32 key = scoresAt(token, expert, mask).key;
      I32 number = expert.toI32() + warp.lane();
      Flag isNext = isAfter(key, number, last);
      Flag isBetter = isNext & (key > found.key);
      for (Flag condition : {mask, isKept})
        if (!condition.isNull())
          isBetter = isBetter & condition;
      return {select(isBetter, key, found.key),
              select(isBetter, number, found.number)};
    };
  };
  Place found{emitter.i32(KeyTable::kOutKey), emitter.i32(0)};
  if (group)
    found = layout.forGroup(group, found, over({}));
  else if (!floor.key)
    found = layout.forRow(found, over({}));
  else
    found = emitter.loop(emitter.index(0), emitter.index(layout.numGroups), 1,
                         found, [&](Index each, Place before) {
                           I32 key = groupKey(token, each);
                           Flag isOut = isAfter(key, each.toI32(), floor);
                           return layout.forGroup(each, before, over(~isOut));
                         });
  KeyTable::Best first =
      KeyTable::reduceBest(emitter, kWarp, found.key, found.number);
  return {first.key, first.place};
}

/// Assigns the expert `id` and its value to slot `slot`.
void TopKStreamed::take(Index token, Index slot, I32 id, F32 value) {
  I32 owner = slot.toI32() % kWarp;
  emitter.ifThen(owner == warp.lane(), [&] {
    storeId(id, token, slot, /*isOfLane=*/true);
    emitter.KernelEmitter::storeF32(value, weights, {token, slot});
  });
}

void TopKStreamed::selectBest(Index token, Index group, Index firstSlot,
                              int64_t count) {
  emitter.loop(emitter.index(0), emitter.index(count), 1, beforeAll(),
               [&](Index i, Place last) {
                 Place place = best(token, group, last);
                 Index slot = firstSlot + i;
                 take(token, slot, place.number,
                      valueAt(token, place.number.toIndex()));
                 return place;
               });
}

void TopKStreamed::selectByHash(Index token) {
  HashRow row = loadHashRow(token);
  emitter.loop(
      warp.lane().toIndex(), emitter.index(topK), kWarp, [&](Index slot) {
        storeId(emitter.i32(-1), token, slot, /*isOfLane=*/true);
        emitter.KernelEmitter::storeF32(emitter.f32(kNaN), weights,
                                        {token, slot});
        emitter.ifThen(row.hasRow,
                       [&] { takeId(token, slot, loadHashId(row, slot)); });
      });
}

void TopKStreamed::takeGiven(Index token) {
  emitter.loop(warp.lane().toIndex(), emitter.index(topK), kWarp,
               [&](Index slot) {
                 emitter.KernelEmitter::storeF32(emitter.f32(kNaN), weights,
                                                 {token, slot});
                 takeId(token, slot, loadGivenId(token, slot));
               });
}

void TopKStreamed::takeId(Index token, Index slot, I32 id) {
  storeId(id, token, slot, /*isOfLane=*/true);
  emitter.ifThen(isExpert(id), [&] {
    emitter.KernelEmitter::storeF32(valueAt(token, id.toIndex()), weights,
                                    {token, slot});
  });
}

void TopKStreamed::selectSparseMixer(Index token) {
  emitter.loop(
      emitter.index(0), emitter.index(topK), 1, beforeAll(),
      [&](Index slot, Place last) {
        Place place = best(token, /*group=*/{}, last);
        F32 largest = KeyTable::toFloat(place.key);
        F32 sum = layout.forRow(
            splat(0.0), [&](Index expert, Index, Flag mask, F32 before) {
              Scored scored = scoresAt(token, expert, mask);
              I32 number = expert.toI32() + warp.lane();
              F32 value =
                  select(isAfter(scored.key, number, last), scored.value, kNaN);
              return before + mixerTerm(value, largest);
            });
        F32 weight = 1.0 / emitter.sum(sum);
        F32 value = valueAt(token, place.number.toIndex());
        take(token, slot, place.number, select(value.isNumber(), weight, kNaN));
        return place;
      });
}

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

I32 TopKStreamed::groupKey(Index token, Index group) {
  I32 out = emitter.i32(KeyTable::kOutKey);
  KeyTable::TwoKeys two = layout.forGroup(
      group, KeyTable::TwoKeys{out, out},
      [&](Index expert, Index, Flag mask, KeyTable::TwoKeys before) {
        I32 key = scoresAt(token, expert, mask).key;
        if (!mask.isNull())
          key = select(mask, key, out);
        return KeyTable::nextTwo(key, before);
      });
  return KeyTable::reduceGroup(emitter, kWarp, routing.getGroupScore(), two);
}

TopKStreamed::Place TopKStreamed::lastGroup(Index token) {
  return emitter.loop(
      emitter.index(0), emitter.index(routing.getTopkGroups()), 1, beforeAll(),
      [&](Index, Place before) {
        return emitter.loop(
            emitter.index(0), emitter.index(layout.numGroups), 1,
            Place{emitter.i32(KeyTable::kOutKey), emitter.i32(0)},
            [&](Index group, Place found) -> Place {
              I32 key = groupKey(token, group);
              I32 number = group.toI32();
              Flag isNext = isAfter(key, number, before);
              Flag isBetter = isNext & (key > found.key);
              return {select(isBetter, key, found.key),
                      select(isBetter, number, found.number)};
            });
      });
}

//===----------------------------------------------------------------------===//
// Weights
//===----------------------------------------------------------------------===//

F32 TopKStreamed::forSlots(Index token, double init,
                           function_ref<F32(Index, F32, F32)> body) {
  return emitter.loop(warp.lane().toIndex(), emitter.index(topK), kWarp,
                      emitter.f32(init), [&](Index slot, F32 carried) {
                        F32 chosen = emitter.loadF32(weights, {token, slot});
                        return body(slot, chosen, carried);
                      });
}

F32 TopKStreamed::expertScaleAt(Index token, Index slot) {
  I32 id = emitter.loadI32(ids, {token, slot});
  Flag exists = isExpert(id);
  Index safe = select(exists, id, 0).toIndex();
  return select(exists, emitter.loadF32(expertScale, safe), 1.0);
}

void TopKStreamed::weighRow(Index token) {
  bool isSoftmax = routing.getSoftmax() == moe::Softmax::Selected;
  F32 largest, sum, denominator;
  if (isSoftmax) {
    largest = emitter.maximum(
        forSlots(token, -kInfinity, [&](Index, F32 chosen, F32 before) {
          Flag counts = chosen.isNumber();
          return largerOf(select(counts, weightOf(chosen), -kInfinity), before);
        }));
    sum = emitter.sum(forSlots(token, 0.0, [&](Index, F32 chosen, F32 before) {
      F32 power = expOfDifference(weightOf(chosen), largest);
      return before + select(chosen.isNumber(), power, 0.0);
    }));
  }
  auto shareOf = [&](F32 chosen) {
    F32 weight = weightOf(chosen);
    if (isSoftmax)
      weight = expOfDifference(weight, largest) / sum;
    return select(chosen.isNumber(), weight, 0.0);
  };
  if (routing.getRenormalize())
    denominator = denominatorOf(
        emitter.sum(forSlots(token, 0.0, [&](Index, F32 chosen, F32 before) {
          return before + shareOf(chosen);
        })));
  forSlots(token, 0.0, [&](Index slot, F32 chosen, F32 carried) {
    F32 weight = shareOf(chosen);
    if (denominator)
      weight = weight / denominator;
    if (expertScale)
      weight = weight * expertScaleAt(token, slot);
    emitter.KernelEmitter::storeF32(scaled(weight), weights, {token, slot});
    return carried;
  });
}
