//===- Sm80Rank.cpp - the schedule sm80.rank --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The slots, in the order of (token, slot), are cut into a chunk per CTA, and a
// chunk into runs, one per warp. A CTA places the slots of its chunk and learns
// where they go by counting all others too, so that CTAs need not talk, or by
// adding up the counts of their chunks, if an earlier launch has made these.
// Row 0 of the counters has the slots before the chunk, row `r` those of run `r
// - 1`, and the last row, with the last run, those after the chunk. Sums over
// rows and experts tell where the slots of each run go; a warp deals these
// positions out, 32 slots at a time: those of one expert find each other by a
// match and are ranked by lane. Counters only grow by integers, so the order in
// which threads add to them does not show. If there are counters for `panel`
// experts only, all this is done for `panel` of them after the other. Few slots
// are ranked another way, by the first CTA alone.

#include "../Emit.h"
#include "RankFew.h"
#include "SlotCounters.h"
#include "moec/Analysis/Sm80.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

namespace {

constexpr int64_t kWarp = sm80::kWarp;
/// Loads of a thread that are on their way at once, while it counts the slots
/// of its run and those of other chunks. With panels more numbers stay in
/// registers.
constexpr int64_t kRunLoads = 4;
constexpr int64_t kOtherLoads = 8;
constexpr int64_t kPanelLoads = 4;
/// Counts of an expert that a thread adds up at once: those of so many chunks,
/// of fewer if it has those of several experts, for there are registers for
/// no more.
constexpr int64_t kCountLoads = 16, kWideCountLoads = 12;

/// A slot that a lane has, or the first one of its warp's if it has none.
struct Slot {
  Value id, weight;
};

/// Over the lower lanes of a warp, and over all.
struct Sums {
  Value before, total;
};

class Rank {
public:
  Rank(tile::RankOp op, ThreadEmitter &emitter, const sm80::Rank &shape);

  void run();

private:
  void findChunk();
  void findRun();
  void clearInvalid();

  /// By the first CTA.
  void rankFew();
  Value countChunks();
  void rankChunk();
  /// Ranks all experts, or those that have counters now.
  void rankExperts();
  void rankPanel();
  void clearCounters();
  /// `first` is the lane's slot of the first 32.
  void countRun(Slot first);
  /// The ids of the thread's slots, `threads` apart, of a batch that begins
  /// there. `isWhole` says that all of them exist.
  SmallVector<Value> loadBatch(Value begin, bool isWhole);
  SmallVector<Value> loadFirstBatch();
  /// Slots of other chunks, of which the thread has the ids of the first batch.
  void countOthers(ValueRange ids);
  void countBatch(Value begin, ValueRange ids);
  /// The same by the counts of other chunks; of a batch of them from `first`
  /// (i32) on.
  void addCounts();
  void addCountsOf(Value first, Value counter);
  int64_t getCountWidth() const;
  int64_t getCountLoads() const {
    return getCountWidth() == 1 ? kCountLoads : kWideCountLoads;
  }
  Value loadCounts(Value chunk, Value counter);
  void addCountsTo(Value row, Value counter, Value numbers);
  void sumRows();
  void sumGroups();
  void writeOffsets();
  /// The slot of this lane, of 32 of the run from `first` on.
  Slot loadSlot(Value first);
  Slot loadFirstSlot();
  void placeRun(Slot first);

  void count(const SlotChoice &choice, Value row) {
    counters.count(choice, table, row, nowhereAt());
  }
  void addTo(Value row, Value counter, Value number) {
    emitter.addAtomically(number, table, emitter.add(row, counter));
  }
  Sums scanWarp(Value value);
  /// The expert's first position, for a counter of type index.
  Value firstOf(Value counter);

