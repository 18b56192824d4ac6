//===- CApi.cpp - the compiler's C API ------------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CApi.h"

#include "moec/Support/Version.h"

#include "moec/Package/SpecText.h"
#include "moec/Schedules/ConfigText.h"
#include "moec/Support/Parts.h"
#include "moec/Support/Targets.h"
#include "moert/HostDevice.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

#include <cstdlib>
#include <cstring>

using namespace moec;
using namespace moec::capi;
using moert::invalidArgument;
using moert::Result;
using moert::Status;

const char *moejit_version(void) { return getVersionAndCommit(); }

int moejit_api_version(void) { return MOEJIT_API_VERSION; }

//===----------------------------------------------------------------------===//
// Compilers
//===----------------------------------------------------------------------===//

/// More would only be memory for their stacks.
static constexpr unsigned kMostThreads = 4096;

static Result<JitOptions> readOptions(const moejit_options &from) {
  JitOptions options;
  if (from.target) {
    options.compile.target = resolveTarget(from.target);
    if (Status status = checkTarget(options.compile.target); !status)
      return status.withContext("moejit_options.target");
  }
  if (from.device_part) {
    options.compile.part = from.device_part;
    // For a present device the target is only known later.
    const PartFacts *part = findPart(from.device_part);
    if (Status status = checkPart(from.target ? options.compile.target
                                  : part      ? part->architecture.str()
                                              : "",
                                  from.device_part);
        !status)
      return status.withContext("moejit_options.device_part");
  }
  if (from.cache_directory)
    options.cache.directory = from.cache_directory;
  if (from.cache_bytes > 0)
    options.cache.maxBytes = from.cache_bytes;
  options.useCache = from.no_cache == 0;
  if (from.threads > kMostThreads)
    return invalidArgument(
        "moejit_options.threads = " + std::to_string(from.threads) + ": 0 to " +
        std::to_string(kMostThreads) + " are accepted");
  options.threads = from.threads;
  if (from.ptxas)
    options.compile.assembler.ptxas = from.ptxas;
  options.usePtxas = from.no_ptxas == 0;
  if (from.num_configs > 0 && !from.configs)
    return missing("moejit_compiler_create", "options->configs");
  for (size_t i = 0; i < from.num_configs; ++i) {
    if (!from.configs[i])
      return missing("moejit_compiler_create", "options->configs[i]");
    options.compile.configs.push_back(from.configs[i]);
  }
  if (llvm::Error error =
          parseForcedConfigs(options.compile.configs).takeError())
    return invalidArgument("moejit_options.configs: " +
                           llvm::toString(std::move(error)));
  if (from.message) {
    options.warn = [message = from.message,
                    user = from.message_user](const std::string &text) {
      message(user, MOEJIT_WARNING, nameForC(text).c_str());
    };
    options.step = [message = from.message,
                    user = from.message_user](size_t done, size_t all) {
      tellStep(message, user, done, all);
    };
  }
  return options;
}

moert_status *moejit_compiler_create(const moejit_options *options,
                                     moejit_compiler **compiler) {
  MOEJIT_NEEDED(compiler);
  *compiler = nullptr;
  moejit_options given = {};
  if (options) {
    if (Status status = checkSize(*options, "moejit_options"); !status)
      return answer(status);
    given = *options;
  }
  Result<JitOptions> read = readOptions(given);
  if (!read)
    return answer(read.status());
  *compiler = new moejit_compiler(std::move(*read));
  (*compiler)->message = given.message;
  (*compiler)->user = given.message_user;
  return nullptr;
}

void moejit_compiler_free(moejit_compiler *compiler) { delete compiler; }

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

Result<SourceText> moec::capi::readText(const char *call,
                                        const moejit_source &source,
                                        SpecOverrides &overrides) {
  if (Status status = checkSize(source, "moejit_source"); !status)
    return status;
  if (!source.path)
    return missing(call, "source->path");
  std::string path = source.path;
  bool isFolder = !source.text && llvm::sys::fs::is_directory(path);
  if (!isFolder && !llvm::StringRef(path).ends_with(".json") &&
      !llvm::StringRef(path).ends_with(".mlir") &&
      (source.text || !llvm::StringRef(path).ends_with(".gguf")))
    return invalidArgument(path + ": moejit_source.path ends with neither "
                                  ".json, for a description, nor .mlir, for "
                                  "IR, nor .gguf, for a file of a model");
  if (source.entry) {
    overrides.entry = symbolize<Entry>(source.entry);
    if (!overrides.entry)
      return invalidArgument("moejit_source.entry: '" +
                             std::string(source.entry) +
                             "' is not one of gate, logits and ids");
  }
  if (source.max_tokens != 0)
    overrides.maxTokens = source.max_tokens;
  if (source.num_experts != 0)
    overrides.numExperts = source.num_experts;
  if (source.num_valid_tokens != 0)
    overrides.numValidTokens = true;
  overrides.batchInvariant = source.batch_invariant != 0;
  overrides.roundWeights = source.round_weights != 0;
  if (source.layer)
    overrides.layer = *source.layer;
  overrides.readsWeights = true;
  if (source.part)
    overrides.part = source.part;
  if (source.parallel)
    overrides.parallel = SourceText("parallel", source.parallel);
  if (source.num_ignored_fields && !source.ignored_fields)
    return missing(call, "source->ignored_fields");
  for (size_t i = 0; i < source.num_ignored_fields; ++i) {
    if (!source.ignored_fields[i])
      return missing(call, "source->ignored_fields[i]");
    overrides.ignoredFields.push_back(source.ignored_fields[i]);
  }
  if (source.text)
    return SourceText(path, std::string(source.text, source.text_bytes));
  std::string messages;
  llvm::raw_string_ostream os(messages);
  mlir::FailureOr<SourceText> text = readSource(path, overrides, os);
  if (failed(text))
    return moert::notFound(llvm::StringRef(messages).rtrim().str());
  return std::move(*text);
}

