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

Flag isNaN(F32 x) { return x.compare(arith::CmpFPredicate::UNO, x); }

F32 withSign(F32 x, F32 sign) {
  return {x.builder(), math::CopySignOp::create(x.builder(), x, sign)};
}

F32 polynomial(ArrayRef<double> coefficients, F32 x) {
  F32 result = x.like(coefficients.front());
  for (double c : coefficients.drop_front())
    result = fma(result, x, x.like(c));
  return result;
}

/// 2^n for -126 <= n <= 127.
F32 powerOfTwo(I32 n) { return F32::fromBits((n + 127) << 23); }

/// Functions of f32, or elementwise of a vector of f32.
class Expansion {
public:
  /// `approximate`: use a GPU's approximate instructions.
  Expansion(ImplicitLocOpBuilder &b, bool approximate)
      : b(b), approximate(approximate) {}

  F32 exp(F32 x);
  F32 tanh(F32 x);
  F32 erf(F32 x);
  F32 log(F32 x);
  F32 log1p(F32 x);
  F32 div(F32 x, F32 y);

private:
  F32 logOfNormal(F32 x);
  F32 forEachElement(F32 x, function_ref<Value(Value)> make);
  F32 approximatePowerOfTwo(F32 x);
  F32 approximateReciprocal(F32 x);
  F32 reciprocal(F32 x);

  static constexpr double kInf = std::numeric_limits<double>::infinity();
  static constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

  ImplicitLocOpBuilder &b;
  bool approximate;
};

F32 Expansion::forEachElement(F32 x, function_ref<Value(Value)> make) {
  if (!isa<VectorType>(x.getType()))
    return {b, make(x)};
  auto elements = vector::ToElementsOp::create(b, x);
  return {b, vector::FromElementsOp::create(
                 b, x.getType(),
                 llvm::map_to_vector(elements.getElements(), make))};
}

F32 Expansion::approximatePowerOfTwo(F32 x) {
  return forEachElement(x, [&](Value element) -> Value {
    return LLVM::CallIntrinsicOp::create(
               b, element.getType(),
               b.getStringAttr("llvm.nvvm.ex2.approx.ftz.f32"),
               ValueRange(element))
        .getResults();
  });
}

F32 Expansion::approximateReciprocal(F32 x) {
  llvm::APFloat divisor(0.0f);
  auto broadcast = x.getDefiningOp<vector::BroadcastOp>();
  if (matchPattern(broadcast ? broadcast.getSource() : x,
                   m_ConstantFloat(&divisor)))
    return x.like(1.0 / double(divisor.convertToFloat()));
  return forEachElement(x, [&](Value element) -> Value {
    return NVVM::RcpApproxFtzF32Op::create(b, element.getType(), element);
  });
}

/// Where the number or what is to become of it is below the normal range, both
/// are in it after scaling. Infinities and zeros give each other at once: there
/// the correction is NaN.
F32 Expansion::reciprocal(F32 x) {
  constexpr double large = 0x1p+64, small = 0x1p-64;
  F32 magnitude = x.abs();
  F32 scale = select(magnitude < large, x.like(1.0), small);
  scale = select(magnitude < small, x.like(large), scale);
  F32 scaled = x * scale;
  F32 near = approximateReciprocal(scaled);
  F32 error = fma(-scaled, near, x.like(1.0));
  return select(isNaN(error), near, fma(near, error, near)) * scale;
}

F32 Expansion::div(F32 x, F32 y) {
  if (approximate)
    return x * approximateReciprocal(y);
  if (isOne(x))
    return reciprocal(y);
  return x / y;
}

F32 Expansion::exp(F32 x) {
  if (approximate)
    return approximatePowerOfTwo(x * kLog2E);
  // Beyond these bounds the result is infinite or 0. NaN takes the first bound,
  // so that the conversion to an integer is defined, and returns at the end.
  F32 clamped = select(x < 89.0, x, 89.0);
  clamped = select(clamped < -104.0, x.like(-104.0), clamped);
  F32 n(b, math::RoundEvenOp::create(b, clamped * kLog2E));
  F32 minusN = -n;
  F32 r = fma(minusN, x.like(kLn2High), clamped);
  r = fma(minusN, x.like(kLn2Low), r);
  F32 p = fma(polynomial(kExp, r), r * r, r) + 1.0;
  // 2^n in two factors, for n from -150 to 128.
  I32 whole = n.toI32();
  I32 half = whole.shiftRightSigned(1);
  I32 rest = whole - half;
  F32 result = p * powerOfTwo(half) * powerOfTwo(rest);
  return select(isNaN(x), x, result);
}

