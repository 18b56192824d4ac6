//===- TextEncoding.cpp - detects texts that are not UTF-8 ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/TextEncoding.h"

#include <string_view>

namespace moert {

const char *explainEncoding(const char *text, size_t bytes) {
  std::string_view begin(text, bytes);
  auto startsWith = [&](std::string_view mark) {
    return begin.substr(0, mark.size()) == mark;
  };
  // JSON begins with two ASCII characters, so zero bytes reveal the encoding
  // even without a byte order mark.
  auto hasZeros = [&](bool first, bool second, bool third, bool fourth) {
    return bytes >= 4 && (text[0] == 0) == first && (text[1] == 0) == second &&
           (text[2] == 0) == third && (text[3] == 0) == fourth;
  };
  if (bytes >= 8 && begin.substr(4, 4) == "MOEP")
    return "the file is a compiled package; run it as a file whose name ends "
           "with .moepkg, or give the description that it was compiled from";
  if (startsWith("\xEF\xBB\xBF"))
    return "the file starts with a byte order mark; save it as UTF-8 without "
           "one";
  if (startsWith({"\xFF\xFE\0\0", 4}) || startsWith({"\0\0\xFE\xFF", 4}) ||
      hasZeros(false, true, true, true) || hasZeros(true, true, true, false))
    return "the text is UTF-32; save it as UTF-8 without a byte order mark";
  if (startsWith("\xFF\xFE") || startsWith("\xFE\xFF") ||
      hasZeros(false, true, false, true) || hasZeros(true, false, true, false))
    return "the text is UTF-16; save it as UTF-8 without a byte order mark";
  return nullptr;
}

} // namespace moert
