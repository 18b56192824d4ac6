//===- RegionEvaluatorTest.cpp - scalar regions on floats -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Interpreter/RegionEvaluator.h"
#include "TestModule.h"

#include <cmath>
#include <limits>

using namespace moec;
using namespace moec::interpreter;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

/// A row_map whose body is `body` on %x (and %y).
std::string moduleWith(const std::string &body) {
  return R"(func.func @f(%in: tensor<?x1xf32>, %rows: tensor<?x1xf32>)
      -> tensor<?x1xf32> {
    %0 = moe.row_map %in : tensor<?x1xf32> rows(%rows : tensor<?x1xf32>) {
    ^bb0(%x: f32, %y: f32):
      )" +
         body + R"(
    } -> tensor<?x1xf32>
    return %0 : tensor<?x1xf32>
  })";
}

float evaluate(const std::string &body, float x, float y = 0) {
  TestModule test(moduleWith(body));
  auto map = *test.function().getOps<moe::RowMapOp>().begin();
  moert::Result<RegionEvaluator> region =
      RegionEvaluator::compile(map.getBody());
  EXPECT_TRUE(region.isOk()) << region.status().message();
  return region ? region->evaluate({x, y}) : kNaN;
}

float unary(const std::string &op, float x) {
  return evaluate("%r = " + op + " %x : f32\n moe.yield %r : f32", x);
}

float binary(const std::string &op, float x, float y) {
  return evaluate("%r = " + op + " %x, %y : f32\n moe.yield %r : f32", x, y);
}

float compare(const std::string &predicate, float x, float y) {
  return evaluate("%c = arith.cmpf " + predicate +
                      ", %x, %y : f32\n %one = arith.constant 1.0 : f32\n"
                      "%zero = arith.constant 0.0 : f32\n"
                      "%r = arith.select %c, %one, %zero : f32\n"
                      "moe.yield %r : f32",
                  x, y);
}

} // namespace

TEST(RegionEvaluator, ArithmeticIsInF32) {
  EXPECT_EQ(binary("arith.addf", 16777216.0f, 1.0f), 16777216.0f);
  EXPECT_EQ(binary("arith.subf", 1.0f, 3.0f), -2.0f);
  EXPECT_EQ(binary("arith.mulf", 3.0f, 0.1f), 3.0f * 0.1f);
  EXPECT_EQ(binary("arith.divf", 1.0f, 3.0f), 1.0f / 3.0f);
  EXPECT_EQ(unary("arith.negf", 2.0f), -2.0f);
  EXPECT_EQ(binary("arith.remf", -7.5f, 2.0f), -1.5f);
}

TEST(RegionEvaluator, MinimumAndMaximumPropagateNaN) {
  EXPECT_EQ(binary("arith.minimumf", 1.0f, 2.0f), 1.0f);
  EXPECT_EQ(binary("arith.maximumf", 1.0f, 2.0f), 2.0f);
  EXPECT_TRUE(std::isnan(binary("arith.minimumf", kNaN, 2.0f)));
  EXPECT_TRUE(std::isnan(binary("arith.maximumf", 2.0f, kNaN)));
  EXPECT_TRUE(std::signbit(binary("arith.minimumf", 0.0f, -0.0f)));
  EXPECT_FALSE(std::signbit(binary("arith.maximumf", -0.0f, 0.0f)));
  EXPECT_EQ(binary("arith.minnumf", kNaN, 2.0f), 2.0f);
  EXPECT_EQ(binary("arith.maxnumf", 2.0f, kNaN), 2.0f);
}

TEST(RegionEvaluator, FunctionsRoundOnce) {
  for (float x : {0.3f, 1.0f, 2.5f}) {
    EXPECT_EQ(unary("math.exp", x), float(std::exp(double(x))));
    EXPECT_EQ(unary("math.exp2", x), float(std::exp2(double(x))));
    EXPECT_EQ(unary("math.expm1", x), float(std::expm1(double(x))));
    EXPECT_EQ(unary("math.erf", x), float(std::erf(double(x))));
    EXPECT_EQ(unary("math.tanh", x), float(std::tanh(double(x))));
    EXPECT_EQ(unary("math.log", x), float(std::log(double(x))));
    EXPECT_EQ(unary("math.log2", x), float(std::log2(double(x))));
    EXPECT_EQ(unary("math.log1p", x), float(std::log1p(double(x))));
    EXPECT_EQ(unary("math.sqrt", x), std::sqrt(x));
    EXPECT_EQ(unary("math.rsqrt", x), float(1 / std::sqrt(double(x))));
    EXPECT_EQ(unary("math.sin", x), float(std::sin(double(x))));
    EXPECT_EQ(unary("math.cos", x), float(std::cos(double(x))));
  }
  EXPECT_EQ(unary("math.absf", -1.5f), 1.5f);
  EXPECT_EQ(unary("math.floor", -1.5f), -2.0f);
  EXPECT_EQ(unary("math.ceil", -1.5f), -1.0f);
  EXPECT_EQ(unary("math.trunc", -1.5f), -1.0f);
  EXPECT_EQ(unary("math.roundeven", -2.5f), -2.0f);
  EXPECT_EQ(unary("math.roundeven", 3.5f), 4.0f);
  EXPECT_EQ(binary("math.powf", 2.0f, 10.0f), 1024.0f);
  EXPECT_EQ(binary("math.copysign", 2.0f, -0.0f), -2.0f);
  EXPECT_EQ(evaluate("%r = math.fma %x, %y, %y : f32\n moe.yield %r : f32",
                     2.0f, 3.0f),
            9.0f);
}

