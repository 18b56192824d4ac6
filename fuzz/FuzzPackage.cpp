//===- FuzzPackage.cpp - fuzzes the reader of packages ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fuzzer.h"
#include "Readers.h"

using namespace moec::testing;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return finish(readPackage(asText(data, size)));
}

/// Mutates the bytes before the digest, and recomputes the digest. Mostly keeps
/// the size, since the offsets of a FlatBuffer break when anything moves.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                               unsigned seed) {
  constexpr size_t digestBytes = 32;
  if (seed % 16 == 0 || size <= digestBytes)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string file = asText(data, size).str();
  size_t contents = size - digestBytes;
  if (seed % 4 == 0) {
    file.resize(maxSize);
    contents = LLVMFuzzerMutate(reinterpret_cast<uint8_t *>(file.data()),
                                contents, maxSize - digestBytes);
    file.resize(contents + digestBytes);
  } else {
    constexpr size_t maxBytes = 16;
    size_t at = (seed / 16) % contents;
    size_t length = std::min(maxBytes, contents - at);
    uint8_t window[maxBytes];
    std::memcpy(window, data + at, length);
    size_t changed = LLVMFuzzerMutate(window, length, length);
    std::memcpy(file.data() + at, window, changed);
  }
  sealPackage(file);
  std::memcpy(data, file.data(), file.size());
  return file.size();
}
