//===- ptx-conform.cpp - GPU and simulator, form by form --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxConform/Tool.h"

int main(int argc, char **argv) {
  return moec::conform::ptxConformMain(argc, argv);
}
