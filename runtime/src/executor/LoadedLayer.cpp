//===- LoadedLayer.cpp - a layer's plan and kernels -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LoadedLayer.h"
#include "../plan/PlanDigest.h"
#include "../support/Check.h"

namespace moert {

/// Success if the largest launch of a resident kernel fits on the device;
/// otherwise it would never end.
static Status checkResident(Device &device, Kernel &kernel,
                            const KernelDecl &decl, int64_t maxTokens) {
  Result<int64_t> grid = decl.grid.maxUpTo(maxTokens);
  if (!grid)
    return grid.status();
  LaunchDims dims = {*grid, decl.block, decl.shared};
  dims.resident = true;
  return device.checkResident(kernel, dims);
}

Result<std::shared_ptr<const LoadedLayer>>
LoadedLayer::load(Plan plan, Device &device, const ModuleImage &image,
                  ExecutorOptions options) {
  MOERT_CHECK(verifyPlan(plan));
  MOERT_CHECK(device.checkTarget(plan.target));
  std::string identity = digestLayer(plan, image, !options.description.empty());
  if (options.keepAll) {
    plan.numSlots = 0;
    for (TensorDecl &tensor : plan.tensors)
      if (tensor.role == TensorRole::Workspace)
        tensor.slot = plan.numSlots++;
    // Without sharing the workspace is larger, and its size may overflow 64
    // bits.
    MOERT_CHECK(verifyPlan(plan));
  }
  Result<std::unique_ptr<Module>> module = device.loadModule(image);
  if (!module)
    return module.status();
  std::vector<Kernel *> kernels;
  for (const KernelDecl &decl : plan.kernels) {
    Result<Kernel *> kernel = (*module)->kernel(decl.name);
    if (!kernel)
      return kernel.status();
    if (decl.resident)
      MOERT_CHECK(checkResident(device, **kernel, decl, plan.maxTokens));
    kernels.push_back(*kernel);
  }
  std::vector<std::vector<GatheredResult>> gathered;
  for (const Variant &variant : plan.variants)
    gathered.push_back(findResults(plan, variant));
  return std::shared_ptr<const LoadedLayer>(new LoadedLayer{
      device, std::move(options), std::move(plan), std::move(identity),
      std::move(*module), std::move(kernels), std::move(gathered)});
}

} // namespace moert
