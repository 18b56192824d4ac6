//===- LoadSession.cpp - loads the layer of moe-run -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Progress.h"
#include "OpenDevice.h"
#include "Session.h"
#include "Timing.h"
#include "moec/Import/BuildLayer.h"

using namespace mlir;
using namespace moec;

bool moec::readInput(Session &session, const MoeRunOptions &options) {
  if (options.isPackage())
    return true;
  session.overrides = options.getSpecOverrides();
  session.overrides.readsWeights = !options.getCheckpoint().empty();
  FailureOr<SourceText> text =
      readSource(options.input, session.overrides, llvm::errs());
  if (failed(text))
    return false;
  // The tensors that are read are those of the inputs.
  if (!options.inputs.empty())
    session.overrides.tensors = getStoredTensors(options.inputs);
  // IR already states whether it has the operand.
  if (!isJson(*text))
    session.overrides.numValidTokens.reset();
  session.text = std::move(*text);
  if ((options.check || options.bisect) && session.isIR() &&
      options.spec.empty())
    return options.complain(
        llvm::Twine(options.bisect ? "--bisect" : "--check") +
        " needs --spec=FILE.json for an input in IR: the layer that the IR "
        "should compute");
  return true;
}

namespace {

/// Opens the devices; --signature needs none.
bool findDevice(Session &session, const MoeRunOptions &options) {
  if (options.signature)
    return true;
  std::string name = options.getDevice().str();
  if (session.isRankProcess() && name == "cuda")
    name += ":" + std::to_string(*session.processes->getRank());
  auto devices = openDevices(name, options.threads, options.target);
  if (!devices)
    return options.complain(devices.status().message());
  session.devices = std::move(*devices);
  return true;
}

/// Chooses the package's program and image for the device. The package took
/// `seconds` to get.
bool choosePackage(Session &session, const MoeRunOptions &options,
                   double seconds) {
  if (!session.devices.empty()) {
    moert::Device &device = *session.devices.front();
    moert::Result<moert::PackageChoice> choice = moert::chooseImage(
        *session.package, device.architecture(), device.takesMachineCode());
    if (!choice)
      return options.complain(device.name() + ": " + choice.status().message());
    session.choice = *choice;
    if (options.timing)
      if (moert::Status status = printLoadTimes(*session.package, *choice,
                                                device, seconds, llvm::outs());
          !status)
        return options.complain(status.message());
  }
  session.plan = session.package->programs[session.choice.program].plan;
  return true;
}

bool loadPackage(Session &session, const MoeRunOptions &options) {
  Stopwatch watch;
  moert::Result<moert::Package> package = moert::Package::open(options.input);
  if (!package)
    return options.complain(package.status().message());
  double seconds = watch.read();
  session.package = std::move(*package);
  if (!findDevice(session, options))
    return false;
  if (options.timing)
    printStage("read and verify", seconds, llvm::outs());
  if (!choosePackage(session, options, seconds))
    return false;
  if (session.package->spec.empty())
    return true;
  Diagnostics diagnostics(llvm::errs());
  FailureOr<LayerSpec> spec =
      importJson(SourceText(options.input + ": spec", session.package->spec),
                 /*overrides=*/{}, diagnostics);
  if (failed(spec))
    return false;
  session.source.spec = std::move(*spec);
  session.source.spec->modelType = session.package->modelType;
  return true;
}

/// Compiles for the device, or takes the layer from the cache.
bool loadJit(Session &session, const MoeRunOptions &options) {
  if (!findDevice(session, options))
    return false;
  JitOptions jitOptions;
  jitOptions.compile = options.ToolOptions::getCompileOptions();
  jitOptions.usePtxas = !options.noPtxas;
  jitOptions.useCache = !options.noCache;
  jitOptions.cache.directory = options.cacheDir;
  jitOptions.threads = unsigned(options.threads);
  jitOptions.warn = [](const std::string &message) {
    llvm::errs() << "moe-run: warning: " << message << "\n";
  };
  Progress progress("moe-run", "the layer is compiled");
  Jit jit(std::move(jitOptions));
  moert::Result<JitLayer> layer =
      jit.compile(*session.text, session.overrides, *session.devices.front());
  if (!layer) {
    // Diagnostics of a description have their own location prefix.
    const std::string &message = layer.status().message();
    if (!llvm::StringRef(message).contains(": error: "))
      return options.complain(message);
    llvm::errs() << message << "\n";
    return false;
  }
  session.package = std::move(layer->package);
  session.source.spec = std::move(layer->spec);
  if (session.source.spec)
    for (const std::string &remark : session.source.spec->remarks)
      llvm::errs() << "moe-run: remark: " << remark << "\n";
  session.report = std::move(layer->report);
  if (options.timing)
    printReport(*session.report, llvm::outs());
  return choosePackage(session, options, session.report->total);
}

bool loadModule(Session &session, const MoeRunOptions &options,
                SourceDiagnostics &diagnostics) {
  FailureOr<Source> source =
      parseSource(*session.context, *session.text, session.overrides,
                  diagnostics.getTexts(), llvm::errs());
  if (failed(source))
    return false;
  session.source = std::move(*source);
  // The tensors of a description are known even if it does not compile.
  if (options.signature && session.source.spec)
    return true;
  ModuleOp module = *session.source.module;
  FailureOr<Level> level = detectLevel(module);
  if (failed(level) || !findDevice(session, options))
    return false;
  session.level = *level;
  FailureOr<moert::Plan> plan =
      makePlan(module, options.ToolOptions::getCompileOptions());
  if (failed(plan))
    return false;
  session.plan = std::move(*plan);
  return true;
}

} // namespace

bool moec::loadLayer(Session &session, const MoeRunOptions &options,
                     SourceDiagnostics &diagnostics) {
  if (options.isPackage())
    return loadPackage(session, options);
  return options.usesJit() ? loadJit(session, options)
                           : loadModule(session, options, diagnostics);
}
