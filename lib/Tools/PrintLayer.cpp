//===- PrintLayer.cpp - a layer as text -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/PrintLayer.h"

#include "moec/Package/SpecText.h"
#include "moec/Tools/Explain.h"

using namespace mlir;
using namespace moec;

bool moec::isDescription(LayerForm form) {
  return form == LayerForm::Spec || form == LayerForm::Moe;
}

static FailureOr<std::string> explain(const Source &source, ExplainMode mode,
                                      const CompileOptions &options) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (failed(lowerToLevel(*source.module, Level::Tile, options)) ||
      failed(explainLayer(*source.module, source.spec, options, mode, os)))
    return failure();
  return text;
}

static FailureOr<std::string> printLevel(const Source &source, Level level,
                                         const CompileOptions &options) {
  if (failed(lowerToLevel(*source.module, level, options)))
    return failure();
  std::string text;
  llvm::raw_string_ostream os(text);
  source.module.get().print(os);
  return text;
}

FailureOr<std::string> moec::printLayer(const Source &source, LayerForm form,
                                        const CompileOptions &options) {
  ModuleOp module = *source.module;
  switch (form) {
  case LayerForm::Spec:
    if (source.spec)
      return printLayerSpec(*source.spec) + "\n";
    return module.emitError(
        "a spec needs a description in JSON; IR has no spec");
  case LayerForm::Moe:
    return printLevel(source, Level::Moe, options);
  case LayerForm::Plan:
    return printLevel(source, Level::Plan, options);
  case LayerForm::Tile:
    return printLevel(source, Level::Tile, options);
  case LayerForm::LLVM:
    return emitLLVM(module, options);
  case LayerForm::PTX:
    return emitPTX(module, options);
  case LayerForm::Explanation:
    return explain(source, ExplainMode::Summary, options);
  case LayerForm::FullExplanation:
    return explain(source, ExplainMode::All, options);
  }
  llvm_unreachable("every form is listed");
}
