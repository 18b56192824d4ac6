//===- Expr.cpp - sizes as expressions of the token count -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Expr.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace moert {

//===----------------------------------------------------------------------===//
// Building
//===----------------------------------------------------------------------===//

Expr::Expr(int64_t value) : code{{Op::Constant, value}} {}

Expr Expr::tokens() {
  Expr result;
  result.code[0] = {Op::Tokens, 0};
  return result;
}

/// Computes one operation; false on overflow or division by b <= 0.
bool Expr::apply(Op op, int64_t a, int64_t b, int64_t &result) {
  switch (op) {
  case Op::Add:
    return !__builtin_add_overflow(a, b, &result);
  case Op::Sub:
    return !__builtin_sub_overflow(a, b, &result);
  case Op::Mul:
    return !__builtin_mul_overflow(a, b, &result);
  case Op::CeilDiv:
    if (b <= 0)
      return false;
    result = a / b + (a % b > 0 ? 1 : 0);
    return true;
  case Op::Min:
    result = std::min(a, b);
    return true;
  case Op::Max:
    result = std::max(a, b);
    return true;
  case Op::Constant:
  case Op::Tokens:
    break;
  }
  return false;
}

Expr Expr::combine(Op op, Expr a, const Expr &b) {
  int64_t folded;
  if (a.isConstant() && b.isConstant() &&
      apply(op, a.constantValue(), b.constantValue(), folded))
    return Expr(folded);
  a.code.insert(a.code.end(), b.code.begin(), b.code.end());
  a.code.push_back({op, 0});
  return a;
}

static bool isValue(const Expr &e, int64_t value) {
  return e.isConstant() && e.constantValue() == value;
}

Expr Expr::add(Expr a, const Expr &b) {
  if (isValue(b, 0))
    return a;
  return isValue(a, 0) ? b : combine(Op::Add, std::move(a), b);
}

Expr Expr::sub(Expr a, const Expr &b) {
  return isValue(b, 0) ? a : combine(Op::Sub, std::move(a), b);
}

Expr Expr::mul(Expr a, const Expr &b) {
  if (isValue(b, 1))
    return a;
  return isValue(a, 1) ? b : combine(Op::Mul, std::move(a), b);
}

Expr Expr::ceilDiv(Expr a, const Expr &b) {
  return isValue(b, 1) ? a : combine(Op::CeilDiv, std::move(a), b);
}

Expr Expr::min(Expr a, const Expr &b) {
  return a == b ? a : combine(Op::Min, std::move(a), b);
}

Expr Expr::max(Expr a, const Expr &b) {
  return a == b ? a : combine(Op::Max, std::move(a), b);
}

Expr Expr::roundUp(const Expr &a, int64_t factor) {
  return mul(ceilDiv(a, factor), factor);
}

Expr Expr::withTokens(const Expr &value) const {
  std::vector<Expr> stack;
  for (const Instr &instr : code) {
    if (instr.op == Op::Constant) {
      stack.emplace_back(instr.value);
      continue;
    }
    if (instr.op == Op::Tokens) {
      stack.push_back(value);
      continue;
    }
    Expr b = std::move(stack.back());
    stack.pop_back();
    stack.back() = combine(instr.op, std::move(stack.back()), b);
  }
  return std::move(stack.back());
}

bool Expr::isConstant() const {
  return code.size() == 1 && code[0].op == Op::Constant;
}

int64_t Expr::constantValue() const {
  assert(isConstant() && "the expression is not a constant");
  return code[0].value;
}

bool Expr::dependsOnTokens() const {
  return std::any_of(code.begin(), code.end(),
                     [](const Instr &i) { return i.op == Op::Tokens; });
}

//===----------------------------------------------------------------------===//
// Printing
//===----------------------------------------------------------------------===//

std::string Expr::str() const {
  // Precedence of a printed operand: 0 for a sum, 1 for a product, 2 for the
  // rest.
  using Printed = std::pair<std::string, int>;
  std::vector<Printed> stack;
  auto operand = [](const Printed &p, int strength) {
    return p.second < strength ? "(" + p.first + ")" : p.first;
  };
  for (const Instr &instr : code) {
    if (instr.op == Op::Constant) {
      stack.emplace_back(std::to_string(instr.value), 2);
      continue;
    }
    if (instr.op == Op::Tokens) {
      stack.emplace_back("tokens", 2);
      continue;
    }
    Printed b = std::move(stack.back());
    stack.pop_back();
    Printed a = std::move(stack.back());
    stack.pop_back();
    // A right operand of equal precedence keeps its parentheses, so that
    // parsing gives the same tree.
    auto infix = [&](const char *sign, int strength) {
      stack.emplace_back(operand(a, strength) + sign + operand(b, strength + 1),
                         strength);
    };
    auto call = [&](const char *name) {
      stack.emplace_back(name + ("(" + a.first) + ", " + b.first + ")", 2);
    };
    switch (instr.op) {
    case Op::Add:
      infix(" + ", 0);
      break;
    case Op::Sub:
      infix(" - ", 0);
      break;
    case Op::Mul:
      infix(" * ", 1);
      break;
    case Op::CeilDiv:
      call("ceildiv");
      break;
    case Op::Min:
      call("min");
      break;
    case Op::Max:
      call("max");
      break;
    case Op::Constant:
    case Op::Tokens:
      break;
    }
  }
  return std::move(stack.back().first);
}

