//===- RingCopies.cpp - k tiles that threads copy to a pipeline -*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RingCopies.h"

using namespace mlir;
using namespace moec;

PipelineState RingCopies::next(PipelineState place) {
  return turns == 1 ? pipeline.next(place) : pipeline.skip(place, turns);
}

I32 RingCopies::nextStage(I32 stage) {
  return next({stage, emitter.i32(0)}).stage;
}

RingCopies::State RingCopies::begin(PipelineState place) {
  return {place, place.stage, emitter.i32(0)};
}

RingCopies::State RingCopies::emitStep(State state, const Barrier &empty,
                                       I32 before, function_ref<void()> copy,
                                       function_ref<void(I32)> finish) {
  // Consumers empty stages, and they wait for copies in flight, so that these
  // have to be published first.
  Flag isBlocked = emitter.countLanes(empty.test(before)) == 0;
  auto [oldest, open] = emitter.choose(
      isBlocked,
      [&] {
        State published = publishAll(state, finish);
        return std::tuple(published.oldest, published.open);
      },
      [&] { return std::tuple(state.oldest, state.open); });
  empty.wait(before);
  copy();
  emitter.commitCopies();

  // Maximum number of k tiles in flight while stages are empty.
  int64_t most = std::max<int64_t>(pipeline.getStages() / (2 * turns), 1);
  Flag isLate = open == most;
  emitter.ifThen(isLate, [&, oldest = oldest] {
    emitter.waitCopies(most);
    if (finish)
      finish(oldest);
    emitter.fenceAsync();
    pipeline.full(oldest).arrive(turns);
  });
  PipelineState place = next(state.place);
  I32 following = nextStage(oldest);
  return {place, select(isLate, following, oldest),
          select(isLate, open, open + 1)};
}

RingCopies::State RingCopies::publishAll(State state,
                                         function_ref<void(I32)> finish) {
  emitter.waitCopies(0);
  emitter.fenceAsync();
  I32 oldest = emitter.loop(emitter.index(0), emitter.toIndex(state.open), 1,
                            state.oldest, [&](Index, I32 stage) {
                              if (finish) {
                                finish(stage);
                                emitter.fenceAsync();
                              }
                              pipeline.full(stage).arrive(turns);
                              return nextStage(stage);
                            });
  return {state.place, oldest, emitter.i32(0)};
}
