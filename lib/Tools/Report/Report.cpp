//===- Report.cpp - the report as a page ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/ReportLayer.h"

#include "../DescribeLayer.h"
#include "../ExplainTimes.h"
#include "../Host/HostRates.h"
#include "Levels.h"
#include "Parts.h"
#include "Style.h"
#include "moec/Compiler/PlanData.h"
#include "moec/Package/BuildPackage.h"
#include "moec/Package/SpecText.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace moec;
using namespace moec::report;

/// Lowers the module to level tile, and collects the levels on its path.
static LogicalResult lower(const Source &source, const CompileOptions &options,
                           Levels &levels) {
  ModuleOp module = *source.module;
  if (source.spec)
    levels.addText("spec", "spec: the layer in JSON, with all defaults",
                   printLayerSpec(*source.spec));
  FailureOr<Level> level = detectLevel(module);
  if (failed(level))
    return failure();
  if (*level == Level::Moe) {
    OwningOpRef<ModuleOp> steps = module.clone();
    if (failed(decomposeLayers(*steps, options)))
      return failure();
    levels.addIR("moe", "moe: what the layer computes", module,
                 getNames(*steps));
    levels.addIR("steps", "moe, decomposed: the steps of the pipeline", *steps);
  }
  if (*level <= Level::Plan) {
    if (failed(lowerToLevel(module, Level::Plan, options)))
      return failure();
    levels.addIR("plan", "plan: launches over buffers", module);
  }
  if (failed(lowerToLevel(module, Level::Tile, options)))
    return failure();
  levels.addIR("tile", "tile: kernels of configured ops", module);
  return success();
}

/// Compiles the kernels; collects their code and the assembler's reports.
static LogicalResult
compileKernels(ModuleOp module, const CompileOptions &options, Levels &levels,
               std::map<std::string, KernelReport> &assembled) {
  OwningOpRef<ModuleOp> copy = module.clone();
  FailureOr<std::string> llvm = emitLLVM(*copy, options);
  if (failed(llvm))
    return failure();
  levels.addCode("llvm", "llvm: LLVM IR of the kernels", std::move(*llvm));
  if (!options.isGpu())
    return success();
  OwningOpRef<ModuleOp> other = module.clone();
  FailureOr<CompiledGpuLayer> layer =
      compileForGpu(*other, options, chooseArchitectures(options));
  if (failed(layer))
    return failure();
  std::string ptx;
  for (const CompiledKernel &kernel : layer->kernels) {
    ptx += kernel.ptx;
    for (const AssembledKernels &code : kernel.assembled)
      for (const KernelReport &report : code.kernels)
        assembled[report.name] = report;
  }
  levels.addCode("ptx", "ptx: PTX of the kernels", std::move(ptx));
  return success();
}

static void showRange(const Layer &layer, const TokenRange &range,
                      ToldKernels &told, raw_ostream &os) {
  std::string tokens =
      showRange(range.steps->minTokens, range.steps->maxTokens);
  os << "<section class=\"range\" data-tokens=\"" << tokens
     << "\">\n<h3>tokens " << tokens << "</h3>\n";
  drawTimeline(layer, range, os);
  os << "<h3>kernels</h3>\n";
  showKernels(layer, range, os);
  std::string choices;
  llvm::raw_string_ostream text(choices);
  explainChoices(range.phases, range.op, layer.topK, layer.target, told, text);
  if (!choices.empty())
    os << "<h3>considered and rejected</h3>\n<pre class=\"told\">"
       << escape(StringRef(choices).trim()) << "</pre>\n";
  os << "</section>\n";
}

static std::string getTitle(const Source &source, ModuleOp module) {
  if (source.spec)
    return source.spec->name;
  return (*module.getOps<plan::ProgramOp>().begin()).getSymName().str();
}