static void tell(const moejit_compiler &compiler, const JitReport &report) {
  if (!compiler.message)
    return;
  std::string text;
  llvm::raw_string_ostream os(text);
  printReport(report, os);
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef(text).split(lines, '\n', /*MaxSplit=*/-1,
                              /*KeepEmpty=*/false);
  for (llvm::StringRef line : lines)
    compiler.message(compiler.user, MOEJIT_PROGRESS, line.str().c_str());
}

static Result<JitLayer> compile(const char *call, moejit_compiler &compiler,
                                const moejit_source &source,
                                const moert::Device *device) {
  SpecOverrides overrides;
  Result<SourceText> text = readText(call, source, overrides);
  if (!text)
    return text.status();
  // A package does not say of which layer its weights are.
  overrides.readsWeights = device != nullptr;
  Result<JitLayer> layer = device
                               ? compiler.jit.compile(*text, overrides, *device)
                               : compiler.jit.compile(*text, overrides);
  if (layer)
    tell(compiler, layer->report);
  return layer;
}

static void fill(moejit_report *report, const JitReport &from) {
  if (report)
    *report = {from.fromCache, from.total};
}

moert_status *moejit_compile(moejit_compiler *compiler,
                             const moejit_source *source, void **data,
                             size_t *size, moejit_report *report) {
  MOEJIT_NEEDED(data);
  *data = nullptr;
  MOEJIT_NEEDED(size);
  *size = 0;
  MOEJIT_NEEDED(compiler);
  MOEJIT_NEEDED(source);
  // Sets the default floating-point state: numbers are parsed and compared
  // here.
  moert::FloatState state;
  Result<JitLayer> layer =
      compile(__func__, *compiler, *source, /*device=*/nullptr);
  if (!layer)
    return answer(layer.status());
  Result<std::vector<uint8_t>> bytes = moert::packPackage(layer->package);
  if (!bytes)
    return answer(bytes.status());
  *data = malloc(bytes->size());
  if (!*data)
    return answer(moert::resourceExhausted(
        "moejit_compile: out of memory for a package of " +
        std::to_string(bytes->size()) + " bytes"));
  memcpy(*data, bytes->data(), bytes->size());
  *size = bytes->size();
  fill(report, layer->report);
  return nullptr;
}

void moejit_free(void *data) { free(data); }

/// Stores what the layer needs to read a checkpoint.
static void describe(const LayerSpec &spec, moert_layer &layer) {
  layer.decoderLayer = spec.layerIndex;
  layer.description = std::make_shared<const LayerSpec>(spec);
}

/// Makes a layer for the host directly from kernels in memory.
static Status loadOnHost(moejit_compiler &compiler, const moejit_source &source,
                         moert_device &device,
                         const moert_layer_options *options, moert_layer *&made,
                         moejit_report *report) {
  SpecOverrides overrides;
  Result<SourceText> text = readText("moejit_load_layer", source, overrides);
  if (!text)
    return text.status();
  moert::ExecutorOptions executorOptions;
  if (options) {
    if (Status status = checkSize(*options, "moert_layer_options"); !status)
      return status;
    executorOptions.poison = options->poison != 0;
  }
  Result<HostLayer> layer = compiler.jit.compileForHost(*text, overrides);
  if (!layer)
    return layer.status();
  tell(compiler, layer->report);
  executorOptions.description = layer->description;
  Result<std::unique_ptr<moert::Executor>> executor =
      moert::Executor::create(std::move(layer->compiled.plan), *device.device,
                              layer->compiled.image, executorOptions);
  if (!executor)
    return executor.status();
  made = new moert_layer(*device.device, std::move(*executor),
                         layer->spec ? printLayerSpec(*layer->spec) : "",
                         layer->spec ? layer->spec->modelType : "");
  if (layer->spec)
    describe(*layer->spec, *made);
  fill(report, layer->report);
  return Status::ok();
}

moert_status *moejit_device_create_host(int threads, moert_device **device) {
  MOEJIT_NEEDED(device);
  *device = nullptr;
  Result<std::unique_ptr<moert::Device>> made =
      moert::createHostDevice(threads);
  if (!made)
    return answer(made.status());
  *device = new moert_device();
  (*device)->device = std::move(*made);
  return nullptr;
}

moert_status *moejit_device_set_threads(moert_device *device, int threads) {
  MOEJIT_NEEDED(device);
  return answer(device->device->setNumThreads(threads));
}

int moejit_device_threads(const moert_device *device) {
  return device ? device->device->numThreads() : 0;
}

moert_status *moejit_load_layer(moejit_compiler *compiler,
                                const moejit_source *source,
                                moert_device *device,
                                const moert_layer_options *options,
                                moert_layer **layer, moejit_report *report) {
  MOEJIT_NEEDED(layer);
  *layer = nullptr;
  MOEJIT_NEEDED(compiler);
  MOEJIT_NEEDED(source);
  MOEJIT_NEEDED(device);
  // Sets the default floating-point state: numbers are parsed and compared
  // here.
  moert::FloatState state;
  if (device->device->checkTarget("cpu"))
    return answer(
        loadOnHost(*compiler, *source, *device, options, *layer, report));
  Result<JitLayer> compiled =
      compile(__func__, *compiler, *source, device->device.get());
  if (!compiled)
    return answer(compiled.status());
  moert_package package = {std::move(compiled->package)};
  if (moert_status *status =
          moert_layer_create(&package, device, options, layer))
    return status;
  if (compiled->spec)
    describe(*compiled->spec, **layer);
  fill(report, compiled->report);
  return nullptr;
}
