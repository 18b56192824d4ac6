//===- LoadSource.cpp - reads the description of a layer --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "mlir/Parser/Parser.h"
#include "moec/Compiler/Compiler.h"
#include "moec/Compiler/SourceFile.h"
#include "moec/Import/BuildLayer.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"

using namespace mlir;
using namespace moec;

FailureOr<SourceText> moec::readSource(StringRef path, llvm::raw_ostream &os) {
  bool isJson = path.ends_with(".json");
  if (!isJson && !path.ends_with(".mlir") && path != "-") {
    os << path
       << ": error: unknown kind of file; expected a model's config.json or a "
          "spec (.json), or IR (.mlir, or - for standard input)\n";
    return failure();
  }
  Diagnostics diagnostics(os);
  return readTextFile(path, isJson ? json::kMaxBytes : kMaxIRBytes,
                      diagnostics);
}

static FailureOr<Source> parseJson(MLIRContext &context, const SourceText &text,
                                   const SpecOverrides &overrides,
                                   llvm::raw_ostream &os) {
  Diagnostics diagnostics(os);
  FailureOr<LayerSpec> spec = importJson(text, overrides, diagnostics);
  if (failed(spec))
    return failure();
  Source source;
  source.module = buildLayer(context, *spec);
  if (!source.module)
    return failure();
  source.spec = std::move(*spec);
  return source;
}

static FailureOr<Source> parseIR(MLIRContext &context, const SourceText &text,
                                 llvm::SourceMgr &texts,
                                 llvm::raw_ostream &os) {
  // Of texts with several buffers MLIR parses the first.
  assert(texts.getNumBuffers() == 0 && "one file of IR per run");
  texts.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(text.getText(), text.getName()),
      llvm::SMLoc());
  if (failed(checkIRText(*texts.getMemoryBuffer(texts.getMainFileID()), os)))
    return failure();
  Source source;
  source.module = parseSourceFile<ModuleOp>(texts, ParserConfig(&context));
  if (!source.module)
    return failure();
  return source;
}

FailureOr<Source> moec::parseSource(MLIRContext &context,
                                    const SourceText &text,
                                    const SpecOverrides &overrides,
                                    llvm::SourceMgr &texts,
                                    llvm::raw_ostream &os) {
  if (text.getName().ends_with(".json"))
    return parseJson(context, text, overrides, os);
  if (overrides.numExperts || overrides.maxTokens || overrides.entry ||
      overrides.numValidTokens) {
    os << text.getName()
       << ": error: --num-experts, --max-tokens and --entry change a JSON "
          "description; IR says these itself\n";
    return failure();
  }
  return parseIR(context, text, texts, os);
}

FailureOr<Source> moec::loadSource(MLIRContext &context, StringRef path,
                                   const SpecOverrides &overrides,
                                   llvm::SourceMgr &texts) {
  FailureOr<SourceText> text = readSource(path, llvm::errs());
  if (failed(text))
    return failure();
  return parseSource(context, *text, overrides, texts, llvm::errs());
}
