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

static FailureOr<Source> loadJson(MLIRContext &context, StringRef path,
                                  const SpecOverrides &overrides) {
  Diagnostics diagnostics(llvm::errs());
  FailureOr<LayerSpec> spec = importJsonFile(path, overrides, diagnostics);
  if (failed(spec))
    return failure();
  Source source;
  source.module = buildLayer(context, *spec);
  if (!source.module)
    return failure();
  source.spec = std::move(*spec);
  return source;
}

static FailureOr<Source> loadIR(MLIRContext &context, StringRef path,
                                llvm::SourceMgr &texts) {
  Diagnostics diagnostics(llvm::errs());
  FailureOr<SourceText> text = readTextFile(path, kMaxIRBytes, diagnostics);
  if (failed(text))
    return failure();
  // Of texts with several buffers MLIR parses the first.
  assert(texts.getNumBuffers() == 0 && "one file of IR per run");
  texts.AddNewSourceBuffer(
      llvm::MemoryBuffer::getMemBufferCopy(text->getText(), text->getName()),
      llvm::SMLoc());
  if (failed(checkIRText(*texts.getMemoryBuffer(texts.getMainFileID()),
                         llvm::errs())))
    return failure();
  Source source;
  source.module = parseSourceFile<ModuleOp>(texts, ParserConfig(&context));
  if (!source.module)
    return failure();
  return source;
}

FailureOr<Source> moec::loadSource(MLIRContext &context, StringRef path,
                                   const SpecOverrides &overrides,
                                   llvm::SourceMgr &texts) {
  if (path.ends_with(".json"))
    return loadJson(context, path, overrides);
  if (!path.ends_with(".mlir") && path != "-") {
    llvm::errs() << path
                 << ": error: unknown kind of file; expected a model's "
                    "config.json or a spec (.json), or IR (.mlir, or - for "
                    "standard input)\n";
    return failure();
  }
  if (overrides.numExperts || overrides.maxTokens || overrides.entry ||
      overrides.numValidTokens) {
    llvm::errs() << path
                 << ": error: --num-experts, --max-tokens and --entry change a "
                    "JSON description; IR says these itself\n";
    return failure();
  }
  return loadIR(context, path, texts);
}
