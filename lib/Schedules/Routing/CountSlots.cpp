//===- CountSlots.cpp - the schedule gpu.count_slots ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA counts the slots of a chunk in shared memory, and stores all counts. If
// there are counters for `expertsAtOnce` experts only, it repeats this in each
// round.

#include "Schedules/Interface/Emit.h"
#include "Shape.h"
#include "SlotCounters.h"

using namespace mlir;
using namespace moec;

namespace {

/// Loads in flight per thread.
constexpr int64_t kLoads = 4;

class CountSlots {
public:
  CountSlots(tile::CountSlotsOp op, ThreadEmitter &emitter,
             const anygpu::CountSlots &shape);

  /// Without tokens no row of counts exists.
  void run() {
    emitter.ifThen(hasTokens,
                   [&] { counters.forRounds([&] { countRound(); }); });
  }

private:
  /// Slots per batch of all threads, and a thread's slots in the batch at
  /// `first`.
  int64_t getBatch() const { return kLoads * shape.threads; }
  Index slotOfBatch(Index first, int64_t i) {
    return first + emitter.toIndex(emitter.thread()) + i * shape.threads;
  }
  SmallVector<I32> loadBatch(Index begin);
  void countBatch(Index first, ArrayRef<I32> loaded);
  void countRound();

  ThreadEmitter &emitter;
  anygpu::CountSlots shape;
  SlotCounters counters;
  Value ids, counts, table;
  /// Whether the chunk has tokens, and its valid slots: none if the chunk's end
  /// precedes its beginning.
  Flag hasTokens;
  RowRange chunk;
};

CountSlots::CountSlots(tile::CountSlotsOp op, ThreadEmitter &emitter,
                       const anygpu::CountSlots &shape)
    : emitter(emitter), shape(shape),
      counters(emitter, op, shape.expertsAtOnce),
      ids(flattenSlots(emitter, emitter.operand(op.getIds()))),
      counts(emitter.operand(op.getCounts())),
      table(emitter.scratch(shape.getWords(), emitter.b.getI32Type())) {
  int64_t topK = getColumns(op.getIds());
  Index numSlots = emitter.validTokens(op.getNumValidTokens()) * topK;
  Index size = emitChunkTokens(emitter, shape.chunks) * topK;
  Index first = emitter.cta() * size;
  hasTokens = first < emitter.tokens() * topK;
  chunk = {first, min(first + size, numSlots)};
}

/// Slots past the chunk load its last one, or the CTA's first one if none is
/// valid. Slots of other CTAs may not be written yet, since each CTA may route
/// its own in this kernel.
SmallVector<I32> CountSlots::loadBatch(Index begin) {
  Index last = max(chunk.end - 1, chunk.begin);
  SmallVector<I32> loaded;
  for (int64_t i = 0; i < kLoads; ++i)
    loaded.push_back(emitter.loadI32(ids, {min(slotOfBatch(begin, i), last)}));
  return loaded;
}

void CountSlots::countBatch(Index first, ArrayRef<I32> loaded) {
  for (auto [i, id] : llvm::enumerate(loaded)) {
    Flag exists = slotOfBatch(first, static_cast<int64_t>(i)) < chunk.end;
    counters.count(counters.choose(id, exists), table, emitter.index(0),
                   emitter.index(shape.expertsAtOnce));
  }
}

void CountSlots::countRound() {
  // The loads overlap the clearing of the counters.
  SmallVector<I32> loaded = loadBatch(chunk.begin);
  emitter.forThreads(
      emitter.index(0), emitter.index(shape.getWords()),
      [&](Index i) { emitter.storeI32(emitter.i32(0), table, i); });
  emitter.barrier();
  countBatch(chunk.begin, loaded);
  emitter.loop(chunk.begin + getBatch(), chunk.end, getBatch(),
               [&](Index first) { countBatch(first, loadBatch(first)); });
  emitter.barrier();
  emitter.forThreads(
      emitter.index(0), counters.getNumCounters(), [&](Index counter) {
        emitter.storeI32(emitter.loadI32(table, counter), counts,
                         {emitter.cta(), counters.localOf(counter)});
      });
}

} // namespace

LogicalResult moec::emitGpuCountSlots(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto op = cast<tile::CountSlotsOp>(phase);
  CountSlots(op, emitter, anygpu::CountSlots(op, op.getConfigAttr())).run();
  return success();
}
