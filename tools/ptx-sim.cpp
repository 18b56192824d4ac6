//===- ptx-sim.cpp - runs kernels without a GPU -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/PtxSim/Tool.h"

int main(int argc, char **argv) { return moec::ptx::ptxSimMain(argc, argv); }
