//===- Tools.h - the commands as functions ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_TOOLS_TOOLS_H
#define MOEC_TOOLS_TOOLS_H

namespace moec {

/// Commands. Each parses its arguments, prints its own errors and returns the
/// exit code, which is 0 only on success.
#define MOEC_TOOL(name, function) int function(int argc, char **argv);
#define MOEC_VERIFY_TOOL MOEC_TOOL
#include "moec/Tools/Tools.def"

} // namespace moec

/// Runs the command called `name` ("moe-run"), once per process. libmoec.so and
/// libmoec_verify.so export it, each for its own commands, so that each program
/// is a one-line main that links one of them.
extern "C" int moec_tool_main(const char *name, int argc, char **argv);

#endif // MOEC_TOOLS_TOOLS_H
