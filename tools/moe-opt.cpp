//===- moe-opt.cpp - runs passes on IR of any level -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Tools/Tools.h"

int main(int argc, char **argv) { return moec::moeOptMain(argc, argv); }
