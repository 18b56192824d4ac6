//===- CompiledLayers.h - compiles the layers of cases ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_GPUTEST_RUN_COMPILEDLAYERS_H
#define MOEC_VERIFY_GPUTEST_RUN_COMPILEDLAYERS_H

#include "../Cases/Case.h"
#include "moec/Compiler/Compiler.h"

#include <future>
#include <map>
#include <mutex>

namespace moec::gputest {

/// A layer that a device can load.
struct LoadableLayer {
  moert::Plan plan;
  moert::ModuleImage image;
  double compileSeconds = 0;
};

/// A cache that compiles each layer once, at the first request.
class CompiledLayers {
public:
  using Ptr = std::shared_ptr<const moert::Result<LoadableLayer>>;

  /// `assembles`: the device takes cubins.
  CompiledLayers(const moert::Device &device, std::string target,
                 bool assembles)
      : device(device), target(std::move(target)), assembles(assembles) {}

  const std::string &getTarget() const { return target; }
  /// Compiles the layer, or waits for another thread that does.
  Ptr get(const LayerSpec &spec, const KernelOptions &kernels);

private:
  moert::Result<LoadableLayer> compile(const LayerSpec &spec,
                                       const KernelOptions &kernels) const;

  const moert::Device &device;
  std::string target;
  bool assembles;
  std::mutex mutex;
  std::map<std::string, std::shared_future<Ptr>> layers;
};

} // namespace moec::gputest

#endif // MOEC_VERIFY_GPUTEST_RUN_COMPILEDLAYERS_H