F32 Expansion::tanh(F32 x) {
  F32 magnitude = x.abs();
  F32 square = x * x;
  F32 small = fma(polynomial(kTanh, square) * square, magnitude, magnitude);
  F32 e = exp(magnitude + magnitude);
  F32 large = 1.0 - div(x.like(2.0), e + 1.0);
  return withSign(select(magnitude < 0.625, small, large), x);
}

F32 Expansion::erf(F32 x) {
  F32 magnitude = x.abs();
  F32 square = x * x;
  F32 small = fma(polynomial(kErfSmall, square), magnitude, magnitude);
  // From 3.93 on the result rounds to 1; NaN stays NaN.
  F32 bounded = select(magnitude > 3.95, x.like(3.95), magnitude);
  F32 large = 1.0 - exp(polynomial(kErfLarge, bounded));
  return withSign(select(magnitude < 0.93, small, large), x);
}

/// For positive normal numbers.
F32 Expansion::logOfNormal(F32 x) {
  I32 bits = x.bits();
  // k is such that x / 2^k lies between sqrt(1/2) and sqrt(2).
  I32 k = (bits - 0x3f3504f3).shiftRightSigned(23);
  F32 f = F32::fromBits(bits - (k << 23)) - 1.0;
  F32 exponent = k.toF32();
  F32 square = f * f;
  F32 y = fma(polynomial(kLog, f) * square, f, exponent * kLn2Low);
  y = fma(x.like(-0.5), square, y);
  return fma(exponent, x.like(kLn2High), f + y);
}

F32 Expansion::log(F32 x) {
  constexpr double kTwo23 = 8388608.0;
  Flag isSubnormal = x < std::numeric_limits<float>::min();
  F32 scaled = select(isSubnormal, x * kTwo23, x);
  F32 correction = select(isSubnormal, x.like(23 * 0.693147180559945309), 0.0);
  F32 result = logOfNormal(scaled) - correction;
  // 0 gives -inf, a negative number NaN, and infinity and NaN themselves.
  result = select(x == 0.0, x.like(-kInf), result);
  result = select(x < 0.0, x.like(kNaN), result);
  return select(x < kInf, result, x);
}

F32 Expansion::log1p(F32 x) {
  F32 u = x + 1.0;
  // Rounding error of the sum, to first order.
  F32 lost = x - (u - 1.0);
  F32 result = logOfNormal(u) + div(lost, u);
  result = select(x == -1.0, x.like(-kInf), result);
  result = select(x < -1.0, x.like(kNaN), result);
  return select(x < kInf, result, x);
}

/// Ops of math that are one instruction, or arithmetic on bits, on every
/// target.
bool isCheap(Operation *op) {
  return isa<math::AbsFOp, math::AbsIOp, math::CeilOp, math::CopySignOp,
             math::FloorOp, math::FmaOp, math::RoundEvenOp, math::SqrtOp,
             math::TruncOp, math::IsNaNOp, math::IsFiniteOp,
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
    Type type = op->getOperand(0).getType();
    ImplicitLocOpBuilder b(op->getLoc(), op);
    Expansion expansion(b, onGpu && isApproximate(op));
    F32 x(b, op->getOperand(0));
    Value result;
    if (getElementTypeOrSelf(type).isF32())
      result = llvm::TypeSwitch<Operation *, Value>(op)
                   .Case([&](arith::DivFOp) {
                     return expansion.div(x, {b, op->getOperand(1)});
                   })
                   .Case([&](math::ExpOp) { return expansion.exp(x); })
                   .Case([&](math::TanhOp) { return expansion.tanh(x); })
                   .Case([&](math::ErfOp) { return expansion.erf(x); })
                   .Case([&](math::LogOp) { return expansion.log(x); })
                   .Case([&](math::Log1pOp) { return expansion.log1p(x); })
                   .Case([&](math::IsInfOp) -> Value {
                     return x.abs() == std::numeric_limits<double>::infinity();
                   })
                   .Default(Value());
    if (!result)
      return op->emitOpError(
          "cannot be lowered in kernels; the supported transcendental "
          "functions are exp, tanh, erf, log and log1p on f32");
    op->replaceAllUsesWith(ValueRange(result));
    op->erase();
  }
  return success();
}
