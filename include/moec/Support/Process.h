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

/// Result of a program that exited by itself.
struct ProcessResult {
  int exitCode = 0;
  /// Standard output and standard error of the program.
  std::string output;
  /// Processor time, which does not depend on the load of the machine.
  double cpuSeconds = 0;
};

/// Runs `program` (a path, or a name on the PATH) without a shell and with
/// empty input, and waits for it. Fails if it cannot be started, is killed, or
/// exceeds `timeoutSeconds`; on a timeout it and its children are killed.
/// Thread-safe. Signal handlers are neither needed nor changed.
llvm::Expected<ProcessResult> runProcess(llvm::StringRef program,
                                         llvm::ArrayRef<std::string> arguments,
                                         double timeoutSeconds);

} // namespace moec

#endif // MOEC_SUPPORT_PROCESS_H
