//===- CopiedResults.cpp - what other ranks copy rows to --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CopiedResults.h"
#include "StepOrder.h"
#include "moert/PeerHeap.h"
#include "moert/Workspace.h"

#include <algorithm>
#include <optional>

namespace moert {

/// Steps that have the tensor as an argument.
static std::vector<size_t> findUses(const Variant &variant, int64_t tensor) {
  std::vector<size_t> uses;
  for (size_t i = 0; i < variant.steps.size(); ++i)
    if (const std::vector<Argument> &args = variant.steps[i].args;
        std::any_of(args.begin(), args.end(), [&](const Argument &arg) {
          return arg.kind == Argument::Kind::Tensor && arg.tensor == tensor;
        }))
      uses.push_back(i);
  return uses;
}

/// The first collective of the gather's axis behind all other uses of what it
/// makes, whose kernel meets those of all ranks of the axis.
static std::optional<size_t> findRelease(const Variant &variant,
                                         const StepOrder &order, size_t gather,
                                         int64_t tensor) {
  std::vector<size_t> uses = findUses(variant, tensor);
  // What comes before the gather here may come behind it on another rank.
  if (uses.front() != gather)
    return std::nullopt;
  for (size_t i = gather + 1; i < variant.steps.size(); ++i) {
    const Step &step = variant.steps[i];
    if (step.kind == Step::Kind::Collective && step.kernel >= 0 &&
        step.axis == variant.steps[gather].axis &&
        std::all_of(uses.begin(), uses.end(),
                    [&](size_t use) { return order.before(use, i); }))
      return i;
  }
  return std::nullopt;
}

static StepOrder makeOrder(const Plan &plan, const Variant &variant) {
  StepOrder order(plan.numStreams, plan.numEvents);
  for (const Step &step : variant.steps)
    order.append(step);
  return order;
}

static std::vector<size_t> findLaunchesBeside(const Variant &variant,
                                              const StepOrder &order,
                                              size_t step) {
  std::vector<size_t> beside;
  for (size_t i = 0; i < variant.steps.size(); ++i)
    if (variant.steps[i].kind == Step::Kind::Launch && !order.before(i, step) &&
        !order.before(step, i))
      beside.push_back(i);
  return beside;
}

std::vector<size_t> findLaunchesBeside(const Plan &plan, const Variant &variant,
                                       size_t step) {
  return findLaunchesBeside(variant, makeOrder(plan, variant), step);
}

Result<std::vector<CopiedResult>> findCopiedResults(const Plan &plan,
                                                    const Variant &variant,
                                                    int64_t leastBytes) {
  StepOrder order = makeOrder(plan, variant);
  std::vector<CopiedResult> found;
  int64_t ends[2] = {};
  for (size_t i = 0; i < variant.steps.size(); ++i) {
    const Step &step = variant.steps[i];
    if (step.kind != Step::Kind::Collective || step.kernel < 0 ||
        step.collectiveKind != CollectiveKind::AllGather ||
        findLaunchesBeside(variant, order, i).empty())
      continue;
    size_t count =
        std::min<size_t>(step.numPairs(), size_t(PeerHeap::kMaxCopied));
    for (size_t pair = 0; pair < count; ++pair) {
      int64_t in = step.args[2 * pair].tensor,
              out = step.args[2 * pair + 1].tensor;
      if (plan.tensors[out].role != TensorRole::Workspace)
        continue;
      Result<int64_t> sent =
          tensorBytes(plan.tensors[in]).maxUpTo(variant.maxTokens);
      Result<int64_t> bytes =
          Expr::roundUp(tensorBytes(plan.tensors[out]), kWorkspaceAlignment)
              .maxUpTo(variant.maxTokens);
      if (!sent || !bytes)
        return (sent ? bytes : sent).status();
      std::optional<size_t> release = findRelease(variant, order, i, out);
      if (*sent < leastBytes || !release)
        continue;
      int64_t &end = ends[step.axis == MeshAxis::Data ? 0 : 1];
      found.push_back({i, pair, *release, out, step.axis, end, *bytes});
      end += *bytes;
    }
  }
  return found;
}

Result<bool> isLargeEnough(const Plan &plan, const Variant &variant,
                           const CopiedResult &result, int64_t tokens,
                           int64_t leastBytes) {
  const Step &gather = variant.steps[result.step];
  for (size_t step : {result.step, result.release}) {
    Result<int64_t> grid =
        plan.kernels[variant.steps[step].kernel].grid.evaluate(tokens);
    if (!grid)
      return grid.status();
    if (*grid == 0)
      return false;
  }
  Result<int64_t> sent =
      tensorBytes(plan.tensors[gather.args[2 * result.pair].tensor])
          .evaluate(tokens);
  if (!sent)
    return sent.status();
  return *sent >= leastBytes;
}

} // namespace moert
