//===- CApi.cpp - the compiler for C ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "runtime/src/CApi.h"
#include "moec/Jit/Jit.h"
#include "moec/Support/Parts.h"
#include "moejit/moejit.h"
#include "llvm/ADT/StringExtras.h"

#include <cstdlib>
#include <cstring>

using namespace moec;
using moert::invalidArgument;
using moert::Result;
using moert::Status;

struct moejit_compiler {
  explicit moejit_compiler(JitOptions options) : jit(std::move(options)) {}

  Jit jit;
  moejit_message_fn message = nullptr;
  void *user = nullptr;
};

static moert_status *answer(Status status) {
  return status ? nullptr : new moert_status{std::move(status)};
}

static Status missing(const char *call, const char *argument) {
  return invalidArgument(std::string(call) + ": the argument '" + argument +
                         "' is NULL");
}

/// Returns unless `argument` is given.
#define NEEDED(argument)                                                       \
  if (!(argument))                                                             \
  return answer(missing(__func__, #argument))

template <typename T>
static Status checkSize(const T &given, const char *what) {
  if (given.size == sizeof(T))
    return Status::ok();
  return invalidArgument(std::string(what) + ".size is " +
                         std::to_string(given.size) + "; sizeof(" + what +
                         ") is " + std::to_string(sizeof(T)) +
                         ", so compile against the header of this library");
}

int moejit_api_version(void) { return MOEJIT_API_VERSION; }

//===----------------------------------------------------------------------===//
// Compilers
//===----------------------------------------------------------------------===//

static Result<JitOptions> readOptions(const moejit_options &from) {
  JitOptions options;
  if (from.target) {
    if (Status status = checkTarget(from.target); !status)
      return status.withContext("moejit_options.target");
    options.compile.target = from.target;
  }
  if (from.device_part) {
    options.compile.part = from.device_part;
    // For a device at hand its target is known later.
    const PartFacts *part = findPart(from.device_part);
    if (Status status = checkPart(from.target ? from.target
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
  if (from.message)
    options.warn = [message = from.message,
                    user = from.message_user](const std::string &text) {
      message(user, MOEJIT_WARNING, text.c_str());
    };
  return options;
}

moert_status *moejit_compiler_create(const moejit_options *options,
                                     moejit_compiler **compiler) {
  NEEDED(compiler);
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

static Result<SourceText> readText(const moejit_source &source,
                                   SpecOverrides &overrides) {
  std::string path = source.path;
  if (!llvm::StringRef(path).ends_with(".json") &&
      !llvm::StringRef(path).ends_with(".mlir"))
    return invalidArgument(path + ": moejit_source.path ends with neither "
                                  ".json, for a description, nor .mlir, for "
                                  "IR");
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

static Result<JitLayer> compile(moejit_compiler &compiler,
                                const moejit_source &source,
                                const moert::Device *device) {
  if (Status status = checkSize(source, "moejit_source"); !status)
    return status;
  if (!source.path)
    return missing("moejit_compile", "source->path");
  SpecOverrides overrides;
  Result<SourceText> text = readText(source, overrides);
  if (!text)
    return text.status();
  if (source.max_tokens != 0)
    overrides.maxTokens = source.max_tokens;
  if (source.num_experts != 0)
    overrides.numExperts = source.num_experts;
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
  NEEDED(data);
  *data = nullptr;
  NEEDED(size);
  *size = 0;
  NEEDED(compiler);
  NEEDED(source);
  if (!compiler->jit.hasTarget())
    return answer(invalidArgument("moejit_compile: there is no target; set "
                                  "moejit_options.target, as in \"sm_90a\", "
                                  "or call moejit_load_layer for a device"));
  Result<JitLayer> layer = compile(*compiler, *source, /*device=*/nullptr);
  if (!layer)
    return answer(layer.status());
  Result<std::vector<uint8_t>> bytes = moert::packPackage(layer->package);
  if (!bytes)
    return answer(bytes.status());
  *data = malloc(bytes->size());
  if (!*data)
    return answer(
        moert::resourceExhausted("moejit_compile: no memory for a package of " +
                                 std::to_string(bytes->size()) + " bytes"));
  memcpy(*data, bytes->data(), bytes->size());
  *size = bytes->size();
  fill(report, layer->report);
  return nullptr;
}

void moejit_free(void *data) { free(data); }

moert_status *moejit_load_layer(moejit_compiler *compiler,
                                const moejit_source *source,
                                moert_device *device,
                                const moert_layer_options *options,
                                moert_layer **layer, moejit_report *report) {
  NEEDED(layer);
  *layer = nullptr;
  NEEDED(compiler);
  NEEDED(source);
  NEEDED(device);
  Result<JitLayer> compiled = compile(*compiler, *source, device->device.get());
  if (!compiled)
    return answer(compiled.status());
  moert_package package = {std::move(compiled->package)};
  if (moert_status *status =
          moert_layer_create(&package, device, options, layer))
    return status;
  fill(report, compiled->report);
  return nullptr;
}
