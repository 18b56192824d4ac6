//===- RingCopies.cpp - steps that threads copy to a ring -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RingCopies.h"

using namespace mlir;
using namespace moec;

static Value isEqual(ImplicitLocOpBuilder &b, Value x, Value y) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, x, y);
}

RingPlace moec::nextPlace(AsyncEmitter &emitter, RingPlace place,
                          int64_t size) {
  ImplicitLocOpBuilder &b = emitter.b;
  Value stage = emitter.scale(place.stage, 1, 1);
  Value wraps = isEqual(b, stage, emitter.i32(size));
  Value turned = arith::XOrIOp::create(b, place.parity, emitter.i32(1));
  return {arith::SelectOp::create(b, wraps, emitter.i32(0), stage),
          arith::SelectOp::create(b, wraps, turned, place.parity)};
}

RingCopies::State RingCopies::begin(RingPlace place) {
  return {place, place.stage, emitter.i32(0)};
}

RingCopies::State RingCopies::emitStep(State state,
                                       function_ref<Value()> hasSpace,
                                       function_ref<void()> wait,
                                       function_ref<void()> copy) {
  ImplicitLocOpBuilder &b = emitter.b;
  // Consumers free stages, and they wait for copies in flight, so that these
  // have to be published first.
  Value isFull = isEqual(b, emitter.countLanes(hasSpace()), emitter.i32(0));
  SmallVector<Value> open{state.oldest, state.open};
  SmallVector<Value> left = emitter.choose(
      isFull, {b.getI32Type(), b.getI32Type()},
      [&] {
        State published = publishAll(state);
        return SmallVector<Value>{published.oldest, published.open};
      },
      [&] { return open; });
  wait();
  copy();
  emitter.commitCopies();

  // Maximum number of k tiles in flight while stages are free.
  int64_t lag = stages / 2;
  Value isLate = isEqual(b, left[1], emitter.i32(lag));
  emitter.ifThen(isLate, [&] {
    emitter.waitCopies(lag);
    emitter.fenceAsync();
    emitter.arrive(fullBarrier(left[0]));
  });
  RingPlace next = nextPlace(emitter, state.place, stages);
  Value oldest =
      arith::SelectOp::create(b, isLate, nextStage(left[0]), left[0]);
  Value count =
      arith::SelectOp::create(b, isLate, left[1], emitter.scale(left[1], 1, 1));
  return {next, oldest, count};
}

RingCopies::State RingCopies::publishAll(State state) {
  emitter.waitCopies(0);
  emitter.fenceAsync();
  Value oldest =
      emitter.forLoop(emitter.index(0), emitter.toIndex(state.open), 1,
                      {state.oldest}, [&](Value, ValueRange stage) {
                        emitter.arrive(fullBarrier(stage[0]));
                        return SmallVector<Value>{nextStage(stage[0])};
                      })[0];
  return {state.place, oldest, emitter.i32(0)};
}
