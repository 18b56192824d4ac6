//===- LoadedLayer.h - a layer's plan and kernels ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_LOADEDLAYER_H
#define MOERT_SRC_EXECUTOR_LOADEDLAYER_H

#include "../plan/GatheredResults.h"
#include "moert/Device.h"
#include "moert/ExecutorTypes.h"
#include "moert/Plan.h"

#include <memory>
#include <string>
#include <vector>

namespace moert {

/// A package's plan, and its kernels on a device. Shared by an
/// executor, its clones and the graphs of their runs. Never changes once it is
/// loaded, so threads read it without a lock. The device outlives it.
struct LoadedLayer {
  /// Verifies the plan, loads the module, looks up every kernel, and asks the
  /// device whether resident kernels fit.
  static Result<std::shared_ptr<const LoadedLayer>>
  load(Plan plan, Device &device, const ModuleImage &image,
       ExecutorOptions options);

  Kernel &kernel(int64_t index) const {
    return *kernels[static_cast<size_t>(index)];
  }

  Device &device;
  const ExecutorOptions options;
  const Plan plan;
  /// Identifies the layer in prepared files.
  const std::string identity;
  const std::unique_ptr<Module> module;
  /// Per plan kernel; owned by `module`.
  const std::vector<Kernel *> kernels;
  /// Per variant: the tensors in the communicator's results(), in memory order.
  const std::vector<std::vector<GatheredResult>> gatheredResults;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_LOADEDLAYER_H
