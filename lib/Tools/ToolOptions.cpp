//===- ToolOptions.cpp - options shared by commands -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ToolOptions.h"
#include "CommandLine.h"

#include "moec/Compiler/Registry.h"
#include "moec/Compiler/TunedConfigs.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Schedules/Schedules.h"
#include "moec/Transforms/LaunchRewrites.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/PrettyStackTrace.h"

using namespace mlir;
using namespace moec;

ForeignOptionsRemoved::ForeignOptionsRemoved() {
  llvm::SmallVector<llvm::cl::Option *> foreign;
  for (const auto &entry : llvm::cl::getRegisteredOptions())
    if (!llvm::StringRef(entry.first).starts_with("help") &&
        entry.first != "version")
      foreign.push_back(entry.second);
  for (llvm::cl::Option *option : foreign)
    option->removeArgument();
}

bool ToolOptions::complain(const llvm::Twine &message) const {
  llvm::errs() << tool << ": error: " << message << "\n";
  return false;
}

bool ToolOptions::accept(llvm::Error error) const {
  return !error || complain(llvm::toString(std::move(error)));
}

OutputCheck ToolOptions::makeOutputCheck() const {
  OutputCheck check;
  check.addInput(input);
  check.addInput(tuned);
  if (llvm::StringRef(input).ends_with(".json")) {
    llvm::SmallString<256> beside(llvm::sys::path::parent_path(input));
    llvm::sys::path::append(beside, "hf_quant_config.json");
    check.addInput(beside);
  }
  return check;
}

bool ToolOptions::canWriteDumps(const OutputCheck &check) const {
  if (dumpDir.getNumOccurrences() &&
      !accept(check.checkFolder("--dump-dir", dumpDir, "layer.")))
    return false;
  return !reproducer.getNumOccurrences() ||
         accept(check.check("--reproducer", reproducer,
                            OutputCheck::Kind::Binary));
}

bool ToolOptions::parse(int argc, char **argv, llvm::StringRef overview) {
  static std::string report =
      (tool + " crashed; please report it with the command line and the input "
              "files.\n")
          .str();
  llvm::setBugReportMsg(report.c_str());
  llvm::cl::HideUnrelatedOptions(category);
  if (!parseCommandLine(argc, argv, tool, overview))
    return false;
  if (!needsInput())
    return true;
  if (input.empty())
    return complain(
        "no input; give a model's folder or its config.json, a GGUF file, a "
        "spec (.json) or IR (.mlir), see --help");
  llvm::SmallVector<std::string> given = getTargets();
  target = llvm::join(llvm::map_range(given, resolveTarget), ",");
  for (const std::string &name : getTargets())
    if (!Target::find(name))
      return complain("--target: '" + name + "' is unknown; accepted are " +
                      llvm::join(Target::getNames(), ", "));
  // The target may not be known yet; the part's architecture is checked in its
  // place.
  const PartFacts *part = findPart(kernels.devicePart);
  llvm::SmallVector<std::string> targets = getTargets();
  if (choosesTarget() && part)
    targets = {part->architecture.str()};
  for (const std::string &name : targets)
    if (std::string why = kernels.whyNot(name); !why.empty())
      return complain(why);
  if (!fitTargets())
    return false;
  if (maxTokens.getNumOccurrences() && maxTokens <= 0)
    return complain("--max-tokens must be positive");
  if (numExperts.getNumOccurrences() && numExperts <= 0)
    return complain("--num-experts must be positive");
  if (layer.getNumOccurrences() && layer < 0)
    return complain("--layer must not be negative; layers are counted from 0");
  if (entry.getNumOccurrences() && !symbolize<Entry>(entry))
    return complain("--entry: '" + entry +
                    "' is none of 'gate', 'logits', 'ids'");
  if (!tuned.empty()) {
    FailureOr<std::vector<std::string>> read =
        readTunedConfigs(tuned, getTargets().front(), llvm::errs());
    if (failed(read))
      return false;
    configs = std::move(*read);
  }
  // Options are appended: the last config for a kernel takes effect.
  llvm::append_range(configs, config);
  if (llvm::Error error = parseForcedConfigs(configs).takeError())
    return complain(llvm::toString(std::move(error)));
  return true;
}

const llvm::cl::Option *moec::findGiven(
    std::initializer_list<std::reference_wrapper<const llvm::cl::Option>>
        options) {
  for (const llvm::cl::Option &option : options)
    if (option.getNumOccurrences() > 0)
      return &option;
  return nullptr;
}

bool ToolOptions::fitTargets() const {
  bool hasCpu = !choosesTarget() && llvm::is_contained(getTargets(), "cpu");
  if (hasCpu && getTargets().size() == 1)
    if (const llvm::cl::Option *given = findGiven(
            {kernels.noDependentLaunches, kernels.disable, kernels.set}))
      return complain("--" + given->ArgStr +
                      " is for GPUs, and the target is cpu; give a GPU's "
                      "--target, or leave it out");
  if (!hasCpu && findGiven({cpu}))
    return complain("--cpu is for target cpu, and the target is a GPU; leave "
                    "it out");
  return true;
}

const llvm::cl::Option *ToolOptions::findCompileOption() const {
  return findGiven({target, cpu, maxTokens, numExperts, batchInvariant,
                    roundWeights, entry, parallel, ignoreField,
                    kernels.devicePart, kernels.noDependentLaunches,
                    kernels.disable, kernels.set, config, tuned,
                    printIRAfterAll, dumpDir, reproducer});
}

llvm::SmallVector<std::string> ToolOptions::getTargets() const {
  llvm::SmallVector<llvm::StringRef> names;
  llvm::StringRef(target).split(names, ',');
  return llvm::to_vector_of<std::string>(names);
}

SpecOverrides ToolOptions::getOverrides() const {
  SpecOverrides overrides;
  if (maxTokens.getNumOccurrences())
    overrides.maxTokens = maxTokens;
  if (numExperts.getNumOccurrences())
    overrides.numExperts = numExperts;
  overrides.batchInvariant = batchInvariant;
  overrides.roundWeights = roundWeights;
  if (entry.getNumOccurrences())
    overrides.entry = symbolize<Entry>(entry);
  overrides.layer = getGivenLayer();
  overrides.part = part;
  if (parallel.getNumOccurrences())
    overrides.parallel = SourceText("--parallel", parallel);
  overrides.ignoredFields.assign(ignoreField.begin(), ignoreField.end());
  return overrides;
}

std::string KernelOptions::whyNot(llvm::StringRef target) const {
  if (std::string why = whyNotPart(target, devicePart); !why.empty())
    return "--device-part: " + why;
  if (llvm::Error error = checkLaunchRewrites(disable))
    return "--disable: " + llvm::toString(std::move(error));
  if (llvm::Error error = parseRewriteParameters(set).takeError())
    return "--set: " + llvm::toString(std::move(error));
  return {};
}

void KernelOptions::apply(CompileOptions &options) const {
  options.part = devicePart;
  options.dependentLaunches = !noDependentLaunches;
  options.disable.assign(disable.begin(), disable.end());
  options.set.assign(set.begin(), set.end());
}

CompileOptions ToolOptions::getCompileOptions() const {
  CompileOptions options;
  options.target = target;
  options.cpu.cpu = cpu;
  kernels.apply(options);
  options.configs = configs;
  options.printIRAfterAll = printIRAfterAll;
  options.dumpDir = dumpDir;
  options.reproducer = reproducer;
  return options;
}

DialectRegistry ToolOptions::makeRegistry() {
  DialectRegistry registry;
  registerDialects(registry);
  return registry;
}
