//===- InPlace.cpp - weights that are prepared in place ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "InPlace.h"
#include "../support/Check.h"
#include "PlanChecks.h"
#include "moert/Workspace.h"

#include <algorithm>

namespace moert {

static Status wrong(size_t tensor, const std::string &found,
                    const std::string &accepted) {
  return wrong(at("tensors", tensor) + ".in_place_of", found, accepted);
}

/// Success if no step reads the weight from the first step on that may
/// overwrite it. The overwriting step must not read the weight either, since
/// kernels rely on arguments that do not overlap.
static Status verifyReaders(const Plan &plan, int64_t prepared,
                            int64_t weight) {
  auto fail = [&](const std::string &where) {
    return invalidArgument(
        "plan: " + where + " has '" + plan.tensors[weight].name +
        "' as an argument, which '" + plan.tensors[prepared].name +
        "' overwrites; let it read '" + plan.tensors[prepared].name + "'");
  };
  bool isOverwritten = false;
  for (size_t i = 0; i < plan.prepare.size(); ++i) {
    isOverwritten |= hasArgument(plan.prepare[i], prepared);
    if (isOverwritten && hasArgument(plan.prepare[i], weight))
      return fail(at("prepare", i));
  }
  for (size_t i = 0; i < plan.variants.size(); ++i)
    for (size_t j = 0; j < plan.variants[i].steps.size(); ++j)
      if (hasArgument(plan.variants[i].steps[j], weight))
        return fail(at(at("variants", i) + ".steps", j));
  return Status::ok();
}

Status verifyInPlace(const Plan &plan) {
  std::vector<bool> isTaken(plan.tensors.size());
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorDecl &tensor = plan.tensors[i];
    int64_t weight = tensor.inPlaceOf;
    if (weight == -1)
      continue;
    if (tensor.role != TensorRole::Prepared)
      return wrong(i, std::to_string(weight),
                   std::string("-1 (the role is ") +
                       tensorRoleName(tensor.role) + ")");
    if (weight < 0 || static_cast<uint64_t>(weight) >= plan.tensors.size() ||
        plan.tensors[weight].role != TensorRole::Weight)
      return wrong(i, std::to_string(weight), "the index of a weight, or -1,");
    const TensorDecl &from = plan.tensors[weight];
    Result<int64_t> bytes = tensorBytes(tensor).evaluate(0);
    Result<int64_t> limit = tensorBytes(from).evaluate(0);
    MOERT_CHECK(bytes.status());
    MOERT_CHECK(limit.status());
    if (*bytes != *limit || from.strided ||
        std::max(from.alignment, dtypeAlignment(from.dtype)) <
            std::max(tensor.alignment, dtypeAlignment(tensor.dtype)))
      return wrong(i,
                   std::to_string(weight) + ", '" + from.name + "' of " +
                       std::to_string(*limit) + " bytes on multiples of " +
                       std::to_string(from.alignment) +
                       (from.strided ? ", with gaps" : ""),
                   "a weight without gaps of " + std::to_string(*bytes) +
                       " bytes on multiples of " +
                       std::to_string(tensor.alignment));
    if (isTaken[weight])
      return wrong(i, std::to_string(weight) + ", which another one has",
                   "a weight of its own");
    isTaken[weight] = true;
    MOERT_CHECK(verifyReaders(plan, static_cast<int64_t>(i), weight));
  }
  return Status::ok();
}

} // namespace moert
