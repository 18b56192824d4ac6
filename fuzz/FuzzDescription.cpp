//===- FuzzDescription.cpp - fuzzes the importer of JSON --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fuzzer.h"
#include "Readers.h"

using namespace moec::testing;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static DescriptionReader reader;
  return finish(reader.read(asText(data, size)));
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                               unsigned seed) {
  return mutateText(data, size, maxSize, seed);
}