  Value numberOfWarp() { return emitter.toIndex(emitter.warp()); }
  Value isFirst(Value number) { return emitter.isLess(number, emitter.i32(1)); }
  Value isFirstCta() {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, emitter.cta(),
                                 emitter.index(0));
  }
  /// Where a row begins in `table`, and where a group is.
  Value row(Value number) { return emitter.mul(number, shape.getStride()); }
  Value row(int64_t number) {
    return emitter.index(number * shape.getStride());
  }
  Value groupAt(Value group) {
    return emitter.add(group, (numRuns + 1) * shape.getStride());
  }
  /// The counter of slots that are nowhere, and the slots of earlier panels.
  Value nowhereAt() { return groupAt(emitter.index(shape.getGroups())); }
  Value earlierAt() { return groupAt(emitter.index(shape.getGroups() + 1)); }
  Value addI32(Value x, Value y) { return arith::AddIOp::create(b, x, y); }
  Value both(Value x, Value y) { return arith::AndIOp::create(b, x, y); }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, condition, x, y);
  }
  Value isBelow(Value x, Value y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, x, y);
  }
  Value isAtMost(Value x, Value y) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::sle, x, y);
  }
  /// Of a batch of ids.
  SmallVector<Type> getBatchTypes() {
    return SmallVector<Type>(otherLoads, b.getI32Type());
  }
  /// The thread's slot number `i` of a batch that begins there.
  Value slotOfBatch(Value begin, int64_t i) {
    Value mine = emitter.add(begin, emitter.toIndex(emitter.thread()));
    return emitter.add(mine, i * shape.threads);
  }
  Value minus(Value x, Value y) { return arith::SubIOp::create(b, x, y); }

  tile::RankOp op;
  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  sm80::Rank shape;
  int64_t topK, numRuns;
  /// Loads of slots of other chunks that are on their way at once.
  int64_t otherLoads;
  SlotCounters counters;
  Value ids, weights, counts, offsets, position, source, rowWeight;
  /// Rows of counters, of which sums over rows become the positions of runs
  /// relative to their expert's first, and the last row the first position
  /// relative to the group's. Then the first positions of groups, and with
  /// several panels the slots of earlier ones.
  Value table;
  /// The tokens that count, and a chunk's.
  Value numTokens, chunkTokens;
  /// All slots, those that count, the CTA's chunk of these, the warp's run.
  Value allSlots, numSlots;
  RowRange chunk, own;
  /// Whether there are other chunks; the number (i32) of those with slots that
  /// count, where these have been counted.
  Value hasOthers, numChunks;
};

Rank::Rank(tile::RankOp op, ThreadEmitter &emitter, const sm80::Rank &shape)
    : op(op), emitter(emitter), b(emitter.b), shape(shape),
      topK(getColumns(op.getIds())), numRuns(shape.getRuns()),
      otherLoads(shape.hasPanels() ? kPanelLoads : kOtherLoads),
      counters(emitter, op, shape.panel),
      ids(flattenSlots(emitter, emitter.operand(op.getIds()))),
      weights(flattenSlots(emitter, emitter.operand(op.getWeights()))),
      counts(emitter.operand(op.getCounts())),
      offsets(emitter.operand(op.getOffsets())),
      position(flattenSlots(emitter, emitter.operand(op.getPosition()))),
      source(emitter.operand(op.getSource())),
      rowWeight(emitter.operand(op.getRowWeight())) {
  table = emitter.scratch(shape.getWords(numRuns), b.getI32Type());
  allSlots = emitter.mul(emitter.tokens(), topK);
  numTokens = emitter.validTokens(op.getNumValidTokens());
  numSlots = emitter.mul(numTokens, topK);
}

//===----------------------------------------------------------------------===//
// Who does what
//===----------------------------------------------------------------------===//

/// Of every token count the grid has a CTA for each chunk.
void Rank::findChunk() {
  chunkTokens = emitChunkTokens(emitter, shape.chunks);
  Value size = emitter.mul(chunkTokens, topK);
  Value begin = emitter.mul(emitter.cta(), size);
  chunk = {begin, emitter.min(emitter.add(begin, size), allSlots)};
}

void Rank::clearInvalid() {
  if (!op.getNumValidTokens())
    return;
  emitter.forThreads(
      emitter.max(chunk.begin, numSlots), chunk.end,
      [&](Value slot) { emitter.storeI32(emitter.i32(-1), position, slot); });
}

/// Whole rounds of a warp, but for the last run. Warps without counters get
/// nothing.
void Rank::findRun() {
  int64_t round = kWarp * numRuns;
  Value length = minus(chunk.end, chunk.begin);
  Value rounds = arith::DivUIOp::create(b, emitter.add(length, round - 1),
                                        emitter.index(round));
  Value size = emitter.mul(rounds, kWarp);
  Value begin = emitter.min(
      emitter.add(chunk.begin, emitter.mul(numberOfWarp(), size)), chunk.end);
  own = {begin, emitter.min(emitter.add(begin, size), chunk.end)};
}

