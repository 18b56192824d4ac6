//===- SortByExpert.cpp - the schedule cpu.sort_by_expert -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// One CTA sorts all slots by expert in two passes: it counts the slots of each
// local expert, then assigns positions in the order of (token, slot).

#include "Emit.h"
#include "Schedules/Routing/SortIds.h"

using namespace mlir;
using namespace moec;

namespace {

class RankEmission {
public:
  RankEmission(tile::SortByExpertOp op, KernelEmitter &emitter);

  void run();

private:
  Value makeLocalTable();
  void count(Index token);
  void makeOffsets();
  void place(Index token);
  void forSlots(llvm::function_ref<void(Index)> body) {
    emitter.loop(emitter.index(0), emitter.index(topK), 1, body);
  }

  tile::SortByExpertOp op;
  KernelEmitter &emitter;
  ImplicitLocOpBuilder &b;
  int64_t topK;
  int64_t numLocal;
  Value ids, weights, offsets, position, source, rowWeight;
  /// Scratch per local expert, plus one entry for slots that are not here:
  /// first the number of slots, then the next position.
  Value next;
  SortIds experts;
};

} // namespace

RankEmission::RankEmission(tile::SortByExpertOp op, KernelEmitter &emitter)
    : op(op), emitter(emitter), b(emitter.b),
      topK(cast<MemRefType>(op.getIds().getType()).getDimSize(1)),
      numLocal(SortIds::getNumLocal(op)), ids(emitter.operand(op.getIds())),
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
  SmallVector<int32_t> table = SortIds::getLocalTable(op);
  int64_t size = llvm::alignTo(table.size(), kLanes);
  table.resize(size, numLocal);
  Value localTable = emitter.scratch(size, b.getI32Type());
  auto type = VectorType::get(kLanes, b.getI32Type());
  for (int64_t i = 0; i < size; i += kLanes) {
    auto values = ArrayRef<int32_t>(table).slice(i, kLanes);
    I32 constant(b, arith::ConstantOp::create(
                        b, DenseIntElementsAttr::get(type, values)));
    emitter.storeI32Vector(constant, localTable, emitter.index(i));
  }
  return localTable;
}

void RankEmission::count(Index token) {
  forSlots([&](Index slot) {
    I32 id = emitter.loadI32(ids, {token, slot});
    Index local = experts.localOf(id).toIndex();
    emitter.storeI32(emitter.loadI32(next, local) + 1, next, local);
  });
}

void RankEmission::makeOffsets() {
  I32 total = emitter.loop(emitter.index(0), emitter.index(numLocal), 1,
                           emitter.i32(0), [&](Index local, I32 before) {
                             I32 counted = emitter.loadI32(next, local);
                             emitter.storeI32(before, offsets, local);
                             emitter.storeI32(before, next, local);
                             return before + counted;
                           });
  emitter.storeI32(total, offsets, {emitter.index(numLocal)});
}

void RankEmission::place(Index token) {
  I32 tokenNumber = token.toI32();
  forSlots([&](Index slot) {
    I32 id = emitter.loadI32(ids, {token, slot});
    I32 local = experts.localOf(id);
    emitter.ifThen(
        experts.isHere(local),
        [&] {
          Index expert = local.toIndex();
          I32 place = emitter.loadI32(next, expert);
          emitter.storeI32(place + 1, next, expert);
          emitter.storeI32(place, position, {token, slot});
          Index row = place.toIndex();
          emitter.storeI32(tokenNumber, source, row);
          emitter.storeF32(emitter.loadF32(weights, {token, slot}), rowWeight,
                           {row, emitter.index(0)});
        },
        [&] {
          emitter.storeI32(experts.positionOfOther(id), position,
                           {token, slot});
        });
  });
}

void RankEmission::run() {
  Index zero = emitter.index(0);
  Index valid = emitter.validTokens(op.getNumValidTokens());
  emitter.loop(zero, emitter.index(numLocal + 1), 1, [&](Index local) {
    emitter.storeI32(emitter.i32(0), next, local);
  });
  emitter.loop(zero, valid, 1, [&](Index token) { count(token); });
  makeOffsets();
  emitter.loop(zero, valid, 1, [&](Index token) { place(token); });
  if (!op.getNumValidTokens())
    return;
  emitter.loop(valid, emitter.tokens(), 1, [&](Index token) {
    forSlots([&](Index slot) {
      emitter.storeI32(emitter.i32(-1), position, {token, slot});
    });
  });
}

LogicalResult moec::emitSortByExpert(tile::SortByExpertOp op,
                                     KernelEmitter &emitter) {
  if (failed(requireConfig<tile::CpuSortByExpertAttr>(op, op.getConfigAttr())))
    return failure();
  RankEmission(op, emitter).run();
  return success();
}
