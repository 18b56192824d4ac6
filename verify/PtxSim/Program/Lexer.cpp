//===- Lexer.cpp - tokens of PTX --------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Lexer.h"

#include <algorithm>
#include <cctype>

using namespace moec::ptx;

static bool isWordStart(char c) {
  return isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' ||
         c == '%' || c == '.';
}

static bool isWordCharacter(char c) {
  return isWordStart(c) || isdigit(static_cast<unsigned char>(c));
}

/// End of the word or number at `i`. `::` is part of a word, a single colon is
/// not.
static size_t findWordEnd(const std::string &text, size_t i) {
  while (i < text.size()) {
    if (isWordCharacter(text[i]))
      ++i;
    else if (text.compare(i, 2, "::") == 0 && i + 2 < text.size() &&
             isWordCharacter(text[i + 2]))
      i += 2;
    else
      break;
  }
  return i;
}

/// End of the comment at `i`; `i` if there is none.
static size_t findCommentEnd(const std::string &text, size_t i) {
  if (text.compare(i, 2, "//") == 0)
    return std::min(text.find('\n', i), text.size());
  if (text.compare(i, 2, "/*") == 0) {
    size_t end = text.find("*/", i + 2);
    return end == std::string::npos ? text.size() : end + 2;
  }
  return i;
}

std::vector<Token> moec::ptx::tokenize(const std::string &text) {
  std::vector<Token> tokens;
  unsigned line = 1;
  for (size_t i = 0; i < text.size();) {
    size_t end = findCommentEnd(text, i);
    if (end == i && !isspace(static_cast<unsigned char>(text[i]))) {
      if (text[i] == '"') {
        end = std::min(text.find('"', i + 1), text.size());
        tokens.push_back({text.substr(i + 1, end - i - 1), line});
        end = std::min(end + 1, text.size());
      } else {
        end = isWordCharacter(text[i]) ? findWordEnd(text, i) : i + 1;
        tokens.push_back({text.substr(i, end - i), line});
      }
    }
    end = std::max(end, i + 1);
    for (; i < end; ++i)
      line += text[i] == '\n';
  }
  tokens.push_back({"", line});
  return tokens;
}
