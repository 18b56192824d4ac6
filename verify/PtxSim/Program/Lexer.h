//===- Lexer.h - tokens of PTX ----------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_PROGRAM_LEXER_H
#define MOEC_VERIFY_PTXSIM_PROGRAM_LEXER_H

#include <string>
#include <vector>

namespace moec::ptx {

/// A word, a number, a string without its quotes, or one character.
struct Token {
  /// Empty at the end of the text.
  std::string text;
  unsigned line = 0;
};

/// Splits text into tokens, the last of which is empty. Never fails.
std::vector<Token> tokenize(const std::string &text);

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_PROGRAM_LEXER_H
