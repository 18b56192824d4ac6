//===- FuzzTensors.cpp - fuzzes the reader of safetensors -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Fuzzer.h"
#include "Readers.h"

using namespace moec::testing;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  return finish(readTensors(asText(data, size)));
}

/// Mutates the header and fixes its length; occasionally mutates any byte.
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                               unsigned seed) {
  constexpr size_t lengthBytes = 8;
  uint64_t length = 0;
  for (size_t i = 0; i < std::min(size, lengthBytes); ++i)
    length |= uint64_t(data[i]) << (8 * i);
  if (seed % 8 == 0 || size < lengthBytes || length > size - lengthBytes)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string rest = asText(data, size).substr(lengthBytes + length).str();
  if (maxSize < lengthBytes + rest.size())
    return size;
  uint8_t *header = data + lengthBytes;
  size_t newLength =
      mutateText(header, length, maxSize - lengthBytes - rest.size(), seed / 8);
  for (size_t i = 0; i < lengthBytes; ++i)
    data[i] = uint8_t(uint64_t(newLength) >> (8 * i));
  std::memcpy(header + newLength, rest.data(), rest.size());
  return lengthBytes + newLength + rest.size();
}
