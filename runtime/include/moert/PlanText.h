//===- PlanText.h - a plan as JSON ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PLANTEXT_H
#define MOERT_PLANTEXT_H

#include "moert/Plan.h"

namespace moert {

/// Prints the plan as JSON as described at moert_layer_plan() of moert.h,
/// without the arguments of launches.
std::string printPlan(const Plan &plan);

} // namespace moert

#endif // MOERT_PLANTEXT_H
