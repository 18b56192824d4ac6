//===- RunTool.h - runs a command by its name -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUNTOOL_H
#define MOEC_LIB_TOOLS_RUNTOOL_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace moec {

/// A command of a library, and its function.
struct Tool {
  llvm::StringRef name;
  int (*main)(int argc, char **argv);
};

/// Runs the command called `name`, with the process's signals set for it. A
/// name that `library` does not have is an error, printed to stderr.
int runTool(llvm::StringRef library, llvm::ArrayRef<Tool> tools,
            llvm::StringRef name, int argc, char **argv);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUNTOOL_H
