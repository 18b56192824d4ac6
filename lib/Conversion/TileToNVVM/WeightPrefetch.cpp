//===- WeightPrefetch.cpp - weights of a launch to come ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightPrefetch.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace moec;

WeightPrefetch::WeightPrefetch(ThreadEmitter &emitter, Value weight,
                               int64_t bytes)
    : emitter(emitter), b(emitter.b), memref(emitter.operand(weight)),
      type(cast<MemRefType>(weight.getType())) {
  matrixBytes = type.getElementTypeBitWidth() / 8;
  for (int64_t size : type.getShape().take_back(2))
    matrixBytes *= size;
  this->bytes = std::min(bytes, getNumMatrices() * matrixBytes);
}

int64_t WeightPrefetch::getMatrixChunks() const {
  return llvm::divideCeil(matrixBytes, kChunkBytes);
}

int64_t WeightPrefetch::getSpan() const {
  return llvm::divideCeil(2 * bytes, kChunkBytes);
}

int64_t WeightPrefetch::getMostMatrices() const {
  int64_t spanned = llvm::divideCeil(getSpan(), getMatrixChunks());
  return std::min(spanned, getNumMatrices());
}

Value WeightPrefetch::getStep(Value count) {
  Value fits = arith::CmpIOp::create(b, arith::CmpIPredicate::sle, count,
                                     emitter.i32(getWholeMatrices()));
  return arith::SelectOp::create(b, fits, emitter.index(1), emitter.index(2));
}

void WeightPrefetch::request(Value matrix, Value chunk) {
  Value zero = emitter.index(0);
  SmallVector<Value> begin(type.getRank(), zero);
  if (!isOne())
    begin.front() = emitter.toIndex(matrix);
  Value offset = emitter.mul(chunk, kChunkBytes);
  Value size = emitter.i32(kChunkBytes);
  if (matrixBytes % kChunkBytes) {
    Value left = arith::SubIOp::create(b, emitter.index(matrixBytes), offset);
    size = emitter.toI32(emitter.min(left, emitter.index(kChunkBytes)));
  }
  Value address =
      emitter.advance(emitter.address(memref, begin),
                      arith::IndexCastOp::create(b, b.getI64Type(), offset));
  emitter.prefetchBulk(address, size);
}
