//===- Values.h - typed values of a kernel under construction ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Values with the arithmetic of C: an operator emits an op at the builder's
// insertion point. A typed value is an `mlir::Value`, so that it goes wherever
// one does; the way back states the type: `I32(b, value)`.
//
// C++ leaves the order open in which an operator's operands are evaluated.
// Bind an operand that emits more than arithmetic to a local, so that the order
// of the emitted ops does not depend on the C++ compiler.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_KERNELBUILDER_VALUES_H
#define MOEC_LIB_KERNELBUILDER_VALUES_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <tuple>

namespace moec {

/// A value and the builder that continues with it. It may be null, and may be a
/// vector: then operators are elementwise, and numbers are splats.
class TypedValue : public mlir::Value {
public:
  TypedValue() = default;
  TypedValue(mlir::ImplicitLocOpBuilder &b, mlir::Value value)
      : mlir::Value(value), b(&b) {}

  mlir::ImplicitLocOpBuilder &builder() const { return *b; }

protected:
  /// A constant of this value's type.
  mlir::Value constant(mlir::TypedAttr element) const {
    auto vector = mlir::dyn_cast<mlir::VectorType>(getType());
    if (vector)
      element = mlir::DenseElementsAttr::get(vector, element);
    return mlir::arith::ConstantOp::create(*b, element);
  }
  /// `type`, or a vector of it where this value is one.
  mlir::Type shaped(mlir::Type type) const {
    auto vector = mlir::dyn_cast<mlir::VectorType>(getType());
    return vector ? vector.clone(type) : type;
  }
  /// Element `i` of a vector.
  mlir::Value extract(int64_t i) const {
    return mlir::vector::ExtractOp::create(*b, *this, i);
  }

  mlir::ImplicitLocOpBuilder *b = nullptr;
};

template <typename Kind>
class IntegerValue;
class F32;

/// i1. Operands are always evaluated.
class Flag : public TypedValue {
public:
  using TypedValue::TypedValue;

  Flag operator&(Flag y) const {
    return {*b, b->createOrFold<mlir::arith::AndIOp>(*this, y)};
  }
  Flag operator|(Flag y) const {
    return {*b, b->createOrFold<mlir::arith::OrIOp>(*this, y)};
  }
  Flag operator~() const {
    return {*b, b->createOrFold<mlir::arith::XOrIOp>(
                    *this, constant(b->getBoolAttr(true)))};
  }
  /// 1 where it is set, else 0.
  IntegerValue<int32_t> toI32() const;
  /// `if (x == y)` would ask whether the value is null: ask `isNull` then.
  // NOLINTNEXTLINE(bugprone-derived-method-shadowing-base-method): on purpose.
  explicit operator bool() const = delete;
  bool isNull() const { return !getImpl(); }
};

/// An integer: `Kind` is the C++ type that stands for its width. Division,
/// remainder and right shift are unsigned; comparisons, minimum and maximum are
/// signed.
template <typename Kind>
class IntegerValue : public TypedValue {
public:
  using TypedValue::TypedValue;

  /// A constant of this value's type.
  IntegerValue like(int64_t number) const {
    mlir::Type element = mlir::getElementTypeOrSelf(getType());
    return {*b, constant(b->getIntegerAttr(
                    element, llvm::APInt(element.isIndex()
                                             ? 64
                                             : element.getIntOrFloatBitWidth(),
                                         number, /*isSigned=*/true,
                                         /*implicitTrunc=*/true)))};
  }

  Flag isBelow(IntegerValue y) const {
    return compare(mlir::arith::CmpIPredicate::ult, y);
  }
  Flag isBelow(int64_t y) const { return isBelow(like(y)); }
  /// An i32, zero-extended.
  IntegerValue<int64_t> toI64() const {
    return {*b,
            mlir::arith::ExtUIOp::create(*b, shaped(b->getI64Type()), *this)};
  }

