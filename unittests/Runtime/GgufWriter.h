//===- GgufWriter.h - GGUF files made by hand -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_GGUFWRITER_H
#define MOEC_UNITTESTS_RUNTIME_GGUFWRITER_H

#include <cstdint>
#include <string>
#include <vector>

namespace gguf {

/// Writes a file field by field.
struct Writer {
  std::string text = "GGUF";

  template <typename T>
  Writer &number(T value) {
    text.append(reinterpret_cast<const char *>(&value), sizeof(value));
    return *this;
  }
  Writer &string(const std::string &value) {
    number(uint64_t(value.size()));
    text += value;
    return *this;
  }
  Writer &tensor(const std::string &name, const std::vector<uint64_t> &sizes,
                 uint32_t type, uint64_t offset) {
    string(name).number(uint32_t(sizes.size()));
    for (uint64_t size : sizes)
      number(size);
    return number(type).number(offset);
  }
  /// Appends padding and `bytes` bytes.
  std::string data(size_t bytes, size_t alignment = 32) {
    text.resize((text.size() + alignment - 1) / alignment * alignment);
    for (size_t i = 0; i < bytes; ++i)
      text += char(i);
    return text;
  }
};

inline Writer begin(uint64_t tensors, uint64_t keys, uint32_t version = 3) {
  return Writer().number(version).number(tensors).number(keys);
}

} // namespace gguf

#endif // MOEC_UNITTESTS_RUNTIME_GGUFWRITER_H
