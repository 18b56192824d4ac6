//===- Jit.cpp - compiles descriptions to packages, with a cache ----------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Jit/Jit.h"

#include "../../runtime/src/support/Threads.h"
#include "moec/Compiler/CompileStep.h"
#include "moec/Jit/BuildId.h"
#include "moec/Jit/ParsedLayer.h"
#include "moec/Package/BuildPackage.h"
#include "moec/Package/SpecText.h"
#include "moec/Schedules/Schedules.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

using namespace mlir;
using namespace moec;
using moert::invalidArgument;
using moert::Package;
using moert::Result;
using moert::unavailable;

/// Whether intermediate results are printed or written, which requires a
/// compilation without the cache.
static bool isWatched(const CompileOptions &options) {
  return options.printIRAfterAll || !options.dumpDir.empty() ||
         !options.reproducer.empty();
}

Jit::Jit(JitOptions given) : options(std::move(given)) {
  if (!options.warn)
    options.warn = [](const std::string &text) {
      llvm::errs() << "moec: warning: " << text << "\n";
    };
  if (!options.useCache || isWatched(options.compile))
    return;
  llvm::Expected<std::string> id = getCompilerBuildId();
  if (!id) {
    options.warn("cache: " + llvm::toString(id.takeError()) +
                 "; compiled layers are not cached");
    return;
  }
  buildId = *id;
  cache = std::make_unique<Cache>(options.cache, options.warn);
}

moert::Status moec::checkTarget(const std::string &name) {
  if (name == "cpu")
    return invalidArgument(
        "target 'cpu' cannot be compiled into a package: CPU kernels exist "
        "only in the compiler's process; give a GPU target, as in 'sm_90a', or "
        "run the layer with moe-run");
  if (!Target::find(name))
    return invalidArgument("target '" + name + "' is unknown; accepted are " +
                           llvm::join(Target::getNames(), ", "));
  return moert::Status::ok();
}

moert::Status moec::checkPart(const std::string &target,
                              const std::string &part) {
  std::string why = whyNotPart(target, part);
  return why.empty() ? moert::Status::ok() : invalidArgument("part " + why);
}

/// A compilation: options and target architectures.
struct Jit::Request {
  CompileOptions compile;
  std::vector<std::string> architectures;
};

/// Version of ptxas for the key; empty if the package does not depend on it.
Result<std::string> Jit::getAssemblerVersion(const Request &request) {
  if (!cache || request.architectures.empty())
    return std::string();
  const AssembleOptions &how = request.compile.assembler;
  std::string ptxas = getAssembler(how);
  std::lock_guard<std::mutex> guard(mutex);
  std::string &version = assemblerVersions[ptxas];
  if (!version.empty())
    return version;
  llvm::Expected<std::string> said = moec::getAssemblerVersion(how);
  if (!said)
    return unavailable(llvm::toString(said.takeError()));
  version = std::move(*said);
  return version;
}

/// Digest of everything that affects the package.
std::string Jit::getKey(const Request &request, const Source &source,
                        const std::string &assemblerVersion) const {
  llvm::SHA256 hash;
  // Each field is hashed with its length, so that different lists of fields
  // never collide.
  auto add = [&](StringRef field) {
    hash.update(std::to_string(field.size()) + ":");
    hash.update(field);
  };
  add("moec cache 1");
  add(buildId);
  // A new member of TileOptions fails to compile until it is listed here.
  const auto &[name, part, lanes, products, dependentLaunches, keepAllBuffers,
               disable, set, configs] =
      static_cast<const TileOptions &>(request.compile);
  add(name);
  // A part chosen by default gives the same key as a given one.
  std::optional<Target> target = Target::find(name, /*lanes=*/0, part);
  add(target && target->part ? StringRef(target->part->name) : "");
  // Packages are for GPUs, which have neither lanes nor products.
  (void)lanes, (void)products;
  add(keepAllBuffers ? "keep all buffers" : "");
  add(dependentLaunches ? "" : "no dependent launches");
  add(llvm::join(disable, ","));
  add(llvm::join(set, ","));
  add(llvm::join(configs, "\n"));
  add(assemblerVersion);
  add(llvm::join(request.architectures, ","));
  add(source.spec ? printLayerSpec(*source.spec) : "");
  // The key depends on IR, not on the text: defaults are resolved in it, and
  // the spelling does not matter.
  std::string text;
  llvm::raw_string_ostream os(text);
  (*source.module)->print(os);
  add(text);
  return llvm::toHex(hash.final(), /*LowerCase=*/true);
}

/// Reports progress of the compilation in a context to `step`.
static void watchSteps(MLIRContext *context,
                       const std::function<void(size_t, size_t)> &step) {
  if (!step)
    return;
  context->registerActionHandler(
      [&step](llvm::function_ref<void()> run, const tracing::Action &action) {
        run();
        if (auto *compiled = dyn_cast<CompileStep>(&action))
          step(compiled->done, compiled->all);
      });
}

Result<Package> Jit::make(const Request &request, ParsedLayer &layer,
                          JitReport &report) {
  CompileOptions compile = request.compile;
  compile.times = &report.compile;
  Source &source = layer.source();
  watchSteps(source.module->getContext(), options.step);
  FailureOr<Package> package =
      buildPackage(*source.module, source.spec, compile, request.architectures);
  if (failed(package))
    return layer.fail();
  return std::move(*package);
}

