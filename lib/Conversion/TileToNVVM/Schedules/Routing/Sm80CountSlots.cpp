//===- Sm80CountSlots.cpp - the schedule sm80.count_slots -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A CTA counts the slots of a chunk in shared memory, and stores all counts. If
// there are counters for `panel` experts only, it repeats this for each panel.

#include "../../Emit.h"
#include "SlotCounters.h"
#include "moec/Analysis/Sm80.h"

using namespace mlir;
using namespace moec;

namespace {

/// Loads in flight per thread.
constexpr int64_t kLoads = 4;

class CountSlots {
public:
  CountSlots(tile::CountSlotsOp op, ThreadEmitter &emitter,
             const sm80::CountSlots &shape);

  /// Without tokens no row of counts exists.
  void run() {
    emitter.ifThen(hasTokens,
                   [&] { counters.forPanels([&] { countPanel(); }); });
  }

private:
  /// Slots per batch of all threads, and a thread's slots in the batch at
  /// `first`.
  int64_t getBatch() const { return kLoads * shape.threads; }
  Value slotOfBatch(Value first, int64_t i) {
    Value mine = emitter.add(first, emitter.toIndex(emitter.thread()));
    return emitter.add(mine, i * shape.threads);
  }
  SmallVector<Value> loadBatch(Value begin);
  void countBatch(Value first, ValueRange loaded);
  void countPanel();

  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  sm80::CountSlots shape;
  SlotCounters counters;
  Value ids, counts, table;
  /// Whether the chunk has tokens, and its valid slots: none if the chunk's end
  /// precedes its beginning.
  Value hasTokens;
  RowRange chunk;
};

CountSlots::CountSlots(tile::CountSlotsOp op, ThreadEmitter &emitter,
                       const sm80::CountSlots &shape)
    : emitter(emitter), b(emitter.b), shape(shape),
      counters(emitter, op, shape.panel),
      ids(flattenSlots(emitter, emitter.operand(op.getIds()))),
      counts(emitter.operand(op.getCounts())),
      table(emitter.scratch(shape.getWords(), b.getI32Type())) {
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
SmallVector<Value> CountSlots::loadBatch(Value begin) {
  Value last = emitter.max(emitter.add(chunk.end, -1), chunk.begin);
  SmallVector<Value> loaded;
  for (int64_t i = 0; i < kLoads; ++i)
    loaded.push_back(
        emitter.loadI32(ids, emitter.min(slotOfBatch(begin, i), last)));
  return loaded;
}

void CountSlots::countBatch(Value first, ValueRange loaded) {
  for (auto [i, id] : llvm::enumerate(loaded)) {
    Value exists = arith::CmpIOp::create(
        b, arith::CmpIPredicate::slt,
        slotOfBatch(first, static_cast<int64_t>(i)), chunk.end);
    counters.count(counters.choose(id, exists), table, emitter.index(0),
                   emitter.index(shape.panel));
  }
}

void CountSlots::countPanel() {
  // The loads overlap the clearing of the counters.
  SmallVector<Value> loaded = loadBatch(chunk.begin);
  emitter.forThreads(
      emitter.index(0), emitter.index(shape.getWords()),
      [&](Value i) { emitter.storeI32(emitter.i32(0), table, i); });
  emitter.barrier();
  countBatch(chunk.begin, loaded);
  emitter.forLoop(emitter.add(chunk.begin, getBatch()), chunk.end, getBatch(),
                  [&](Value first) { countBatch(first, loadBatch(first)); });
  emitter.barrier();
  emitter.forThreads(
      emitter.index(0), counters.getNumCounters(), [&](Value counter) {
        emitter.storeI32(emitter.loadI32(table, counter), counts,
                         {emitter.cta(), counters.localOf(counter)});
      });
}

} // namespace

LogicalResult moec::emitSm80CountSlots(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto op = cast<tile::CountSlotsOp>(phase);
  CountSlots(op, emitter, sm80::CountSlots(op, op.getConfigAttr())).run();
  return success();
}
