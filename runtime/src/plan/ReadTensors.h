//===- ReadTensors.h - what the runs of a plan read -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PLAN_READTENSORS_H
#define MOERT_SRC_PLAN_READTENSORS_H

#include "moert/Plan.h"

#include <vector>

namespace moert {

/// Per tensor of the plan: whether steps of runs take it as an argument.
std::vector<bool> findReadByRuns(const Plan &plan);

/// Per tensor of the plan: whether steps of runs read its memory, directly or
/// through a prepared tensor that was made there.
std::vector<bool> findMemoryReadByRuns(const Plan &plan);

/// Per tensor of the plan: whether prepare steps read or overwrite it.
std::vector<bool> findReadByPrepare(const Plan &plan);

} // namespace moert

#endif // MOERT_SRC_PLAN_READTENSORS_H
