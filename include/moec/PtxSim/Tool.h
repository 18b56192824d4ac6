//===- Tool.h - the command ptx-sim -----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXSIM_TOOL_H
#define MOEC_PTXSIM_TOOL_H

namespace moec::ptx {

int ptxSimMain(int argc, char **argv);

} // namespace moec::ptx

#endif // MOEC_PTXSIM_TOOL_H
