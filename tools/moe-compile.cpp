//===- moe-compile.cpp - a layer through the levels of IR --------*- C++
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Tools.h"

int main(int argc, char **argv) { return moec::moeCompileMain(argc, argv); }
