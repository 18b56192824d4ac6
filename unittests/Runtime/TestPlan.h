//===- TestPlan.h - a small plan with kernels written by hand ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_TESTPLAN_H
#define MOEC_UNITTESTS_RUNTIME_TESTPLAN_H

#include "moert/Device.h"
#include "moert/Plan.h"

#include <string>
#include <vector>

namespace moert::test {

constexpr int64_t kWidth = 4;

/// Indices into the tensors of makePlan().
enum TensorIndex { X, Scale, Twice, Offset, H, G, Z, S, Y };

/// y[t] = sum over i in {0, 1} of (x[t] * 2 * scale + i + 1)^2, plus offset[0],
/// plus x[t] if the call has more than three tokens. The second variant
/// computes x (tensor s) on a second stream. h and z share a slot.
Plan makePlan();

/// The kernels of makePlan() only.
ModuleImage makeImage();

/// The expected y[t][c].
float expectedY(const std::vector<float> &x, const std::vector<float> &scale,
                int32_t offset, int64_t t, int64_t c, int64_t tokens);

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_TESTPLAN_H
