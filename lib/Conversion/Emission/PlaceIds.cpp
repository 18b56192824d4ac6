//===- PlaceIds.cpp - one id as that of this rank's weights -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlaceIds.h"

using namespace mlir;
using namespace moec;

/// Whether a token is one of those that count in its run.
static Value isCounted(Value counts, KernelEmitter &emitter, Value token) {
  ImplicitLocOpBuilder &b = emitter.b;
  int64_t runs = cast<MemRefType>(counts.getType()).getDimSize(0);
  // There is a token, so that a run has one.
  Value length =
      arith::DivUIOp::create(b, emitter.tokens(), emitter.index(runs));
  Value run = arith::DivUIOp::create(b, token, length);
  Value place = arith::RemUIOp::create(b, token, length);
  Value count = emitter.loadIndex(counts, ValueRange{run});
  return arith::CmpIOp::create(b, arith::CmpIPredicate::slt, place, count);
}

/// One of an expert's places, which tokens take in turns that look random.
static Value loadReplica(KernelEmitter &emitter, Value table, Value replicas,
                         Value expert, Value token) {
  ImplicitLocOpBuilder &b = emitter.b;
  // 2^32 divided by the golden ratio.
  constexpr uint32_t factor = 2654435769U;
  int64_t most = cast<MemRefType>(table.getType()).getDimSize(1);
  Value count = emitter.loadI32(replicas, ValueRange{expert});
  Value fewer = arith::SubIOp::create(b, count, emitter.i32(1));
  Value hasPlace = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, fewer,
                                         emitter.i32(most));
  return emitter
      .choose(
          hasPlace, b.getI32Type(),
          [&]() -> SmallVector<Value> {
            Value number = arith::IndexCastOp::create(b, b.getI32Type(), token);
            Value hash = arith::MulIOp::create(
                b, number, emitter.i32(static_cast<int32_t>(factor)));
            Value place = arith::RemUIOp::create(b, hash, count);
            Value column =
                arith::IndexCastUIOp::create(b, b.getIndexType(), place);
            return {emitter.loadI32(table, {expert, column})};
          },
          [&]() -> SmallVector<Value> { return {emitter.i32(-1)}; })
      .front();
}

/// An id's place among zero experts; as a number without a sign what is before
/// the first one is a large one.
static Value getZeroExpert(ArrayRef<int64_t> zeroExperts,
                           KernelEmitter &emitter, Value id) {
  return arith::SubIOp::create(
      emitter.b, id, emitter.i32(static_cast<int32_t>(zeroExperts.front())));
}

static Value isZeroExpert(ArrayRef<int64_t> zeroExperts, KernelEmitter &emitter,
                          Value number) {
  return arith::CmpIOp::create(
      emitter.b, arith::CmpIPredicate::ult, number,
      emitter.i32(static_cast<int32_t>(zeroExperts[1])));
}

void moec::emitPlacedId(tile::PlaceIdsOp op, KernelEmitter &emitter,
                        Value token, Value choice) {
  ImplicitLocOpBuilder &b = emitter.b;
  Value none = emitter.i32(-1);
  Value id = emitter.loadI32(emitter.operand(op.getIds()), {token, choice});
  auto zeroExperts = op.getZeroExperts();
  Value zeroExpert, isZero;
  if (zeroExperts) {
    zeroExpert = getZeroExpert(*zeroExperts, emitter, id);
    isZero = isZeroExpert(*zeroExperts, emitter, zeroExpert);
  }
  if (Value table = emitter.operand(op.getTable())) {
    int64_t experts = cast<MemRefType>(table.getType()).getDimSize(0);
    Value replicas = emitter.operand(op.getReplicaCounts());
    // As a number without a sign an id below 0 is a large one.
    Value isKnown = arith::CmpIOp::create(b, arith::CmpIPredicate::ult, id,
                                          emitter.i32(experts));
    id = emitter
             .choose(
                 isKnown, b.getI32Type(),
                 [&]() -> SmallVector<Value> {
                   Value row =
                       arith::IndexCastOp::create(b, b.getIndexType(), id);
                   if (replicas)
                     return {loadReplica(emitter, table, replicas, row, token)};
                   return {emitter.loadI32(table, ValueRange{row})};
                 },
                 [&]() -> SmallVector<Value> {
                   if (!zeroExperts)
                     return {none};
                   Value behind = arith::AddIOp::create(
                       b, zeroExpert,
                       emitter.i32(static_cast<int32_t>(zeroExperts->back())));
                   return {arith::SelectOp::create(b, isZero, behind, none)};
                 })
             .front();
  } else if (zeroExperts) {
    id = arith::SelectOp::create(b, isZero, emitter.i32(-2), none);
  }
  if (Value counts = emitter.operand(op.getNumValidTokens()))
    id =
        arith::SelectOp::create(b, isCounted(counts, emitter, token), id, none);
  if (Value isPadding = emitter.operand(op.getIsPadding()))
    id = arith::SelectOp::create(b, emitter.loadFlag(isPadding, token), none,
                                 id);
  emitter.storeI32(id, emitter.operand(op.getResult()), {token, choice});
}
