//===- ExpandMath.cpp - transcendental functions by arithmetic --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// exp, tanh, erf, log and log1p on f32, as scalars or vectors, without branches
// and calls. The polynomials are minimax fits of this project; measured over
// millions of arguments the results are within 1.0 ulp (exp, log), 1.1 (erf)
// and 1.4 (tanh, log1p) of the exact values. NaN, infinities, overflow and
// underflow give what the C library gives; subnormal results may be off by
// their last bit.
//
// Ops with fastmath<afn> may be approximate. On a GPU exp is then one product
// and one instruction (within 2 ulp of the power of 2), and a division a
// product with a reciprocal (within 1 ulp). Both take numbers below the normal
// range for 0 and give 0 for them: instructions that keep them need half a
// dozen more. Other reciprocals, such as a sigmoid's, are within 0.6 ulp: the
// machine's division has a branch for numbers near the ends of the range, so
// that of several none begins before the one before it has ended.

#include "KernelEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <limits>

using namespace mlir;
using namespace moec;

namespace {

// log(2) in two parts: the product of the first with a small integer is exact.
constexpr double kLn2High = 0.693359375;
constexpr double kLn2Low = -2.12194440054690583e-4;
constexpr double kLog2E = 1.44269504088896341;

// All coefficients stand highest power first.
/// (exp(r) - 1 - r) / r^2 on |r| <= log(2)/2.
constexpr double kExp[] = {1.381459879e-03, 8.368716575e-03, 4.166838899e-02,
                           1.666652113e-01, 4.999999404e-01};
/// (tanh(x)/x - 1) / x^2 in x^2, on |x| < 0.625.
constexpr double kTanh[] = {-5.717044696e-03, 2.065058611e-02, -5.374349654e-02,
                            1.333149076e-01, -3.333328366e-01};
/// erf(x)/x - 1 in x^2, on |x| < 0.93.
constexpr double kErfSmall[] = {
    8.345227252e-05, -8.137437981e-04, 5.200634245e-03, -2.685927041e-02,
    1.128369421e-01, -3.761263490e-01, 1.283791661e-01};
/// log(1 - erf(x)) on 0.92 .. 3.93.
constexpr double kErfLarge[] = {
    -2.109498928e-05, 4.344619520e-04,  -4.171059933e-03, 2.511942014e-02,
    -1.082800776e-01, -6.333469152e-01, -1.129514933e+00, 1.746836788e-04};
/// (log(1 + f) - f + f^2/2) / f^3 on sqrt(1/2) <= 1 + f <= sqrt(2).
constexpr double kLog[] = {-7.634492964e-02, 1.276157498e-01,  -1.316018254e-01,
                           1.420175880e-01,  -1.662335694e-01, 2.000122666e-01,
                           -2.500081956e-01, 3.333333135e-01};

bool isApproximate(Operation *op) {
  return arith::bitEnumContainsAll(
      cast<arith::ArithFastMathInterface>(op).getFastMathFlagsAttr().getValue(),
      arith::FastMathFlags::afn);
}

bool isOne(Value x) {
  auto broadcast = x.getDefiningOp<vector::BroadcastOp>();
  return matchPattern(broadcast ? broadcast.getSource() : x, m_OneFloat());
}

/// Arithmetic on values of one type: f32 or a vector of f32.
class Expansion {
public:
  /// `approximate`: use a GPU's approximate instructions.
  Expansion(ImplicitLocOpBuilder &b, Type type, bool approximate)
      : b(b), type(type), intType(b.getI32Type()), approximate(approximate) {
    if (auto vector = dyn_cast<VectorType>(type))
      intType = vector.clone(b.getI32Type());
  }

  Value exp(Value x);
  Value tanh(Value x);
  Value erf(Value x);
  Value log(Value x);
  Value log1p(Value x);
  Value div(Value x, Value y);

private:
  using Predicate = arith::CmpFPredicate;

