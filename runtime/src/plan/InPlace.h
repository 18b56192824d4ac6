//===- InPlace.h - weights that are prepared in place -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PLAN_INPLACE_H
#define MOERT_SRC_PLAN_INPLACE_H

#include "moert/Plan.h"

namespace moert {

/// Checks prepared tensors that are made in the memory of a weight: they fit,
/// and no step reads the weight once it may be overwritten. Tensors and prepare
/// steps of the plan must be verified already.
Status verifyInPlace(const Plan &plan);

} // namespace moert

#endif // MOERT_SRC_PLAN_INPLACE_H
