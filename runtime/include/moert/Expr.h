//===- Expr.h - sizes as expressions of the token count ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_EXPR_H
#define MOERT_EXPR_H

#include "moert/Status.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moert {

/// A size or a grid as an expression of the token count; an immutable value.
///
///     expr    ::= term (('+' | '-') term)*
///     term    ::= primary ('*' primary)*
///     primary ::= integer | '-' integer | 'tokens' | '(' expr ')'
///               | ('ceildiv' | 'min' | 'max') '(' expr ',' expr ')'
///
/// Arithmetic is in int64; overflow is an error and never wraps. `ceildiv(a,
/// b)` rounds towards plus infinity and needs b > 0. Compiler, plan and
/// executor all use this evaluator.
class Expr {
public:
  /// Limits on the text length and nesting that parse() accepts.
  static constexpr size_t kMaxTextLength = 16384;
  static constexpr int kMaxDepth = 256;
  /// Limit on the operations and operands that maxOver() and minOver() evaluate
  /// when they try token counts one by one.
  static constexpr int64_t kMaxScan = int64_t(1) << 22;

  /// The constant 0.
  Expr() : Expr(0) {}
  /// A constant; implicit, so that `Expr::tokens() * 8` can be written.
  Expr(int64_t value);

  static Expr constant(int64_t value) { return Expr(value); }
  static Expr tokens();
  /// Operations with constant folding, unless it overflows; `x + 0`, `x - 0`
  /// and `x * 1` are simplified too.
  static Expr add(Expr a, const Expr &b);
  static Expr sub(Expr a, const Expr &b);
  static Expr mul(Expr a, const Expr &b);
  static Expr ceilDiv(Expr a, const Expr &b);
  static Expr min(Expr a, const Expr &b);
  static Expr max(Expr a, const Expr &b);
  /// The next multiple of `factor`, a positive constant.
  static Expr roundUp(const Expr &a, int64_t factor);

  /// The expression with `value` substituted for `tokens`.
  Expr withTokens(const Expr &value) const;

  /// Parses `text`; a failure names the column and what was expected.
  static Result<Expr> parse(std::string_view text);

  /// The canonical text: parse(str()) gives an equal expression.
  std::string str() const;

  Result<int64_t> evaluate(int64_t tokens) const;

  /// The exact maximum (minimum) over lo <= tokens <= hi. An expression that is
  /// monotone by its structure is evaluated at the ends only; any other is
  /// evaluated at every point, for at most `*budget` operations, which are
  /// deducted from it, or kMaxScan.
  Result<int64_t> maxOver(int64_t lo, int64_t hi,
                          int64_t *budget = nullptr) const;
  Result<int64_t> minOver(int64_t lo, int64_t hi,
                          int64_t *budget = nullptr) const;

  /// The exact maximum over 0 <= tokens <= limit.
  Result<int64_t> maxUpTo(int64_t limit, int64_t *budget = nullptr) const {
    return maxOver(0, limit, budget);
  }

  bool isConstant() const;
  /// The value of a constant expression; asserts isConstant().
  int64_t constantValue() const;
  bool dependsOnTokens() const;

  bool operator==(const Expr &other) const { return code == other.code; }
  bool operator!=(const Expr &other) const { return !(*this == other); }

private:
  enum class Op : uint8_t {
    Constant,
    Tokens,
    Add,
    Sub,
    Mul,
    CeilDiv,
    Min,
    Max,
  };

  struct Instr {
    Op op;
    int64_t value;
    bool operator==(const Instr &o) const {
      return op == o.op && value == o.value;
    }
  };

  class Parser;
  struct Shape;

  /// Appends to `a`, so that a long sum is built in linear time.
  static Expr combine(Op op, Expr a, const Expr &b);
  static bool apply(Op op, int64_t a, int64_t b, int64_t &result);
  Result<int64_t> extremum(int64_t lo, int64_t hi, bool largest,
                           int64_t *budget) const;
  Shape analyze() const;

  /// Postfix, so that nothing recurses, however deep the nesting.
  std::vector<Instr> code;
};

inline Expr operator+(Expr a, const Expr &b) {
  return Expr::add(std::move(a), b);
}
inline Expr operator-(Expr a, const Expr &b) {
  return Expr::sub(std::move(a), b);
}
inline Expr operator*(Expr a, const Expr &b) {
  return Expr::mul(std::move(a), b);
}

} // namespace moert

#endif // MOERT_EXPR_H
