//===- MathTest.cpp - expansions of transcendentals -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"

#include "gtest/gtest.h"

#include <cmath>
#include <cstring>
#include <limits>

using namespace moec;
using namespace moec::test;
using moert::DType;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kColumns = 8 * 1024 + 3; // vectors and a tail

/// Runs `body`, a scalar region of %x that ends in %y, on a row of values: as
/// the epilogue of a gemm, since its result may have another type.
Array mapRow(const Array &input, const std::string &body,
             DType resultType = DType::F32, const std::string &cpu = "host") {
  Array zeros(DType::F32, {1, 4}), weight(DType::F32, {input.size(), 4}),
      result(resultType, {1, input.size()});
  std::string in = input.getType(true), out = result.getType(true),
              w = weight.getType();
  CompiledKernels kernels(
      "tile.kernel @k(%z: memref<?x4xf32>, %w: " + w + ", %in: " + in +
          ", %out: " + out +
          ", %t: i64) {\n tile.gemm tokens(%t) ins(%z, %w : "
          "memref<?x4xf32>, " +
          w + ") elementwise(%in : " + in + ") outs(%out : " + out +
          ") epilogue {\n^bb0(%acc: f32, %x: f32):\n" + body +
          "\ntile.yield %y : f32\n} {config = #tile.cpu_gemm<"
          "register_rows = 1, register_columns = 4, columns_per_cta = 256, "
          "lanes = 8, rows_per_cta = 1>}"
          "\ntile.return\n}\n",
      cpu);
  EXPECT_TRUE(kernels.isOk()) << kernels.getErrors();
  if (kernels.isOk())
    kernels.run("k", (input.size() + 255) / 256,
                {&zeros, &weight, &input, &result}, 1);
  return result;
}

Array range(double low, double high) {
  Array input(DType::F32, {1, kColumns});
  for (int64_t i = 0; i < kColumns; ++i)
    input.set(i, low + (high - low) * i / (kColumns - 1));
  return input;
}

void expectAccurate(const char *op, double (*exact)(double), double low,
                    double high, double tolerance = 2e-7) {
  Array input = range(low, high);
  Array result = mapRow(input, std::string("%y = math.") + op + " %x : f32");
  int failures = 0;
  for (int64_t i = 0; i < kColumns && failures < 5; ++i) {
    double expected = exact(input.get(i));
    if (!(std::fabs(result.get(i) - expected) <=
          tolerance * std::fabs(expected) + 1e-44)) {
      ++failures;
      ADD_FAILURE() << op << "(" << input.get(i) << ") is " << result.get(i)
                    << ", expected " << expected;
    }
  }
}

void expectExact(const char *op, float argument, float expected) {
  Array input(DType::F32, {1, 1});
  input.set(0, argument);
  Array result = mapRow(input, std::string("%y = math.") + op + " %x : f32");
  float actual = result.get(0);
  if (std::isnan(expected)) {
    EXPECT_TRUE(std::isnan(actual))
        << op << "(" << argument << ") is " << actual;
    return;
  }
  EXPECT_EQ(actual, expected) << op << "(" << argument << ")";
  EXPECT_EQ(std::signbit(actual), std::signbit(expected))
      << op << "(" << argument << ") is " << actual;
}

TEST(Math, ClassesOfNumbers) {
  Array input(DType::F32, {1, 5});
  float values[] = {1, -0.0f, kInf, -kInf, NAN};
  for (int64_t i = 0; i < 5; ++i)
    input.set(i, values[i]);
  struct Case {
    const char *op;
    bool (*isOf)(float);
  };
  for (auto [op, isOf] :
       {Case{"isnan", [](float x) { return std::isnan(x); }},
        Case{"isinf", [](float x) { return std::isinf(x); }},
        Case{"isfinite", [](float x) { return std::isfinite(x); }}}) {
    Array found = mapRow(input, std::string("%c = math.") + op +
                                    " %x : f32\n"
                                    "%y = arith.uitofp %c : i1 to f32");
    for (int64_t i = 0; i < 5; ++i)
      EXPECT_EQ(found.get(i), isOf(values[i])) << op << values[i];
  }
}

TEST(Math, Exp) {
  expectAccurate("exp", std::exp, -87, 88.7);
  expectAccurate("exp", std::exp, -1, 1);
  expectExact("exp", 0, 1);
  expectExact("exp", -0.0f, 1);
  expectExact("exp", 89, kInf);
  expectExact("exp", 1e30f, kInf);
  expectExact("exp", kInf, kInf);
  expectExact("exp", -105, 0);
  expectExact("exp", -1e30f, 0);
  expectExact("exp", -kInf, 0);
  expectExact("exp", NAN, NAN);
}

