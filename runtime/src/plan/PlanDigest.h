//===- PlanDigest.h - whether two plans are one -----------------*- C++ -*-===//
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

/// 64 hexadecimal digits, of what a plan launches and moves in which order, and
/// of its mesh.
std::string digestPlan(const Plan &plan);

/// The same, and of the code, where some of it prepares weights (layers that
/// agree prepare them alike) and where no description says what it computes.
std::string digestLayer(const Plan &plan, const ModuleImage &image,
                        bool isDescribed);

} // namespace moert

#endif // MOERT_SRC_PLAN_PLANDIGEST_H
