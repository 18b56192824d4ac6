//===- ExprTest.cpp - tests of size expressions -----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Expr.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <string>

using namespace moert;

static constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
static constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

static Expr parsed(const std::string &text) {
  Result<Expr> expr = Expr::parse(text);
  EXPECT_TRUE(expr) << expr.status().message();
  return expr ? *expr : Expr();
}

static int64_t valueOf(const std::string &text, int64_t tokens) {
  Result<int64_t> value = parsed(text).evaluate(tokens);
  EXPECT_TRUE(value) << value.status().message();
  return value ? *value : -1;
}

static std::string parseError(const std::string &text) {
  Result<Expr> expr = Expr::parse(text);
  EXPECT_FALSE(expr) << text;
  return expr.status().message();
}

TEST(ExprTest, TakesAnotherCountInThePlaceOfTokens) {
  Expr own = parsed("ceildiv(tokens, 4)");
  EXPECT_EQ(parsed("tokens * 8 + min(tokens, 3)").withTokens(own).str(),
            "ceildiv(tokens, 4) * 8 + min(ceildiv(tokens, 4), 3)");
  EXPECT_EQ(parsed("tokens * 8").withTokens(Expr(2)), Expr(16));
  EXPECT_EQ(parsed("5").withTokens(own), Expr(5));
}

TEST(ExprTest, Evaluates) {
  EXPECT_EQ(valueOf("0", 5), 0);
  EXPECT_EQ(valueOf(" tokens ", 5), 5);
  EXPECT_EQ(valueOf("1 + 2 * tokens - 3", 5), 8);
  EXPECT_EQ(valueOf("(1 + 2) * (tokens - 3)", 5), 6);
  EXPECT_EQ(valueOf("10 - 4 - 3", 5), 3);
  EXPECT_EQ(valueOf("ceildiv(tokens, 4)", 8), 2);
  EXPECT_EQ(valueOf("ceildiv(tokens, 4)", 9), 3);
  EXPECT_EQ(valueOf("ceildiv(0 - tokens, 4)", 9), -2);
  EXPECT_EQ(valueOf("ceildiv(0 - tokens, 4)", 8), -2);
  EXPECT_EQ(valueOf("min(tokens, 7) + max(tokens, 7)", 3), 10);
  EXPECT_EQ(valueOf("-5*tokens", 3), -15);
  EXPECT_EQ(valueOf("tokens--5", 3), 8);
}

TEST(ExprTest, PrintsCanonically) {
  EXPECT_EQ(parsed("((tokens)*8)+(64*63)").str(), "tokens * 8 + 4032");
  EXPECT_EQ(parsed("(tokens+1)*2").str(), "(tokens + 1) * 2");
  EXPECT_EQ(parsed("tokens-(1-tokens)").str(), "tokens - (1 - tokens)");
  EXPECT_EQ(parsed("(tokens-1)-tokens").str(), "tokens - 1 - tokens");
  EXPECT_EQ(parsed("2*(3*tokens)").str(), "2 * (3 * tokens)");
  EXPECT_EQ(parsed("ceildiv( tokens+1 ,max(2,tokens))").str(),
            "ceildiv(tokens + 1, max(2, tokens))");
  EXPECT_EQ(parsed("tokens + -5").str(), "tokens + -5");
  EXPECT_EQ(parsed("0 + tokens * 1 - 0").str(), "tokens");
  EXPECT_EQ(Expr::constant(kMin).str(), "-9223372036854775808");
  EXPECT_EQ(parsed("-9223372036854775808"), Expr(kMin));
  EXPECT_EQ(Expr::roundUp(Expr::tokens() * 3, 256).str(),
            "ceildiv(tokens * 3, 256) * 256");
}

TEST(ExprTest, FoldsConstants) {
  EXPECT_EQ(Expr(3) + Expr(4), Expr(7));
  EXPECT_TRUE(Expr::ceilDiv(7, 2).isConstant());
  EXPECT_EQ(Expr::ceilDiv(7, 2).constantValue(), 4);
  EXPECT_EQ(Expr::min(3, 4), Expr(3));
  EXPECT_EQ(Expr::max(Expr::tokens(), Expr::tokens()), Expr::tokens());
  EXPECT_FALSE(Expr(3).dependsOnTokens());
  EXPECT_TRUE((Expr::tokens() * 2).dependsOnTokens());
  // Operations that cannot be folded are left for evaluation to report.
  EXPECT_FALSE((Expr(kMax) + Expr(1)).isConstant());
}