TEST(Math, Tanh) {
  expectAccurate("tanh", std::tanh, -12, 12);
  expectAccurate("tanh", std::tanh, -1, 1);
  expectExact("tanh", -0.0f, -0.0f);
  expectExact("tanh", 1e30f, 1);
  expectExact("tanh", -kInf, -1);
  expectExact("tanh", 1e-30f, 1e-30f);
  expectExact("tanh", NAN, NAN);
}

TEST(Math, Erf) {
  expectAccurate("erf", std::erf, -5, 5);
  expectAccurate("erf", std::erf, -1, 1);
  expectExact("erf", -0.0f, -0.0f);
  expectExact("erf", kInf, 1);
  expectExact("erf", -1e30f, -1);
  expectExact("erf", NAN, NAN);
}

TEST(Math, Log) {
  expectAccurate("log", std::log, 1e-6, 2);
  expectAccurate("log", std::log, 1, 1e30);
  expectAccurate("log", std::log, 1e-44, 1e-38);
  expectExact("log", 1, 0);
  expectExact("log", 0, -kInf);
  expectExact("log", -1, NAN);
  expectExact("log", kInf, kInf);
  expectExact("log", NAN, NAN);
}

TEST(Math, Log1p) {
  expectAccurate("log1p", std::log1p, -0.99, 2);
  expectAccurate("log1p", std::log1p, 0, 1e9);
  expectAccurate("log1p", std::log1p, 1e-20, 1e-6);
  expectExact("log1p", -1, -kInf);
  expectExact("log1p", -2, NAN);
  expectExact("log1p", 0, 0);
  expectExact("log1p", kInf, kInf);
  expectExact("log1p", NAN, NAN);
}

constexpr const char *kSilu = R"(
  %one = arith.constant 1.0 : f32
  %n = arith.negf %x : f32
  %e = math.exp %n : f32
  %d = arith.addf %one, %e : f32
  %s = arith.divf %one, %d : f32
  %y = arith.mulf %x, %s : f32)";

/// The usual way of writing silu stays finite for any finite argument.
TEST(Math, SiluAtTheEnds) {
  Array input(DType::F32, {1, 4});
  float values[] = {-1e30f, -100, 100, 1e30f};
  for (int i = 0; i < 4; ++i)
    input.set(i, values[i]);
  Array result = mapRow(input, kSilu);
  EXPECT_EQ(result.get(0), 0);
  EXPECT_TRUE(std::signbit(result.get(0)));
  EXPECT_NEAR(result.get(1), 0, 1e-40);
  EXPECT_EQ(result.get(2), 100);
  EXPECT_EQ(result.get(3), static_cast<double>(1e30f));
}

/// Rounding to 16-bit types is to nearest even; NaN and infinities stay.
TEST(Math, Rounding) {
  for (DType dtype : {DType::BF16, DType::F16})
    for (const char *cpu : {"host", "x86-64-v3"}) {
      Array input(DType::F32, {1, 1030});
      input.randomize(7);
      input.set(0, NAN);
      input.set(1, kInf);
      input.set(2, -kInf);
      input.set(3, 3.4e38);
      input.set(4, 1.00390625);    // half way for bf16, to even
      input.set(5, 1.01171875);    // half way for bf16, to even above
      input.set(6, 1.00048828125); // half way for f16
      input.set(7, -0.0);
      input.set(8, 1e-40);
      input.set(9, 6e-8);
      input.set(1029, 1.00390625);
      Array result = mapRow(input,
                            "%zero = arith.constant 0.0 : f32\n"
                            "%y = arith.subf %x, %zero : f32",
                            dtype, cpu);
      EXPECT_TRUE(std::isnan(result.get(0)));
      for (int64_t i = 1; i < input.size(); ++i)
        EXPECT_EQ(result.get(i), Array::round(dtype, input.get(i)))
            << input.get(i) << " as " << moert::dtypeName(dtype) << " on "
            << cpu;
    }
}

TEST(Math, RefusesOthers) {
  CompiledKernels kernels(R"(
    tile.kernel @k(%in: memref<?x8xf32>, %out: memref<?x8xf32>, %t: i64) {
      tile.row_map tokens(%t) ins(%in : memref<?x8xf32>) outs(%out : memref<?x8xf32>) {
      ^bb0(%x: f32):
        %y = math.sin %x : f32
        tile.yield %y : f32
      } {config = #tile.cpu_row_map<lanes = 8, rows_per_cta = 1>}
      tile.return
    })");
  EXPECT_NE(
      kernels.getErrors().find("functions are exp, tanh, erf, log and log1p"),
      std::string::npos)
      << kernels.getErrors();
}

} // namespace
