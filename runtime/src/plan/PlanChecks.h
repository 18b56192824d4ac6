//===- PlanChecks.h - parts of the verification of a plan -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_PLAN_PLANCHECKS_H
#define MOERT_PLAN_PLANCHECKS_H

#include "StepOrder.h"
#include "moert/Plan.h"

#include <algorithm>
#include <string>

namespace moert {

//===--- What is said ---===//

inline std::string num(int64_t value) { return std::to_string(value); }

inline std::string at(const std::string &list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

/// "tensors[3].shape[0] is -1; an integer >= 0 is accepted"
inline Status wrong(const std::string &field, const std::string &found,
                    const std::string &accepted) {
  return invalidArgument("plan: " + field + " is " + found + "; " + accepted +
                         " is accepted");
}

inline Status checkRange(const std::string &field, int64_t value, int64_t lo,
                         int64_t hi) {
  if (value >= lo && value <= hi)
    return Status::ok();
  return wrong(field, num(value), num(lo) + " to " + num(hi));
}

inline Status checkIndex(const std::string &field, int64_t value, size_t count,
                         const std::string &list) {
  if (value >= 0 && static_cast<uint64_t>(value) < count)
    return Status::ok();
  return wrong(field, num(value),
               "an index into " + list + ", of which there are " +
                   std::to_string(count) + ",");
}

/// A step's name in messages, and the token counts it runs with.
struct StepContext {
  std::string where;
  int64_t minTokens, maxTokens;
  bool isPrepare;
};

/// Whether a tensor is among a step's arguments.
inline bool hasArgument(const Step &step, int64_t tensor) {
  return std::any_of(
      step.args.begin(), step.args.end(), [&](const Argument &arg) {
        return arg.kind == Argument::Kind::Tensor && arg.tensor == tensor;
      });
}

//===--- Collectives ---===//
// In VerifyCollectives.cpp. Arguments of these steps are tensors of the plan.

/// Types and element counts of outputs follow from the inputs and the number of
/// ranks.
Status verifyPairs(const Plan &plan, const Step &step,
                   const StepContext &context);
/// The chunks of a collective cover the columns of its one pair in order, with
/// no other collective in between. The last chunk has the launch that makes the
/// sums, for communicators that move everything with it.
Status verifyChunk(const Plan &plan, const Variant &variant, size_t index,
                   const StepContext &context);
/// If a collective replaces the launch that makes its inputs, the kernel's
/// arguments must include everything that the launch reads, and no other step
/// may read the launch's results or depend on their existence.
Status verifyReplacedStep(const Plan &plan, const Variant &variant,
                          size_t index, const StepContext &context);
/// An all-to-all that gathers rows must gather their ids too. The rows must
/// return by a sum that is an all-to-all, and no other collective may read the
/// gathered rows, since they are in another order.
Status verifyPacked(const Plan &plan, const Variant &variant, size_t index,
                    const StepContext &context);
/// A collective to results is an all-gather with a kernel, whose outputs are
/// workspace that no step uses before, since other ranks may already be writing
/// it.
Status verifyToResults(const Plan &plan, const Variant &variant, size_t index,
                       const StepContext &context);

//===--- Order ---===//
// In VerifyOrder.cpp. The variant's steps are valid by themselves and added to
// `order`.

/// Every two collectives must be ordered: otherwise two ranks may begin with
/// different ones and deadlock.
Status verifyOneOrder(const Variant &variant, size_t index,
                      const std::string &where, const StepOrder &order);
/// Gathered results must be consumed on all ranks before any rank may gather
/// again. A later collective of the axis, which all ranks launch and meet in,
/// must begin after all of their users are complete, or must itself be the last
/// user, reading them before its kernel signals its arrival.
Status verifyRelease(const Plan &plan, const Variant &variant, size_t index,
                     const StepContext &context, const StepOrder &order);
/// A dependent launch waits only for the kernel before it, so there must be
/// one, and the target must support dependent launches.
Status verifyDependent(const Plan &plan, const Step &step,
                       const StepContext &context, bool isAfterLaunch);
/// Two resident launches must be ordered: otherwise each may occupy half of the
/// device and wait for the other half forever.
Status verifyResident(const Plan &plan, const Variant &variant, size_t index,
                      const std::string &where, const StepOrder &order);
/// At the end stream 0 is ordered after all other streams.
Status verifyJoin(const Variant &variant, const std::string &where,
                  const StepOrder &order);
/// Every output is an argument of some step.
Status verifyOutputs(const Plan &plan, const Variant &variant,
                     const std::string &where);
/// Tensors in one slot are used one after the other, never at the same time.
Status verifySlots(const Plan &plan, const Variant &variant,
                   const std::string &where, const StepOrder &order);

} // namespace moert

#endif // MOERT_PLAN_PLANCHECKS_H
