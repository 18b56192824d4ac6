//===- Activation.h - activations in float64 --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_REFERENCE_ACTIVATION_H
#define MOEC_VERIFY_REFERENCE_ACTIVATION_H

#include "moec/Import/LayerSpec.h"

namespace moec::reference {

/// 1 / (1 + exp(-x)) without overflow on either side.
double sigmoid(double x);

/// The activation of a gate value and, for kinds with two arguments, an up
/// value.
double activate(const ActivationSpec &spec, double gate, double up);

} // namespace moec::reference

#endif // MOEC_VERIFY_REFERENCE_ACTIVATION_H
