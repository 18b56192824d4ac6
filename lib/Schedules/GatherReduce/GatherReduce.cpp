//===- GatherReduce.cpp - the schedule gpu.gather_reduce --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The combine. A CTA owns `ctaColumns` columns of every `token_stride`-th
// token, and a thread `lanes` adjacent ones. `lanes` divides the number of
// columns, so no thread has a partial vector.
//
// Each lane of a warp loads the position of one of the token's slots. A vote
// finds the slots with something to add; their rows are added in order, with
// the loads of several rows in flight. With experts on other ranks a token has
// few rows here, and costs only these.

#include "GatherReduce.h"

#include "Schedules/Interface/Emit.h"
#include "moec/Support/GpuInstructions.h"

using namespace mlir;
using namespace moec;

namespace {

class GpuGatherReduce {
public:
  GpuGatherReduce(tile::GatherReduceOp op, ThreadEmitter &emitter);

  /// What thread `thread` of CTA `cta` of a launch does.
  void emit(Index cta, I32 thread);

private:
  /// Rows in flight at once, a power of 2.
  static constexpr int64_t kRowsAtOnce = 8;

  /// A warp's remaining slots, and the sum so far.
  struct Progress {
    /// Bit j: lane j has a slot that is not added yet.
    I32 left;
    /// A vector.
    F32 sum;
    auto fields() { return std::tie(left, sum); }
  };
  /// The slots that a warp's lanes hold: `first`, `first + 1`, ...
  struct Slots {
    Index token, first;
    /// The lane's position.
    I32 position;
  };

