//===- FuzzBootstrap.cpp - fuzzes the start of ranks ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fuzzer.h"

using namespace moec::testing;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return finish(readBootstrap(asText(data, size)));
}
