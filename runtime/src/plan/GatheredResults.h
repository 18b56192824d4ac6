//===- GatheredResults.h - results that other ranks write -------*- C++ -*-===//
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

/// The output of one pair of an all-gather, when it is in
/// Communicator::results() (Step::toResults).
struct GatheredResult {
  size_t step = 0, pair = 0;
  int64_t tensor = -1;
  MeshAxis axis = MeshAxis::Data;
  /// Whether copy engines may move the result with a gain: launches run
  /// concurrently that can use the multiprocessors saved, and the input is in
  /// memory, not computed by the kernel.
  bool hasCompany = false;
};

/// Launches that are not ordered relative to a step.
std::vector<size_t> findLaunchesBeside(const Plan &plan, const Variant &variant,
                                       size_t step);

/// The results of a variant, in memory order.
std::vector<GatheredResult> findResults(const Plan &plan,
                                        const Variant &variant);

/// Bytes of a result at a token count, up to the start of the next one.
Result<int64_t> countResultBytes(const Plan &plan, const GatheredResult &result,
                                 int64_t tokens);

/// Whether copy engines move the result: a launch runs concurrently, and a rank
/// sends at least `leastBytes`.
Result<bool> isCopied(const Plan &plan, const Variant &variant,
                      const GatheredResult &result, int64_t tokens,
                      int64_t leastBytes);

} // namespace moert

#endif // MOERT_SRC_PLAN_GATHEREDRESULTS_H
