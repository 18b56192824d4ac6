//===- VerifyCollectives.cpp - verification of collectives ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "PlanChecks.h"

#include <algorithm>

namespace moert {

/// Element counts of a tensor at the largest token count of a variant, and at
/// the smallest one that is a valid token count of a group.
static Result<std::pair<int64_t, int64_t>>
countAtEnds(const TensorDecl &tensor, int64_t first, int64_t last) {
  auto count = [&](int64_t tokens) -> Result<int64_t> {
    int64_t elements = 1;
    for (const Expr &size : tensor.shape) {
      Result<int64_t> value = size.evaluate(tokens);
      if (!value)
        return value.status();
      elements *= *value;
    }
    return elements;
  };
  Result<int64_t> least = count(first), most = count(last);
  if (!least || !most)
    return (least ? most : least).status();
  return std::pair(*least, *most);
}

Status verifyPairs(const Plan &plan, const Step &step,
                   const StepContext &context) {
  int64_t ranks = plan.mesh.size(step.axis);
  int64_t own = plan.mesh.tokenRanks();
  int64_t first = (context.minTokens + own - 1) / own * own;
  int64_t last = context.maxTokens / own * own;
  for (size_t i = 1; i < 2 * step.numPairs() && first <= last; i += 2) {
    std::string where = at(context.where + ".args", i);
    const TensorDecl &in = plan.tensors[step.args[i - 1].tensor];
    const TensorDecl &out = plan.tensors[step.args[i].tensor];
    auto from = countAtEnds(in, first, last);
    auto to = countAtEnds(out, first, last);
    if (!from || !to)
      return (from ? to : from).status().withContext("plan: " + where);
    if (in.dtype != out.dtype)
      return wrong(where, std::string("of type ") + dtypeName(out.dtype),
                   std::string("a tensor of ") + dtypeName(in.dtype));
    int64_t toAll =
        step.collectiveKind == CollectiveKind::AllGather ? ranks : 1;
    int64_t toOne =
        step.collectiveKind == CollectiveKind::ReduceScatter ? ranks : 1;
    if (from->first * toAll != to->first * toOne ||
        from->second * toAll != to->second * toOne)
      return wrong(where,
                   "'" + out.name + "' of " + num(to->second) +
                       " elements for " + num(from->second) + " of '" +
                       in.name + "'",
                   std::string(collectiveKindName(step.collectiveKind)) +
                       " of " + num(ranks) + " ranks, which makes " +
                       num(from->second * toAll / toOne) + ",");
  }
  return Status::ok();
}

/// Whether both steps look like chunks of one collective.
static bool isChunkLike(const Step &step, const Step &other) {
  auto isSame = [](const Argument &a, const Argument &b) {
    return a.kind == b.kind && a.tensor == b.tensor;
  };
  return step.kind == Step::Kind::Collective &&
         step.numColumns == other.numColumns &&
         step.collectiveKind == other.collectiveKind &&
         step.axis == other.axis && step.kernel == other.kernel &&
         step.numKernelArgs == other.numKernelArgs &&
         std::equal(step.args.begin(), step.args.end(), other.args.begin(),
                    other.args.end(), isSame);
}

Status verifyChunk(const Plan &plan, const Variant &variant, size_t index,
                   const StepContext &context) {
  const Step &step = variant.steps[index];
  std::string field = context.where + ".num_columns";
  int64_t first = step.firstColumn, count = step.numColumns;
  if (count == 0 && first == 0)
    return Status::ok();
  if (count < 1 || step.kernel == -1 || step.numPairs() != 1)
    return wrong(field, num(count),
                 "0 (of a collective with a kernel, that sums one pair, 1 or "
                 "more), with a first_column of 0,");
  const TensorDecl &tensor = plan.tensors[step.args[0].tensor];
  if (tensor.shape.size() != 2 || !tensor.shape[1].isConstant() ||
      tensor.shape[1].constantValue() % count != 0)
    return wrong(field, num(count),
                 "a divisor of the columns of '" + tensor.name + "'");
  int64_t columns = tensor.shape[1].constantValue();
  field = context.where + ".first_column";
  MOERT_CHECK(checkRange(field, first, 0, columns - count));
  if (first % count != 0)
    return wrong(field, num(first), "a multiple of num_columns");
  auto isChunk = [&](size_t i, int64_t begin) {
    return isChunkLike(variant.steps[i], step) &&
           variant.steps[i].firstColumn == begin;
  };
  auto isCollective = [&](size_t i) {
    return variant.steps[i].kind == Step::Kind::Collective;
  };
  size_t before = index, behind = index + 1;
  while (before > 0 && !isCollective(before - 1))
    --before;
  while (behind < variant.steps.size() && !isCollective(behind))
    ++behind;
  if (first > 0 && (before == 0 || !isChunk(before - 1, first - count)))
    return wrong(field, num(first),
                 "0 (the collective before it is not the chunk of the previous "
                 "columns)");
  bool isLast = first + count == columns;
  if (!isLast &&
      (behind == variant.steps.size() || !isChunk(behind, first + count)))
    return wrong(
        field, num(first),
        num(columns - count) +
            " (the collective after it is not the chunk of the next columns)");
  if (isLast != (step.replacedStep >= 0))
    return wrong(context.where + ".replaced_step", num(step.replacedStep),
                 isLast
                     ? "the launch that makes the sums (this is the last chunk)"
                     : "-1 (other chunks follow)");
  return Status::ok();
}

Status verifyReplacedStep(const Plan &plan, const Variant &variant,
                          size_t index, const StepContext &context) {
  const Step &step = variant.steps[index];
  std::string field = context.where + ".replaced_step";
  if (step.replacedStep == -1)
    return Status::ok();
  MOERT_CHECK(checkRange(field, step.replacedStep, 0, int64_t(index) - 1));
  auto launchIndex = static_cast<size_t>(step.replacedStep);
  const Step &launch = variant.steps[launchIndex];
  if (launch.kind != Step::Kind::Launch || launch.stream != step.stream)
    return wrong(field, num(step.replacedStep),
                 "a launch on the collective's stream");
  bool gathers = step.collectiveKind == CollectiveKind::AllGather;
  if (step.kernel == -1 || (!gathers && step.numPairs() != 1))
    return wrong(field, num(step.replacedStep),
                 "-1 (of a collective with a kernel, that gathers or sums one "
                 "pair, another number)");
  std::vector<int64_t> made;
  for (size_t pair = 0; pair < step.numPairs(); ++pair)
    if (isMadeByKernel(step, variant, pair))
      made.push_back(step.args[2 * pair].tensor);
  if (made.empty() ||
      std::any_of(made.begin(), made.end(), [&](int64_t tensor) {
        return plan.tensors[tensor].role != TensorRole::Workspace;
      }))
    return wrong(field, num(step.replacedStep),
                 gathers ? "the launch that makes some of its inputs, which "
                           "are workspace,"
                         : "the launch that makes '" +
                               plan.tensors[step.args[0].tensor].name +
                               "', which is workspace,");
  for (const Argument &arg : launch.args)
    if (arg.kind == Argument::Kind::Tensor && !hasArgument(step, arg.tensor))
      return wrong(field,
                   num(step.replacedStep) + ", whose '" +
                       plan.tensors[arg.tensor].name +
                       "' the kernel does not get",
                   "a launch all of whose tensors it gets");
  bool isNext = true;
  for (size_t i = 0; i < variant.steps.size(); ++i) {
    const Step &other = variant.steps[i];
    if (i == index || i == launchIndex ||
        (step.numColumns > 0 && isChunkLike(other, step)))
      continue;
    if (std::any_of(made.begin(), made.end(),
                    [&](int64_t tensor) { return hasArgument(other, tensor); }))
      return wrong(field,
                   num(step.replacedStep) + ", whose result " + at("steps", i) +
                       " has as an argument too",
                   "a launch whose result the collective alone reads");
    if (i < launchIndex || other.stream != step.stream)
      continue;
    if (isNext && i < index && other.dependent)
      return wrong(at("steps", i) + ".dependent", "true",
                   "false (the launch before it may be left out)");
    isNext = false;
  }
  return Status::ok();
}

/// The n-th kernel-only argument; -1 if there is none.
static int64_t getKernelArg(const Step &step, int64_t n) {
  return n < step.numKernelArgs ? step.args[2 * step.numPairs() + n].tensor
                                : -1;
}

/// The packed gather's output for the ids of the rank's own rows; -1 if these
/// are not gathered.
static int64_t findGatheredIds(const Step &gather) {
  for (size_t pair = 0; pair < gather.numPairs(); ++pair)
    if (gather.args[2 * pair].tensor == getKernelArg(gather, 0))
      return gather.args[2 * pair + 1].tensor;
  return -1;
}

/// Whether the sum returns the rows that the gather has packed.
static bool returnsRowsOf(const Step &sum, const Step &gather) {
  return sum.kind == Step::Kind::Collective && sum.isPacked() &&
         sum.collectiveKind == CollectiveKind::ReduceScatter &&
         sum.axis == gather.axis &&
         getKernelArg(sum, 0) == getKernelArg(gather, 0) &&
         getKernelArg(sum, 1) == findGatheredIds(gather);
}

/// Checks the ids of the rank's own rows and the table of destination ranks.
static Status verifyPackedArgs(const Plan &plan, const Step &step,
                               const StepContext &context) {
  bool gathers = step.collectiveKind == CollectiveKind::AllGather;
  int64_t ids = getKernelArg(step, 0),
          destinations = getKernelArg(step, gathers ? 1 : 2);
  auto isI32 = [&](int64_t tensor, size_t rank) {
    return tensor >= 0 && plan.tensors[tensor].dtype == DType::I32 &&
           plan.tensors[tensor].shape.size() == rank;
  };
  if (isI32(ids, 2) && isI32(destinations, 1) &&
      plan.tensors[ids].shape[1].isConstant())
    return Status::ok();
  return wrong(context.where + ".kernel_args", num(step.numKernelArgs),
               gathers
                   ? "an all-to-all's: ids, i32 of two dimensions, and "
                     "destinations, i32 of one,"
                   : "an all-to-all's: ids of the rank's rows and of all, "
                     "i32 of two dimensions, and destinations, i32 of one,");
}

Status verifyPacked(const Plan &plan, const Variant &variant, size_t index,
                    const StepContext &context) {
  const Step &step = variant.steps[index];
  if (!step.isPacked())
    return Status::ok();
  for (size_t i = 0; i < step.routedPairs.size(); ++i) {
    std::string pair = at(context.where + ".routed_pairs", i);
    MOERT_CHECK(checkRange(pair, step.routedPairs[i],
                           i > 0 ? step.routedPairs[i - 1] + 1 : 0,
                           int64_t(step.numPairs()) - 1));
  }
  std::string field = context.where + ".pack_kernel";
  if (step.collectiveKind == CollectiveKind::AllReduce)
    return wrong(field, num(step.packKernel), "-1 (of an all_reduce)");
  MOERT_CHECK(verifyPackedArgs(plan, step, context));
  if (step.collectiveKind == CollectiveKind::ReduceScatter) {
    bool hasGather = std::any_of(
        variant.steps.begin(), variant.steps.begin() + int64_t(index),
        [&](const Step &gather) {
          return gather.kind == Step::Kind::Collective && gather.isPacked() &&
                 returnsRowsOf(step, gather);
        });
    if (hasGather && step.numPairs() == 1 && !isFollowed(step, plan))
      return Status::ok();
    return wrong(field, num(step.packKernel),
                 "-1 (of a sum of one pair, whose rows have come by an "
                 "all_gather with one, or the last chunk of it, another "
                 "number)");
  }
  int64_t others = 0;
  for (size_t pair = 0; pair < step.numPairs(); ++pair) {
    const TensorDecl &tensor = plan.tensors[step.ownPart(pair)];
    if (!tensor.shape.empty() && tensor.shape[0].dependsOnTokens())
      continue;
    bool isNumber = tensor.dtype == DType::I32 && tensor.shape.size() == 1 &&
                    tensor.shape[0] == Expr(1);
    if (!isNumber || ++others > 1)
      return wrong(field, num(step.packKernel),
                   "-1 ('" + tensor.name +
                       "' has no row per token, and is not how many rows of "
                       "the rank count)");
  }
  if (findGatheredIds(step) < 0)
    return wrong(field, num(step.packKernel),
                 "-1 (of an all_gather of the ids too, another number)");
  bool comesBack = false;
  for (size_t i = index + 1; i < variant.steps.size(); ++i) {
    const Step &other = variant.steps[i];
    if (other.kind != Step::Kind::Collective)
      continue;
    if (returnsRowsOf(other, step)) {
      comesBack = true;
      continue;
    }
    for (size_t pair = 0; pair < step.numPairs(); ++pair)
      for (size_t read = 0; read < other.numPairs(); ++read)
        if (other.args[2 * read].tensor == step.args[2 * pair + 1].tensor)
          return wrong(field, num(step.packKernel),
                       "-1 (" + at("steps", i) +
                           " moves what it gathers, whose rows would be in "
                           "another order)");
  }
  if (!comesBack)
    return wrong(field, num(step.packKernel),
                 "-1 (of an all_gather whose rows go back by a reduce_scatter "
                 "with one, another number)");
  return Status::ok();
}

Status verifyToResults(const Plan &plan, const Variant &variant, size_t index,
                       const StepContext &context) {
  const Step &step = variant.steps[index];
  if (!step.toResults)
    return Status::ok();
  std::string field = context.where + ".to_results";
  if (step.kind != Step::Kind::Collective || step.kernel == -1 ||
      step.collectiveKind != CollectiveKind::AllGather)
    return wrong(field, "true", "false (of no all_gather with a kernel)");
  for (size_t pair = 0; pair < step.numPairs(); ++pair) {
    int64_t out = step.args[2 * pair + 1].tensor;
    std::string name = "'" + plan.tensors[out].name + "'";
    if (plan.tensors[out].role != TensorRole::Workspace)
      return wrong(field, "true", "false (" + name + " is no workspace)");
    for (size_t i = 0; i < index; ++i)
      if (hasArgument(variant.steps[i], out))
        return wrong(field, "true",
                     "false (" + at("steps", i) + " uses " + name +
                         " before, when other ranks may write it)");
  }
  return Status::ok();
}

} // namespace moert
