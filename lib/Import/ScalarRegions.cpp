//===- ScalarRegions.cpp - formulas as regions ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Formulas 2 and 5 and the activations of docs/use/layers.md, one function
// each, as arith and math ops on f32.
//
//===----------------------------------------------------------------------===//

#include "ScalarRegions.h"

#include "moec/Dialect/Moe/Moe.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

#include <cmath>

using namespace mlir;

namespace moec {

namespace {

/// Builds f32 ops at the end of a block, so that code here reads like the
/// formulas in the documentation. At most one argument of a call may build ops:
/// C++ does not fix the evaluation order of arguments, and the op order must
/// not depend on the compiler.
class Scalars {
public:
  explicit Scalars(Block &block, StringRef prefix = "")
      : builder(OpBuilder::atBlockEnd(&block)), loc(builder.getUnknownLoc()),
        prefix(prefix) {}

  Value constant(double value) {
    return arith::ConstantOp::create(builder, loc,
                                     builder.getF32FloatAttr(value));
  }
  Value param(StringRef name) {
    return moe::ParamOp::create(builder, loc, builder.getF32Type(),
                                builder.getStringAttr(prefix + name));
  }
  Value add(Value a, Value b) { return binary<arith::AddFOp>(a, b); }
  Value sub(Value a, Value b) { return binary<arith::SubFOp>(a, b); }
  Value mul(Value a, Value b) { return binary<arith::MulFOp>(a, b); }
  Value div(Value a, Value b) { return binary<arith::DivFOp>(a, b); }
  /// Minimum and maximum; NaN if either operand is NaN.
  Value min(Value a, Value b) { return binary<arith::MinimumFOp>(a, b); }
  Value max(Value a, Value b) { return binary<arith::MaximumFOp>(a, b); }
  Value neg(Value a) { return unary<arith::NegFOp>(a); }
  Value exp(Value a) { return unary<math::ExpOp>(a); }
  Value log1p(Value a) { return unary<math::Log1pOp>(a); }
  Value sqrt(Value a) { return unary<math::SqrtOp>(a); }
  Value erf(Value a) { return unary<math::ErfOp>(a); }
  Value tanh(Value a) { return unary<math::TanhOp>(a); }
  Value isGreater(Value a, Value b) {
    return arith::CmpFOp::create(builder, loc, arith::CmpFPredicate::OGT, a, b);
  }
  Value select(Value condition, Value yes, Value no) {
    return arith::SelectOp::create(builder, loc, condition, yes, no);
  }

  /// x clamped to [-limit, limit].
  Value clamp(Value x, Value limit) {
    Value upper = min(x, limit);
    return max(upper, neg(limit));
  }
  /// 1 / (1 + exp(-x))
  Value sigmoid(Value x) {
    Value one = constant(1.0);
    return div(one, add(one, exp(neg(x))));
  }
  /// Sigmoid with subnormal results. exp(-x) overflows far below 0, where the
  /// sigmoid rounds to exp(x).
  Value sigmoidWithTail(Value x) {
    Value isFar = isGreater(constant(-64.0), x);
    Value power = exp(select(isFar, x, neg(x)));
    Value one = constant(1.0);
    return select(isFar, power, div(one, add(one, power)));
  }

  void yield(Value value) { moe::YieldOp::create(builder, loc, value); }

private:
  template <typename Op>
  Value binary(Value a, Value b) {
    return Op::create(builder, loc, a, b);
  }
  template <typename Op>
  Value unary(Value a) {
    return Op::create(builder, loc, a);
  }