  Value attribute(Type of, Attribute element) {
    if (auto vector = dyn_cast<VectorType>(of))
      return arith::ConstantOp::create(b,
                                       DenseElementsAttr::get(vector, element));
    return arith::ConstantOp::create(b, cast<TypedAttr>(element));
  }
  Value constant(double value) {
    return attribute(type, b.getF32FloatAttr(value));
  }
  Value integer(int64_t value) {
    return attribute(intType, b.getI32IntegerAttr(value));
  }
  Value add(Value x, Value y) { return arith::AddFOp::create(b, x, y); }
  Value sub(Value x, Value y) { return arith::SubFOp::create(b, x, y); }
  Value mul(Value x, Value y) { return arith::MulFOp::create(b, x, y); }
  Value fma(Value x, Value y, Value z) {
    return math::FmaOp::create(b, x, y, z);
  }
  Value abs(Value x) { return math::AbsFOp::create(b, x); }
  Value withSign(Value x, Value sign) {
    return math::CopySignOp::create(b, x, sign);
  }
  Value less(Value x, double y) {
    return arith::CmpFOp::create(b, Predicate::OLT, x, constant(y));
  }
  Value select(Value condition, Value x, Value y) {
    return arith::SelectOp::create(b, condition, x, y);
  }
  Value isNaN(Value x) {
    return arith::CmpFOp::create(b, Predicate::UNO, x, x);
  }
  Value asInt(Value x) { return arith::BitcastOp::create(b, intType, x); }
  Value asFloat(Value x) { return arith::BitcastOp::create(b, type, x); }
  Value polynomial(ArrayRef<double> coefficients, Value x) {
    Value result = constant(coefficients.front());
    for (double c : coefficients.drop_front())
      result = fma(result, x, constant(c));
    return result;
  }
  /// 2^n for -126 <= n <= 127.
  Value powerOfTwo(Value n) {
    Value biased = arith::AddIOp::create(b, n, integer(127));
    return asFloat(arith::ShLIOp::create(b, biased, integer(23)));
  }
  Value logOfNormal(Value x);
  Value forEachElement(Value x, function_ref<Value(Value)> make);
  Value approximatePowerOfTwo(Value x);
  Value approximateReciprocal(Value x);
  Value reciprocal(Value x);

  static constexpr double kInf = std::numeric_limits<double>::infinity();
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  ImplicitLocOpBuilder &b;
  Type type;
  Type intType;
  bool approximate;
};

Value Expansion::forEachElement(Value x, function_ref<Value(Value)> make) {
  if (!isa<VectorType>(type))
    return make(x);
  auto elements = vector::ToElementsOp::create(b, x);
  return vector::FromElementsOp::create(
      b, type, llvm::map_to_vector(elements.getElements(), make));
}

Value Expansion::approximatePowerOfTwo(Value x) {
  return forEachElement(x, [&](Value element) -> Value {
    return LLVM::CallIntrinsicOp::create(
               b, element.getType(),
               b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f32"),
               ValueRange(element))
        .getResults();
  });
}

Value Expansion::approximateReciprocal(Value x) {
  llvm::APFloat divisor(0.0f);
  auto broadcast = x.getDefiningOp<vector::BroadcastOp>();
  if (matchPattern(broadcast ? broadcast.getSource() : x,
                   m_ConstantFloat(&divisor)))
    return constant(1.0 / double(divisor.convertToFloat()));
  return forEachElement(x, [&](Value element) -> Value {
    return NVVM::RcpApproxFtzF32Op::create(b, element.getType(), element);
  });
}

/// Where the number or what is to become of it is below the normal range, both
/// are in it after scaling. Infinities and zeros give each other at once: there
/// the correction is NaN.
Value Expansion::reciprocal(Value x) {
  constexpr double large = 0x1p+64, small = 0x1p-64;
  Value magnitude = abs(x);
  Value scale = select(less(magnitude, large), constant(1.0), constant(small));
  scale = select(less(magnitude, small), constant(large), scale);
  Value scaled = mul(x, scale);
  Value near = approximateReciprocal(scaled);
  Value error = fma(arith::NegFOp::create(b, scaled), near, constant(1.0));
  return mul(select(isNaN(error), near, fma(near, error, near)), scale);
}

Value Expansion::div(Value x, Value y) {
  if (approximate)
    return mul(x, approximateReciprocal(y));
  if (isOne(x))
    return reciprocal(y);
  return arith::DivFOp::create(b, x, y);
}

Value Expansion::exp(Value x) {
  if (approximate)
    return approximatePowerOfTwo(mul(x, constant(kLog2E)));
  // Beyond these bounds the result is infinite or 0. NaN takes the first bound,
  // so that the conversion to an integer is defined, and returns at the end.
  Value clamped = select(less(x, 89.0), x, constant(89.0));
  clamped = select(less(clamped, -104.0), constant(-104.0), clamped);
  Value n = math::RoundEvenOp::create(b, mul(clamped, constant(kLog2E)));
  Value minusN = arith::NegFOp::create(b, n);
  Value r = fma(minusN, constant(kLn2High), clamped);
  r = fma(minusN, constant(kLn2Low), r);
  Value p = add(fma(polynomial(kExp, r), mul(r, r), r), constant(1.0));
  // 2^n in two factors, for n from -150 to 128.
  Value whole = arith::FPToSIOp::create(b, intType, n);
  Value half = arith::ShRSIOp::create(b, whole, integer(1));
  Value rest = arith::SubIOp::create(b, whole, half);
  Value result = mul(mul(p, powerOfTwo(half)), powerOfTwo(rest));
  return select(isNaN(x), x, result);
}

Value Expansion::tanh(Value x) {
  Value magnitude = abs(x);
  Value square = mul(x, x);
  Value small =
      fma(mul(polynomial(kTanh, square), square), magnitude, magnitude);
  Value e = exp(add(magnitude, magnitude));
  Value large = sub(constant(1.0), div(constant(2.0), add(e, constant(1.0))));
  return withSign(select(less(magnitude, 0.625), small, large), x);
}

Value Expansion::erf(Value x) {
  Value magnitude = abs(x);
  Value square = mul(x, x);
  Value small = fma(polynomial(kErfSmall, square), magnitude, magnitude);
  // From 3.93 on the result rounds to 1; NaN stays NaN.
  Value beyond =
      arith::CmpFOp::create(b, Predicate::OGT, magnitude, constant(3.95));
  Value bounded = select(beyond, constant(3.95), magnitude);
  Value large = sub(constant(1.0), exp(polynomial(kErfLarge, bounded)));
  return withSign(select(less(magnitude, 0.93), small, large), x);
}

/// For positive normal numbers.
Value Expansion::logOfNormal(Value x) {
  Value bits = asInt(x);
  // k is such that x / 2^k lies between sqrt(1/2) and sqrt(2).
  Value k = arith::ShRSIOp::create(
      b, arith::SubIOp::create(b, bits, integer(0x3f3504f3)), integer(23));
  Value mantissa =
      arith::SubIOp::create(b, bits, arith::ShLIOp::create(b, k, integer(23)));
  Value f = sub(asFloat(mantissa), constant(1.0));
  Value exponent = arith::SIToFPOp::create(b, type, k);
  Value square = mul(f, f);
  Value y = fma(mul(polynomial(kLog, f), square), f,
                mul(exponent, constant(kLn2Low)));
  y = fma(constant(-0.5), square, y);
  return fma(exponent, constant(kLn2High), add(f, y));
}

Value Expansion::log(Value x) {
  constexpr double kTwo23 = 8388608.0;
  Value subnormal = less(x, std::numeric_limits<float>::min());
  Value scaled = select(subnormal, mul(x, constant(kTwo23)), x);
  Value correction =
      select(subnormal, constant(23 * 0.693147180559945309), constant(0.0));
  Value result = sub(logOfNormal(scaled), correction);
  // 0 gives -inf, a negative number NaN, and infinity and NaN themselves.
  Value zero = arith::CmpFOp::create(b, Predicate::OEQ, x, constant(0.0));
  result = select(zero, constant(-kInf), result);
  result = select(less(x, 0.0), constant(kNaN), result);
  return select(less(x, kInf), result, x);
}

Value Expansion::log1p(Value x) {
  Value u = add(x, constant(1.0));
  // Rounding error of the sum, to first order.
  Value lost = sub(x, sub(u, constant(1.0)));
  Value result = add(logOfNormal(u), div(lost, u));
  Value zero = arith::CmpFOp::create(b, Predicate::OEQ, x, constant(-1.0));
  result = select(zero, constant(-kInf), result);
  result = select(less(x, -1.0), constant(kNaN), result);
  return select(less(x, kInf), result, x);
}

/// Ops of math that are one instruction, or arithmetic on bits, on every
/// target.
bool isCheap(Operation *op) {
  return isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp,
             math::FloorOp, math::FmaOp, math::RoundEvenOp, math::SqrtOp,
             math::TruncOp, math::IsNaNOp, math::IsInfOp, math::IsFiniteOp,
             math::CountTrailingZerosOp, math::CountLeadingZerosOp,
             math::CtPopOp>(op);
}

} // namespace

