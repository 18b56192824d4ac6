//===- GroupColumns.cpp - columns in the order of an expert -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GroupColumns.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

/// The last group that begins at the position or before it: those behind it
/// begin later, and those without positions begin where the next one does.
Value moec::findGroup(KernelEmitter &emitter, Value offsets, Value position) {
  ImplicitLocOpBuilder &b = emitter.b;
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  Value group = emitter.index(0), last = emitter.index(groups - 1);
  for (auto step = int64_t(llvm::PowerOf2Ceil(uint64_t(groups))) / 2; step > 0;
       step /= 2) {
    Value further = emitter.add(group, step);
    Value begin =
        emitter.loadIndex(offsets, ValueRange{emitter.min(further, last)});
    Value isThere = arith::AndIOp::create(
        b,
        arith::CmpIOp::create(b, arith::CmpIPredicate::sle, further, last)
            .getResult(),
        arith::CmpIOp::create(b, arith::CmpIPredicate::sle, begin, position));
    group = arith::SelectOp::create(b, isThere, further, group);
  }
  return group;
}

Value moec::toColumn(KernelEmitter &emitter, Value number, int64_t width) {
  ImplicitLocOpBuilder &b = emitter.b;
  // Without a sign numbers below 0 are large.
  return arith::IndexCastUIOp::create(
      b, b.getIndexType(),
      arith::MinUIOp::create(b, number, emitter.i32(width - 1)));
}