  OpBuilder builder;
  Location loc;
  StringRef prefix;
};

Block &addBlock(Region &region, unsigned numArguments) {
  Block &block = region.emplaceBlock();
  Type f32 = Float32Type::get(region.getContext());
  for (unsigned i = 0; i < numArguments; ++i)
    block.addArgument(f32, UnknownLoc::get(region.getContext()));
  return block;
}

/// sqrt(softplus(x)), where softplus(x) is x for x > 20, else log1p(exp(x)).
Value buildSqrtSoftplus(Scalars &s, Value x) {
  Value softplus = s.log1p(s.exp(x));
  return s.sqrt(s.select(s.isGreater(x, s.constant(20.0)), x, softplus));
}

//===----------------------------------------------------------------------===//
// Activations of a gate value and, if the kind has one, of an up value
//===----------------------------------------------------------------------===//

/// Multiplies by the up value if there is one.
Value mulUp(Scalars &s, Value activated, Value up) {
  return up ? s.mul(activated, up) : activated;
}

Value buildSilu(Scalars &s, const ActivationSpec &spec, Value gate, Value up) {
  if (spec.limit) {
    Value limit = s.param("limit");
    gate = s.min(gate, limit);
    if (up)
      up = s.clamp(up, limit);
  }
  return mulUp(s, s.mul(gate, s.sigmoid(gate)), up);
}

Value buildGelu(Scalars &s, const ActivationSpec &spec, Value gate, Value up) {
  if (spec.beta.value_or(0.0) != 0)
    up = s.add(up, s.param("beta"));
  Value erf = s.erf(s.mul(gate, s.constant(std::sqrt(0.5))));
  Value half = s.mul(s.constant(0.5), gate);
  return mulUp(s, s.mul(half, s.add(s.constant(1.0), erf)), up);
}

Value buildGeluTanh(Scalars &s, const ActivationSpec &, Value gate, Value up) {
  constexpr double twoOverPi = 0.63661977236758134308;
  Value cube = s.mul(s.mul(gate, gate), gate);
  Value inner = s.add(gate, s.mul(s.constant(0.044715), cube));
  Value tanh = s.tanh(s.mul(s.constant(std::sqrt(twoOverPi)), inner));
  Value half = s.mul(s.constant(0.5), gate);
  return mulUp(s, s.mul(half, s.add(s.constant(1.0), tanh)), up);
}

Value buildRelu(Scalars &s, const ActivationSpec &, Value gate, Value up) {
  return mulUp(s, s.max(gate, s.constant(0.0)), up);
}

Value buildRelu2(Scalars &s, const ActivationSpec &, Value gate, Value up) {
  Value relu = s.max(gate, s.constant(0.0));
  return mulUp(s, s.mul(relu, relu), up);
}

Value buildSwigluOai(Scalars &s, const ActivationSpec &, Value gate, Value up) {
  Value limit = s.param("limit");
  gate = s.min(gate, limit);
  up = s.clamp(up, limit);
  Value activated = s.mul(gate, s.sigmoid(s.mul(s.param("alpha"), gate)));
  return s.mul(s.add(up, s.constant(1.0)), activated);
}

Value buildSwigluOaiUninterleave(Scalars &s, const ActivationSpec &spec,
                                 Value gate, Value up) {
  if (spec.limit) {
    Value limit = s.param("limit");
    gate = s.min(gate, limit);
    up = s.clamp(up, limit);
  }
  Value activated = s.mul(gate, s.sigmoid(s.mul(s.param("alpha"), gate)));
  return s.mul(activated, s.add(up, s.param("beta")));
}

Value buildSwigluStep(Scalars &s, const ActivationSpec &, Value gate,
                      Value up) {
  Value limit = s.param("limit");
  Value silu = s.min(s.mul(gate, s.sigmoid(gate)), limit);
  return s.mul(silu, s.clamp(up, limit));
}

Value buildSitu(Scalars &s, const ActivationSpec &spec, Value gate, Value up) {
  Value beta = s.param("beta");
  Value tanh = s.mul(beta, s.tanh(s.div(gate, beta)));
  Value activated = s.mul(tanh, s.sigmoid(gate));
  if (*spec.linearBeta > 0) {
    Value linearBeta = s.param("linear_beta");
    up = s.mul(linearBeta, s.tanh(s.div(up, linearBeta)));
  }
  return s.mul(activated, up);
}

using ActivationBuilder = Value (*)(Scalars &, const ActivationSpec &,
                                    Value gate, Value up);

ActivationBuilder getBuilder(Activation kind) {
  switch (kind) {
  case Activation::Silu:
  case Activation::SiluNoMul:
    return buildSilu;
  case Activation::Gelu:
  case Activation::GeluNoMul:
    return buildGelu;
  case Activation::GeluTanh:
  case Activation::GeluTanhNoMul:
    return buildGeluTanh;
  case Activation::Relu:
  case Activation::ReluNoMul:
    return buildRelu;
  case Activation::Relu2:
  case Activation::Relu2NoMul:
    return buildRelu2;
  case Activation::SwigluOai:
    return buildSwigluOai;
  case Activation::SwigluOaiUninterleave:
    return buildSwigluOaiUninterleave;
  case Activation::SwigluStep:
    return buildSwigluStep;
  case Activation::Situ:
    return buildSitu;
  }
  llvm_unreachable("every activation is listed");
}

} // namespace

void buildScoreRegion(Region &region, const RoutingSpec &routing) {
  // Softmax needs all experts and is an attribute of the op.
  Score score = routing.score;
  bool isElementwise = score == Score::Sigmoid || score == Score::SqrtSoftplus;
  if (!isElementwise && !routing.logitSoftcap && routing.logitScale == 1)
    return;
  Block &block = addBlock(region, 1);
  Scalars s(block);
  Value logit = block.getArgument(0);
  if (routing.logitScale != 1)
    logit = s.mul(s.constant(routing.logitScale), logit);
  if (routing.logitSoftcap) {
    Value cap = s.constant(*routing.logitSoftcap);
    logit = s.mul(cap, s.tanh(s.div(logit, cap)));
  }
  // Weights are shares of the sum of scores, even if all scores of a row are
  // tiny.
  if (score == Score::Sigmoid)
    logit = s.sigmoidWithTail(logit);
  else if (score == Score::SqrtSoftplus)
    logit = buildSqrtSoftplus(s, logit);
  s.yield(logit);
}

void buildWeightRegion(Region &region, RouteWeight weight) {
  if (weight != RouteWeight::Sigmoid)
    return;
  Block &block = addBlock(region, 1);
  Scalars s(block);
  s.yield(s.sigmoidWithTail(block.getArgument(0)));
}

void buildActivationRegion(Region &region, const ActivationSpec &activation,
                           StringRef prefix) {
  bool gated = isGated(activation.kind);
  Block &block = addBlock(region, gated ? 2 : 1);
  Scalars s(block, prefix);
  Value up = gated ? Value(block.getArgument(1)) : Value();
  s.yield(getBuilder(activation.kind)(s, activation, block.getArgument(0), up));
}

/// Adds the parameters of one activation.
static void addParams(const ActivationSpec &activation, StringRef prefix,
                      Builder &builder, NamedAttrList &params) {
  auto add = [&](StringRef name, std::optional<double> value) {
    if (value)
      params.append((prefix + name).str(), builder.getF32FloatAttr(*value));
  };
  add("limit", activation.limit);
  add("alpha", activation.alpha);
  // The region of a gelu without an offset does not read it.
  if (activation.kind != Activation::Gelu || *activation.beta != 0)
    add("beta", activation.beta);
  // A beta <= 0 means no tanh, and the region does not read it.
  if (activation.linearBeta && *activation.linearBeta > 0)
    add("linear_beta", activation.linearBeta);
}

DictionaryAttr getActivationParams(MLIRContext *context,
                                   const LayerSpec &spec) {
  Builder builder(context);
  NamedAttrList params;
  addParams(spec.activation, "", builder, params);
  if (spec.sharedExperts && spec.sharedExperts->activation)
    addParams(*spec.sharedExperts->activation, kSharedPrefix, builder, params);
  return params.empty() ? DictionaryAttr() : params.getDictionary(context);
}

} // namespace moec
