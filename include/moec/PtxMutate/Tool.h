//===- Tool.h - the command ptx-mutate --------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXMUTATE_TOOL_H
#define MOEC_PTXMUTATE_TOOL_H

namespace moec::ptx::mutate {

int ptxMutateMain(int argc, char **argv);

} // namespace moec::ptx::mutate

#endif // MOEC_PTXMUTATE_TOOL_H
