//===- PlanVerifier.cpp - the semantic check of a plan ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "InPlace.h"
#include "StepOrder.h"
#include "TensorMaps.h"
#include "moert/GpuTarget.h"
#include "moert/Plan.h"
#include "moert/Workspace.h"

#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>

namespace moert {

namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxRanks = 1 << 16;
constexpr int64_t kMaxStreams = 64;
constexpr int64_t kMaxEvents = 1024;
/// All of a plan's sizes and grids together, so that a small file is not the
/// work of minutes.
constexpr int64_t kScanBudget = 4 * Expr::kMaxScan;

std::string num(int64_t value) { return std::to_string(value); }

std::string at(const std::string &list, size_t index) {
  return list + "[" + std::to_string(index) + "]";
}

/// "tensors[3].shape[0] is -1; an integer >= 0 is accepted"
Status wrong(const std::string &field, const std::string &found,
             const std::string &accepted) {
  return invalidArgument("plan: " + field + " is " + found + "; " + accepted +
                         " is accepted");
}

Status checkRange(const std::string &field, int64_t value, int64_t lo,
                  int64_t hi) {
  if (value >= lo && value <= hi)
    return Status::ok();
  return wrong(field, num(value), num(lo) + " to " + num(hi));
}

Status checkIndex(const std::string &field, int64_t value, size_t count,
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

class PlanVerifier {
public:
  explicit PlanVerifier(const Plan &plan) : plan(plan) {}

  Status verify() const {
    MOERT_CHECK(verifyHeader());
    MOERT_CHECK(verifyTensors());
    MOERT_CHECK(verifyKernels());
    MOERT_CHECK(verifyRanges());
    MOERT_CHECK(verifyPrepare());
    MOERT_CHECK(verifyInPlace(plan));
    for (size_t i = 0; i < plan.variants.size(); ++i)
      MOERT_CHECK(verifyVariant(i));
    Result<int64_t> bytes = workspaceBytes(plan, plan.maxTokens, &scanBudget);
    return bytes.status().withContext("plan");
  }

private:
  Status verifyHeader() const {
    if (plan.target.empty())
      return wrong("target", "empty", "the name of a target, such as \"cpu\",");
    MOERT_CHECK(checkRange("max_tokens", plan.maxTokens, 1, kMaxInt32));
    MOERT_CHECK(checkRange("mesh.dp", plan.mesh.dp, 1, kMaxRanks));
    MOERT_CHECK(checkRange("mesh.tp", plan.mesh.tp, 1, kMaxRanks));
    if (plan.mesh.sp && plan.mesh.tp == 1)
      return wrong("mesh.sp", "true", "false, where mesh.tp is 1,");
    if (plan.maxTokens % plan.mesh.tokenRanks() != 0)
      return wrong("max_tokens", num(plan.maxTokens),
                   std::string("a multiple of mesh.dp") +
                       (plan.mesh.sp ? " * mesh.tp, " : ", ") +
                       num(plan.mesh.tokenRanks()) + ",");
    MOERT_CHECK(checkRange("num_streams", plan.numStreams, 1, kMaxStreams));
    MOERT_CHECK(checkRange("num_events", plan.numEvents, 0, kMaxEvents));
    return checkRange("num_slots", plan.numSlots, 0,
                      static_cast<int64_t>(plan.tensors.size()));
  }

  //===--------------------------------------------------------------------===//
  // Tensors and kernels
  //===--------------------------------------------------------------------===//

  template <typename List>
  static Status verifyNames(const std::string &list, const List &items) {
    std::unordered_map<std::string, size_t> seen;
    for (size_t i = 0; i < items.size(); ++i) {
      std::string field = at(list, i) + ".name";
      if (items[i].name.empty())
        return wrong(field, "empty", "a name");
      auto [first, isNew] = seen.emplace(items[i].name, i);
      if (!isNew)
        return wrong(field,
                     "'" + items[i].name + "', the name of " +
                         at(list, first->second) + " too",
                     "a name of its own");
    }
    return Status::ok();
  }

  Status verifyTensors() const {
    MOERT_CHECK(verifyNames("tensors", plan.tensors));
    for (size_t i = 0; i < plan.tensors.size(); ++i)
      MOERT_CHECK(verifyTensor(plan.tensors[i], at("tensors", i)));
    return Status::ok();
  }

  Status verifyTensor(const TensorDecl &tensor,
                      const std::string &where) const {
    bool constantOnly = tensor.role == TensorRole::Weight ||
                        tensor.role == TensorRole::Prepared;
    for (size_t d = 0; d < tensor.shape.size(); ++d) {
      std::string field = at(where + ".shape", d);
      const Expr &size = tensor.shape[d];
      if ((d > 0 || constantOnly) && !size.isConstant())
        return wrong(field, "'" + size.str() + "'",
                     d > 0 ? std::string("a constant (only dimension 0 may "
                                         "depend on tokens)")
                           : std::string("a constant (the role is ") +
                                 tensorRoleName(tensor.role) + ")");
      Result<int64_t> least = size.minOver(0, plan.maxTokens, &scanBudget);
      if (!least)
        return least.status().withContext("plan: " + field);
      if (*least < 0)
        return wrong(field,
                     "'" + size.str() + "', which is " + num(*least) +
                         " at some token count",
                     "a size >= 0");
    }
    Result<int64_t> bytes =
        tensorBytes(tensor).maxUpTo(plan.maxTokens, &scanBudget);
    if (!bytes)
      return bytes.status().withContext("plan: size of " + where + " '" +
                                        tensor.name + "'");
    if (tensor.alignment < 1 || tensor.alignment > kWorkspaceAlignment ||
        (tensor.alignment & (tensor.alignment - 1)) != 0)
      return wrong(where + ".alignment", num(tensor.alignment),
                   "a power of two from 1 to " + num(kWorkspaceAlignment));
    if (tensor.strided &&
        (tensor.role != TensorRole::Weight || tensor.shape.size() < 2 ||
         dtypeBits(tensor.dtype) % 8 != 0))
      return wrong(where + ".strided", "true",
                   "that of a weight of rank 2 or more, of whole bytes,");
    if (tensor.role == TensorRole::Workspace)
      return checkIndex(where + ".slot", tensor.slot, plan.numSlots, "slots");
    if (tensor.slot != -1)
      return wrong(where + ".slot", num(tensor.slot),
                   std::string("-1 (the role is ") +
                       tensorRoleName(tensor.role) + ")");
    return Status::ok();
  }

  Status verifyKernels() const {
    MOERT_CHECK(verifyNames("kernels", plan.kernels));
    for (size_t i = 0; i < plan.kernels.size(); ++i) {
      const KernelDecl &kernel = plan.kernels[i];
      std::string where = at("kernels", i);
      MOERT_CHECK(checkRange(where + ".block", kernel.block, 0, kMaxBlock));
      MOERT_CHECK(checkRange(where + ".shared", kernel.shared, 0, kMaxShared));
      for (size_t j = 0; j < kernel.tensorMaps.size(); ++j)
        MOERT_CHECK(verifyTensorMap(kernel.tensorMaps[j],
                                    at(where + ".tensor_maps", j)));
    }
    return Status::ok();
  }

  //===--------------------------------------------------------------------===//
  // Steps
  //===--------------------------------------------------------------------===//

  Status verifyRanges() const {
    if (plan.variants.empty())
      return wrong("variants", "empty", "at least one variant");
    int64_t next = 0;
    for (size_t i = 0; i < plan.variants.size(); ++i) {
      const Variant &variant = plan.variants[i];
      std::string where = at("variants", i);
      if (variant.minTokens != next)
        return wrong(where + ".min_tokens", num(variant.minTokens),
                     num(next) + " (no gap, no overlap)");
      MOERT_CHECK(checkRange(where + ".max_tokens", variant.maxTokens,
                             variant.minTokens, plan.maxTokens));
      next = variant.maxTokens + 1;
    }
    if (next != plan.maxTokens + 1)
      return wrong(at("variants", plan.variants.size() - 1) + ".max_tokens",
                   num(next - 1),
                   num(plan.maxTokens) +
                       " (the last variant reaches max_tokens)");
    return Status::ok();
  }

  /// Its index, and how many CTAs there are of it.
  Status verifyKernel(const Step &step, const StepContext &context) const {
    MOERT_CHECK(checkIndex(context.where + ".kernel", step.kernel,
                           plan.kernels.size(), "kernels"));
    const Expr &grid = plan.kernels[step.kernel].grid;
    std::string gridField = at("kernels", step.kernel) + ".grid";
    Result<int64_t> least =
        grid.minOver(context.minTokens, context.maxTokens, &scanBudget);
    Result<int64_t> most =
        grid.maxOver(context.minTokens, context.maxTokens, &scanBudget);
    if (!least || !most)
      return (least ? most : least)
          .status()
          .withContext("plan: " + gridField + ", launched by " + context.where);
    if (*least < 0 || *most > kMaxInt32)
      return wrong(gridField,
                   "'" + grid.str() + "', which reaches " +
                       num(*least < 0 ? *least : *most) + " in " +
                       context.where,
                   "0 to " + num(kMaxInt32));
    if (context.isPrepare && grid.dependsOnTokens())
      return wrong(gridField, "'" + grid.str() + "'",
                   "a constant (" + context.where + " launches it)");
    return Status::ok();
  }

  Status verifyLaunch(const Step &step, const StepContext &context) const {
    MOERT_CHECK(verifyKernel(step, context));
    for (size_t i = 0; i < step.args.size(); ++i)
      MOERT_CHECK(verifyArgument(step.args[i], at(context.where + ".args", i),
                                 context));
    return verifyMaps(step, context);
  }

  /// The kernel's tensor maps, over the tensors of this launch.
  Status verifyMaps(const Step &step, const StepContext &context) const {
    const KernelDecl &kernel = plan.kernels[step.kernel];
    for (size_t i = 0; i < kernel.tensorMaps.size(); ++i) {
      const TensorMapDecl &map = kernel.tensorMaps[i];
      std::string where = at(at("kernels", step.kernel) + ".tensor_maps", i);
      MOERT_CHECK(checkIndex(where + ".argument", map.argument,
                             step.args.size(), context.where + ".args"));
      const Argument &arg = step.args[map.argument];
      if (arg.kind != Argument::Kind::Tensor)
        return wrong(where + ".argument",
                     num(map.argument) + ", a scalar in " + context.where,
                     "the index of a tensor");
      MOERT_CHECK(verifyTensorMapOf(map, plan.tensors[arg.tensor], where)
                      .withContext(context.where));
    }
    size_t numSlots = 0;
    for (const Argument &arg : step.args)
      numSlots += arg.kind == Argument::Kind::Tensor
                      ? plan.tensors[arg.tensor].numSlots()
                      : 1;
    size_t bytes = numSlots * sizeof(uint64_t) +
                   kernel.tensorMaps.size() * sizeof(TensorMap);
    if (bytes > kMaxParameterBytes)
      return wrong(context.where + ".args",
                   "with the kernel's tensor maps of " + std::to_string(bytes) +
                       " bytes",
                   "up to " + num(kMaxParameterBytes) + " bytes");
    return Status::ok();
  }

  Status verifyArgument(const Argument &arg, const std::string &where,
                        const StepContext &context) const {
    if (arg.kind == Argument::Kind::Scalar) {
      if (context.isPrepare && arg.scalar.dependsOnTokens())
        return wrong(where, "'" + arg.scalar.str() + "'",
                     "a constant (a prepare step knows no tokens)");
      return arg.scalar
          .maxOver(context.minTokens, context.maxTokens, &scanBudget)
          .status()
          .withContext("plan: " + where);
    }
    MOERT_CHECK(checkIndex(where + ".tensor", arg.tensor, plan.tensors.size(),
                           "tensors"));
    const TensorDecl &tensor = plan.tensors[arg.tensor];
    if (context.isPrepare && tensor.role != TensorRole::Weight &&
        tensor.role != TensorRole::Prepared)
      return wrong(where,
                   std::string("the ") + tensorRoleName(tensor.role) +
                       " tensor '" + tensor.name + "'",
                   "a weight or prepared tensor");
    return Status::ok();
  }

  Status verifyPrepare() const {
    std::vector<bool> made(plan.tensors.size());
    for (size_t i = 0; i < plan.prepare.size(); ++i) {
      const Step &step = plan.prepare[i];
      StepContext context{at("prepare", i), 0, 0, true};
      if (step.kind != Step::Kind::Launch)
        return wrong(context.where + ".kind", "an event", "a launch");
      MOERT_CHECK(checkRange(context.where + ".stream", step.stream, 0, 0));
      MOERT_CHECK(verifyDependent(step, context, /*isAfterLaunch=*/i > 0));
      MOERT_CHECK(verifyLaunch(step, context));
      for (const Argument &arg : step.args)
        if (arg.kind == Argument::Kind::Tensor)
          made[arg.tensor] = true;
    }
    for (size_t i = 0; i < plan.tensors.size(); ++i)
      if (plan.tensors[i].role == TensorRole::Prepared && !made[i])
        return invalidArgument("plan: " + at("tensors", i) + " '" +
                               plan.tensors[i].name +
                               "' is prepared, but no prepare step has it as "
                               "an argument; add the step that makes it");
    return Status::ok();
  }

  Status verifyVariant(size_t index) const {
    const Variant &variant = plan.variants[index];
    std::string where = at("variants", index);
    StepOrder order(plan.numStreams, plan.numEvents);
    std::vector<bool> isAfterLaunch(plan.numStreams);
    for (size_t i = 0; i < variant.steps.size(); ++i) {
      const Step &step = variant.steps[i];
      StepContext context{at(where + ".steps", i), variant.minTokens,
                          variant.maxTokens, false};
      MOERT_CHECK(checkRange(context.where + ".stream", step.stream, 0,
                             plan.numStreams - 1));
      if (step.stream > 0 && !order.started(step.stream) &&
          step.kind != Step::Kind::WaitEvent)
        return invalidArgument(
            "plan: " + context.where + " is the first of stream " +
            num(step.stream) +
            "; let that stream wait for an event of stream 0 first");
      if (step.kind == Step::Kind::Launch) {
        MOERT_CHECK(verifyLaunch(step, context));
      } else if (step.kind == Step::Kind::Collective) {
        MOERT_CHECK(verifyCollective(step, context));
        MOERT_CHECK(verifyPiece(variant, i, context));
        MOERT_CHECK(verifySumStep(variant, i, context));
      } else {
        MOERT_CHECK(checkIndex(context.where + ".event", step.event,
                               plan.numEvents, "events"));
        if (!step.args.empty())
          return wrong(context.where + ".args", "not empty",
                       "an empty list (only launches have arguments)");
      }
      if (!order.append(step))
        return invalidArgument("plan: " + context.where + " waits for event " +
                               num(step.event) +
                               ", which no earlier step records");
      MOERT_CHECK(verifyDependent(step, context, isAfterLaunch[step.stream]));
      MOERT_CHECK(verifyResident(variant, i, where, order));
      MOERT_CHECK(verifyOneOrder(variant, i, where, order));
      isAfterLaunch[step.stream] = step.kind == Step::Kind::Launch;
    }
    MOERT_CHECK(verifyJoin(variant, where, order));
    MOERT_CHECK(verifyOutputs(variant, where));
    return verifySlots(variant, where, order);
  }

  /// The elements of a tensor at the largest number of tokens of a variant, and
  /// at the smallest that is a number of tokens of a group.
  Result<std::pair<int64_t, int64_t>>
  countAtEnds(const TensorDecl &tensor, int64_t first, int64_t last) const {
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

  Status verifyCollective(const Step &step, const StepContext &context) const {
    int64_t ranks = plan.mesh.size(step.axis);
    if (context.isPrepare || ranks < 2)
      return wrong(context.where + ".kind", "a collective",
                   context.isPrepare
                       ? std::string("a launch (weights are prepared alone)")
                       : std::string("a launch (mesh.") +
                             meshAxisName(step.axis) + " is 1)");
    if (step.kernel != -1)
      MOERT_CHECK(verifyKernel(step, context));
    MOERT_CHECK(checkRange(context.where + ".kernel_args", step.numKernelArgs,
                           0,
                           step.kernel == -1 ? 0 : int64_t(step.args.size())));
    size_t numPaired = step.args.size() - size_t(step.numKernelArgs);
    if (numPaired == 0 || numPaired % 2 != 0)
      return wrong(
          context.where + ".args",
          "a list of " + std::to_string(step.args.size()) +
              (step.numKernelArgs > 0
                   ? ", the kernel's " + num(step.numKernelArgs) + " among them"
                   : std::string()),
          "pairs of an input and an output, at least one,");
    int64_t own = plan.mesh.tokenRanks();
    int64_t first = (context.minTokens + own - 1) / own * own;
    int64_t last = context.maxTokens / own * own;
    for (size_t i = 0; i < step.args.size(); ++i) {
      std::string where = at(context.where + ".args", i);
      MOERT_CHECK(verifyArgument(step.args[i], where, context));
      if (step.args[i].kind != Argument::Kind::Tensor)
        return wrong(where, "a scalar", "a tensor");
      if (i % 2 == 0 || i >= numPaired || first > last)
        continue;
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

  /// Whether both steps are pieces of one collective, as far as one can tell
  /// from each of them.
  static bool isPieceLike(const Step &step, const Step &other) {
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

  /// The pieces of a collective are the columns of its one pair from the first
  /// to the last, with no other collective in between; the last one has the
  /// launch that makes the sums for those who move all with it.
  Status verifyPiece(const Variant &variant, size_t index,
                     const StepContext &context) const {
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
    auto isPiece = [&](size_t i, int64_t begin) {
      return isPieceLike(variant.steps[i], step) &&
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
    if (first > 0 && (before == 0 || !isPiece(before - 1, first - count)))
      return wrong(field, num(first),
                   "0 (the collective before it is not the piece of the "
                   "columns before)");
    bool isLast = first + count == columns;
    if (!isLast &&
        (behind == variant.steps.size() || !isPiece(behind, first + count)))
      return wrong(field, num(first),
                   num(columns - count) +
                       " (the collective behind it is not the piece of the "
                       "columns behind)");
    if (isLast != (step.sumStep >= 0))
      return wrong(context.where + ".sum_step", num(step.sumStep),
                   isLast ? "the launch that makes the sums (this is the last "
                            "piece)"
                          : "-1 (of a piece that others follow)");
    return Status::ok();
  }

  static bool hasArgument(const Step &step, int64_t tensor) {
    return std::any_of(
        step.args.begin(), step.args.end(), [&](const Argument &arg) {
          return arg.kind == Argument::Kind::Tensor && arg.tensor == tensor;
        });
  }

  /// Who leaves out the launch that makes a collective's input has to find all
  /// that it reads among the kernel's arguments, and nobody else may read what
  /// it would have made, or count on its being there.
  Status verifySumStep(const Variant &variant, size_t index,
                       const StepContext &context) const {
    const Step &step = variant.steps[index];
    std::string field = context.where + ".sum_step";
    if (step.sumStep == -1)
      return Status::ok();
    MOERT_CHECK(checkRange(field, step.sumStep, 0, int64_t(index) - 1));
    auto sumIndex = static_cast<size_t>(step.sumStep);
    const Step &launch = variant.steps[sumIndex];
    if (launch.kind != Step::Kind::Launch || launch.stream != step.stream)
      return wrong(field, num(step.sumStep),
                   "a launch on the collective's stream");
    if (step.kernel == -1 || step.numPairs() != 1 ||
        step.collectiveKind == CollectiveKind::AllGather)
      return wrong(field, num(step.sumStep),
                   "-1 (of a collective with a kernel, that sums one pair, "
                   "another number)");
    int64_t sums = step.args[0].tensor;
    if (!hasArgument(launch, sums) ||
        plan.tensors[sums].role != TensorRole::Workspace)
      return wrong(field, num(step.sumStep),
                   "the launch that makes '" + plan.tensors[sums].name +
                       "', which is workspace,");
    for (const Argument &arg : launch.args)
      if (arg.kind == Argument::Kind::Tensor && !hasArgument(step, arg.tensor))
        return wrong(field,
                     num(step.sumStep) + ", whose '" +
                         plan.tensors[arg.tensor].name +
                         "' the kernel does not get",
                     "a launch all of whose tensors it gets");
    bool isNext = true;
    for (size_t i = 0; i < variant.steps.size(); ++i) {
      const Step &other = variant.steps[i];
      if (i == index || i == sumIndex ||
          (step.numColumns > 0 && isPieceLike(other, step)))
        continue;
      if (hasArgument(other, sums))
        return wrong(field,
                     num(step.sumStep) + ", whose result " + at("steps", i) +
                         " has as an argument too",
                     "a launch whose result the collective alone reads");
      if (i < sumIndex || other.stream != step.stream)
        continue;
      if (isNext && i < index && other.dependent)
        return wrong(at("steps", i) + ".dependent", "true",
                     "false (the launch before it may be left out)");
      isNext = false;
    }
    return Status::ok();
  }

  /// Two ranks may begin with different ones of two collectives that nothing
  /// orders, and wait for each other for ever.
  Status verifyOneOrder(const Variant &variant, size_t index,
                        const std::string &where,
                        const StepOrder &order) const {
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

  /// A dependent launch waits for the kernel before it alone, so that one must
  /// be there, and the target must be able to.
  Status verifyDependent(const Step &step, const StepContext &context,
                         bool isAfterLaunch) const {
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

  /// Two launches whose CTAs all have to run at once may each have half of the
  /// device, and wait for the other half for ever.
  Status verifyResident(const Variant &variant, size_t index,
                        const std::string &where,
                        const StepOrder &order) const {
    auto isResident = [&](const Step &step) {
      return step.kind == Step::Kind::Launch &&
             plan.kernels[step.kernel].resident;
    };
    if (!isResident(variant.steps[index]))
      return Status::ok();
    for (size_t i = 0; i < index; ++i)
      if (isResident(variant.steps[i]) && !order.before(i, index))
        return invalidArgument(
            "plan: " + at(where + ".steps", i) + " and " +
            at(where + ".steps", index) +
            " launch kernels that need all of their CTAs at once, and neither "
            "is complete before the other begins; let one stream wait for the "
            "other");
    return Status::ok();
  }

  Status verifyJoin(const Variant &variant, const std::string &where,
                    const StepOrder &order) const {
    for (size_t i = 0; i < variant.steps.size(); ++i)
      if ((variant.steps[i].kind == Step::Kind::Launch ||
           variant.steps[i].kind == Step::Kind::Collective) &&
          !order.beforeNext(i, 0))
        return invalidArgument(
            "plan: " + at(where + ".steps", i) + " on stream " +
            num(variant.steps[i].stream) +
            " may still run at the end; record an event after it and let "
            "stream 0 wait for that");
    return Status::ok();
  }

  Status verifyOutputs(const Variant &variant, const std::string &where) const {
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

  /// Tensors in one slot are used one after the other, never at the same time.
  Status verifySlots(const Variant &variant, const std::string &where,
                     const StepOrder &order) const {
    // Per tensor: its uses in order, and its last use on each stream, before
    // which all others on that stream are.
    std::vector<std::vector<size_t>> uses(plan.tensors.size());
    std::vector<std::map<int64_t, size_t>> lastUses(plan.tensors.size());
    // Tensors in the order of their first use. Those of a slot follow one
    // another in it, so that each has to be used up before the next alone.
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
        return invalidArgument(
            "plan: " + at("tensors", std::min<size_t>(a, b)) + " '" +
            plan.tensors[std::min<size_t>(a, b)].name + "' and " +
            at("tensors", std::max<size_t>(a, b)) + " '" +
            plan.tensors[std::max<size_t>(a, b)].name + "' share slot " +
            num(plan.tensors[b].slot) + ", but in " + where +
            " neither is used up before the other's first use; give one "
            "another slot");
      a = static_cast<int64_t>(b);
    }
    return Status::ok();
  }

  const Plan &plan;
  mutable int64_t scanBudget = kScanBudget;
};

} // namespace

Status verifyPlan(const Plan &plan) { return PlanVerifier(plan).verify(); }

} // namespace moert
