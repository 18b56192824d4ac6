//===- Plan.cpp - a compiled layer as data ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Plan.h"

#include <algorithm>

namespace moert {

const char *tensorRoleName(TensorRole role) {
  switch (role) {
  case TensorRole::Input:
    return "input";
  case TensorRole::Weight:
    return "weight";
  case TensorRole::Output:
    return "output";
  case TensorRole::Workspace:
    return "workspace";
  case TensorRole::Prepared:
    return "prepared";
  }
  return "unknown";
}

Step Step::launch(int64_t kernel, std::vector<Argument> args, int64_t stream) {
  Step step;
  step.kind = Kind::Launch;
  step.kernel = kernel;
  step.args = std::move(args);
  step.stream = stream;
  return step;
}

Step Step::collective(CollectiveKind kind, MeshAxis axis,
                      std::vector<Argument> args, int64_t stream) {
  Step step;
  step.kind = Kind::Collective;
  step.stream = stream;
  step.args = std::move(args);
  step.collectiveKind = kind;
  step.axis = axis;
  return step;
}

Step Step::record(int64_t event, int64_t stream) {
  Step step;
  step.kind = Kind::RecordEvent;
  step.event = event;
  step.stream = stream;
  return step;
}

Step Step::wait(int64_t event, int64_t stream) {
  Step step;
  step.kind = Kind::WaitEvent;
  step.event = event;
  step.stream = stream;
  return step;
}

bool isFollowed(const Step &step, const Plan &plan) {
  if (step.kind != Step::Kind::Collective || step.numColumns == 0)
    return false;
  const TensorDecl &tensor =
      plan.tensors[static_cast<size_t>(step.args[0].tensor)];
  return step.firstColumn + step.numColumns <
         tensor.shape.back().constantValue();
}

bool isMadeByKernel(const Step &step, const Variant &variant, size_t pair) {
  if (step.kind != Step::Kind::Collective || step.replacedStep < 0)
    return false;
  const Step &launch = variant.steps[static_cast<size_t>(step.replacedStep)];
  int64_t input = step.args[2 * pair].tensor;
  auto isInput = [&](const Argument &arg) {
    return arg.kind == Argument::Kind::Tensor && arg.tensor == input;
  };
  // The launch's inputs are kernel-only arguments.
  auto alone = step.args.begin() + int64_t(2 * step.numPairs());
  return std::any_of(launch.args.begin(), launch.args.end(), isInput) &&
         std::none_of(alone, step.args.end(), isInput);
}

int64_t Plan::findTensor(const std::string &name) const {
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == name)
      return static_cast<int64_t>(i);
  return -1;
}

int64_t Plan::findVariant(int64_t tokens) const {
  for (size_t i = 0; i < variants.size(); ++i)
    if (variants[i].minTokens <= tokens && tokens <= variants[i].maxTokens)
      return static_cast<int64_t>(i);
  return -1;
}

int64_t countDestinationsOfRow(const Plan &plan, const Step &step) {
  int64_t topK = plan.tensors[step.packedIds()].shape[1].constantValue();
  return std::min(topK, plan.mesh.size(step.axis) - 1);
}

} // namespace moert
