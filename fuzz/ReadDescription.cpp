//===- ReadDescription.cpp - JSON that describes a layer --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Readers.h"
#include "mlir/IR/Diagnostics.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Compiler/Registry.h"
#include "moec/Import/BuildLayer.h"
#include "moec/Package/SpecText.h"
#include "llvm/ADT/STLExtras.h"

using namespace moec;
using namespace moec::testing;

std::unique_ptr<mlir::MLIRContext> moec::testing::makeSilentContext() {
  mlir::DialectRegistry registry;
  registerDialects(registry);
  auto context = std::make_unique<mlir::MLIRContext>(
      registry, mlir::MLIRContext::Threading::DISABLED);
  context->loadAllAvailableDialects();
  context->getDiagEngine().registerHandler(
      [](mlir::Diagnostic &) { return mlir::success(); });
  return context;
}

mlir::MLIRContext &ContextPool::take() {
  constexpr int usesOfOne = 2000;
  if (!context || ++numUses > usesOfOne) {
    context = makeSilentContext();
    numUses = 1;
  }
  return *context;
}

static mlir::FailureOr<LayerSpec> import(const std::string &text,
                                         std::string &messages) {
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  return importJson(SourceText("t.json", text), {}, diagnostics);
}

Reading DescriptionReader::read(llvm::StringRef text) {
  std::string messages;
  mlir::FailureOr<LayerSpec> layer = import(text.str(), messages);
  if (failed(layer))
    return {false, messages.empty() ? "refused without a message" : ""};
  if (!messages.empty())
    return {true, "accepted with a message: " + messages};

  std::string printed = printLayerSpec(*layer);
  mlir::FailureOr<LayerSpec> again = import(printed, messages);
  if (failed(again))
    return {true, "printed as a spec that is refused: " + messages};
  if (printLayerSpec(*again) != printed)
    return {true, "printed as another layer: " + printed};

  mlir::OwningOpRef<mlir::ModuleOp> module =
      buildLayer(contexts.take(), *layer);
  if (!module)
    return {true, "accepted, but there is no IR for it"};
  // Only a quantization that is not compiled yet may be refused.
  bool isRefused =
      llvm::any_of(layer->getExpertWeights(), [&](llvm::StringRef weight) {
        const auto &quantization = layer->getQuantization(weight);
        return quantization && !isCompiled(*quantization);
      });
  if (succeeded(lowerToLevel(*module, Level::Tile, {})) == isRefused)
    return {true, isRefused ? "lowered although nothing can run it"
                            : "accepted, but not lowered"};
  return {true, ""};
}