LogicalResult moec::expandMath(func::FuncOp func, bool onGpu) {
  SmallVector<Operation *> ops;
  func.walk([&](Operation *op) {
    if (isa<arith::DivFOp>(op)
            ? onGpu && (isApproximate(op) || isOne(op->getOperand(0))) &&
                  getElementTypeOrSelf(op->getResult(0)).isF32()
            : isa_and_nonnull<math::MathDialect>(op->getDialect()) &&
                  !isCheap(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    Type type = op->getResult(0).getType();
    ImplicitLocOpBuilder b(op->getLoc(), op);
    Expansion expansion(b, type, onGpu && isApproximate(op));
    Value x = op->getOperand(0);
    Value result;
    if (getElementTypeOrSelf(type).isF32())
      result = llvm::TypeSwitch<Operation *, Value>(op)
                   .Case([&](arith::DivFOp) {
                     return expansion.div(x, op->getOperand(1));
                   })
                   .Case([&](math::ExpOp) { return expansion.exp(x); })
                   .Case([&](math::TanhOp) { return expansion.tanh(x); })
                   .Case([&](math::ErfOp) { return expansion.erf(x); })
                   .Case([&](math::LogOp) { return expansion.log(x); })
                   .Case([&](math::Log1pOp) { return expansion.log1p(x); })
                   .Default(Value());
    if (!result)
      return op->emitOpError(
          "has no form in kernels; of the transcendental functions there are "
          "exp, tanh, erf, log and log1p on f32");
    op->replaceAllUsesWith(ValueRange(result));
    op->erase();
  }
  return success();
}