TEST(RegionEvaluator, ComparesWithNaN) {
  EXPECT_EQ(compare("ogt", 2, 1), 1);
  EXPECT_EQ(compare("ogt", kNaN, 1), 0);
  EXPECT_EQ(compare("ugt", kNaN, 1), 1);
  EXPECT_EQ(compare("oeq", 0.0f, -0.0f), 1);
  EXPECT_EQ(compare("ueq", 1, 2), 0);
  EXPECT_EQ(compare("one", kNaN, 1), 0);
  EXPECT_EQ(compare("une", kNaN, 1), 1);
  EXPECT_EQ(compare("ole", 1, 1), 1);
  EXPECT_EQ(compare("ult", 1, 1), 0);
  EXPECT_EQ(compare("uge", 1, kNaN), 1);
  EXPECT_EQ(compare("oge", 1, 2), 0);
  EXPECT_EQ(compare("olt", 1, 2), 1);
  EXPECT_EQ(compare("ule", 3, 2), 0);
  EXPECT_EQ(compare("ord", 3, kInf), 1);
  EXPECT_EQ(compare("uno", 3, kNaN), 1);
}

TEST(RegionEvaluator, ClassesOfNumbersAreNumbers) {
  auto isOf = [](const std::string &op, float x) {
    return evaluate("%c = " + op + " %x : f32\n" +
                        "%r = arith.uitofp %c : i1 to f32\n" +
                        "moe.yield %r : f32",
                    x);
  };
  for (float x : {1.0f, -0.0f, kInf, -kInf, kNaN}) {
    EXPECT_EQ(isOf("math.isnan", x), float(std::isnan(x))) << x;
    EXPECT_EQ(isOf("math.isinf", x), float(std::isinf(x))) << x;
    EXPECT_EQ(isOf("math.isfinite", x), float(std::isfinite(x))) << x;
  }
}

TEST(RegionEvaluator, TruthValues) {
  std::string text = R"(
    %zero = arith.constant 0.0 : f32
    %a = arith.cmpf ogt, %x, %zero : f32
    %b = arith.cmpf ogt, %y, %zero : f32
    %true = arith.constant true
    %and = arith.andi %a, %b : i1
    %or = arith.ori %a, %b : i1
    %nor = arith.xori %or, %true : i1
    %one = arith.constant 1.0 : f32
    %two = arith.constant 2.0 : f32
    %p = arith.select %and, %one, %zero : f32
    %q = arith.select %nor, %two, %p : f32
    moe.yield %q : f32)";
  EXPECT_EQ(evaluate(text, 1, 1), 1);
  EXPECT_EQ(evaluate(text, 1, -1), 0);
  EXPECT_EQ(evaluate(text, -1, -1), 2);
}

TEST(RegionEvaluator, RoundsToSmallFloats) {
  EXPECT_EQ(evaluate(R"(%t = arith.truncf %x : f32 to bf16
    %r = arith.extf %t : bf16 to f32
    moe.yield %r : f32)",
                     1.00390625f),
            1.0f);
  EXPECT_EQ(evaluate(R"(%t = arith.truncf %x : f32 to f16
    %r = arith.extf %t : f16 to f32
    moe.yield %r : f32)",
                     1.00146484375f),
            1.001953125f);
}

TEST(RegionEvaluator, YieldsAnArgumentOrAConstant) {
  EXPECT_EQ(evaluate("moe.yield %y : f32", 3, 4), 4);
  EXPECT_EQ(evaluate("%c = arith.constant 7.0 : f32\n moe.yield %c : f32", 3),
            7);
}

TEST(RegionEvaluator, NamesAnOpThatItDoesNotKnow) {
  TestModule test(moduleWith("%r = math.atan %x : f32\n moe.yield %r : f32"));
  auto map = *test.function().getOps<moe::RowMapOp>().begin();
  moert::Result<RegionEvaluator> region =
      RegionEvaluator::compile(map.getBody());
  ASSERT_FALSE(region.isOk());
  EXPECT_NE(region.status().message().find("math.atan"), std::string::npos);
}

TEST(SmallFloats, RoundTripAndRounding) {
  // Every f16 and bf16 that is a number survives load and store.
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    for (moert::DType dtype : {moert::DType::BF16, moert::DType::F16}) {
      uint16_t stored = bits;
      TensorRef tensor;
      tensor.data = &stored;
      tensor.dtype = dtype;
      tensor.shape = {1};
      float value = loadAt(tensor, 0);
      stored = 0;
      store(tensor, 0, value);
      if (!std::isnan(value))
        ASSERT_EQ(stored, bits);
      else
        ASSERT_TRUE(std::isnan(loadAt(tensor, 0)));
    }
  }
  EXPECT_EQ(roundTo(moert::DType::F16, 65519.0f), 65504.0f);
  EXPECT_EQ(roundTo(moert::DType::F16, 65520.0f), kInf);
  EXPECT_EQ(roundTo(moert::DType::F16, 0x1.8p-25f), 0x1p-24f);
  EXPECT_EQ(roundTo(moert::DType::F16, 0x1p-25f), 0.0f);
  EXPECT_EQ(roundTo(moert::DType::F16, -0x1.ff8p-15f), -0x1.ff8p-15f);
  EXPECT_EQ(roundTo(moert::DType::F16, 0x1.fffp-15f), 0x1p-14f);
  EXPECT_EQ(roundTo(moert::DType::BF16, 0x1.01p0f), 1.0f);
  EXPECT_EQ(roundTo(moert::DType::BF16, 0x1.03p0f), 0x1.04p0f);
  EXPECT_EQ(roundTo(moert::DType::BF16, 3.4e38f), kInf);
}