  Slots loadSlots(Index token, Index first);
  /// The token's sum; `slots` are its first ones.
  F32 reduce(const Slots &slots);
  /// Stores the rows of the token's slots one after another.
  void copySlots(const Slots &slots, Flag isValid, Flag hasColumns);
  F32 addSlots(F32 sum, const Slots &slots);
  /// Adds the first `count` remaining slots.
  Progress addRows(Progress progress, const Slots &slots, int64_t count);
  F32 addRow(F32 sum, Value row, I32 position, F32 weight);
  Value loadRow(Index token, I32 position);
  /// Values of the type of a loaded row, without a meaning.
  Value makeAnyRow(I32 position);
  F32 zeros() { return {b, emitter.splat(0.0, lanes)}; }

  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  tile::GpuGatherReduceAttr config;
  Value rows, position, identity, identityWeights, addend, numValidTokens,
      result;
  int64_t lanes, topK, slotColumns;
  bool isUnreduced, isFromUnreduced;
  /// The thread's first column.
  Index column;
  /// The elements of `identity` in these columns; null without it.
  F32 self;
};

GpuGatherReduce::GpuGatherReduce(tile::GatherReduceOp op,
                                 ThreadEmitter &emitter)
    : emitter(emitter), b(emitter.b),
      config(cast<tile::GpuGatherReduceAttr>(op.getConfigAttr())),
      rows(emitter.operand(op.getRows())),
      position(emitter.operand(op.getPosition())),
      identity(emitter.operand(op.getIdentity())),
      identityWeights(emitter.operand(op.getIdentityWeights())),
      addend(emitter.operand(op.getAddend())),
      numValidTokens(op.getNumValidTokens()),
      result(emitter.operand(op.getResult())), lanes(config.getVectorWidth()),
      topK(getColumns(position)), slotColumns(op.getSlotColumns()),
      isUnreduced(op.getUnreduced()), isFromUnreduced(op.getFromUnreduced()) {}

GpuGatherReduce::Slots GpuGatherReduce::loadSlots(Index token, Index first) {
  // Lanes without a slot load the last one, and do not vote for it.
  Index slot = first + emitter.toIndex(emitter.lane());
  Index safe = min(slot, topK - 1);
  I32 loaded = emitter.loadI32(position, {token, safe});
  // The row of a slot is found by the slot's number.
  if (isFromUnreduced)
    loaded = select(loaded >= 0, safe.toI32(), loaded);
  return {token, first, loaded};
}

/// With constants LLVM would convert to f32 in both branches.
Value GpuGatherReduce::makeAnyRow(I32 position) {
  Type element = getElementType(rows);
  int64_t bits = element.getIntOrFloatBitWidth();
  Value any = position;
  if (bits < 32)
    any = position.lowBits(bits);
  return emitter.splat(arith::BitcastOp::create(b, element, any).getResult(),
                       lanes);
}

Value GpuGatherReduce::loadRow(Index token, I32 position) {
  auto load = [&] {
    Index row = position.toIndex();
    if (isFromUnreduced)
      return emitter.loadElements(rows, {token, row * slotColumns + column},
                                  lanes);
    // Kept in the stored type: a conversion to f32 here would wait for the
    // load.
    return emitter.loadElements(rows, {row, column}, lanes);
  };
  if (!identity)
    return load();
  return emitter.choose(position >= 0, load,
                        [&] { return makeAnyRow(position); });
}

F32 GpuGatherReduce::addRow(F32 sum, Value row, I32 position, F32 weight) {
  auto add = [&] { return sum + F32(b, castFloat(b, row, b.getF32Type())); };
  if (!identity)
    return add();
  return emitter.choose(position >= 0, add, [&] {
    return sum + self * F32(b, emitter.splat(weight, lanes));
  });
}

GpuGatherReduce::Progress
GpuGatherReduce::addRows(Progress progress, const Slots &slots, int64_t count) {
  SmallVector<I32> positions;
  SmallVector<F32> weights;
  SmallVector<Value> loaded;
  for (int64_t i = 0; i < count; ++i) {
    I32 lane = emitter.lowestBit(progress.left);
    progress.left = progress.left & (progress.left - 1);
    positions.push_back(emitter.getFromLane(slots.position, lane));
    F32 weight;
    if (identity) {
      Index slot = slots.first + emitter.toIndex(lane);
      weight = emitter.loadF32(identityWeights, {slots.token, slot});
    }
    weights.push_back(weight);
  }
  for (I32 position : positions)
    loaded.push_back(loadRow(slots.token, position));
  for (auto [position, row, weight] : llvm::zip(positions, loaded, weights))
    progress.sum = addRow(progress.sum, row, position, weight);
  return progress;
}

F32 GpuGatherReduce::addSlots(F32 sum, const Slots &slots) {
  Flag counts = slots.position >= 0;
  if (identity)
    counts = counts | (slots.position == -2);
  if (topK % kWarp)
    counts = counts & (slots.first + emitter.toIndex(emitter.lane()) < topK);
  I32 left = emitter.ballot(counts);
  I32 count = left.popcount();
  int64_t most = std::min(topK, kWarp);
  Progress progress{left, sum};
  int64_t rows = kRowsAtOnce;
  if (most >= 2 * kRowsAtOnce) {
    progress =
        emitter.loop(emitter.index(0), emitter.toIndex(count / kRowsAtOnce), 1,
                     progress, [&](Index, const Progress &progress) {
                       return addRows(progress, slots, kRowsAtOnce);
                     });
    rows /= 2;
  }
  // The remainder takes 8, then 4, then 2, then 1.
  for (; rows; rows /= 2)
    if (rows <= most)
      progress = emitter.choose((count & rows) != 0,
                                [&] { return addRows(progress, slots, rows); },
                                [&] { return progress; });
  return progress.sum;
}

F32 GpuGatherReduce::reduce(const Slots &slots) {
  auto loadOnce = [&](Value memref) {
    if (!memref)
      return F32();
    // A bias is the same for each token.
    bool isBias = cast<MemRefType>(memref.getType()).getRank() == 1;
    SmallVector<Value, 2> indices = {slots.token, column};
    if (isBias)
      indices.erase(indices.begin());
    return F32(b, emitter.loadVector(memref, indices, lanes));
  };
  self = loadOnce(identity);
  F32 last = loadOnce(addend);
  F32 sum = addSlots(zeros(), slots);
  if (topK > kWarp)
    sum = emitter.loop(emitter.index(kWarp), emitter.index(topK), kWarp, sum,
                       [&](Index first, F32 sum) {
                         return addSlots(sum, loadSlots(slots.token, first));
                       });
  return last ? sum + last : sum;
}

void GpuGatherReduce::copySlots(const Slots &slots, Flag isValid,
                                Flag hasColumns) {
  emitter.loop(emitter.index(0), emitter.index(topK), 1, [&](Index slot) {
    I32 row = emitter.loadI32(position, {slots.token, slot});
    Flag counts = isValid.isNull() ? row >= 0 : (row >= 0) & isValid;
    F32 values = emitter.choose(
        counts,
        [&] {
          return F32(b,
                     emitter.loadVector(rows, {row.toIndex(), column}, lanes));
        },
        [&] { return zeros(); });
    auto store = [&] {
      emitter.storeVector(values, result,
                          {slots.token, slot * slotColumns + column});
    };
    if (hasColumns.isNull())
      store();
    else
      emitter.ifThen(hasColumns, store);
  });
}

void GpuGatherReduce::emit(Index cta, I32 thread) {
  int64_t columns = slotColumns, ctaColumns = config.getColumnsPerCta();
  auto columnTiles = int64_t(llvm::divideCeil(columns, ctaColumns));
  Index begin = cta / columnTiles;
  Index first = cta % columnTiles;
  Index offset = emitter.toIndex(thread) * lanes;
  column = first * ctaColumns + offset;
  Flag hasColumns;
  if (columns % ctaColumns) {
    // All lanes of a warp must vote, so lanes without columns take part.
    hasColumns = column.isBelow(columns);
    column = min(column, columns - lanes);
  }
  Index valid = emitter.validTokens(numValidTokens);
  auto getTotal = [&](const Slots &slots) {
    if (!numValidTokens)
      return reduce(slots);
    return emitter.choose(
        slots.token < valid, [&] { return reduce(slots); },
        [&] { return zeros(); });
  };
  Index lastToken = emitter.tokens() - 1;
  Index zero = emitter.index(0);
  emitter.loop(
      begin, emitter.tokens(), config.getTokenStride(),
      loadSlots(begin, zero).position, [&](Index token, I32 position) {
        // Prefetch the next token's positions while this one's rows
        // are added.
        Index next = token + config.getTokenStride();
        I32 nextPosition = loadSlots(min(next, lastToken), zero).position;
        if (isUnreduced) {
          copySlots({token, zero, position},
                    numValidTokens ? token < valid : Flag(), hasColumns);
          return nextPosition;
        }
        F32 total = getTotal({token, zero, position});
        auto store = [&] {
          emitter.storeVector(total, result, {token, column});
        };
        if (hasColumns.isNull())
          store();
        else
          emitter.ifThen(hasColumns, store);
        return nextPosition;
      });
}

} // namespace

LogicalResult moec::emitGpuGatherReduce(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  GpuGatherReduce(cast<tile::GatherReduceOp>(phase), emitter)
      .emit(emitter.cta(), emitter.thread());
  return success();
}

void moec::emitGatherReduceOf(tile::GatherReduceOp op, ThreadEmitter &emitter,
                              Index cta, I32 thread) {
  GpuGatherReduce(op, emitter).emit(cta, thread);
}
