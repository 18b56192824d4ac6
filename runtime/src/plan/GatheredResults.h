//===- GatheredResults.h - what other ranks write to ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PLAN_GATHEREDRESULTS_H
#define MOERT_SRC_PLAN_GATHEREDRESULTS_H

#include "moert/Plan.h"

#include <cstdint>
#include <vector>

namespace moert {

/// What an all-gather of a variant makes of one of its pairs, where it lies in
/// Communicator::results() (Step::toResults).
struct GatheredResult {
  size_t step = 0, pair = 0;
  int64_t tensor = -1;
  MeshAxis axis = MeshAxis::Data;
  /// Whether launches are beside it that gain by the multiprocessors which a
  /// kernel would take, and what it is gathered of is in memory.
  bool hasCompany = false;
};

/// Launches that nothing orders before or behind a step.
std::vector<size_t> findLaunchesBeside(const Plan &plan, const Variant &variant,
                                       size_t step);

/// Of a variant, in the order in which they lie behind each other.
std::vector<GatheredResult> findResults(const Plan &plan,
                                        const Variant &variant);

/// What a result takes with so many tokens, up to where the next one begins.
Result<int64_t> countResultBytes(const Plan &plan, const GatheredResult &result,
                                 int64_t tokens);

/// Whether copy engines move it: a launch is beside it, and a rank sends
/// `leastBytes` or more.
Result<bool> isCopied(const Plan &plan, const Variant &variant,
                      const GatheredResult &result, int64_t tokens,
                      int64_t leastBytes);

} // namespace moert

#endif // MOERT_SRC_PLAN_GATHEREDRESULTS_H
