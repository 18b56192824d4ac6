//===- Print.cpp - layers as text, for C ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Jit/CApi.h"
#include "moec/Jit/ParsedLayer.h"
#include "moec/Tools/Expect.h"
#include "moec/Tools/PrintLayer.h"
#include "moec/Tools/ReportLayer.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <cstdlib>
#include <cstring>

using namespace moec;
using namespace moec::capi;
using moert::Result;
using moert::Status;

static Result<LayerForm> getForm(moejit_form form) {
  switch (form) {
  case MOEJIT_SPEC:
    return LayerForm::Spec;
  case MOEJIT_MOE:
    return LayerForm::Moe;
  case MOEJIT_PLAN:
    return LayerForm::Plan;
  case MOEJIT_TILE:
    return LayerForm::Tile;
  case MOEJIT_LLVM:
    return LayerForm::LLVM;
  case MOEJIT_PTX:
    return LayerForm::PTX;
  case MOEJIT_EXPLANATION:
    return LayerForm::Explanation;
  case MOEJIT_FULL_EXPLANATION:
    return LayerForm::FullExplanation;
  }
  return moert::invalidArgument(
      "moejit_print: the form " + std::to_string(int(form)) +
      " is unknown; the values of moejit_form are accepted");
}

/// An explanation names options; other forms are no prose.
static mlir::FailureOr<std::string>
printForC(const Source &layer, LayerForm form, const CompileOptions &options) {
  mlir::FailureOr<std::string> text = printLayer(layer, form, options);
  bool isProse =
      form == LayerForm::Explanation || form == LayerForm::FullExplanation;
  return failed(text) || !isProse ? text : nameForC(*text);
}

/// Returns the text that `make` makes of the layer, compiled by the options
/// that the device chooses.
static Result<std::string>
print(const char *call, moejit_compiler &compiler, const moejit_source &source,
      const moert_device *device, bool toCompile,
      llvm::function_ref<mlir::FailureOr<std::string>(const Source &,
                                                      const CompileOptions &)>
          make) {
  SpecOverrides overrides;
  Result<SourceText> text = readText(call, source, overrides);
  if (!text)
    return text.status();
  overrides.toCompile = toCompile;
  Result<CompileOptions> options =
      compiler.jit.chooseOptions(device ? device->device.get() : nullptr);
  if (!options)
    return options.status();
  ParsedLayer layer(compiler.jit.numThreads());
  if (Status status = layer.parse(*text, overrides); !status)
    return status;
  mlir::FailureOr<std::string> printed = make(layer.source(), *options);
  if (failed(printed))
    return layer.fail();
  return std::move(*printed);
}

static moert_status *give(const char *call, const Result<std::string> &printed,
                          char **text) {
  if (!printed)
    return answer(printed.status());
  *text = strdup(printed->c_str());
  if (!*text)
    return answer(moert::resourceExhausted(
        std::string(call) + ": out of memory for a text of " +
        std::to_string(printed->size()) + " bytes"));
  return nullptr;
}

moert_status *moejit_print(moejit_compiler *compiler,
                           const moejit_source *source,
                           const moert_device *device, moejit_form form,
                           char **text) {
  MOEJIT_NEEDED(text);
  *text = nullptr;
  MOEJIT_NEEDED(compiler);
  MOEJIT_NEEDED(source);
  // Sets the float state in which numbers are parsed and compared.
  moert::FloatState state;
  Result<LayerForm> asked = getForm(form);
  if (!asked)
    return answer(asked.status());
  return give(__func__,
              print(__func__, *compiler, *source, device,
                    !isDescription(*asked),
                    [&](const Source &layer, const CompileOptions &options) {
                      return printForC(layer, *asked, options);
                    }),
              text);
}

moert_status *moejit_print_report(moejit_compiler *compiler,
                                  const moejit_source *source,
                                  const moert_device *device,
                                  const char *results, char **page) {
  MOEJIT_NEEDED(page);
  *page = nullptr;
  MOEJIT_NEEDED(compiler);
  MOEJIT_NEEDED(source);
  // Sets the float state in which numbers are parsed and compared.
  moert::FloatState state;
  BenchResults given;
  given.name = "results";
  given.json = results ? results : "";
  std::string complaints;
  llvm::raw_string_ostream os(complaints);
  Result<std::string> made =
      print(__func__, *compiler, *source, device, /*toCompile=*/true,
            [&](const Source &layer, const CompileOptions &options) {
              return reportLayer(layer, options, given, /*command=*/"", os);
            });
  if (!complaints.empty())
    return answer(
        moert::invalidArgument(llvm::StringRef(complaints).rtrim().str()));
  return give(__func__, made, page);
}

// NOLINTBEGIN(readability-identifier-naming): arguments are named as in
// moejit.h, which messages cite.
moert_status *moejit_print_expectation(moejit_compiler *compiler,
                                       const moejit_source *source,
                                       const moert_device *device,
                                       const int64_t *tokens, size_t num_tokens,
                                       char **json) {
  MOEJIT_NEEDED(json);
  *json = nullptr;
  MOEJIT_NEEDED(compiler);
  MOEJIT_NEEDED(source);
  if (num_tokens > 0)
    MOEJIT_NEEDED(tokens);
  // Sets the float state in which numbers are parsed and compared.
  moert::FloatState state;
  return give(__func__,
              print(__func__, *compiler, *source, device, /*toCompile=*/true,
                    [&](const Source &layer, const CompileOptions &options) {
                      return expectLayer(layer, options, {tokens, num_tokens});
                    }),
              json);
}

moert_status *moejit_find_layers(const moejit_source *source, int64_t **layers,
                                 size_t *num_layers) {
  MOEJIT_NEEDED(layers);
  *layers = nullptr;
  MOEJIT_NEEDED(num_layers);
  *num_layers = 0;
  MOEJIT_NEEDED(source);
  moert::FloatState state;
  SpecOverrides overrides;
  Result<SourceText> text = readText(__func__, *source, overrides);
  if (!text)
    return answer(text.status());
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  mlir::FailureOr<std::vector<DecoderLayer>> found =
      getDecoderLayers(*text, overrides, diagnostics);
  if (failed(found))
    return answer(
        moert::invalidArgument(llvm::StringRef(messages).rtrim().str()));
  *layers = static_cast<int64_t *>(
      malloc(std::max<size_t>(found->size(), 1) * sizeof(int64_t)));
  if (!*layers)
    return answer(moert::resourceExhausted(
        "moejit_find_layers: out of memory for the layers"));
  for (const DecoderLayer &layer : *found)
    if (layer.hasExperts)
      (*layers)[(*num_layers)++] = layer.index;
  return nullptr;
}
// NOLINTEND(readability-identifier-naming)
