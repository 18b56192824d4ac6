//===- DeviceKernels.h - handwritten kernels for tests ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Handwritten kernels for tests of the runtime on a GPU without the compiler.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_DEVICE_DEVICEKERNELS_H
#define MOEC_VERIFY_GPUTEST_DEVICE_DEVICEKERNELS_H

#include "moert/Executor.h"

namespace moec::gputest {

/// `step`: out[i] = in[i] * 2 + 1 for i < 4 * tokens. `staged`: the same,
/// through 100 KB of dynamic shared memory.
extern const char *const kStepPtx;
/// `copied`: the same, with 16 rows of `in` copied by a tensor map; sm_90 and
/// later.
extern const char *const kMapPtx;

/// Rows of x and y.
constexpr int64_t kPlanRows = 1000;
/// Launches of a run of makeStepPlan().
constexpr int kPlanLaunches = 6;

/// The kernels of kStepPtx.
moert::ModuleImage makeStepImage();
/// y is x after six steps; the fourth is staged, the third and fifth are on a
/// second stream.
moert::Plan makeStepPlan();
/// The expected y for x.
float stepAll(float x);

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_DEVICE_DEVICEKERNELS_H
