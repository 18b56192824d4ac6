//===- ParsedLayer.cpp - a parsed layer and its diagnostics ---------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Jit/ParsedLayer.h"

#include "moec/Compiler/Registry.h"

using namespace mlir;
using namespace moec;

static DialectRegistry makeRegistry() {
  DialectRegistry registry;
  registerDialects(registry);
  return registry;
}

ParsedLayer::ParsedLayer(unsigned threads)
    : context(makeRegistry(), threads), os(text), diagnostics(context, os) {}

moert::Status ParsedLayer::parse(const SourceText &source,
                                 const SpecOverrides &overrides) {
  FailureOr<Source> read =
      parseSource(context, source, overrides, diagnostics.getTexts(), os);
  if (failed(read))
    return fail();
  parsed = std::move(*read);
  return moert::Status::ok();
}

std::string ParsedLayer::messages() const {
  return StringRef(text).rtrim().str();
}
