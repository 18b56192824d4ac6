//===- Word.h - arithmetic of 32 bits ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_CONVERSION_TILETONVVM_WORD_H
#define MOEC_LIB_CONVERSION_TILETONVVM_WORD_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace moec {

/// i32 arithmetic, in the notation of C.
struct Word {
  mlir::ImplicitLocOpBuilder *b;
  mlir::Value value;

  Word make(mlir::Value result) const { return {b, result}; }
  Word constant(int64_t bits) const {
    auto attribute = b->getI32IntegerAttr(static_cast<int32_t>(bits));
    return make(mlir::arith::ConstantOp::create(*b, attribute));
  }
  Word isGreater(int64_t limit) const {
    return make(mlir::arith::CmpIOp::create(*b, mlir::arith::CmpIPredicate::sgt,
                                            value, constant(limit).value));
  }
  Word choose(Word yes, Word no) const {
    return make(mlir::arith::SelectOp::create(*b, value, yes.value, no.value));
  }
  Word min(int64_t most) const {
    return make(mlir::arith::MinSIOp::create(*b, value, constant(most).value));
  }
};

inline Word operator+(Word x, Word y) {
  return x.make(mlir::arith::AddIOp::create(*x.b, x.value, y.value));
}
inline Word operator+(Word x, int64_t y) { return x + x.constant(y); }
inline Word operator-(Word x, Word y) {
  return x.make(mlir::arith::SubIOp::create(*x.b, x.value, y.value));
}
inline Word operator&(Word x, int64_t y) {
  return x.make(
      mlir::arith::AndIOp::create(*x.b, x.value, x.constant(y).value));
}
inline Word operator|(Word x, Word y) {
  return x.make(mlir::arith::OrIOp::create(*x.b, x.value, y.value));
}
inline Word operator<<(Word x, int64_t y) {
  return x.make(
      mlir::arith::ShLIOp::create(*x.b, x.value, x.constant(y).value));
}
inline Word operator>>(Word x, int64_t y) {
  return x.make(
      mlir::arith::ShRUIOp::create(*x.b, x.value, x.constant(y).value));
}
inline Word operator^(Word x, int64_t y) {
  return x.make(
      mlir::arith::XOrIOp::create(*x.b, x.value, x.constant(y).value));
}

} // namespace moec

#endif // MOEC_LIB_CONVERSION_TILETONVVM_WORD_H
