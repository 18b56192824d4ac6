//===- GatheredResults.cpp - results that other ranks write -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GatheredResults.h"
#include "StepOrder.h"
#include "moert/PeerHeap.h"
#include "moert/Workspace.h"

namespace moert {

std::vector<size_t> findLaunchesBeside(const Plan &plan, const Variant &variant,
                                       size_t step) {
  StepOrder order(plan.numStreams, plan.numEvents);
  for (const Step &each : variant.steps)
    order.append(each);
  std::vector<size_t> beside;
  for (size_t i = 0; i < variant.steps.size(); ++i)
    if (variant.steps[i].kind == Step::Kind::Launch && !order.before(i, step) &&
        !order.before(step, i))
      beside.push_back(i);
  return beside;
}

std::vector<GatheredResult> findResults(const Plan &plan,
                                        const Variant &variant) {
  std::vector<GatheredResult> found;
  for (size_t i = 0; i < variant.steps.size(); ++i) {
    const Step &step = variant.steps[i];
    if (!step.toResults)
      continue;
    bool hasCompany = !findLaunchesBeside(plan, variant, i).empty();
    for (size_t pair = 0; pair < step.numPairs(); ++pair)
      found.push_back({i, pair, step.args[2 * pair + 1].tensor, step.axis,
                       hasCompany && pair < size_t(PeerHeap::kMaxCopied) &&
                           !isMadeByKernel(step, variant, pair)});
  }
  return found;
}

Result<int64_t> countResultBytes(const Plan &plan, const GatheredResult &result,
                                 int64_t tokens) {
  return Expr::roundUp(tensorBytes(plan.tensors[result.tensor]),
                       kWorkspaceAlignment)
      .evaluate(tokens);
}

Result<bool> isCopied(const Plan &plan, const Variant &variant,
                      const GatheredResult &result, int64_t tokens,
                      int64_t leastBytes) {
  if (!result.hasCompany)
    return false;
  const Step &gather = variant.steps[result.step];
  Result<int64_t> sent =
      tensorBytes(plan.tensors[gather.args[2 * result.pair].tensor])
          .evaluate(tokens);
  if (!sent)
    return sent.status();
  return *sent >= leastBytes;
}

} // namespace moert
