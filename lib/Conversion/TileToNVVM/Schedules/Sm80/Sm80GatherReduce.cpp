//===- Sm80GatherReduce.cpp - the schedule sm80.gather_reduce ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// The combine. A CTA owns `panel` columns of every `token_stride`-th token, and
// a thread `lanes` adjacent ones. `lanes` divides the number of columns, so no
// thread has a partial vector.
//
// Each lane of a warp loads the position of one of the token's slots. A vote
// finds the slots with something to add; their rows are added in order, with
// the loads of several rows in flight. With experts on other ranks a token has
// few rows here, and costs only these.

#include "../../Emit.h"
#include "../../ThreadEmitter.h"
#include "moec/Analysis/Sm80.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace moec;

namespace {

class Sm80GatherReduce {
public:
  Sm80GatherReduce(tile::GatherReduceOp op, ThreadEmitter &emitter);

  void emit();

private:
  /// Rows in flight at once, a power of 2.
  static constexpr int64_t kRowsAtOnce = 8;

  /// A warp's remaining slots, and the sum so far.
  struct Progress {
    /// Bit j: lane j has a slot that is not added yet.
    Value left;
    /// A vector of f32.
    Value sum;
  };
  /// The slots that a warp's lanes hold: `first`, `first + 1`, ...
  struct Slots {
    Value token, first;
    /// The lane's position.
    Value position;
  };

  Slots loadSlots(Value token, Value first);
  /// The token's sum; `slots` are its first ones.
  Value reduce(const Slots &slots);
  Value addSlots(Value sum, const Slots &slots);
  /// Adds the first `count` remaining slots.
  Progress addRows(Progress progress, const Slots &slots, int64_t count);
  Value addRow(Value sum, Value row, Value position, Value weight);
  Value loadRow(Value position);
  Value isRow(Value position) {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::sge, position,
                                 emitter.i32(0));
  }

  ThreadEmitter &emitter;
  ImplicitLocOpBuilder &b;
  tile::Sm80GatherReduceAttr config;
  Value rows, position, identity, identityWeights, addend, numValidTokens,
      result;
  int64_t lanes, topK;
  Type sumType;
  /// The thread's first column.
  Value column;
  /// The elements of `identity` in these columns; null without it.
  Value self;
};

Sm80GatherReduce::Sm80GatherReduce(tile::GatherReduceOp op,
                                   ThreadEmitter &emitter)
    : emitter(emitter), b(emitter.b),
      config(cast<tile::Sm80GatherReduceAttr>(op.getConfigAttr())),
      rows(emitter.operand(op.getRows())),
      position(emitter.operand(op.getPosition())),
      identity(emitter.operand(op.getIdentity())),
      identityWeights(emitter.operand(op.getIdentityWeights())),
      addend(emitter.operand(op.getAddend())),
      numValidTokens(op.getNumValidTokens()),
      result(emitter.operand(op.getResult())), lanes(config.getVectorWidth()),
      topK(getColumns(position)),
      sumType(emitter.vectorType(b.getF32Type(), lanes)) {}

Sm80GatherReduce::Slots Sm80GatherReduce::loadSlots(Value token, Value first) {
  // Lanes without a slot load the last one, and do not vote for it.
  Value slot = emitter.add(first, emitter.toIndex(emitter.lane()));
  Value safe = emitter.min(slot, emitter.index(topK - 1));
  return {token, first, emitter.loadI32(position, {token, safe})};
}

Value Sm80GatherReduce::loadRow(Value position) {
  auto load = [&] {
    Value row = arith::IndexCastOp::create(b, b.getIndexType(), position);
    // Kept in the stored type: a conversion to f32 here would wait for the
    // load.
    return emitter.loadElements(rows, {row, column}, lanes);
  };
  if (!identity)
    return load();
  auto type = VectorType::get(lanes, getElementType(rows));
  // Unused values. With constants LLVM would convert to f32 in both branches.
  auto noRow = [&] {
    Type element = type.getElementType();
    Type bits = b.getIntegerType(element.getIntOrFloatBitWidth());
    Value any = position;
    if (bits != any.getType())
      any = arith::TruncIOp::create(b, bits, any);
    Value value = arith::BitcastOp::create(b, element, any);
    return SmallVector<Value>{vector::BroadcastOp::create(b, type, value)};
  };
  return emitter.choose(
      isRow(position), type, [&] { return SmallVector<Value>{load()}; },
      noRow)[0];
}

Value Sm80GatherReduce::addRow(Value sum, Value row, Value position,
                               Value weight) {
  auto add = [&] {
    return arith::AddFOp::create(b, sum, castFloat(b, row, b.getF32Type()));
  };
  if (!identity)
    return add();
  auto addSelf = [&] {
    Value product =
        arith::MulFOp::create(b, self, emitter.splat(weight, lanes));
    return SmallVector<Value>{arith::AddFOp::create(b, sum, product)};
  };
  return emitter.choose(
      isRow(position), sumType, [&] { return SmallVector<Value>{add()}; },
      addSelf)[0];
}

Sm80GatherReduce::Progress Sm80GatherReduce::addRows(Progress progress,
                                                     const Slots &slots,
                                                     int64_t count) {
  SmallVector<Value> positions, loaded, weights;
  for (int64_t i = 0; i < count; ++i) {
    // At least `count` bits are set, so skip the branch for a zero operand.
    Value lane = LLVM::CountTrailingZerosOp::create(
        b, b.getI32Type(), progress.left, /*is_zero_poison=*/true);
    Value below = arith::SubIOp::create(b, progress.left, emitter.i32(1));
    progress.left = arith::AndIOp::create(b, progress.left, below);
    positions.push_back(emitter.getFromLane(slots.position, lane));
    Value weight;
    if (identity) {
      Value slot = emitter.add(slots.first, emitter.toIndex(lane));
      weight = emitter.loadF32(identityWeights, {slots.token, slot});
    }
    weights.push_back(weight);
  }
  for (Value position : positions)
    loaded.push_back(loadRow(position));
  for (auto [position, row, weight] : llvm::zip(positions, loaded, weights))
    progress.sum = addRow(progress.sum, row, position, weight);
  return progress;
}

