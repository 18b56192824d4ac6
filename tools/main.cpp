//===- main.cpp - a command of a library as a program -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Tools.h"

int main(int argc, char **argv) {
  return moec_tool_main(MOEC_TOOL_NAME, argc, argv);
}