//===----------------------------------------------------------------------===//
// Evaluation
//===----------------------------------------------------------------------===//

Result<int64_t> Expr::evaluate(int64_t tokens) const {
  std::vector<int64_t> stack;
  stack.reserve(16);
  for (const Instr &instr : code) {
    if (instr.op == Op::Constant || instr.op == Op::Tokens) {
      stack.push_back(instr.op == Op::Tokens ? tokens : instr.value);
      continue;
    }
    int64_t b = stack.back();
    stack.pop_back();
    int64_t &a = stack.back();
    int64_t result;
    if (!apply(instr.op, a, b, result)) {
      std::string where =
          " in '" + str() + "' at tokens = " + std::to_string(tokens);
      if (instr.op == Op::CeilDiv)
        return invalidArgument("ceildiv by " + std::to_string(b) + where +
                               "; the divisor has to be positive");
      return outOfRange("64-bit overflow" + where);
    }
    a = result;
  }
  return stack.back();
}

/// Properties of a subexpression over 0 <= tokens. A constant both rises and
/// falls; false means only that the structure does not prove it.
struct Expr::Shape {
  bool rises, falls, nonNegative, nonPositive;
};

Expr::Shape Expr::analyze() const {
  std::vector<Shape> stack;
  for (const Instr &instr : code) {
    if (instr.op == Op::Constant) {
      stack.push_back({true, true, instr.value >= 0, instr.value <= 0});
      continue;
    }
    if (instr.op == Op::Tokens) {
      stack.push_back({true, false, true, false});
      continue;
    }
    Shape b = stack.back();
    stack.pop_back();
    Shape a = stack.back();
    Shape r = {false, false, false, false};
    bool bothRise = a.rises && b.rises, bothFall = a.falls && b.falls;
    switch (instr.op) {
    case Op::Add:
      r = {bothRise, bothFall, a.nonNegative && b.nonNegative,
           a.nonPositive && b.nonPositive};
      break;
    case Op::Sub:
      r = {a.rises && b.falls, a.falls && b.rises,
           a.nonNegative && b.nonPositive, a.nonPositive && b.nonNegative};
      break;
    case Op::Mul: {
      bool positive = a.nonNegative && b.nonNegative;
      if (a.rises && a.falls)
        std::swap(a, b);
      if (b.rises && b.falls && b.nonNegative)
        r = {a.rises, a.falls, false, false};
      else if (b.rises && b.falls && b.nonPositive)
        r = {a.falls, a.rises, false, false};
      else if (positive)
        r = {bothRise, bothFall, false, false};
      r.nonNegative = positive || (a.nonPositive && b.nonPositive);
      r.nonPositive =
          (a.nonNegative && b.nonPositive) || (a.nonPositive && b.nonNegative);
      break;
    }
    case Op::CeilDiv:
      // The divisor is positive wherever the value is defined.
      if (b.rises && b.falls)
        r = {a.rises, a.falls, false, false};
      else if (a.nonNegative)
        r = {a.rises && b.falls, a.falls && b.rises, false, false};
      r.nonNegative = a.nonNegative;
      r.nonPositive = a.nonPositive;
      break;
    case Op::Min:
      r = {bothRise, bothFall, a.nonNegative && b.nonNegative,
           a.nonPositive || b.nonPositive};
      break;
    case Op::Max:
      r = {bothRise, bothFall, a.nonNegative || b.nonNegative,
           a.nonPositive && b.nonPositive};
      break;
    case Op::Constant:
    case Op::Tokens:
      break;
    }
    stack.back() = r;
  }
  return stack.back();
}

Result<int64_t> Expr::extremum(int64_t lo, int64_t hi, bool largest,
                               int64_t *budget) const {
  if (lo < 0 || hi < lo)
    return invalidArgument("token counts " + std::to_string(lo) + " to " +
                           std::to_string(hi) +
                           " are no range; 0 <= lo <= hi is needed");
  // Every part of a monotone expression is monotone, so an overflow in the
  // range shows at one of its ends too.
  Shape shape = analyze();
  int64_t step = shape.rises || shape.falls ? std::max<int64_t>(hi - lo, 1) : 1;
  if (step < hi - lo) {
    int64_t most = budget ? *budget : kMaxScan;
    auto size = static_cast<int64_t>(code.size());
    if (hi - lo >= most / size)
      return outOfRange(
          "the extremum of '" + str() + "' over " + std::to_string(lo) +
          " <= tokens <= " + std::to_string(hi) + " needs more than " +
          std::to_string(most) + " operations; lower the largest token count");
    if (budget)
      *budget -= (hi - lo + 1) * size;
  }
  int64_t best = 0;
  for (int64_t t = lo;; t += step) {
    Result<int64_t> value = evaluate(t);
    if (!value)
      return value;
    if (t == lo)
      best = *value;
    best = largest ? std::max(best, *value) : std::min(best, *value);
    if (t == hi || step > hi - t)
      return best;
  }
}

Result<int64_t> Expr::maxOver(int64_t lo, int64_t hi, int64_t *budget) const {
  return extremum(lo, hi, /*largest=*/true, budget);
}

Result<int64_t> Expr::minOver(int64_t lo, int64_t hi, int64_t *budget) const {
  return extremum(lo, hi, /*largest=*/false, budget);
}

} // namespace moert
