//===- Activation.cpp - activations in float64 ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table "Activations" of docs/use/layers.md.
//
//===----------------------------------------------------------------------===//

#include "Activation.h"

#include <cmath>

using namespace moec;
using namespace moec::reference;

double moec::reference::sigmoid(double x) {
  double e = std::exp(-std::fabs(x));
  return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

namespace {

double silu(double x) { return x * sigmoid(x); }

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0))); }

double geluTanh(double x) {
  return 0.5 * x *
         (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

double relu(double x) { return x < 0 ? 0 : x; } // NaN stays.

// Both keep NaN, unlike std::min and std::fmin.
double atMost(double x, double limit) { return x > limit ? limit : x; }
double clamp(double x, double limit) {
  return x < -limit ? -limit : atMost(x, limit);
}

} // namespace

double moec::reference::activate(const ActivationSpec &spec, double gate,
                                 double up) {
  double g = gate, u = up;
  bool clampsBoth = spec.kind == Activation::Silu ||
                    spec.kind == Activation::SwigluOai ||
                    spec.kind == Activation::SwigluOaiUninterleave;
  if (clampsBoth && spec.limit) {
    g = atMost(g, *spec.limit);
    u = clamp(u, *spec.limit);
  }
  switch (spec.kind) {
  case Activation::Silu:
    return silu(g) * u;
  case Activation::Gelu:
    return gelu(g) * (u + *spec.beta);
  case Activation::GeluTanh:
    return geluTanh(g) * u;
  case Activation::Relu:
    return relu(g) * u;
  case Activation::Relu2:
    return relu(g) * relu(g) * u;
  case Activation::SwigluOai:
    return (u + 1) * g * sigmoid(*spec.alpha * g);
  case Activation::SwigluOaiUninterleave:
    return g * sigmoid(*spec.alpha * g) * (u + *spec.beta);
  case Activation::SwigluStep:
    return atMost(silu(g), *spec.limit) * clamp(u, *spec.limit);
  case Activation::Situ: {
    double linear = *spec.linearBeta;
    double scaled = linear > 0 ? linear * std::tanh(u / linear) : u;
    return *spec.beta * std::tanh(g / *spec.beta) * sigmoid(g) * scaled;
  }
  case Activation::SiluNoMul:
    return silu(g);
  case Activation::GeluNoMul:
    return gelu(g);
  case Activation::GeluTanhNoMul:
    return geluTanh(g);
  case Activation::ReluNoMul:
    return relu(g);
  case Activation::Relu2NoMul:
    return relu(g) * relu(g);
  }
  llvm_unreachable("every kind is listed");
}