static void showPage(const Layer &layer, StringRef title, StringRef command,
                     StringRef strategies, const Levels &levels,
                     raw_ostream &os) {
  std::string name = escape(title);
  os << "<!DOCTYPE html>\n<html lang=\"en\"><head><meta "
        "charset=\"utf-8\"><meta "
        "name=\"viewport\" content=\"width=device-width, initial-scale=1\">"
     << "<title>" << name << " - moec</title>\n<style>" << kStyle
     << "</style></head><body>\n<h1>" << name << "</h1>\n<p class=\"sub\">for "
     << escape(layer.target.name);
  if (layer.device && layer.target.isGpu())
    os << ", configs chosen for " << escape(layer.device->describe());
  os << llvm::formatv("; {0} kernels, {1} {2} of tokens up to {3}",
                      layer.plan.kernels.size(), layer.ranges.size(),
                      layer.ranges.size() == 1 ? "range" : "ranges",
                      layer.plan.maxTokens)
     << "</p>\n";
  showOrigin(command, os);
  os << "<nav>";
  for (auto [id, name] :
       {std::pair<StringRef, StringRef>{"glance", "at a glance"},
        {"layer", "layer"},
        {"times", "times"},
        {"roofline", "roofline"},
        {"plan", "plan and kernels"},
        {"workspace", "workspace"},
        {"levels", "levels"}})
    if (layer.device || id != "roofline")
      os << "<a href=\"#" << id << "\">" << name << "</a>";
  os << "</nav>\n";
  os << "<h2 id=\"glance\">At a glance</h2>\n";
  showSummary(layer, os);
  os << "<h2 id=\"layer\">Layer</h2>\n";
  drawLayer(layer, os);
  if (!strategies.empty())
    os << "<pre class=\"words\">" << escape(strategies) << "</pre>\n";
  os << "<h2 id=\"times\">Times</h2>\n";
  showTimes(layer, os);
  if (layer.device) {
    os << "<h2 id=\"roofline\">Roofline</h2>\n";
    drawRoofline(layer, os);
  }
  os << "<h2 id=\"plan\">Plan and kernels</h2>\n<p class=\"legend\">By tokens "
        "of a call.<span class=\"product-key\"></span>products<span "
        "class=\"routing-key\"></span>routing<span "
        "class=\"combine-key\"></span>combine<span "
        "class=\"rows-key\"></span>rows</p>\n<div id=\"ranges\"></div>\n";
  ToldKernels told;
  for (const TokenRange &range : layer.ranges)
    showRange(layer, range, told, os);
  os << "<h2 id=\"workspace\">Workspace</h2>\n";
  showWorkspace(layer, os);
  os << "<h2 id=\"levels\">Levels</h2>\n<p>A click on a line, a box or a row "
        "shows what belongs to it on all levels: ops keep the names of what "
        "they make (<code>moe.name</code>) and kernels their symbols; lines of "
        "PTX have the locations of their lines at level tile.</p>\n";
  levels.show(os);
  os << "<div id=\"links\"></div>\n<script>" << kScript
     << "</script>\n</body></html>\n";
}

FailureOr<std::string> moec::reportLayer(const Source &source,
                                         const CompileOptions &options,
                                         const BenchResults &results,
                                         StringRef command, raw_ostream &os) {
  Measured measured;
  if (!results.json.empty()) {
    FailureOr<Measured> read =
        readMeasured(results.name, results.json, results.layer, os);
    if (failed(read))
      return failure();
    measured = std::move(*read);
  }
  Levels levels;
  if (failed(lower(source, options, levels)))
    return failure();
  ModuleOp module = *source.module;
  FailureOr<moert::Plan> plan = translatePlan(module, options.target);
  if (failed(plan))
    return failure();
  Target target = getExpectedTarget(options, module);
  report::Layer layer(module, source.spec, *plan, target);
  layer.measured = std::move(measured);
  layer.numLayers = source.numLayers;
  if (failed(compileKernels(module, options, levels, layer.assembled)))
    return failure();
  std::string page, strategies;
  llvm::raw_string_ostream words(strategies), html(page);
  describeStrategies(module, target, words);
  showPage(layer, getTitle(source, module), command, strategies, levels, html);
  return page;
}
