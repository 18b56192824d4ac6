//===- Pair.h - two 16-bit floats in a register -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_KERNELBUILDER_PAIR_H
#define MOEC_LIB_KERNELBUILDER_PAIR_H

#include "KernelEmitter.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace moec {

/// Two bf16 or f16, which instructions take as one i32: the first one in the
/// low half.
class Pair : public TypedValue {
public:
  using TypedValue::TypedValue;

  static mlir::VectorType typeOf(mlir::Type element) {
    return mlir::VectorType::get(2, element);
  }
  static Pair fromBits(I32 bits, mlir::Type element) {
    mlir::ImplicitLocOpBuilder &b = bits.builder();
    return {b, mlir::LLVM::BitcastOp::create(b, typeOf(element), bits)};
  }
  I32 bits() const {
    return {*b, mlir::LLVM::BitcastOp::create(*b, b->getI32Type(), *this)};
  }

  /// `number` twice.
  Pair like(double number) const {
    return {*b, constant(b->getFloatAttr(mlir::getElementTypeOrSelf(getType()),
                                         number))};
  }
  /// Element `i` as f32.
  F32 element(int64_t i) const {
    return {*b, castFloat(*b, extract(i), b->getF32Type())};
  }

  /// `x * y + z`, rounded once; the only bf16 arithmetic of sm_80.
  friend Pair fma(Pair x, Pair y, Pair z) {
    return {*x.b, mlir::math::FmaOp::create(*x.b, x, y, z)};
  }
  /// `x * y` by an fma: adding -0 changes nothing.
  friend Pair multiply(Pair x, Pair y) { return fma(x, y, x.like(-0.0)); }
};

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_PAIR_H
