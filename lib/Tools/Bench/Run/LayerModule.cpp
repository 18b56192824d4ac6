//===- LayerModule.cpp - a bench layer at level tile ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerModule.h"

#include "moec/Compiler/Registry.h"
#include "moec/Dialect/Names.h"
#include "moec/Dialect/Plan/Plan.h"
#include "moec/Import/BuildLayer.h"

using namespace moec;
using namespace moec::bench;
using moert::Result;

static mlir::DialectRegistry makeRegistry() {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  return registry;
}

LayerModule::LayerModule()
    : context(makeRegistry(), mlir::MLIRContext::Threading::DISABLED) {}

Result<std::unique_ptr<LayerModule>>
LayerModule::lower(const Session &session, const BenchLayer &layer,
                   const std::vector<std::string> *configs,
                   bool productsApart) {
  CompileOptions compile = session.jit.compile;
  compile.configs = configs ? *configs : session.getConfigs(layer);
  if (productsApart)
    compile.disable.push_back("join-products");
  std::unique_ptr<LayerModule> made(new LayerModule());
  std::optional<Target> target =
      Target::find(compile.target, /*lanes=*/0, compile.part);
  if (!target)
    return moert::invalidArgument("target '" + compile.target +
                                  "' is unknown, or does not run on part '" +
                                  compile.part + "'");
  made->target = *target;
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  llvm::FailureOr<LayerSpec> spec = importJson(
      SourceText(layer.name + ".json",
                 layer.printSpec(session.maxTokens, /*withRouter=*/false)),
      {}, diagnostics);
  if (failed(spec))
    return moert::invalidArgument(messages);
  mlir::ScopedDiagnosticHandler handler(
      &made->context,
      [&](mlir::Diagnostic &diagnostic) { os << diagnostic.str(); });
  made->module = buildLayer(made->context, *spec);
  if (!made->module ||
      failed(lowerToLevel(*made->module, Level::Tile, compile)))
    return moert::invalidArgument("does not compile: " + messages);
  return made;
}

static std::string getBaseName(tile::KernelOp kernel) {
  llvm::StringRef name = kernel.getSymName();
  if (tile::LoadAttr load = kernel.getLoadAttr())
    name.consume_back("_t" + std::to_string(load.getMaxTokens()));
  return name.str();
}

std::vector<ModelledPhase> LayerModule::getPhases(int64_t tokens) {
  std::vector<ModelledPhase> phases;
  auto add = [&](tile::KernelOp kernel) {
    if (!kernel.getLoadAttr())
      return;
    size_t before = phases.size();
    for (mlir::Operation &op : kernel.getBody().front().without_terminator()) {
      auto config = op.getAttrOfType<tile::ConfigAttr>("config");
      const Schedule *own =
          config ? findSchedule(target, config.getSchedule()) : nullptr;
      if (const ModelsTime *models = own ? own->as<ModelsTime>() : nullptr)
        phases.push_back(
            {&op, kernel.getLoadAttr(), models, getBaseName(kernel)});
    }
    if (phases.size() > before + 1)
      for (size_t i = before; i < phases.size(); ++i)
        phases[i].name = getResultName(phases[i].phase, 0).str();
  };
  mlir::SymbolTable symbols(*module);
  module->walk([&](plan::VariantOp variant) {
    if (tokens < static_cast<int64_t>(variant.getMinTokens()) ||
        tokens > static_cast<int64_t>(variant.getMaxTokens()))
      return;
    for (auto launch : variant.getBody().getOps<plan::LaunchOp>())
      if (auto kernel = symbols.lookup<tile::KernelOp>(launch.getKernel()))
        add(kernel);
  });
  return phases;
}
