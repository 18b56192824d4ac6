//===- GpuTest.cpp - the command gpu-test -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Check/LayerCase.h"
#include "Device/DeviceCases.h"
#include "ReferenceMode.h"
#include "Suite.h"
#include "Tools/Run/OpenDevice.h"
#include "moec/Compiler/Registry.h"
#include "moec/Compiler/SourceDiagnostics.h"
#include "moec/Package/BuildPackage.h"
#include "moec/Support/PooledContext.h"
#include "moec/Tools/Tools.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/GlobPattern.h"

using namespace moec;
using namespace moec::gputest;
using moert::Result;

namespace {

/// Keeps the cases that the options ask for; returns false, with a message, if
/// there are none.
bool select(std::vector<Case> &cases, const Options &options) {
  std::vector<llvm::GlobPattern> patterns;
  for (const std::string &text : options.filter) {
    llvm::Expected<llvm::GlobPattern> pattern = llvm::GlobPattern::create(text);
    if (!pattern)
      return options.complain("--filter: " +
                              llvm::toString(pattern.takeError()));
    patterns.push_back(std::move(*pattern));
  }
  if (!patterns.empty())
    llvm::erase_if(cases, [&](const Case &candidate) {
      return llvm::none_of(patterns, [&](const llvm::GlobPattern &pattern) {
        return pattern.match(candidate.name);
      });
    });
  int64_t position = 0;
  llvm::erase_if(cases, [&](const Case &) {
    return position++ % options.numShards != options.shardIndex;
  });
  return !cases.empty() || options.complain("no case matches");
}

int runSuite(const Options &options, mlir::MLIRContext &context) {
  std::string commit;
  Result<std::vector<LayerCase>> layerCases =
      loadCases(options.getDataFolder(), commit);
  if (!layerCases)
    return options.complain(layerCases.status().message()), 1;
  bool isGpu = llvm::StringRef(options.device).starts_with("cuda");
  std::unique_ptr<moert::Device> device;
  std::unique_ptr<SuiteContext> shared;
  std::vector<Case> cases = makeGeneratorCases(shared);
  if (isGpu)
    llvm::append_range(cases, makeDeviceCases(shared));
  for (const LayerCase &layerCase : *layerCases)
    cases.push_back({layerCase.name, [&shared, &layerCase] {
                       return runLayerCase(*shared, layerCase);
                     }});
  if (!select(cases, options))
    return 1;
  if (options.list) {
    for (const Case &listed : cases)
      llvm::outs() << listed.name << "\n";
    return 0;
  }

  Result<std::unique_ptr<moert::Device>> opened =
      openDevice(options.device, options.threads);
  if (!opened)
    return options.complain(opened.status().message()), 1;
  device = std::move(*opened);
  std::string target = options.target;
  if (target.empty())
    target = device->architecture().empty()
                 ? "cpu"
                 : chooseTarget(device->architecture());
  Result<DeviceGenerator> made =
      DeviceGenerator::create(context, *device, target);
  if (!made)
    return options.complain(made.status().message()), 1;
  CompiledLayers layers(*device, target, /*assembles=*/isGpu);
  shared.reset(new SuiteContext{
      *device, *made, layers, isGpu, options.threads, options.plant, {}});

  Record record(commit, *device, target);
  for (const Case &selected : cases)
    record.addCase(selected.name);
  if (!options.resume.empty()) {
    Result<std::vector<std::string>> failed = record.resume(options.resume);
    if (!failed)
      return options.complain(failed.status().message()), 1;
    llvm::erase_if(cases, [&](const Case &candidate) {
      return record.has(candidate.name);
    });
    // Failed cases run last, because they may make the device unusable again.
    std::vector<Case> last;
    for (Case &candidate : cases)
      if (llvm::is_contained(*failed, candidate.name))
        last.push_back(std::move(candidate));
    llvm::erase_if(cases, [](const Case &candidate) { return !candidate.run; });
    llvm::append_range(cases, std::move(last));
  }
  llvm::outs() << device->name() << ", target " << target << ", "
               << cases.size() << " cases\n";
  return Suite(options, record).run(cases);
}

} // namespace

int moec::gpuTestMain(int argc, char **argv) {
  Options options;
  if (!options.parse(argc, argv))
    return 1;
  if (!options.reference.empty())
    return runReference(options) ? 0 : 1;
  if (!options.generate.empty())
    return runGenerator(options) ? 0 : 1;
  mlir::DialectRegistry registry;
  registerDialects(registry);
  PooledContext context(registry);
  SourceDiagnostics diagnostics(context, llvm::errs());
  return runSuite(options, context);
}
