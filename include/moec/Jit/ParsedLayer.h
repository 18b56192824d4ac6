//===- ParsedLayer.h - a parsed layer and its diagnostics -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_JIT_PARSEDLAYER_H
#define MOEC_JIT_PARSEDLAYER_H

#include "moec/Compiler/Compiler.h"
#include "moec/Compiler/SourceDiagnostics.h"
#include "moec/Support/PooledContext.h"

namespace moec {

/// A layer in its own MLIR context, for compilation inside a host process:
/// nothing is printed.
class ParsedLayer {
public:
  /// `threads` is the size of the context's pool; 0: one per core that this
  /// process may use.
  explicit ParsedLayer(unsigned threads);
  ParsedLayer(const ParsedLayer &) = delete;
  ParsedLayer &operator=(const ParsedLayer &) = delete;

  /// Reads JSON or IR. May be called once.
  moert::Status parse(const SourceText &text, const SpecOverrides &overrides);

  /// Valid after parse().
  Source &source() { return parsed; }

  /// All diagnostics so far, with source lines and carets.
  std::string messages() const;
  /// The diagnostics as a failure.
  moert::Status fail() const { return moert::invalidArgument(messages()); }

private:
  /// Each layer has its own pool, since threads do not survive a fork.
  PooledContext context;
  std::string text;
  llvm::raw_string_ostream os;
  SourceDiagnostics diagnostics;
  Source parsed;
};

} // namespace moec

#endif // MOEC_JIT_PARSEDLAYER_H