void Rank::run() {
  findChunk();
  clearInvalid();
  int64_t few = shape.getFewSlots();
  if (!few)
    return rankChunk();
  if (shape.isAlwaysFew())
    return rankFew();
  Value isFew = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, numSlots,
                                      emitter.index(few));
  emitter.ifThen(isFew, [&] { rankFew(); }, [&] { rankChunk(); });
}

void Rank::rankFew() {
  emitter.ifThen(isFirstCta(), [&] {
    emitRankFew(emitter, counters.getExperts(),
                {ids, weights, offsets, position, source, rowWeight}, numSlots,
                shape.getFewSlots(), topK, shape.numLocal, table);
  });
}

/// In i32, for a division of 64 bits takes long.
Value Rank::countChunks() {
  Value size = emitter.toI32(chunkTokens);
  Value last = minus(addI32(emitter.toI32(numTokens), size), emitter.i32(1));
  return arith::DivUIOp::create(b, last, size);
}

void Rank::rankChunk() {
  if (counts)
    numChunks = countChunks();
  chunk = {emitter.min(chunk.begin, numSlots),
           emitter.min(chunk.end, numSlots)};
  Value hasSlots = isBelow(chunk.begin, chunk.end);
  Value isNeeded = arith::OrIOp::create(b, hasSlots, isFirstCta());
  emitter.ifThen(isNeeded, [&] {
    findRun();
    rankExperts();
  });
}

void Rank::rankExperts() {
  if (shape.hasPanels())
    emitter.ifThen(isFirst(emitter.thread()), [&] {
      emitter.storeI32(emitter.i32(0), table, earlierAt());
    });
  counters.forPanels([&] { rankPanel(); });
}

void Rank::rankPanel() {
  // All on their way at once.
  Slot first = loadFirstSlot();
  SmallVector<Value> others;
  if (!counts)
    others = loadFirstBatch();
  clearCounters();
  emitter.barrier();
  if (counts)
    addCounts();
  countRun(first);
  if (!counts)
    countOthers(others);
  emitter.barrier();
  sumRows();
  emitter.barrier();
  sumGroups();
  emitter.barrier();
  writeOffsets();
  placeRun(first);
}

//===----------------------------------------------------------------------===//
// Counting
//===----------------------------------------------------------------------===//

void Rank::clearCounters() {
  emitter.forThreads(emitter.index(0), earlierAt(), [&](Value i) {
    emitter.storeI32(emitter.i32(0), table, i);
  });
}

void Rank::countRun(Slot firstSlot) {
  Value begin = emitter.add(own.begin, emitter.toIndex(emitter.lane()));
  Value row = this->row(emitter.add(numberOfWarp(), 1));
  count(counters.choose(firstSlot.id, isBelow(begin, own.end)), row);
  auto body = [&](Value first) {
    SmallVector<Value> exist, loaded;
    for (int64_t i = 0; i < kRunLoads; ++i) {
      Value slot = emitter.add(first, i * kWarp);
      exist.push_back(isBelow(slot, own.end));
      loaded.push_back(emitter.loadI32(ids, select(exist[i], slot, first)));
    }
    for (auto [exists, id] : llvm::zip(exist, loaded))
      count(counters.choose(id, exists), row);
  };
  emitter.forLoop(emitter.add(begin, kWarp), own.end, kRunLoads * kWarp, body);
}

/// Slots past the last one repeat the first one of all.
SmallVector<Value> Rank::loadBatch(Value begin, bool isWhole) {
  SmallVector<Value> loaded;
  for (int64_t i = 0; i < otherLoads; ++i) {
    Value slot = slotOfBatch(begin, i);
    if (!isWhole)
      slot = select(isBelow(slot, numSlots), slot, emitter.index(0));
    loaded.push_back(emitter.loadI32(ids, slot));
  }
  return loaded;
}

SmallVector<Value> Rank::loadFirstBatch() {
  hasOthers = isBelow(minus(chunk.end, chunk.begin), numSlots);
  return emitter.choose(
      hasOthers, getBatchTypes(),
      [&] { return loadBatch(emitter.index(0), false); },
      [&] { return SmallVector<Value>(otherLoads, emitter.i32(0)); });
}

