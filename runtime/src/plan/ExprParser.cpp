//===- ExprParser.cpp - the text form of sizes ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Expr.h"

#include <limits>

namespace moert {

/// Recursive descent with bounded nesting.
class Expr::Parser {
public:
  explicit Parser(std::string_view text) : text(text) {}

  Result<Expr> parse() {
    if (text.size() > kMaxTextLength)
      return invalidArgument("expression of " + std::to_string(text.size()) +
                             " characters; at most " +
                             std::to_string(kMaxTextLength) + " are accepted");
    Expr result;
    if (!parseSum(result, 0))
      return failure;
    if (!atEnd()) {
      expected("'+', '-', '*' or the end");
      return failure;
    }
    return result;
  }

private:
  /// Skips blanks; true at the end of the text.
  bool atEnd() {
    while (pos < text.size() && (text[pos] == ' ' || text[pos] == '\t'))
      ++pos;
    return pos == text.size();
  }

  bool take(char c) {
    if (atEnd() || text[pos] != c)
      return false;
    ++pos;
    return true;
  }

  /// Reports an error at the current position; always false.
  bool expected(const std::string &what) {
    std::string found = atEnd() ? "the end" : quote(text[pos]);
    return fail(what + " expected, " + found + " found");
  }

  bool fail(const std::string &message) {
    failure = invalidArgument("expression '" + excerpt() + "', column " +
                              std::to_string(pos + 1) + ": " + message);
    return false;
  }

  static std::string quote(char c) {
    if (c < ' ' || c > '~')
      return "byte " + std::to_string(static_cast<unsigned char>(c));
    return std::string("'") + c + "'";
  }

  std::string excerpt() const {
    constexpr size_t kLongest = 60;
    if (text.size() <= kLongest)
      return std::string(text);
    return std::string(text.substr(0, kLongest)) + "...";
  }

  bool parseSum(Expr &result, int depth) {
    if (depth > kMaxDepth)
      return fail("nested deeper than " + std::to_string(kMaxDepth) +
                  " levels");
    if (!parseProduct(result, depth))
      return false;
    while (true) {
      bool plus = take('+');
      if (!plus && !take('-'))
        return true;
      Expr right;
      if (!parseProduct(right, depth))
        return false;
      result =
          plus ? add(std::move(result), right) : sub(std::move(result), right);
    }
  }

  bool parseProduct(Expr &result, int depth) {
    if (!parsePrimary(result, depth))
      return false;
    while (take('*')) {
      Expr right;
      if (!parsePrimary(right, depth))
        return false;
      result = mul(std::move(result), right);
    }
    return true;
  }

  bool parsePrimary(Expr &result, int depth) {
    if (take('('))
      return parseSum(result, depth + 1) && need(')');
    if (take('-')) {
      if (atEnd() || !isDigit(text[pos]))
        return expected("an integer after the sign '-'");
      return parseInteger(result, /*negative=*/true);
    }
    if (atEnd())
      return expected("an operand");
    if (isDigit(text[pos]))
      return parseInteger(result, /*negative=*/false);
    if (isLetter(text[pos]))
      return parseName(result, depth);
    return expected("an integer, 'tokens', '(' or a function");
  }

  bool parseInteger(Expr &result, bool negative) {
    size_t start = pos;
    int64_t value = 0;
    for (; pos < text.size() && isDigit(text[pos]); ++pos) {
      int64_t digit = text[pos] - '0';
      if (__builtin_mul_overflow(value, int64_t(10), &value) ||
          __builtin_sub_overflow(value, digit, &value)) {
        pos = start;
        return fail("the integer does not fit 64 bits");
      }
    }
    // Accumulated as a negative number, since their range is larger by one.
    if (!negative && value == std::numeric_limits<int64_t>::min()) {
      pos = start;
      return fail("the integer does not fit 64 bits");
    }
    result = Expr(negative ? value : -value);
    return true;
  }

  bool parseName(Expr &result, int depth) {
    size_t start = pos;
    while (pos < text.size() && (isLetter(text[pos]) || isDigit(text[pos])))
      ++pos;
    std::string_view name = text.substr(start, pos - start);
    if (name == "tokens") {
      result = tokens();
      return true;
    }
    Expr (*build)(Expr, const Expr &) = name == "ceildiv" ? &ceilDiv
                                        : name == "min"   ? &Expr::min
                                        : name == "max"   ? &Expr::max
                                                          : nullptr;
    if (!build) {
      pos = start;
      return fail("unknown name '" + std::string(name.substr(0, 30)) +
                  "'; tokens, ceildiv, min and max are known");
    }
    Expr a, b;
    if (!need('(') || !parseSum(a, depth + 1) || !need(',') ||
        !parseSum(b, depth + 1) || !need(')'))
      return false;
    result = build(std::move(a), b);
    return true;
  }

  bool need(char c) { return take(c) || expected(quote(c)); }

  static bool isDigit(char c) { return c >= '0' && c <= '9'; }
  static bool isLetter(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  }

  std::string_view text;
  size_t pos = 0;
  Status failure;
};

Result<Expr> Expr::parse(std::string_view text) { return Parser(text).parse(); }

} // namespace moert
