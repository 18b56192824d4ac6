//===- Fuzzer.h - shared by all fuzzers -------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_FUZZ_FUZZER_H
#define MOEC_FUZZ_FUZZER_H

#include "../unittests/Tools/Mutator.h"
#include "RuntimeReaders.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

// Functions that libFuzzer calls and provides.
extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                               unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);
}

namespace moec::testing {

inline llvm::StringRef asText(const uint8_t *data, size_t size) {
  return {reinterpret_cast<const char *>(data), size};
}

/// Aborts on a violated guarantee; libFuzzer then keeps the input.
inline int finish(const Reading &reading) {
  if (reading.broken.empty())
    return 0;
  std::fprintf(stderr, "broken promise: %s\n", reading.broken.c_str());
  std::abort();
}

/// Mutates text half of the time by libFuzzer with its dictionary, and half of
/// the time by slices and numbers, which reaches deeper.
inline size_t mutateText(uint8_t *data, size_t size, size_t maxSize,
                         unsigned seed) {
  if (size == 0 || seed % 2)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string text = Mutator(seed, {}).mutate(asText(data, size));
  size_t newSize = std::min(text.size(), maxSize);
  std::memcpy(data, text.data(), newSize);
  return newSize;
}

} // namespace moec::testing

#endif // MOEC_FUZZ_FUZZER_H