/// Of most batches all slots come before the chunk, or after it.
void Rank::countBatch(Value begin, ValueRange ids) {
  Value end = emitter.add(begin, otherLoads * shape.threads);
  Value isBefore = isAtMost(end, chunk.begin);
  Value isAfter = both(isAtMost(chunk.end, begin), isAtMost(end, numSlots));
  emitter.ifThen(
      arith::OrIOp::create(b, isBefore, isAfter),
      [&] {
        Value row = select(isBefore, this->row(0), this->row(numRuns));
        for (Value id : ids)
          count(counters.choose(id, /*exists=*/Value()), row);
      },
      [&] {
        for (auto [i, id] : llvm::enumerate(ids)) {
          Value slot = slotOfBatch(begin, static_cast<int64_t>(i));
          Value comesBefore = isBelow(slot, chunk.begin);
          Value comesAfter =
              both(isAtMost(chunk.end, slot), isBelow(slot, numSlots));
          count(counters.choose(
                    id, arith::OrIOp::create(b, comesBefore, comesAfter)),
                select(comesBefore, row(0), row(numRuns)));
        }
      });
}

/// The next ids are on their way while these are counted.
void Rank::countOthers(ValueRange ids) {
  int64_t size = otherLoads * shape.threads;
  Value end = select(hasOthers, numSlots, emitter.index(0));
  auto body = [&](Value begin, ValueRange carried) {
    Value next = emitter.add(begin, size);
    SmallVector<Value> nextIds = emitter.choose(
        isAtMost(emitter.add(next, size), numSlots), getBatchTypes(),
        [&] { return loadBatch(next, true); },
        [&] { return loadBatch(next, false); });
    countBatch(begin, carried);
    return nextIds;
  };
  emitter.forLoop(emitter.index(0), end, size, ids, body);
}

/// How many neighbouring experts' counts are loaded at once: of fewer experts
/// than threads one each, so that all threads have some.
int64_t Rank::getCountWidth() const {
  constexpr int64_t width = 4;
  bool isAligned = shape.numLocal % width == 0 && shape.panel % width == 0;
  return isAligned && shape.getStride() >= shape.threads ? width : 1;
}

Value Rank::loadCounts(Value chunk, Value counter) {
  SmallVector<Value> at{chunk, counters.localOf(counter)};
  int64_t width = getCountWidth();
  if (width == 1)
    return emitter.loadI32(counts, at);
  return vector::LoadOp::create(b, VectorType::get(width, b.getI32Type()),
                                counts, at, /*nontemporal=*/false,
                                llvm::MaybeAlign(4 * width));
}

void Rank::addCountsTo(Value row, Value counter, Value numbers) {
  if (!isa<VectorType>(numbers.getType()))
    return addTo(row, counter, numbers);
  for (int64_t i = 0, width = getCountWidth(); i < width; ++i)
    addTo(row, emitter.add(counter, i),
          vector::ExtractOp::create(b, numbers, i));
}

/// All of most such chunks come before the CTA's, or after it. Those that there
/// are not repeat the CTA's own.
void Rank::addCountsOf(Value first, Value counter) {
  Value begin = emitter.toIndex(first);
  Value untilOwn = minus(emitter.toI32(emitter.cta()), first);
  Value untilEnd = minus(numChunks, first);
  Value none = emitter.i32(0), all = emitter.i32(getCountLoads());
  Value noCounts =
      getCountWidth() == 1 ? none : emitter.splatI32(0, getCountWidth());
  Value areBefore = isAtMost(all, untilOwn);
  Value areAfter = both(isBelow(untilOwn, none), isAtMost(all, untilEnd));
  emitter.ifThen(
      arith::OrIOp::create(b, areBefore, areAfter),
      [&] {
        Value sum = noCounts;
        for (int64_t i = 0; i < getCountLoads(); ++i)
          sum = addI32(sum, loadCounts(emitter.add(begin, i), counter));
        addCountsTo(select(areBefore, row(0), row(numRuns)), counter, sum);
      },
      [&] {
        Value before = noCounts, after = noCounts;
        for (int64_t i = 0; i < getCountLoads(); ++i) {
          Value number = emitter.i32(i);
          Value exists = isBelow(number, untilEnd);
          Value found = loadCounts(
              select(exists, emitter.add(begin, i), emitter.cta()), counter);
          Value comesAfter = both(exists, isBelow(untilOwn, number));
          before = addI32(before,
                          select(isBelow(number, untilOwn), found, noCounts));
          after = addI32(after, select(comesAfter, found, noCounts));
        }
        addCountsTo(row(0), counter, before);
        addCountsTo(row(numRuns), counter, after);
      });
}

