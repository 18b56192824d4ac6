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
Index moec::findGroup(KernelEmitter &emitter, Value offsets, Value position) {
  int64_t groups = cast<MemRefType>(offsets.getType()).getDimSize(0) - 1;
  Index group = emitter.index(0), last = emitter.index(groups - 1);
  for (auto step = int64_t(llvm::PowerOf2Ceil(uint64_t(groups))) / 2; step > 0;
       step /= 2) {
    Index further = group + step;
    Index begin = emitter.loadIndex(offsets, {min(further, last)});
    Flag exists = further <= last;
    Flag isThere = exists & (begin <= Index(emitter.b, position));
    group = select(isThere, further, group);
  }
  return group;
}

Index moec::toColumn(KernelEmitter &emitter, Value number, int64_t width) {
  ImplicitLocOpBuilder &b = emitter.b;
  // Unsigned, so that negative numbers are too large.
  Value column = arith::MinUIOp::create(b, number, emitter.i32(width - 1));
  return {b, arith::IndexCastUIOp::create(b, b.getIndexType(), column)};
}
