//===- LayerSpec.cpp - names and defaults of the spec -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Import/LayerSpec.h"

using namespace llvm;

namespace moec {

#define MOEC_NAMES(E, ...)                                                     \
  template <>                                                                  \
  ArrayRef<EnumName<E>> getEnumNames<E>() {                                    \
    static constexpr EnumName<E> names[] = {__VA_ARGS__};                      \
    return names;                                                              \
  }

MOEC_NAMES(DType, {DType::F32, "f32"}, {DType::BF16, "bf16"},
           {DType::F16, "f16"})
MOEC_NAMES(Entry, {Entry::Gate, "gate"}, {Entry::Logits, "logits"},
           {Entry::Ids, "ids"})
MOEC_NAMES(GateUpOrder, {GateUpOrder::GateUp, "gate_up"},
           {GateUpOrder::UpGate, "up_gate"},
           {GateUpOrder::Interleaved, "interleaved"})
MOEC_NAMES(Score, {Score::Identity, "identity"}, {Score::Softmax, "softmax"},
           {Score::Sigmoid, "sigmoid"}, {Score::SqrtSoftplus, "sqrtsoftplus"})
MOEC_NAMES(Select, {Select::TopK, "top_k"}, {Select::PerGroup, "per_group"},
           {Select::Hash, "hash"}, {Select::SparseMixer, "sparsemixer"})
MOEC_NAMES(GroupScore, {GroupScore::Max, "max"},
           {GroupScore::Top2Sum, "top2_sum"})
MOEC_NAMES(RouteWeight, {RouteWeight::Score, "score"},
           {RouteWeight::Sigmoid, "sigmoid"}, {RouteWeight::Softmax, "softmax"})
MOEC_NAMES(NonFinite, {NonFinite::Zero, "zero"}, {NonFinite::NegInf, "neg_inf"},
           {NonFinite::Lowest, "lowest"})
MOEC_NAMES(Activation, {Activation::Silu, "silu"}, {Activation::Gelu, "gelu"},
           {Activation::GeluTanh, "gelu_tanh"}, {Activation::Relu2, "relu2"},
           {Activation::SwigluOai, "swigluoai"},
           {Activation::SwigluOaiUninterleave, "swigluoai_uninterleave"},
           {Activation::SwigluStep, "swiglustep"}, {Activation::Situ, "situ"},
           {Activation::SiluNoMul, "silu_no_mul"},
           {Activation::GeluNoMul, "gelu_no_mul"},
           {Activation::GeluTanhNoMul, "gelu_tanh_no_mul"},
           {Activation::Relu2NoMul, "relu2_no_mul"})
MOEC_NAMES(SharedGate, {SharedGate::None, "none"},
           {SharedGate::Sigmoid, "sigmoid"})
MOEC_NAMES(WeightQuantization,
           {WeightQuantization::Fp8Block128, "fp8_block128"},
           {WeightQuantization::MxFp4, "mxfp4"})
#undef MOEC_NAMES

bool isGated(Activation kind) {
  switch (kind) {
  case Activation::SiluNoMul:
  case Activation::GeluNoMul:
  case Activation::GeluTanhNoMul:
  case Activation::Relu2NoMul:
    return false;
  default:
    return true;
  }
}

bool LayerSpec::isGated() const { return moec::isGated(activation.kind); }

int64_t LayerSpec::getNumLocalExperts() const {
  if (placement && placement->localExperts)
    return placement->localExperts->size();
  return numExperts;
}

ActivationParameters getParameters(Activation kind) {
  ActivationParameters parameters;
  switch (kind) {
  case Activation::Silu:
  case Activation::SiluNoMul:
    parameters.limit = {true, std::nullopt};
    break;
  case Activation::SwigluOai:
    parameters.alpha = {true, 1.702};
    parameters.limit = {true, 7.0};
    break;
  case Activation::SwigluOaiUninterleave:
    parameters.alpha = {true, 1.0};
    parameters.beta = {true, 0.0};
    parameters.limit = {true, std::nullopt};
    break;
  case Activation::SwigluStep:
    parameters.limit = {true, 7.0};
    break;
  case Activation::Situ:
    parameters.beta = {true, 4.0};
    parameters.linearBeta = {true, 25.0};
    break;
  default:
    break;
  }
  return parameters;
}

ActivationSpec getDefaultActivation(Activation kind) {
  ActivationParameters parameters = getParameters(kind);
  ActivationSpec spec;
  spec.kind = kind;
  spec.limit = parameters.limit.fallback;
  spec.alpha = parameters.alpha.fallback;
  spec.beta = parameters.beta.fallback;
  spec.linearBeta = parameters.linearBeta.fallback;
  return spec;
}

NonFinite getDefaultNonFinite(const RoutingSpec &routing) {
  if (routing.numGroups > 1 || routing.weight == RouteWeight::Softmax ||
      routing.select == Select::SparseMixer)
    return NonFinite::NegInf;
  if (routing.score == Score::SqrtSoftplus)
    return NonFinite::Lowest;
  return NonFinite::Zero;
}

} // namespace moec
