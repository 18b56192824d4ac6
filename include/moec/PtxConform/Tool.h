//===- Tool.h - the ptx-conform tool ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXCONFORM_TOOL_H
#define MOEC_PTXCONFORM_TOOL_H

namespace moec::conform {

int ptxConformMain(int argc, char **argv);

} // namespace moec::conform

#endif // MOEC_PTXCONFORM_TOOL_H
