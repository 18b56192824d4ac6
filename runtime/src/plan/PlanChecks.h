//===- PlanChecks.h - the parts of the check of a plan ----------*- C++ -*-===//
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

/// A step's place in messages and the token counts it is run with.
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
// In VerifyCollectives.cpp: of steps whose arguments are tensors of the plan.

/// The outputs have what the ranks make of the inputs.
Status verifyPairs(const Plan &plan, const Step &step,
                   const StepContext &context);
/// The pieces of a collective are the columns of its one pair from the first
/// to the last, with no other collective in between; the last one has the
/// launch that makes the sums for those who move all with it.
Status verifyPiece(const Plan &plan, const Variant &variant, size_t index,
                   const StepContext &context);
/// Who leaves out the launch that makes a collective's inputs has to find all
/// that it reads among the kernel's arguments, and nobody else may read what
/// it would have made, or count on its being there.
Status verifyReplacedStep(const Plan &plan, const Variant &variant,
                          size_t index, const StepContext &context);
/// An all-to-all of gathered rows is one of the ids of these too, and its rows
/// go back by a sum that is one, with no other collective that reads what was
/// gathered: those are in another order.
Status verifyPacked(const Plan &plan, const Variant &variant, size_t index,
                    const StepContext &context);
/// What is to results is an all-gather with a kernel, of workspace that nothing
/// uses ahead of it, since other ranks may write it by then.
Status verifyToResults(const Plan &plan, const Variant &variant, size_t index,
                       const StepContext &context);

//===--- Order ---===//
// In VerifyOrder.cpp: of variants whose steps are right by themselves, those
// that `order` knows.

/// Two ranks may begin with different ones of two collectives that nothing
/// orders, and wait for each other for ever.
Status verifyOneOrder(const Variant &variant, size_t index,
                      const std::string &where, const StepOrder &order);
/// What is gathered to results is used up on all ranks before any of them may
/// gather again: a later collective of the axis, which all ranks launch and
/// meet in, begins when all that use it are complete, or is the last one, by
/// what its kernel reads before it tells the others that it has come.
Status verifyRelease(const Plan &plan, const Variant &variant, size_t index,
                     const StepContext &context, const StepOrder &order);
/// A dependent launch waits for the kernel before it alone, so that one must
/// be there, and the target must be able to.
Status verifyDependent(const Plan &plan, const Step &step,
                       const StepContext &context, bool isAfterLaunch);
/// Two launches whose CTAs all have to run at once may each have half of the
/// device, and wait for the other half for ever.
Status verifyResident(const Plan &plan, const Variant &variant, size_t index,
                      const std::string &where, const StepOrder &order);
/// Stream 0 is behind all others at the end.
Status verifyJoin(const Variant &variant, const std::string &where,
                  const StepOrder &order);
/// All outputs are an argument of some step.
Status verifyOutputs(const Plan &plan, const Variant &variant,
                     const std::string &where);
/// Tensors in one slot are used one after the other, never at the same time.
Status verifySlots(const Plan &plan, const Variant &variant,
                   const std::string &where, const StepOrder &order);

} // namespace moert

#endif // MOERT_PLAN_PLANCHECKS_H