TEST(ExprTest, ReportsOverflowAndBadDivisors) {
  struct Case {
    const char *text;
    int64_t tokens;
    const char *message;
  } cases[] = {
      {"tokens + 9223372036854775807", 1,
       "64-bit overflow in 'tokens + 9223372036854775807' at tokens = 1"},
      {"-9223372036854775808 - tokens", 1, "64-bit overflow in"},
      {"tokens * tokens", int64_t(1) << 32, "64-bit overflow in"},
      {"ceildiv(8, tokens)", 0,
       "ceildiv by 0 in 'ceildiv(8, tokens)' at tokens = 0"},
      {"ceildiv(8, tokens - 2)", 1, "ceildiv by -1 in"},
      {"ceildiv(1, 0)", 1, "the divisor has to be positive"},
  };
  for (const Case &c : cases) {
    Result<int64_t> value = parsed(c.text).evaluate(c.tokens);
    ASSERT_FALSE(value) << c.text;
    EXPECT_NE(value.status().message().find(c.message), std::string::npos)
        << value.status().message();
  }
  EXPECT_EQ(valueOf("tokens + 9223372036854775807", 0), kMax);
}

TEST(ExprTest, ParseErrorsNameColumnAndExpectation) {
  struct Case {
    const char *text, *message;
  } cases[] = {
      {"", "expression '', column 1: an operand expected, the end found"},
      {"tokens +", "column 9: an operand expected, the end found"},
      {"tokens 4", "column 8: '+', '-', '*' or the end expected, '4' found"},
      {"toks", "column 1: unknown name 'toks'; tokens, ceildiv, min and max"},
      {"2 * Tokens", "column 5: unknown name 'Tokens'"},
      {"(tokens", "column 8: ')' expected, the end found"},
      {"min(tokens)", "column 11: ',' expected, ')' found"},
      {"min tokens", "column 5: '(' expected, 't' found"},
      {"max(1, 2, 3)", "column 9: ')' expected, ',' found"},
      {"-tokens", "column 2: an integer after the sign '-' expected, 't'"},
      {"tokens / 2", "column 8: '+', '-', '*' or the end expected, '/' found"},
      {"1 + \x01", "column 5: an integer, 'tokens', '(' or a function "
                   "expected, byte 1 found"},
      {"9223372036854775808", "column 1: the integer does not fit 64 bits"},
      {"-9223372036854775809", "column 2: the integer does not fit 64 bits"},
      {"99999999999999999999999", "column 1: the integer does not fit"},
  };
  for (const Case &c : cases) {
    std::string message = parseError(c.text);
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
  }
  EXPECT_NE(parseError(std::string("1\0", 2)).find("byte 0 found"),
            std::string::npos);
}

TEST(ExprTest, BoundsNestingAndLength) {
  auto nested = [](int depth) {
    return std::string(depth, '(') + "tokens" + std::string(depth, ')');
  };
  EXPECT_EQ(valueOf(nested(Expr::kMaxDepth), 3), 3);
  EXPECT_NE(parseError(nested(Expr::kMaxDepth + 1)).find("nested deeper"),
            std::string::npos);
  EXPECT_NE(parseError(std::string(100000, '(')).find("100000 characters"),
            std::string::npos);
  std::string calls;
  for (int i = 0; i < 2000; ++i)
    calls += "min(";
  EXPECT_NE(parseError(calls).find("nested deeper"), std::string::npos);
  // A long flat sum is not nested.
  Expr sum;
  for (int i = 0; i < 2000; ++i)
    sum = sum + Expr::tokens();
  EXPECT_EQ(*sum.evaluate(3), 6000);
  EXPECT_EQ(parsed(sum.str().substr(0, 9 * 1000 - 3)).str().size(),
            size_t(9 * 1000 - 3));
}

TEST(ExprTest, MaximumOfMonotoneExpressionsTakesTheEnds) {
  // Too many token counts to try one by one.
  int64_t many = int64_t(1) << 40;
  EXPECT_EQ(*parsed("tokens * 8 + 5").maxUpTo(many), many * 8 + 5);
  EXPECT_EQ(*parsed("100 - 3 * tokens").maxUpTo(many), 100);
  EXPECT_EQ(*parsed("100 - 3 * tokens").minOver(2, many), 100 - 3 * many);
  EXPECT_EQ(*parsed("ceildiv(tokens * 8, 64) * 12").maxUpTo(many),
            many / 8 * 12);
  EXPECT_EQ(*parsed("min(tokens, 512) * 4").maxUpTo(many), 2048);
  EXPECT_EQ(*parsed("ceildiv(64, tokens + 1)").maxUpTo(many), 64);
  EXPECT_EQ(*parsed("tokens * tokens").maxUpTo(1 << 30), int64_t(1) << 60);
  EXPECT_EQ(*parsed("-2 * tokens").maxOver(5, many), -10);
  EXPECT_EQ(*parsed("7").maxUpTo(many), 7);
}

