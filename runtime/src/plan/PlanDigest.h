//===- PlanDigest.h - digests of plans and layers ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PLAN_PLANDIGEST_H
#define MOERT_SRC_PLAN_PLANDIGEST_H

#include "moert/Device.h"
#include "moert/Plan.h"

#include <string>

namespace moert {

/// 64 hexadecimal digits over what a plan launches and moves, in order, and its
/// mesh.
std::string digestPlan(const Plan &plan);

/// Also covers the code, if some of it prepares weights (equal layers must
/// prepare them alike), or if no description says what it computes.
std::string digestLayer(const Plan &plan, const ModuleImage &image,
                        bool isDescribed);

} // namespace moert

#endif // MOERT_SRC_PLAN_PLANDIGEST_H
