//===- CopiedResults.h - what other ranks copy rows to ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PLAN_COPIEDRESULTS_H
#define MOERT_SRC_PLAN_COPIEDRESULTS_H

#include "moert/Plan.h"

#include <cstdint>
#include <vector>

namespace moert {

/// What an all-gather of a variant makes of one of its pairs, where it may lie
/// in Communicator::results().
struct CopiedResult {
  size_t step = 0, pair = 0;
  /// A collective of the same axis behind all that read the tensor: a rank that
  /// is done with it knows that all ranks are done with their reading.
  size_t release = 0;
  int64_t tensor = -1;
  MeshAxis axis = MeshAxis::Data;
  /// In results(), and what it takes there with the most tokens.
  int64_t offset = 0, bytes = 0;
};

/// Launches that nothing orders before or behind a step.
std::vector<size_t> findLaunchesBeside(const Plan &plan, const Variant &variant,
                                       size_t step);

/// Of pairs of which a rank sends `leastBytes` or more with the variant's most
/// tokens, beside launches that gain by the multiprocessors a kernel would
/// take. Others may be written before this rank's step begins, so that nothing
/// else uses the tensor but steps between the gather and `release`.
Result<std::vector<CopiedResult>>
findCopiedResults(const Plan &plan, const Variant &variant, int64_t leastBytes);

/// Whether a rank sends as much with so many tokens, and there is a `release`.
Result<bool> isLargeEnough(const Plan &plan, const Variant &variant,
                           const CopiedResult &result, int64_t tokens,
                           int64_t leastBytes);

} // namespace moert

#endif // MOERT_SRC_PLAN_COPIEDRESULTS_H
