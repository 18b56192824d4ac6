//===- PlaceIds.cpp - one id as that of this rank's weights -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlaceIds.h"

using namespace mlir;
using namespace moec;

/// Whether a token is among the valid ones of its run.
static Flag isCounted(Value counts, KernelEmitter &emitter, Index token) {
  int64_t runs = cast<MemRefType>(counts.getType()).getDimSize(0);
  // There is a token, so that a run has one.
  Index length = emitter.tokens() / runs;
  Index run = token / length;
  Index place = token % length;
  return place < emitter.loadIndex(counts, {run});
}

/// One of an expert's places, which tokens take in turns that look random.
static I32 loadReplica(KernelEmitter &emitter, Value table, Value replicas,
                       Index expert, Index token) {
  ImplicitLocOpBuilder &b = emitter.b;
  // 2^32 divided by the golden ratio.
  constexpr uint32_t factor = 2654435769U;
  int64_t most = cast<MemRefType>(table.getType()).getDimSize(1);
  I32 count = emitter.loadI32(replicas, {expert});
  Flag hasPlace = (count - 1).isBelow(most);
  return emitter.choose(
      hasPlace,
      [&] {
        I32 place = token.toI32() * factor % count;
        Value column = arith::IndexCastUIOp::create(b, b.getIndexType(), place);
        return emitter.loadI32(table, {expert, column});
      },
      [&] { return emitter.i32(-1); });
}

void moec::emitPlacedId(tile::PlaceIdsOp op, KernelEmitter &emitter,
                        Value tokenNumber, Value choice) {
  Index token(emitter.b, tokenNumber);
  I32 none = emitter.i32(-1);
  I32 id = emitter.loadI32(emitter.operand(op.getIds()), {token, choice});
  // The first zero expert and their number.
  auto zeroExperts = op.getZeroExperts();
  I32 zeroExpert;
  Flag isZero;
  if (zeroExperts) {
    zeroExpert = id - zeroExperts->front();
    isZero = zeroExpert.isBelow((*zeroExperts)[1]);
  }
  if (Value table = emitter.operand(op.getTable())) {
    int64_t experts = cast<MemRefType>(table.getType()).getDimSize(0);
    Value replicas = emitter.operand(op.getReplicaCounts());
    id = emitter.choose(
        id.isBelow(experts),
        [&] {
          Index expert = id.toIndex();
          if (replicas)
            return loadReplica(emitter, table, replicas, expert, token);
          return emitter.loadI32(table, {expert});
        },
        [&] {
          if (!zeroExperts)
            return none;
          return select(isZero, zeroExpert + zeroExperts->back(), none);
        });
  } else if (zeroExperts) {
    id = select(isZero, emitter.i32(-2), none);
  }
  if (Value counts = emitter.operand(op.getNumValidTokens()))
    id = select(isCounted(counts, emitter, token), id, none);
  if (Value isPadding = emitter.operand(op.getIsPadding()))
    id = select(emitter.loadFlag(isPadding, token), none, id);
  emitter.storeI32(id, emitter.operand(op.getResult()), {token, choice});
}
