//===- ToolMain.cpp - the commands by name ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Tools.h"

#include <cstdio>
#include <cstring>

int moec_tool_main(const char *name, int argc, char **argv) {
  struct Tool {
    const char *name;
    int (*main)(int argc, char **argv);
  };
  constexpr Tool tools[] = {
#define MOEC_TOOL(name, function) {name, &moec::function},
#include "moec/Tools/Tools.def"
  };
  for (const Tool &tool : tools)
    if (std::strcmp(tool.name, name) == 0)
      return tool.main(argc, argv);
  std::fprintf(stderr,
               "%s: error: libmoec.so has no such command; install the library "
               "that came with the program\n",
               name);
  return 1;
}
