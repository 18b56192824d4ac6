//===- Sm90FewIds.cpp - the table of groups of few ids ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Table of groups for few ids. With few tokens, the time until the first copy
// is most of a kernel's time, and counters in shared memory and prefix sums
// over all groups take several barriers of the CTA. If each lane of a warp has
// one id, each thread computes its groups' entries from all ids directly: the
// rows and tiles before a group are the number of lower ids, and of lower ids
// that are the first of a tile. All groups use one BLOCK_M, which holds all
// tokens if there is such a value: a token has one row in a group, or several
// if its ids repeat.

#include "../../../Emission/RankIds.h"
#include "Sm90Contract.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <limits>

using namespace mlir;
using namespace moec;

Value Sm90Contract::areFewIds(Value slots) {
  return arith::CmpIOp::create(b, arith::CmpIPredicate::sle, slots,
                               emitter.index(sm90::Contract::kWarp));
}

Value Sm90Contract::getHeightOfFew() {
  Value tokens = emitter.toI32(emitter.tokens());
  Value height = emitter.i32(shape.tileRows.back());
  for (int64_t rows : llvm::reverse(ArrayRef(shape.tileRows).drop_back()))
    height = arith::SelectOp::create(
        b,
        arith::CmpIOp::create(b, arith::CmpIPredicate::sle, tokens,
                              emitter.i32(rows)),
        emitter.i32(rows), height);
  return height;
}

/// Key of the lane's slot: twice its local expert, plus one if a tile of that
/// expert begins with it; the maximum if the lane has no slot.
Value Sm90Contract::loadOwnKey(RankIds &experts, Value slots, Value height) {
  constexpr int32_t none = std::numeric_limits<int32_t>::max();
  Value ids = emitter.operand(op.getIds());
  Value slot = emitter.toIndex(emitter.lane());
  Value exists =
      arith::CmpIOp::create(b, arith::CmpIPredicate::slt, slot, slots);
  Type i32 = b.getI32Type();
  auto find = [&]() -> SmallVector<Value> {
    Value id = emitter.loadConstantI32(ids, {emitter.index(0), slot});
    Value local = experts.localOf(id);
    return {arith::SelectOp::create(
        b, experts.isHere(local), emitter.scale(local, 2), emitter.i32(none))};
  };
  Value key = emitter.choose(exists, i32, find, [&]() -> SmallVector<Value> {
    return {emitter.i32(none)};
  })[0];
  Value same = emitter.matchAny(key);
  Value bit = arith::ShLIOp::create(b, emitter.i32(1), emitter.lane());
  Value lower = arith::AndIOp::create(b, same, emitter.scale(bit, 1, -1));
  // Rows before it in the group's last tile.
  Value inTile =
      arith::RemUIOp::create(b, math::CtPopOp::create(b, lower), height);
  Value isFirst = arith::AndIOp::create(b, isEqual(inTile, emitter.i32(0)),
                                        emitter.isLess(key, emitter.i32(none)));
  if (Value takes = takesGroup(math::CtPopOp::create(b, same)))
    isFirst = arith::AndIOp::create(b, isFirst, takes);
  return addI32(key, arith::ExtUIOp::create(b, i32, isFirst));
}

void Sm90Contract::emitTableOfFew(RankIds &experts, Value slots) {
  Value height = getHeightOfFew();
  Value key = loadOwnKey(experts, slots, height);
  Type i32 = b.getI32Type();
  auto add = [&](Value sum, Value flag) {
    return addI32(sum, arith::ExtUIOp::create(b, i32, flag));
  };
  // Whole warps, because lanes exchange values.
  Value zero = emitter.i32(0), groups = emitter.i32(shape.groups);
  emitter.forLoop(
      emitter.index(0), emitter.index(shape.groups + 1),
      emitter.getNumThreads(), [&](Value first) {
        Value group = addI32(emitter.toI32(first), emitter.thread());
        Value own = emitter.scale(group, 2);
        SmallVector<Value> sums = emitter.forLoop(
            emitter.index(0), slots, 1, {zero, zero, zero},
            [&](Value slot, ValueRange sums) {
              Value other = emitter.getFromLane(key, emitter.toI32(slot));
              Value isFirst = arith::TruncIOp::create(b, b.getI1Type(), other);
              Value isBefore = emitter.isLess(other, own);
              Value isSame =
                  isEqual(arith::OrIOp::create(b, other, emitter.i32(1)),
                          emitter.scale(own, 1, 1));
              Value begins = arith::AndIOp::create(b, isBefore, isFirst);
              return SmallVector<Value>{add(sums[0], isBefore),
                                        add(sums[1], begins),
                                        add(sums[2], isSame)};
            });
        Value isThere =
            arith::CmpIOp::create(b, arith::CmpIPredicate::sle, group, groups);
        emitter.ifThen(isThere, [&] {
          storeEntry(group, {sums[0], sums[1], sums[2], packHeight(height)});
        });
      });
}
