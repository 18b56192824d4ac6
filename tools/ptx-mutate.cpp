//===- ptx-mutate.cpp - kernels with less synchronization -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxMutate/Tool.h"

int main(int argc, char **argv) {
  return moec::ptx::mutate::ptxMutateMain(argc, argv);
}
