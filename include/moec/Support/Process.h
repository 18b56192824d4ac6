//===- Process.h - runs another program -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_PROCESS_H
#define MOEC_SUPPORT_PROCESS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <string>

namespace moec {

/// What became of a program that ended by itself.
struct ProcessResult {
  int exitCode = 0;
  /// What it wrote to its output and error streams.
  std::string output;
  /// Processor time that it took, which does not depend on what else runs.
  double cpuSeconds = 0;
};

/// Runs `program` (a path, or a name that is looked for on the PATH) without a
/// shell and with nothing to read, and waits for it. Fails where it cannot be
/// started, is killed, or takes longer than `timeoutSeconds`: it and what it
/// has started are killed then. Any number of threads may call at once; no
/// signal handler is needed or changed.
llvm::Expected<ProcessResult> runProcess(llvm::StringRef program,
                                         llvm::ArrayRef<std::string> arguments,
                                         double timeoutSeconds);

} // namespace moec

#endif // MOEC_SUPPORT_PROCESS_H
