//===- PlanVerifier.cpp - semantic verification of a plan -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "InPlace.h"
#include "PlanChecks.h"
#include "StepOrder.h"
#include "TensorMaps.h"
#include "moert/Workspace.h"

#include <limits>
#include <unordered_map>

namespace moert {

namespace {

constexpr int64_t kMaxInt32 = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxRanks = 1 << 16;
constexpr int64_t kMaxStreams = 64;
constexpr int64_t kMaxEvents = 1024;
/// Budget over all sizes and grids of a plan, so that a small file cannot cause
/// minutes of work.
constexpr int64_t kScanBudget = 4 * Expr::kMaxScan;

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

  /// Checks the kernel's index and number of CTAs.
  Status verifyKernel(int64_t kernel, const std::string &field,
                      const StepContext &context) const {
    MOERT_CHECK(checkIndex(context.where + "." + field, kernel,
                           plan.kernels.size(), "kernels"));
    const Expr &grid = plan.kernels[kernel].grid;
    std::string gridField = at("kernels", kernel) + ".grid";
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
    MOERT_CHECK(verifyKernel(step.kernel, "kernel", context));
    for (size_t i = 0; i < step.args.size(); ++i)
      MOERT_CHECK(verifyArgument(step.args[i], at(context.where + ".args", i),
                                 context));
    return verifyMaps(step, context);
  }

  /// Checks the kernel's tensor maps over the tensors of this launch.
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
      MOERT_CHECK(
          verifyDependent(plan, step, context, /*isAfterLaunch=*/i > 0));
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
        MOERT_CHECK(verifyChunk(plan, variant, i, context));
        MOERT_CHECK(verifyReplacedStep(plan, variant, i, context));
        MOERT_CHECK(verifyPacked(plan, variant, i, context));
      } else {
        MOERT_CHECK(checkIndex(context.where + ".event", step.event,
                               plan.numEvents, "events"));
        if (!step.args.empty())
          return wrong(context.where + ".args", "not empty",
                       "an empty list (only launches have arguments)");
      }
      MOERT_CHECK(verifyToResults(plan, variant, i, context));
      if (!order.append(step))
        return invalidArgument("plan: " + context.where + " waits for event " +
                               num(step.event) +
                               ", which no earlier step records");
      MOERT_CHECK(
          verifyDependent(plan, step, context, isAfterLaunch[step.stream]));
      MOERT_CHECK(verifyResident(plan, variant, i, where, order));
      MOERT_CHECK(verifyOneOrder(variant, i, where, order));
      isAfterLaunch[step.stream] = step.kind == Step::Kind::Launch;
    }
    for (size_t i = 0; i < variant.steps.size(); ++i)
      MOERT_CHECK(verifyRelease(plan, variant, i,
                                {at(where + ".steps", i), variant.minTokens,
                                 variant.maxTokens, false},
                                order));
    MOERT_CHECK(verifyJoin(variant, where, order));
    MOERT_CHECK(verifyOutputs(plan, variant, where));
    return verifySlots(plan, variant, where, order);
  }

  Status verifyCollective(const Step &step, const StepContext &context) const {
    int64_t ranks = plan.mesh.size(step.axis);
    if (context.isPrepare || ranks < 2)
      return wrong(context.where + ".kind", "a collective",
                   context.isPrepare
                       ? std::string("a launch (prepare has only launches)")
                       : std::string("a launch (mesh.") +
                             meshAxisName(step.axis) + " is 1)");
    if (step.kernel != -1)
      MOERT_CHECK(verifyKernel(step.kernel, "kernel", context));
    if (step.isPacked() || step.routeKernel != -1) {
      MOERT_CHECK(verifyKernel(step.routeKernel, "route_kernel", context));
      MOERT_CHECK(verifyKernel(step.packKernel, "pack_kernel", context));
    }
    bool hasKernel = step.kernel != -1 || step.isPacked();
    MOERT_CHECK(checkRange(context.where + ".kernel_args", step.numKernelArgs,
                           0, hasKernel ? int64_t(step.args.size()) : 0));
    size_t numPaired = step.args.size() - size_t(step.numKernelArgs);
    if (numPaired == 0 || numPaired % 2 != 0)
      return wrong(
          context.where + ".args",
          "a list of " + std::to_string(step.args.size()) +
              (step.numKernelArgs > 0
                   ? ", " + num(step.numKernelArgs) + " for kernels among them"
                   : std::string()),
          "pairs of an input and an output, at least one,");
    for (size_t i = 0; i < step.args.size(); ++i) {
      std::string where = at(context.where + ".args", i);
      MOERT_CHECK(verifyArgument(step.args[i], where, context));
      if (step.args[i].kind != Argument::Kind::Tensor)
        return wrong(where, "a scalar", "a tensor");
    }
    return verifyPairs(plan, step, context);
  }

  const Plan &plan;
  mutable int64_t scanBudget = kScanBudget;
};

} // namespace

Status verifyPlan(const Plan &plan) { return PlanVerifier(plan).verify(); }

} // namespace moert
