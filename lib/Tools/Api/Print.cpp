//===- Print.cpp - layers as text, for C ------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "lib/Jit/CApi.h"
#include "moec/Jit/ParsedLayer.h"
#include "moec/Tools/PrintLayer.h"

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
      " is unknown; those of moejit_form are accepted");
}

static Result<std::string> print(moejit_compiler &compiler,
                                 const moejit_source &source,
                                 const moert::Device *device,
                                 moejit_form asked) {
  Result<LayerForm> form = getForm(asked);
  if (!form)
    return form.status();
  SpecOverrides overrides;
  Result<SourceText> text = readText("moejit_print", source, overrides);
  if (!text)
    return text.status();
  overrides.toCompile = !isDescription(*form);
  Result<CompileOptions> options = compiler.jit.chooseOptions(device);
  if (!options)
    return options.status();
  ParsedLayer layer(compiler.jit.numThreads());
  if (Status status = layer.parse(*text, overrides); !status)
    return status;
  mlir::FailureOr<std::string> printed =
      printLayer(layer.source(), *form, *options);
  if (failed(printed))
    return layer.fail();
  return std::move(*printed);
}

moert_status *moejit_print(moejit_compiler *compiler,
                           const moejit_source *source,
                           const moert_device *device, moejit_form form,
                           char **text) {
  MOEJIT_NEEDED(text);
  *text = nullptr;
  MOEJIT_NEEDED(compiler);
  MOEJIT_NEEDED(source);
  Result<std::string> printed =
      print(*compiler, *source, device ? device->device.get() : nullptr, form);
  if (!printed)
    return answer(printed.status());
  *text = strdup(printed->c_str());
  if (!*text)
    return answer(
        moert::resourceExhausted("moejit_print: no memory for a text of " +
                                 std::to_string(printed->size()) + " bytes"));
  return nullptr;
}
