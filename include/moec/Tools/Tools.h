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
int moeOptMain(int argc, char **argv);
int moeCompileMain(int argc, char **argv);
int moeRunMain(int argc, char **argv);
int gpuTestMain(int argc, char **argv);

} // namespace moec

#endif // MOEC_TOOLS_TOOLS_H
