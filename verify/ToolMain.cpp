//===- ToolMain.cpp - the commands of libmoec_verify.so ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/RunTool.h"
#include "moec/Tools/Tools.h"

int moec_tool_main(const char *name, int argc, char **argv) {
  constexpr moec::Tool tools[] = {
#define MOEC_VERIFY_TOOL(name, function) {name, &moec::function},
#include "moec/Tools/Tools.def"
  };
  return moec::runTool("libmoec_verify.so", tools, name, argc, argv);
}