Result<Package> Jit::findOrMake(const Request &request, ParsedLayer &layer,
                                const std::string &assemblerVersion,
                                JitReport &report) {
  if (!cache || !cache->isOpen())
    return make(request, layer, report);
  Stopwatch watch;
  std::string key = getKey(request, layer.source(), assemblerVersion);
  std::optional<Package> found = cache->find(key);
  report.find = watch.read();
  std::unique_ptr<Cache::Lock> lock;
  if (!found) {
    lock = cache->lock(key);
    // The previous lock holder may have stored it.
    found = cache->find(key);
  }
  if (found) {
    report.fromCache = true;
    return std::move(*found);
  }
  Result<Package> package = make(request, layer, report);
  if (!package)
    return package;
  watch.read();
  package->cacheKey = key;
  cache->store(*package);
  report.store = watch.read();
  return package;
}

Result<JitLayer> Jit::compile(const SourceText &text,
                              const SpecOverrides &overrides,
                              StringRef architecture) {
  return compileFor(text, overrides, architecture, /*device=*/nullptr);
}

Result<JitLayer> Jit::compile(const SourceText &text,
                              const SpecOverrides &overrides,
                              const moert::Device &device) {
  return compileFor(text, overrides, device.architecture(), &device);
}

Result<CompileOptions> Jit::chooseOptions(const moert::Device *device) const {
  return chooseOptions(device ? StringRef(device->architecture()) : "", device);
}

Result<CompileOptions> Jit::chooseOptions(StringRef architecture,
                                          const moert::Device *device) const {
  CompileOptions compile = options.compile;
  if (!compile.isGpu() && !architecture.empty()) {
    compile.target = chooseTarget(architecture);
    if (compile.target.empty())
      return invalidArgument("there is no target for a GPU of architecture '" +
                             architecture.str() +
                             "'; sm_80 and later are supported");
  }
  if (device && device->checkTarget("cpu")) {
    compile.target = "cpu";
    compile.part.clear();
    return compile;
  }
  // A part alone stands for the code that it runs best.
  const PartFacts *part = findPart(compile.part);
  if (!compile.isGpu() && part)
    compile.target = part->architecture.str();
  if (!compile.isGpu() && !compile.part.empty())
    return invalidArgument("part " + whyNotPart(compile.target, compile.part));
  if (!compile.isGpu())
    return invalidArgument("no target is set; set moejit_options.target, as in "
                           "\"sm_90a\", or give a device");
  if (moert::Status status = checkTarget(compile.target); !status)
    return status;
  if (device && compile.part.empty())
    compile.part = choosePart(compile.target, *device);
  if (moert::Status status = checkPart(compile.target, compile.part); !status)
    return status;
  return compile;
}

Result<JitLayer> Jit::compileFor(const SourceText &text,
                                 const SpecOverrides &overrides,
                                 StringRef architecture,
                                 const moert::Device *device) {
  Stopwatch total, watch;
  SpecOverrides asked = overrides;
  asked.toCompile = true;
  Result<CompileOptions> compile = chooseOptions(architecture, device);
  if (!compile)
    return compile.status();
  Request request = {std::move(*compile), {}};
  // A package for the host is refused later, where it is built.
  if (options.usePtxas && request.compile.isGpu())
    request.architectures = chooseArchitectures(request.compile, architecture);

  // ptxas runs while the text is parsed, if a thread is available.
  Result<std::string> assemblerVersion = std::string();
  auto ask = [&] { assemblerVersion = getAssemblerVersion(request); };
  moert::Thread asking;
  bool isAsked = asking.start(ask);
  ParsedLayer parsed(options.threads);
  if (moert::Status status = parsed.parse(text, asked); !status)
    return status;
  JitLayer layer;
  layer.report.parse = watch.read();
  isAsked ? asking.join() : ask();
  if (!assemblerVersion)
    return assemblerVersion.status();
  Result<Package> package =
      findOrMake(request, parsed, *assemblerVersion, layer.report);
  if (!package)
    return package.status();
  if (std::string messages = parsed.messages(); !messages.empty())
    options.warn(messages);
  layer.package = std::move(*package);
  layer.spec = std::move(parsed.source().spec);
  layer.report.total = total.read();
  return layer;
}

Result<HostLayer> Jit::compileForHost(const SourceText &text,
                                      const SpecOverrides &overrides) {
  Stopwatch total, watch;
  SpecOverrides asked = overrides;
  asked.toCompile = true;
  CompileOptions compile = options.compile;
  compile.target = "cpu";
  compile.part.clear();
  ParsedLayer parsed(options.threads);
  if (moert::Status status = parsed.parse(text, asked); !status)
    return status;
  HostLayer layer;
  layer.report.parse = watch.read();
  layer.description =
      describeLayer(parsed.source().spec, *parsed.source().module);
  watchSteps(parsed.source().module->getContext(), options.step);
  FailureOr<CompiledLayer> compiled =
      moec::compileForHost(*parsed.source().module, compile);
  if (failed(compiled))
    return parsed.fail();
  if (std::string messages = parsed.messages(); !messages.empty())
    options.warn(messages);
  layer.compiled = std::move(*compiled);
  layer.spec = std::move(parsed.source().spec);
  layer.report.total = total.read();
  return layer;
}