  /// Element `i` of a vector.
  IntegerValue element(int64_t i) const { return {*b, extract(i)}; }
  /// The number of bits that are set.
  IntegerValue popcount() const {
    return {*b, mlir::math::CtPopOp::create(*b, *this)};
  }
  /// `x >> bits`, which keeps the sign.
  IntegerValue shiftRightSigned(int64_t bits) const {
    return apply<mlir::arith::ShRSIOp>(like(bits));
  }
  /// From i32, with its sign.
  IntegerValue<size_t> toIndex() const {
    return {*b, mlir::arith::IndexCastOp::create(*b, shaped(b->getIndexType()),
                                                 *this)};
  }

  template <typename Op>
  IntegerValue apply(IntegerValue y) const {
    return {*b, b->createOrFold<Op>(static_cast<mlir::Value>(*this),
                                    static_cast<mlir::Value>(y))};
  }
  Flag compare(mlir::arith::CmpIPredicate predicate, IntegerValue y) const {
    return {*b, mlir::arith::CmpIOp::create(*b, predicate, *this, y)};
  }

// Each operator takes a number too, on either side where that reads well.
#define MOEC_ARITHMETIC(sign, op)                                              \
  friend IntegerValue operator sign(IntegerValue x, IntegerValue y) {          \
    return x.template apply<mlir::arith::op>(y);                               \
  }                                                                            \
  friend IntegerValue operator sign(IntegerValue x, int64_t y) {               \
    return x sign x.like(y);                                                   \
  }                                                                            \
  friend IntegerValue operator sign(int64_t x, IntegerValue y) {               \
    return y.like(x) sign y;                                                   \
  }
  MOEC_ARITHMETIC(+, AddIOp)
  MOEC_ARITHMETIC(-, SubIOp)
  MOEC_ARITHMETIC(*, MulIOp)
  MOEC_ARITHMETIC(/, DivUIOp)
  MOEC_ARITHMETIC(%, RemUIOp)
  MOEC_ARITHMETIC(&, AndIOp)
  MOEC_ARITHMETIC(|, OrIOp)
  MOEC_ARITHMETIC(^, XOrIOp)
  MOEC_ARITHMETIC(<<, ShLIOp)
  MOEC_ARITHMETIC(>>, ShRUIOp)
#undef MOEC_ARITHMETIC
#define MOEC_COMPARISON(sign, predicate)                                       \
  friend Flag operator sign(IntegerValue x, IntegerValue y) {                  \
    return x.compare(mlir::arith::CmpIPredicate::predicate, y);                \
  }                                                                            \
  friend Flag operator sign(IntegerValue x, int64_t y) {                       \
    return x sign x.like(y);                                                   \
  }
  MOEC_COMPARISON(<, slt)
  MOEC_COMPARISON(<=, sle)
  MOEC_COMPARISON(>, sgt)
  MOEC_COMPARISON(>=, sge)
  MOEC_COMPARISON(==, eq)
  MOEC_COMPARISON(!=, ne)
#undef MOEC_COMPARISON
  // An untyped value would compare the identity of the two.
  friend void operator==(IntegerValue, mlir::Value) = delete;
  friend void operator!=(IntegerValue, mlir::Value) = delete;
  IntegerValue operator~() const { return *this ^ -1; }
  IntegerValue operator-() const { return 0 - *this; }
  /// The f32 nearest to this signed value.
  F32 toF32() const;
  /// The low bits of an i64 or of an index.
  IntegerValue<int32_t> toI32() const {
    mlir::Type i32 = shaped(b->getI32Type());
    if constexpr (std::is_same_v<Kind, size_t>)
      return {*b, mlir::arith::IndexCastOp::create(*b, i32, *this)};
    else
      return {*b, lowBits(32)};
  }
  /// The low bits, as a shorter integer.
  mlir::Value lowBits(int64_t bits) const {
    return mlir::arith::TruncIOp::create(*b, shaped(b->getIntegerType(bits)),
                                         *this);
  }
  /// A shorter integer, zero-extended to an i32.
  IntegerValue<int32_t> widened() const {
    return {*b,
            mlir::arith::ExtUIOp::create(*b, shaped(b->getI32Type()), *this)};
  }