Value Sm80GatherReduce::addSlots(Value sum, const Slots &slots) {
  Value counts = isRow(slots.position);
  if (identity) {
    Value isIdentity = arith::CmpIOp::create(b, arith::CmpIPredicate::eq,
                                             slots.position, emitter.i32(-2));
    counts = arith::OrIOp::create(b, counts, isIdentity);
  }
  if (topK % sm80::kWarp) {
    Value slot = emitter.add(slots.first, emitter.toIndex(emitter.lane()));
    Value exists = arith::CmpIOp::create(b, arith::CmpIPredicate::slt, slot,
                                         emitter.index(topK));
    counts = arith::AndIOp::create(b, counts, exists);
  }
  Value left = emitter.ballot(counts);
  Value count = math::CtPopOp::create(b, left);
  int64_t most = std::min(topK, sm80::kWarp);
  Progress progress{left, sum};
  auto values = [](Progress progress) {
    return SmallVector<Value>{progress.left, progress.sum};
  };
  int64_t rows = kRowsAtOnce;
  if (most >= 2 * kRowsAtOnce) {
    Value steps = emitter.divide(count, kRowsAtOnce);
    SmallVector<Value> last = emitter.forLoop(
        emitter.index(0), emitter.toIndex(steps), 1, values(progress),
        [&](Value, ValueRange carried) {
          return values(addRows({carried[0], carried[1]}, slots, kRowsAtOnce));
        });
    progress = {last[0], last[1]};
    rows /= 2;
  }
  // The remainder takes 8, then 4, then 2, then 1.
  for (; rows; rows /= 2) {
    if (rows > most)
      continue;
    Value bit = arith::AndIOp::create(b, count, emitter.i32(rows));
    Value has =
        arith::CmpIOp::create(b, arith::CmpIPredicate::ne, bit, emitter.i32(0));
    SmallVector<Value> last = emitter.choose(
        has, {b.getI32Type(), sumType},
        [&] { return values(addRows(progress, slots, rows)); },
        [&] { return values(progress); });
    progress = {last[0], last[1]};
  }
  return progress.sum;
}

Value Sm80GatherReduce::reduce(const Slots &slots) {
  auto loadOnce = [&](Value memref) {
    return memref ? emitter.loadVector(memref, {slots.token, column}, lanes)
                  : Value();
  };
  self = loadOnce(identity);
  Value last = loadOnce(addend);
  Value sum = addSlots(emitter.splat(0.0, lanes), slots);
  if (topK > sm80::kWarp)
    sum = emitter.forLoop(emitter.index(sm80::kWarp), emitter.index(topK),
                          sm80::kWarp, sum, [&](Value first, ValueRange sums) {
                            Slots more = loadSlots(slots.token, first);
                            return SmallVector<Value>{addSlots(sums[0], more)};
                          })[0];
  return last ? arith::AddFOp::create(b, sum, last) : sum;
}

void Sm80GatherReduce::emit() {
  int64_t columns = getColumns(result), panel = config.getColumnsPerCta();
  Value panels = emitter.index(llvm::divideCeil(columns, panel));
  Value begin = arith::DivUIOp::create(b, emitter.cta(), panels);
  Value first = arith::RemUIOp::create(b, emitter.cta(), panels);
  Value offset = emitter.mul(emitter.toIndex(emitter.thread()), lanes);
  column = emitter.add(emitter.mul(first, panel), offset);
  Value hasColumns;
  if (columns % panel) {
    // All lanes of a warp must vote, so lanes without columns take part.
    hasColumns = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, column,
                                       emitter.index(columns));
    column = emitter.min(column, emitter.index(columns - lanes));
  }
  Value valid = emitter.validTokens(numValidTokens);
  auto getTotal = [&](const Slots &slots) {
    if (!numValidTokens)
      return reduce(slots);
    Value isValid =
        arith::CmpIOp::create(b, arith::CmpIPredicate::slt, slots.token, valid);
    return emitter.choose(
        isValid, sumType, [&] { return SmallVector<Value>{reduce(slots)}; },
        [&] { return SmallVector<Value>{emitter.splat(0.0, lanes)}; })[0];
  };
  Value lastToken =
      arith::SubIOp::create(b, emitter.tokens(), emitter.index(1));
  Value zero = emitter.index(0);
  emitter.forLoop(begin, emitter.tokens(), config.getTokenStride(),
                  loadSlots(begin, zero).position,
                  [&](Value token, ValueRange carried) {
                    // Prefetch the next token's positions while this one's rows
                    // are added.
                    Value next = emitter.add(token, config.getTokenStride());
                    Value nextPosition =
                        loadSlots(emitter.min(next, lastToken), zero).position;
                    Value total = getTotal({token, zero, carried[0]});
                    auto store = [&] {
                      emitter.storeVector(total, result, {token, column});
                    };
                    if (hasColumns)
                      emitter.ifThen(hasColumns, store);
                    else
                      store();
                    return SmallVector<Value>{nextPosition};
                  });
}

} // namespace

LogicalResult moec::emitSm80GatherReduce(Operation *phase, KernelBody body) {
  ThreadEmitter emitter(body.func, body.kernel, body.threads);
  Sm80GatherReduce(cast<tile::GatherReduceOp>(phase), emitter).emit();
  return success();
}
