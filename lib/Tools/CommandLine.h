//===- CommandLine.h - command lines of all commands ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_COMMANDLINE_H
#define MOEC_LIB_TOOLS_COMMANDLINE_H

#include "llvm/ADT/StringRef.h"

namespace moec {

/// Parses the command line of the command `tool`. False after a message if it
/// is wrong, also where an option has the empty text as its value: a script's
/// variable that is unset must not mean that the option is not given.
bool parseCommandLine(int argc, char **argv, llvm::StringRef tool,
                      llvm::StringRef overview);

} // namespace moec

#endif // MOEC_LIB_TOOLS_COMMANDLINE_H
