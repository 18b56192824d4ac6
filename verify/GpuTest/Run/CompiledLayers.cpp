//===- CompiledLayers.cpp - compiles the layers of cases --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CompiledLayers.h"

#include "Tools/Run/PlanRun.h"
#include "moec/Compiler/Registry.h"
#include "moec/Import/BuildLayer.h"
#include "moec/Package/BuildPackage.h"
#include "moec/Package/SpecText.h"
#include "moec/Support/Targets.h"

using namespace moec;
using namespace moec::gputest;
using moert::Result;

CompiledLayers::Ptr CompiledLayers::get(const LayerSpec &spec,
                                        const KernelOptions &kernels) {
  std::string key = printLayerSpec(spec);
  if (kernels.permuteRows)
    key += "\nrows in order";
  for (const std::string &config : kernels.configs)
    key += "\n" + config;
  std::promise<Ptr> mine;
  std::shared_future<Ptr> future;
  bool isFirst = false;
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto [it, inserted] = layers.try_emplace(key);
    isFirst = inserted;
    if (isFirst)
      it->second = mine.get_future().share();
    future = it->second;
  }
  if (isFirst)
    mine.set_value(
        std::make_shared<const Result<LoadableLayer>>(compile(spec, kernels)));
  return future.get();
}

Result<LoadableLayer>
CompiledLayers::compile(const LayerSpec &spec,
                        const KernelOptions &kernels) const {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  // Cases are compiled in parallel, each by one thread.
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) {
        messages += (messages.empty() ? "" : "; ") + diagnostic.str();
      });
  auto fail = [&] {
    return moert::internalError("does not compile: " + messages);
  };
  double begin = getSeconds();
  LoadableLayer layer;
  mlir::OwningOpRef<mlir::ModuleOp> module = buildLayer(context, spec);
  if (!module)
    return fail();
  CompileOptions options;
  options.target = target;
  options.part = choosePart(target, device);
  if (findTarget(target)->architecture == Architecture::Hopper) {
    if (kernels.permuteRows)
      options.set = {"permute-rows.always"};
    options.configs = kernels.configs;
  }
  if (!options.isGpu()) {
    mlir::FailureOr<CompiledLayer> compiled = compileForHost(*module, options);
    if (mlir::failed(compiled))
      return fail();
    layer.plan = std::move(compiled->plan);
    layer.image = std::move(compiled->image);
  } else {
    std::vector<std::string> architectures;
    if (assembles)
      architectures = chooseArchitectures(options, device.architecture());
    mlir::FailureOr<moert::Package> package =
        buildPackage(*module, spec, options, architectures);
    if (mlir::failed(package))
      return fail();
    Result<moert::PackageChoice> choice =
        moert::chooseImage(*package, device.architecture());
    if (!choice)
      return choice.status();
    moert::PackageProgram &program = package->programs[choice->program];
    layer.image = program.images[choice->image].load();
    layer.plan = std::move(program.plan);
  }
  layer.compileSeconds = getSeconds() - begin;
  return layer;
}