  friend IntegerValue min(IntegerValue x, IntegerValue y) {
    return x.template apply<mlir::arith::MinSIOp>(y);
  }
  friend IntegerValue min(IntegerValue x, int64_t y) {
    return min(x, x.like(y));
  }
  friend IntegerValue max(IntegerValue x, IntegerValue y) {
    return x.template apply<mlir::arith::MaxSIOp>(y);
  }
  friend IntegerValue max(IntegerValue x, int64_t y) {
    return max(x, x.like(y));
  }
  /// `x * y` that is known to fit, so that it may be widened later.
  friend IntegerValue multiplyNoWrap(IntegerValue x, IntegerValue y) {
    return {*x.b, mlir::arith::MulIOp::create(
                      *x.b, x, y, mlir::arith::IntegerOverflowFlags::nsw)};
  }
  /// `x / y`, rounded up.
  friend IntegerValue divideUp(IntegerValue x, IntegerValue y) {
    return (x + y - 1) / y;
  }
  friend IntegerValue divideUp(IntegerValue x, int64_t y) {
    return (x + (y - 1)) / y;
  }
};

using I32 = IntegerValue<int32_t>;
using I64 = IntegerValue<int64_t>;
/// Of MLIR's type index.
using Index = IntegerValue<size_t>;

/// f32. Comparisons are ordered: false on NaN.
class F32 : public TypedValue {
public:
  using TypedValue::TypedValue;

  F32 like(double number) const {
    return {*b, constant(b->getF32FloatAttr(number))};
  }
  /// Element `i` of a vector.
  F32 element(int64_t i) const { return {*b, extract(i)}; }
  F32 abs() const { return {*b, mlir::math::AbsFOp::create(*b, *this)}; }
  /// The bits of a float, and the float with these bits.
  I32 bits() const {
    return {*b,
            mlir::arith::BitcastOp::create(*b, shaped(b->getI32Type()), *this)};
  }
  static F32 fromBits(I32 bits) {
    TypedValue raw = bits;
    mlir::ImplicitLocOpBuilder &b = bits.builder();
    F32 shape(b, raw);
    return {b, mlir::arith::BitcastOp::create(b, shape.shaped(b.getF32Type()),
                                              raw)};
  }
  Flag compare(mlir::arith::CmpFPredicate predicate, F32 y) const {
    return {*b, mlir::arith::CmpFOp::create(*b, predicate, *this, y)};
  }
  /// Rounded toward zero.
  I32 toI32() const {
    return {*b,
            mlir::arith::FPToSIOp::create(*b, shaped(b->getI32Type()), *this)};
  }
  /// Whether it is no NaN.
  Flag isNumber() const {
    return compare(mlir::arith::CmpFPredicate::ORD, *this);
  }

#define MOEC_ARITHMETIC(sign, op)                                              \
  friend F32 operator sign(F32 x, F32 y) {                                     \
    return {*x.b, mlir::arith::op::create(*x.b, x, y)};                        \
  }                                                                            \
  friend F32 operator sign(F32 x, double y) { return x sign x.like(y); }       \
  friend F32 operator sign(double x, F32 y) { return y.like(x) sign y; }
  MOEC_ARITHMETIC(+, AddFOp)
  MOEC_ARITHMETIC(-, SubFOp)
  MOEC_ARITHMETIC(*, MulFOp)
  MOEC_ARITHMETIC(/, DivFOp)
#undef MOEC_ARITHMETIC
#define MOEC_COMPARISON(sign, predicate)                                       \
  friend Flag operator sign(F32 x, F32 y) {                                    \
    return x.compare(mlir::arith::CmpFPredicate::predicate, y);                \
  }                                                                            \
  friend Flag operator sign(F32 x, double y) { return x sign x.like(y); }
  MOEC_COMPARISON(<, OLT)
  MOEC_COMPARISON(<=, OLE)
  MOEC_COMPARISON(>, OGT)
  MOEC_COMPARISON(>=, OGE)
  MOEC_COMPARISON(==, OEQ)
#undef MOEC_COMPARISON
  friend void operator==(F32, mlir::Value) = delete;
  F32 operator-() const { return {*b, mlir::arith::NegFOp::create(*b, *this)}; }

