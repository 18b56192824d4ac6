//===- Text.h - values in messages ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_TEXT_H
#define MOERT_SRC_SUPPORT_TEXT_H

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moert {

/// "[2, 3]"
inline std::string listText(const std::vector<int64_t> &values) {
  std::string text = "[";
  for (size_t i = 0; i < values.size(); ++i)
    text += (i > 0 ? ", " : "") + std::to_string(values[i]);
  return text + "]";
}

/// Two lower-case digits per byte.
inline std::string hexText(const uint8_t *bytes, size_t size) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (size_t i = 0; i < size; ++i) {
    text += digits[bytes[i] >> 4];
    text += digits[bytes[i] & 15];
  }
  return text;
}

/// Makes a text from a file safe to show on a terminal or in a log: UTF-8 with
/// each control character replaced by '?'. After `most` bytes the rest is
/// replaced by "...".
std::string printable(std::string_view text, size_t most = 80);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_TEXT_H
