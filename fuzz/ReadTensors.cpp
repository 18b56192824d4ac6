//===- ReadTensors.cpp - safetensors and GGUF files -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Readers.h"
#include "moert/Gguf.h"

#include <cstring>

using namespace moec::testing;

Reading moec::testing::readTensors(llvm::StringRef file) {
  // An exact-size copy, so that a sanitizer sees each read beyond it.
  auto memory = std::make_unique<char[]>(file.size());
  if (!file.empty())
    std::memcpy(memory.get(), file.data(), file.size());
  auto tensors =
      file.starts_with("GGUF")
          ? moert::readGguf(memory.get(), file.size(), "t")
          : moert::SafetensorsFile::fromMemory(memory.get(), file.size(), "t");
  if (!tensors)
    return {false, tensors.status().message().empty()
                       ? "refused without a message"
                       : ""};
  size_t numBytes = 0;
  volatile uint8_t last = 0;
  for (const moert::SafetensorsEntry &entry : tensors->entries()) {
    for (size_t i = 0; i < entry.bytes; ++i)
      last = entry.data[i];
    numBytes += entry.bytes;
    if (tensors->find(entry.name) != &entry)
      return {true, "two tensors are called '" + entry.name + "'"};
  }
  (void)last;
  return {true, numBytes <= file.size() ? "" : "tensors overlap"};
}
