//===- Tools.h - the commands as functions ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TOOLS_TOOLS_H
#define MOEC_TOOLS_TOOLS_H

namespace moec {

/// Each is a whole command: it parses its arguments, prints its own errors and
/// returns the exit code, 0 only when all is well.
#define MOEC_TOOL(name, function) int function(int argc, char **argv);
#include "moec/Tools/Tools.def"

} // namespace moec

/// The command called `name` ("moe-run"), once per process. libmoec.so shows
/// it, so that the programs are mains of one line that share the library.
extern "C" int moec_tool_main(const char *name, int argc, char **argv);

#endif // MOEC_TOOLS_TOOLS_H
