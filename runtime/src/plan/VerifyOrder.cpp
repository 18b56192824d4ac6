//===- VerifyOrder.cpp - verification of the order of steps -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PlanChecks.h"
#include "moert/GpuTarget.h"
#include "moert/Workspace.h"

#include <algorithm>
#include <map>

namespace moert {

Status verifyOneOrder(const Variant &variant, size_t index,
                      const std::string &where, const StepOrder &order) {
  if (variant.steps[index].kind != Step::Kind::Collective)
    return Status::ok();
  for (size_t i = 0; i < index; ++i)
    if (variant.steps[i].kind == Step::Kind::Collective &&
        !order.before(i, index))
      return invalidArgument("plan: " + at(where + ".steps", i) + " and " +
                             at(where + ".steps", index) +
                             " are collectives of which neither is complete "
                             "before the other begins; let one stream wait "
                             "for the other");
  return Status::ok();
}

/// Whether the kernel of a summing collective reads the tensor only before it
/// signals its arrival to other ranks. False for tensors that it moves itself,
/// and for the first kernel-only argument, which may be the ids of the rank's
/// own rows.
static bool isReadAhead(const Step &step, int64_t tensor) {
  if (step.collectiveKind == CollectiveKind::AllGather)
    return false;
  size_t numFirst = 2 * step.numPairs() + 1;
  return std::none_of(
      step.args.begin(),
      step.args.begin() + int64_t(std::min(numFirst, step.args.size())),
      [&](const Argument &arg) { return arg.tensor == tensor; });
}

/// Whether all `users` of the tensor are done with it when step `index` signals
/// its arrival to other ranks.
static bool isRelease(const Variant &variant, size_t index, int64_t tensor,
                      const std::vector<size_t> &users,
                      const StepOrder &order) {
  return std::all_of(users.begin(), users.end(), [&](size_t user) {
    return order.before(user, index) ||
           (user == index && isReadAhead(variant.steps[index], tensor));
  });
}

/// Whether a launch among `users` reads part of the tensor in a run without
/// tokens.
static Result<bool> isReadWithoutTokens(const Plan &plan,
                                        const Variant &variant, int64_t tensor,
                                        const std::vector<size_t> &users) {
  Result<int64_t> bytes = tensorBytes(plan.tensors[tensor]).evaluate(0);
  if (!bytes || *bytes == 0)
    return bytes ? Result<bool>(false) : bytes.status();
  for (size_t user : users) {
    const Step &step = variant.steps[user];
    if (step.kind != Step::Kind::Launch)
      continue;
    Result<int64_t> grid = plan.kernels[step.kernel].grid.evaluate(0);
    if (!grid || *grid > 0)
      return grid ? Result<bool>(true) : grid.status();
  }
  return false;
}

/// Whether there is a token count at which step `gather` is launched, `users`
/// read its output in the tensor, and `release` is not launched. Grids grow
/// with the tokens.
static Result<bool> isLeftAlone(const Plan &plan, const Variant &variant,
                                size_t gather, size_t release, int64_t tensor,
                                const std::vector<size_t> &users) {
  int64_t ranks = plan.mesh.tokenRanks();
  int64_t least = (variant.minTokens + ranks - 1) / ranks * ranks;
  for (int64_t tokens : {least, std::max(ranks, least)}) {
    auto count = [&](size_t step) {
      return plan.kernels[variant.steps[step].kernel].grid.evaluate(tokens);
    };
    Result<int64_t> gathers = count(gather), releases = count(release);
    if (!gathers || !releases)
      return (gathers ? releases : gathers).status();
    if (*gathers == 0 || *releases > 0)
      continue;
    Result<bool> isRead =
        tokens == 0 ? isReadWithoutTokens(plan, variant, tensor, users) : true;
    if (!isRead || *isRead)
      return isRead;
  }
  return false;
}

Status verifyRelease(const Plan &plan, const Variant &variant, size_t index,
                     const StepContext &context, const StepOrder &order) {
  const Step &step = variant.steps[index];
  for (size_t pair = 0; step.toResults && pair < step.numPairs(); ++pair) {
    int64_t out = step.args[2 * pair + 1].tensor;
    std::vector<size_t> users;
    for (size_t i = 0; i < variant.steps.size(); ++i)
      if (hasArgument(variant.steps[i], out))
        users.push_back(i);
    bool isReleased = false;
    for (size_t i = index + 1; !isReleased && i < variant.steps.size(); ++i) {
      const Step &other = variant.steps[i];
      if (other.kind != Step::Kind::Collective || other.kernel == -1 ||
          other.axis != step.axis || !isRelease(variant, i, out, users, order))
        continue;
      Result<bool> alone = isLeftAlone(plan, variant, index, i, out, users);
      if (!alone)
        return alone.status().withContext("plan: " + context.where);
      isReleased = !*alone;
    }
    if (!isReleased)
      return wrong(context.where + ".to_results", "true",
                   "false (no later collective over " +
                       std::string(meshAxisName(step.axis)) +
                       " is behind all that use '" + plan.tensors[out].name +
                       "')");
  }
  return Status::ok();
}

Status verifyDependent(const Plan &plan, const Step &step,
                       const StepContext &context, bool isAfterLaunch) {
  if (!step.dependent)
    return Status::ok();
  std::optional<GpuTarget> gpu = GpuTarget::parse(plan.target);
  if (!gpu || !gpu->hasDependentLaunches())
    return wrong(context.where + ".dependent", "true",
                 "false (kernels for '" + plan.target +
                     "' cannot wait for the launch before them)");
  if (!isAfterLaunch)
    return wrong(context.where + ".dependent", "true",
                 "false (the step before it on stream " + num(step.stream) +
                     " is no launch)");
  return Status::ok();
}

Status verifyResident(const Plan &plan, const Variant &variant, size_t index,
                      const std::string &where, const StepOrder &order) {
  auto isResident = [&](const Step &step) {
    return step.kind == Step::Kind::Launch &&
           plan.kernels[step.kernel].resident;
  };
  if (!isResident(variant.steps[index]))
    return Status::ok();
  for (size_t i = 0; i < index; ++i)
    if (isResident(variant.steps[i]) && !order.before(i, index))
      return invalidArgument("plan: " + at(where + ".steps", i) + " and " +
                             at(where + ".steps", index) +
                             " launch kernels that need all of their CTAs at "
                             "once, but neither is complete before the other "
                             "begins; let one stream wait for the other");
  return Status::ok();
}

Status verifyJoin(const Variant &variant, const std::string &where,
                  const StepOrder &order) {
  for (size_t i = 0; i < variant.steps.size(); ++i)
    if ((variant.steps[i].kind == Step::Kind::Launch ||
         variant.steps[i].kind == Step::Kind::Collective) &&
        !order.beforeNext(i, 0))
      return invalidArgument("plan: " + at(where + ".steps", i) +
                             " on stream " + num(variant.steps[i].stream) +
                             " may still run at the end; record an event after "
                             "it and let stream 0 wait for the event");
  return Status::ok();
}

Status verifyOutputs(const Plan &plan, const Variant &variant,
                     const std::string &where) {
  std::vector<bool> used(plan.tensors.size());
  for (const Step &step : variant.steps)
    for (const Argument &arg : step.args)
      if (arg.kind == Argument::Kind::Tensor)
        used[arg.tensor] = true;
  for (size_t i = 0; i < plan.tensors.size(); ++i)
    if (plan.tensors[i].role == TensorRole::Output && !used[i])
      return invalidArgument("plan: no launch of " + where +
                             " has the output " + at("tensors", i) + " '" +
                             plan.tensors[i].name + "' as an argument");
  return Status::ok();
}

Status verifySlots(const Plan &plan, const Variant &variant,
                   const std::string &where, const StepOrder &order) {
  // Per tensor: its uses in order, and its last use on each stream, which all
  // other uses on that stream precede.
  std::vector<std::vector<size_t>> uses(plan.tensors.size());
  std::vector<std::map<int64_t, size_t>> lastUses(plan.tensors.size());
  // Tensors by first use. Tensors of one slot are consecutive in it, so each
  // must be dead before the next one only.
  std::vector<size_t> inOrder;
  for (size_t i = 0; i < variant.steps.size(); ++i)
    for (const Argument &arg : variant.steps[i].args)
      if (arg.kind == Argument::Kind::Tensor &&
          plan.tensors[arg.tensor].role == TensorRole::Workspace) {
        if (uses[arg.tensor].empty())
          inOrder.push_back(arg.tensor);
        uses[arg.tensor].push_back(i);
        lastUses[arg.tensor][variant.steps[i].stream] = i;
      }
  auto isUsedUp = [&](size_t a, size_t b) {
    for (auto [stream, i] : lastUses[a])
      for (size_t j : uses[b])
        if (!order.before(i, j))
          return false;
    return true;
  };
  std::vector<int64_t> latest(plan.numSlots, -1);
  for (size_t b : inOrder) {
    int64_t &a = latest[plan.tensors[b].slot];
    if (a >= 0 && !isUsedUp(a, b))
      return invalidArgument("plan: " + at("tensors", std::min<size_t>(a, b)) +
                             " '" + plan.tensors[std::min<size_t>(a, b)].name +
                             "' and " + at("tensors", std::max<size_t>(a, b)) +
                             " '" + plan.tensors[std::max<size_t>(a, b)].name +
                             "' share slot " + num(plan.tensors[b].slot) +
                             ", but in " + where +
                             " the lifetime of neither ends before the other "
                             "begins; give one of them another slot");
    a = static_cast<int64_t>(b);
  }
  return Status::ok();
}

} // namespace moert
