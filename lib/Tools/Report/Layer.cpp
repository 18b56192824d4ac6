//===- Layer.cpp - a compiled layer for the report --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Layer.h"

#include "../DescribeLayer.h"
#include "moec/Dialect/Names.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace moec;
using namespace moec::report;

Layer::Layer(ModuleOp module, const std::optional<LayerSpec> &spec,
             const moert::Plan &plan, const Target &target)
    : module(module), spec(spec), plan(plan), target(target),
      device(getDeviceRates(target)), topK(findTopK(module)) {
  plan::ProgramOp program = *module.getOps<plan::ProgramOp>().begin();
  auto variants = program.getBody().getOps<plan::VariantOp>();
  for (auto [op, steps] : llvm::zip(variants, plan.variants)) {
    TokenRange range{op, &steps, getLaunchedPhases(op), {}, {}};
    range.ends.push_back(std::max<int64_t>(steps.minTokens, 1));
    if (steps.maxTokens > range.ends.front())
      range.ends.push_back(steps.maxTokens);
    for (const LaunchedPhase &phase : range.phases) {
      auto &figures = range.figures.emplace_back();
      for (int64_t tokens : range.ends)
        figures.push_back(getFigures(phase, tokens));
    }
    ranges.push_back(std::move(range));
  }
}

PhaseFigures Layer::getFigures(const LaunchedPhase &phase,
                               int64_t tokens) const {
  PhaseFigures figures;
  figures.work = getWork(phase.op, topK, tokens);
  if (device)
    figures.prediction = predictPhase(phase, tokens, topK, target, *device);
  return figures;
}

ExpectedRun Layer::getTotal(const TokenRange &range, int64_t tokens) const {
  return expectRun(range.op, tokens, topK, target, device);
}

const TokenRange *Layer::findRange(int64_t tokens) const {
  int64_t found = plan.findVariant(tokens);
  return found < 0 ? nullptr : &ranges[size_t(found)];
}

std::string moec::report::getStage(const LaunchedPhase &phase) {
  StringRef name = getResultName(phase.op, 0);
  return name.empty() ? phase.name : name.str();
}

Keys moec::report::getKeys(const LaunchedPhase &phase) {
  tile::KernelOp kernel = phase.kernel;
  Keys keys{("@" + kernel.getSymName()).str()};
  if (auto names = phase.op->getAttrOfType<ArrayAttr>(kNameAttr))
    for (auto name : names.getAsRange<StringAttr>())
      keys.insert(name.str());
  return keys;
}

StringRef moec::report::getStyle(Operation *phase) {
  if (isa<tile::GemmOp>(phase))
    return "product";
  if (isa<tile::TopKOp, tile::SortByExpertOp, tile::CountSlotsOp>(phase))
    return "routing";
  if (isa<tile::GatherReduceOp>(phase))
    return "combine";
  return "rows";
}