TEST(ExprTest, MaximumOfOtherExpressionsIsExact) {
  // Split-K partials: fewer splits for more tokens.
  EXPECT_EQ(*parsed("tokens * ceildiv(64, tokens + 1)").maxUpTo(40), 90);
  EXPECT_EQ(*parsed("tokens * (10 - tokens)").maxUpTo(10), 25);
  EXPECT_EQ(*parsed("tokens * (10 - tokens)").maxOver(7, 10), 21);
  EXPECT_EQ(*parsed("tokens * (10 - tokens)").minOver(7, 12), -24);
  EXPECT_EQ(*parsed("max(20 - tokens, tokens)").maxUpTo(15), 20);
  EXPECT_EQ(*parsed("tokens * (10 - tokens)").maxUpTo(0), 0);
}

TEST(ExprTest, ExtremaRefuseBadRanges) {
  Expr hill = parsed("tokens * (10 - tokens)");
  EXPECT_FALSE(hill.maxOver(-1, 4));
  EXPECT_FALSE(hill.maxOver(4, 3));
  Result<int64_t> tooMany = hill.maxUpTo(Expr::kMaxScan);
  ASSERT_FALSE(tooMany);
  EXPECT_EQ(tooMany.status().code(), StatusCode::OutOfRange);
  // The budget counts operations: a longer expression may try fewer token
  // counts.
  Expr hills = hill;
  for (int i = 0; i < 100; ++i)
    hills = hills + hill;
  EXPECT_TRUE(hill.maxUpTo(100000));
  EXPECT_EQ(hills.maxUpTo(100000).status().code(), StatusCode::OutOfRange);
  EXPECT_TRUE(hills.maxUpTo(1000));
  EXPECT_FALSE(parsed("tokens * 4611686018427387904").maxUpTo(2));
  EXPECT_FALSE(parsed("0 - tokens * 4611686018427387904").maxUpTo(3));
}

namespace {
/// Random expressions, small enough to try every token count.
class RandomExpr {
public:
  explicit RandomExpr(unsigned seed) : random(seed) {}

  Expr make(int depth) {
    int kind = static_cast<int>(random() % (depth == 0 ? 2 : 8));
    if (kind == 0)
      return Expr(static_cast<int64_t>(random() % 23) - 7);
    if (kind == 1)
      return Expr::tokens();
    Expr a = make(depth - 1), b = make(depth - 1);
    switch (kind) {
    case 2:
      return a + b;
    case 3:
      return a - b;
    case 4:
      return a * b;
    case 5:
      return Expr::ceilDiv(a, Expr::max(b, 1));
    case 6:
      return Expr::min(a, b);
    default:
      return Expr::max(a, b);
    }
  }

private:
  std::mt19937 random;
};
} // namespace

TEST(ExprTest, RandomExpressionsRoundTripAndExtremaAgreeWithAScan) {
  RandomExpr random(1);
  for (int i = 0; i < 2000; ++i) {
    Expr expr = random.make(4);
    Result<Expr> again = Expr::parse(expr.str());
    ASSERT_TRUE(again) << expr.str();
    ASSERT_EQ(*again, expr) << expr.str();
    int64_t most = kMin, least = kMax;
    bool overflows = false;
    for (int64_t t = 3; t <= 20; ++t) {
      Result<int64_t> value = expr.evaluate(t);
      overflows |= !value;
      if (value) {
        most = std::max(most, *value);
        least = std::min(least, *value);
      }
    }
    Result<int64_t> max = expr.maxOver(3, 20), min = expr.minOver(3, 20);
    ASSERT_EQ(max.isOk(), !overflows) << expr.str();
    ASSERT_EQ(min.isOk(), !overflows) << expr.str();
    if (!overflows) {
      ASSERT_EQ(*max, most) << expr.str();
      ASSERT_EQ(*min, least) << expr.str();
    }
  }
}