/// The threads of a warp add up the counts of neighbouring experts, of the same
/// chunks.
void Rank::addCounts() {
  int64_t width = getCountWidth();
  int64_t columns = std::min(shape.getStride() / width, shape.threads);
  int64_t parts = shape.threads / columns;
  Value part = emitter.divide(emitter.thread(), columns);
  Value column = emitter.toIndex(
      emitter.scale(emitter.remainder(emitter.thread(), columns), width));
  auto add = [&] {
    Value begin = emitter.scale(part, getCountLoads());
    emitter.forLoop(
        column, counters.getNumCounters(), columns * width, [&](Value counter) {
          emitter.forLoop(begin, numChunks, parts * getCountLoads(),
                          [&](Value first) { addCountsOf(first, counter); });
        });
  };
  if (parts * columns == shape.threads)
    return add();
  emitter.ifThen(emitter.isLess(part, emitter.i32(parts)), add);
}

//===----------------------------------------------------------------------===//
// Sums
//===----------------------------------------------------------------------===//

Sums Rank::scanWarp(Value value) {
  Value sum = value, lane = emitter.lane();
  for (int64_t distance = 1; distance < kWarp; distance *= 2) {
    Value other = emitter.shuffleUp(sum, distance);
    Value isAlone = emitter.isLess(lane, emitter.i32(distance));
    sum = addI32(sum, select(isAlone, emitter.i32(0), other));
  }
  return {minus(sum, value), emitter.broadcast(sum, kWarp - 1)};
}

/// Per expert, over rows: where each run's slots begin. Then over the 32
/// experts of a group.
void Rank::sumRows() {
  Value lane = emitter.lane();
  Value begin = emitter.mul(numberOfWarp(), kWarp);
  emitter.forLoop(
      begin, emitter.index(shape.getStride()), shape.threads, [&](Value first) {
        Value counter = emitter.add(first, emitter.toIndex(lane));
        SmallVector<Value> counted;
        for (int64_t i = 0; i <= numRuns; ++i)
          counted.push_back(
              emitter.loadI32(table, emitter.add(row(i), counter)));
        Value sum = counted.front();
        for (int64_t i = 0; i < numRuns; ++i) {
          emitter.storeI32(sum, table, emitter.add(row(i), counter));
          sum = addI32(sum, counted[i + 1]);
        }
        Sums sums = scanWarp(sum);
        emitter.storeI32(sums.before, table,
                         emitter.add(row(numRuns), counter));
        emitter.ifThen(isFirst(lane), [&] {
          Value group = arith::DivUIOp::create(b, first, emitter.index(kWarp));
          emitter.storeI32(sums.total, table, groupAt(group));
        });
      });
}

/// The first warp sums over groups, 32 at a time.
void Rank::sumGroups() {
  emitter.ifThen(isFirst(emitter.warp()), [&] {
    Value earlier = shape.hasPanels() ? emitter.loadI32(table, earlierAt())
                                      : emitter.i32(0);
    SmallVector<Value> all = emitter.forLoop(
        emitter.index(0), emitter.index(shape.getGroups()), kWarp, earlier,
        [&](Value first, ValueRange carried) -> SmallVector<Value> {
          Value at =
              groupAt(emitter.add(first, emitter.toIndex(emitter.lane())));
          Sums sums = scanWarp(emitter.loadI32(table, at));
          emitter.storeI32(addI32(carried[0], sums.before), table, at);
          return {addI32(carried[0], sums.total)};
        });
    // All lanes have read what the first one writes for the next panel.
    if (shape.hasPanels())
      emitter.warpBarrier();
    emitter.ifThen(isFirst(emitter.lane()), [&] {
      emitter.ifThen(isFirstCta(), [&] {
        emitter.storeI32(all[0], offsets,
                         counters.localOf(counters.getNumCounters()));
      });
      if (shape.hasPanels())
        emitter.storeI32(all[0], table, earlierAt());
    });
  });
}

Value Rank::firstOf(Value counter) {
  Value inGroup = emitter.loadI32(table, emitter.add(row(numRuns), counter));
  Value group = arith::DivUIOp::create(b, counter, emitter.index(kWarp));
  return addI32(inGroup, emitter.loadI32(table, groupAt(group)));
}

