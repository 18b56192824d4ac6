//===- ParsedLayer.h - a layer as IR, and what is said of it ----*- C++ -*-===//
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

/// A layer in a context of its own, for a compilation inside of a process that
/// does other things too: nothing is printed.
class ParsedLayer {
public:
  /// `threads` work on it; 0: one per core that this process may use.
  explicit ParsedLayer(unsigned threads);
  ParsedLayer(const ParsedLayer &) = delete;
  ParsedLayer &operator=(const ParsedLayer &) = delete;

  /// Reads JSON or IR. Called once.
  moert::Status parse(const SourceText &text, const SpecOverrides &overrides);

  /// After parse().
  Source &source() { return parsed; }

  /// What has been said of the layer, with lines and carets.
  std::string messages() const;
  /// The same as a failure.
  moert::Status fail() const { return moert::invalidArgument(messages()); }

private:
  /// A pool per layer: threads do not survive a fork of the process.
  PooledContext context;
  std::string text;
  llvm::raw_string_ostream os;
  SourceDiagnostics diagnostics;
  Source parsed;
};

} // namespace moec

#endif // MOEC_JIT_PARSEDLAYER_H