  /// `x * y + z`, rounded once.
  friend F32 fma(F32 x, F32 y, F32 z) {
    return {*x.b, mlir::math::FmaOp::create(*x.b, x, y, z)};
  }
};

template <typename Kind>
F32 IntegerValue<Kind>::toF32() const {
  return {*b,
          mlir::arith::SIToFPOp::create(*b, shaped(b->getF32Type()), *this)};
}

/// `flag ? x : y`, per element of a vector.
template <typename T>
T select(Flag flag, T x, T y) {
  mlir::ImplicitLocOpBuilder &b = flag.builder();
  mlir::Value chosen = mlir::arith::SelectOp::create(b, flag, x, y);
  if constexpr (std::is_same_v<T, mlir::Value>)
    return chosen;
  else
    return {b, chosen};
}
template <typename Kind>
IntegerValue<Kind> select(Flag flag, IntegerValue<Kind> x, int64_t y) {
  return select(flag, x, x.like(y));
}
inline F32 select(Flag flag, F32 x, double y) {
  return select(flag, x, x.like(y));
}
inline I32 Flag::toI32() const {
  return {*b, mlir::arith::ExtUIOp::create(*b, shaped(b->getI32Type()), *this)};
}

/// The vector of some values of one scalar type.
template <typename T>
T makeVector(mlir::ImplicitLocOpBuilder &b, llvm::ArrayRef<T> elements) {
  llvm::SmallVector<mlir::Value> values(elements);
  auto type = mlir::VectorType::get(values.size(), values.front().getType());
  mlir::Value vector = mlir::vector::FromElementsOp::create(b, type, values);
  if constexpr (std::is_same_v<T, mlir::Value>)
    return vector;
  else
    return {b, vector};
}

//===--- Values that loops and branches carry ---===//
//
// A carried state is a typed value, an mlir::Value, a small vector of these, a
// std::tuple of states, or a struct whose `fields()` returns std::tie of its
// members.

namespace carried {

template <typename State, typename = void>
struct HasFields : std::false_type {};
template <typename State>
struct HasFields<State, std::void_t<decltype(std::declval<State>().fields())>>
    : std::true_type {};

template <typename T>
struct IsList : std::false_type {};
template <typename T, unsigned N>
struct IsList<llvm::SmallVector<T, N>> : std::true_type {};

/// Appends the values of `state` to `values`.
template <typename State>
void pack(State &state, llvm::SmallVectorImpl<mlir::Value> &values);
/// Replaces the values of `state`, which has the shape of the result, by the
/// first ones of `values`, and drops these.
template <typename State>
void unpack(State &state, mlir::ImplicitLocOpBuilder &b,
            mlir::ValueRange &values);

template <typename State>
void pack(State &state, llvm::SmallVectorImpl<mlir::Value> &values) {
  if constexpr (std::is_base_of_v<mlir::Value, State>) {
    values.push_back(state);
  } else if constexpr (IsList<State>::value) {
    for (auto &element : state)
      pack(element, values);
  } else if constexpr (HasFields<State>::value) {
    std::apply([&](auto &...field) { (pack(field, values), ...); },
               state.fields());
  } else {
    std::apply([&](auto &...element) { (pack(element, values), ...); }, state);
  }
}

template <typename State>
void unpack(State &state, mlir::ImplicitLocOpBuilder &b,
            mlir::ValueRange &values) {
  if constexpr (std::is_same_v<State, mlir::Value>) {
    state = values.front();
    values = values.drop_front();
  } else if constexpr (std::is_base_of_v<mlir::Value, State>) {
    state = State(b, values.front());
    values = values.drop_front();
  } else if constexpr (IsList<State>::value) {
    for (auto &element : state)
      unpack(element, b, values);
  } else if constexpr (HasFields<State>::value) {
    std::apply([&](auto &...field) { (unpack(field, b, values), ...); },
               state.fields());
  } else {
    std::apply([&](auto &...element) { (unpack(element, b, values), ...); },
               state);
  }
}

} // namespace carried

} // namespace moec

#endif // MOEC_LIB_KERNELBUILDER_VALUES_H
