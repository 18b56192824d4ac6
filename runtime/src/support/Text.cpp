//===- Text.cpp - values in messages ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Text.h"

#include <algorithm>

namespace moert {

/// Whether a UTF-8 character changes the direction of text on a terminal, which
/// can disguise a message: U+061C, U+200E, U+200F, U+202A to U+202E and U+2066
/// to U+2069.
static bool changesDirection(std::string_view character) {
  if (character == "\u061c")
    return true;
  if (character.size() != 3 || character[0] != '\xe2')
    return false;
  auto second = static_cast<uint8_t>(character[1]);
  auto third = static_cast<uint8_t>(character[2]);
  return (second == 0x80 && (third == 0x8e || third == 0x8f ||
                             (third >= 0xaa && third <= 0xae))) ||
         (second == 0x81 && third >= 0xa6 && third <= 0xa9);
}

/// Bytes of the first character of `text` if it is well-formed UTF-8 and
/// printable; else 0.
static size_t shownBytes(std::string_view text) {
  auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<uint8_t>(text[i]) : 0;
  };
  uint8_t first = byte(0);
  if (first < 0x80)
    return first >= 0x20 && first != 0x7f;
  size_t size = first < 0xc2   ? 0
                : first < 0xe0 ? 2
                : first < 0xf0 ? 3
                : first < 0xf5 ? 4
                               : 0;
  for (size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xc0) != 0x80)
      return 0;
  uint8_t second = byte(1);
  // Control characters U+0080 to U+009F, overlong encodings, surrogates, and
  // code points beyond Unicode.
  bool isRefused =
      (first == 0xc2 && second < 0xa0) || (first == 0xe0 && second < 0xa0) ||
      (first == 0xed && second >= 0xa0) || (first == 0xf0 && second < 0x90) ||
      (first == 0xf4 && second >= 0x90);
  return isRefused || changesDirection(text.substr(0, size)) ? 0 : size;
}

std::string printable(std::string_view text, size_t most) {
  std::string shown;
  while (!text.empty()) {
    size_t size = shownBytes(text);
    size_t taken = std::max<size_t>(size, 1);
    if (shown.size() + taken > most)
      return shown + "...";
    if (size > 0)
      shown += text.substr(0, size);
    else
      shown += text[0] == '\t' ? ' ' : '?';
    text.remove_prefix(taken);
  }
  return shown;
}

} // namespace moert
