//===- Rank.cpp - the schedule cpu.rank -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// One CTA sorts all slots by expert in two passes: it counts the slots of each
// local expert, then assigns positions in the order of (token, slot).

#include "../Emission/RankIds.h"
#include "Emit.h"

using namespace mlir;
using namespace moec;

namespace {

class RankEmission {
public:
  RankEmission(tile::RankOp op, KernelEmitter &emitter);

  void run();

private:
  Value makeLocalTable();
  void count(Value token);
  void makeOffsets();
  void place(Value token);
  void forSlots(llvm::function_ref<void(Value)> body) {
    emitter.forLoop(emitter.index(0), emitter.index(topK), 1, body);
  }

  Value toIndex(Value x) {
    return arith::IndexCastOp::create(b, b.getIndexType(), x);
  }

  tile::RankOp op;
  KernelEmitter &emitter;
  ImplicitLocOpBuilder &b;
  int64_t topK;
  int64_t numLocal;
  Value ids, weights, offsets, position, source, rowWeight;
  /// Scratch per local expert, plus one entry for slots that are not here:
  /// first the number of slots, then the next position.
  Value next;
  RankIds experts;
};

} // namespace

RankEmission::RankEmission(tile::RankOp op, KernelEmitter &emitter)
    : op(op), emitter(emitter), b(emitter.b),
      topK(cast<MemRefType>(op.getIds().getType()).getDimSize(1)),
      numLocal(RankIds::getNumLocal(op)), ids(emitter.operand(op.getIds())),
      weights(emitter.operand(op.getWeights())),
      offsets(emitter.operand(op.getOffsets())),
      position(emitter.operand(op.getPosition())),
      source(emitter.operand(op.getSource())),
      rowWeight(emitter.operand(op.getRowWeight())),
      experts(op, emitter, makeLocalTable()) {
  next = emitter.scratch(numLocal + 1, b.getI32Type());
}

/// On the stack; null if local and global ids are equal.
Value RankEmission::makeLocalTable() {
  if (!op.getLocalExperts())
    return {};
  constexpr int64_t kLanes = 8;
  SmallVector<int32_t> table = RankIds::getLocalTable(op);
  int64_t size = llvm::alignTo(table.size(), kLanes);
  table.resize(size, numLocal);
  Value localTable = emitter.scratch(size, b.getI32Type());
  auto type = VectorType::get(kLanes, b.getI32Type());
  for (int64_t i = 0; i < size; i += kLanes) {
    auto values = ArrayRef<int32_t>(table).slice(i, kLanes);
    Value constant =
        arith::ConstantOp::create(b, DenseIntElementsAttr::get(type, values));
    vector::StoreOp::create(b, constant, localTable, emitter.index(i));
  }
  return localTable;
}

void RankEmission::count(Value token) {
  forSlots([&](Value slot) {
    Value local = toIndex(experts.localOf(emitter.loadI32(ids, {token, slot})));
    Value counted = emitter.loadI32(next, local);
    emitter.storeI32(arith::AddIOp::create(b, counted, emitter.i32(1)), next,
                     local);
  });
}

/// Offsets are an exclusive scan of the counts, and also the first positions of
/// experts.
void RankEmission::makeOffsets() {
  SmallVector<Value> total = emitter.forLoop(
      emitter.index(0), emitter.index(numLocal), 1, emitter.i32(0),
      [&](Value local, ValueRange carried) -> SmallVector<Value> {
        Value counted = emitter.loadI32(next, local);
        emitter.storeI32(carried[0], offsets, local);
        emitter.storeI32(carried[0], next, local);
        return {arith::AddIOp::create(b, carried[0], counted)};
      });
  emitter.storeI32(total[0], offsets, emitter.index(numLocal));
}

void RankEmission::place(Value token) {
  Value tokenNumber = arith::IndexCastOp::create(b, b.getI32Type(), token);
  forSlots([&](Value slot) {
    Value id = emitter.loadI32(ids, {token, slot});
    Value local = experts.localOf(id);
    Value isHere = experts.isHere(local);
    emitter.ifThen(
        isHere,
        [&] {
          Value place = emitter.loadI32(next, toIndex(local));
          emitter.storeI32(arith::AddIOp::create(b, place, emitter.i32(1)),
                           next, toIndex(local));
          emitter.storeI32(place, position, {token, slot});
          emitter.storeI32(tokenNumber, source, toIndex(place));
          emitter.storeF32(emitter.loadF32(weights, {token, slot}), rowWeight,
                           {toIndex(place), emitter.index(0)});
        },
        [&] {
          emitter.storeI32(experts.positionOfOther(id), position,
                           {token, slot});
        });
  });
}

void RankEmission::run() {
  Value zero = emitter.index(0);
  Index valid = emitter.validTokens(op.getNumValidTokens());
  emitter.forLoop(zero, emitter.index(numLocal + 1), 1, [&](Value local) {
    emitter.storeI32(emitter.i32(0), next, local);
  });
  emitter.forLoop(zero, valid, 1, [&](Value token) { count(token); });
  makeOffsets();
  emitter.forLoop(zero, valid, 1, [&](Value token) { place(token); });
  if (!op.getNumValidTokens())
    return;
  emitter.forLoop(valid, emitter.tokens(), 1, [&](Value token) {
    forSlots([&](Value slot) {
      emitter.storeI32(emitter.i32(-1), position, {token, slot});
    });
  });
}

LogicalResult moec::emitRank(tile::RankOp op, KernelEmitter &emitter) {
  if (failed(requireConfig<tile::CpuRankAttr>(op, op.getConfigAttr())))
    return failure();
  RankEmission(op, emitter).run();
  return success();
}