void Rank::writeOffsets() {
  emitter.ifThen(isFirstCta(), [&] {
    emitter.forThreads(emitter.index(0), counters.getNumCounters(),
                       [&](Value counter) {
                         emitter.storeI32(firstOf(counter), offsets,
                                          counters.localOf(counter));
                       });
  });
}

//===----------------------------------------------------------------------===//
// Placing
//===----------------------------------------------------------------------===//

Slot Rank::loadSlot(Value first) {
  Value slot = emitter.add(first, emitter.toIndex(emitter.lane()));
  Value at = select(isBelow(slot, own.end), slot, first);
  return {emitter.loadI32(ids, at), emitter.loadF32(weights, at)};
}

/// Nothing for a warp without slots.
Slot Rank::loadFirstSlot() {
  auto branch =
      scf::IfOp::create(b, TypeRange{b.getI32Type(), b.getF32Type()},
                        isBelow(own.begin, own.end), /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(branch.thenBlock());
  Slot slot = loadSlot(own.begin);
  scf::YieldOp::create(b, ValueRange{slot.id, slot.weight});
  b.setInsertionPointToEnd(branch.elseBlock());
  scf::YieldOp::create(b, ValueRange{emitter.i32(0), emitter.f32(0.0)});
  return {branch.getResult(0), branch.getResult(1)};
}

/// What a lane needs of its next slot is on its way while it places one.
void Rank::placeRun(Slot firstSlot) {
  Value lane = emitter.lane();
  Value row = this->row(numberOfWarp());
  SmallVector<Value> init{firstSlot.id, firstSlot.weight};
  auto body = [&](Value first, ValueRange carried) -> SmallVector<Value> {
    Value slot = emitter.add(first, emitter.toIndex(lane));
    Value exists = isBelow(slot, own.end);
    Value id = carried[0], weight = carried[1];
    Value after = emitter.add(first, kWarp);
    Slot next = loadSlot(select(isBelow(after, own.end), after, first));
    // A lane without a slot repeats the first one, but it is nowhere.
    SlotChoice choice = counters.choose(id, exists);

    // Slots of the same expert: those of lower lanes, and all.
    Value same = emitter.matchAny(choice.counter);
    Value bit = arith::ShLIOp::create(b, emitter.i32(1), lane);
    Value lower =
        math::CtPopOp::create(b, both(same, minus(bit, emitter.i32(1))));

    // Of a slot that is not here, something is read and not used.
    Value counter =
        emitter.toIndex(select(choice.isHere, choice.counter, emitter.i32(0)));
    Value inRun = emitter.add(row, counter);
    Value begin = emitter.loadI32(table, inRun);
    Value place = addI32(addI32(firstOf(counter), begin), lower);
    emitter.warpBarrier();
    emitter.ifThen(
        choice.isHere,
        [&] {
          Value to = emitter.toIndex(place);
          emitter.storeI32(place, position, slot);
          emitter.storeI32(emitter.divide(emitter.toI32(slot), topK), source,
                           to);
          emitter.storeF32(weight, rowWeight, {to, emitter.index(0)});
          emitter.ifThen(isFirst(lower), [&] {
            Value slots = math::CtPopOp::create(b, same);
            emitter.storeI32(addI32(begin, slots), table, inRun);
          });
        },
        [&] {
          emitter.ifThen(choice.isElsewhere, [&] {
            emitter.storeI32(counters.getExperts().positionOfOther(id),
                             position, slot);
          });
        });
    emitter.warpBarrier();
    return {next.id, next.weight};
  };
  emitter.forLoop(own.begin, own.end, kWarp, init, body);
}

} // namespace

LogicalResult moec::emitSm80Rank(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  auto op = cast<tile::RankOp>(phase);
  if (Value counter = emitter.operand(op.getCounter())) {
    Value number =
        emitter.scale(emitter.toI32(emitter.cta()), emitter.getNumThreads());
    Value one = emitter.i32(1);
    Value isFirst = emitter.isLess(
        arith::AddIOp::create(emitter.b, number, emitter.thread()), one);
    emitter.ifThen(isFirst, [&] {
      emitter.storeI32(emitter.i32(0), counter, emitter.index(0));
    });
  }
  Rank(op, emitter, sm80::Rank(op, op.getConfigAttr())).run();
  return success();
}
