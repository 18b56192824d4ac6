//===- GpuMathTest.cpp - arithmetic of GPUs, on simulated ones --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"

#include <cmath>
#include <limits>
#include <random>

using namespace moec;
using namespace moec::test;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

/// Numbers of every f32 exponent, and the extremes.
std::vector<float> makeNumbers() {
  std::vector<float> numbers{
      0.0f,      -0.0f,     kInf,
      -kInf,     1.0f,      0x1p-149f,
      0x1p-127f, 0x1p-126f, kInf,
      0x1p-64f,  0x1p+64f,  0x1p+126f,
      -1.0f,     0x1p+127f, std::numeric_limits<float>::max()};
  numbers.push_back(std::numeric_limits<float>::quiet_NaN());
  std::mt19937 random(1);
  std::uniform_real_distribution<float> mantissas(1, 2);
  for (int exponent = -149; exponent < 128; ++exponent)
    for (int sign : {-1, 1})
      for (int i = 0; i < 8; ++i)
        numbers.push_back(
            static_cast<float>(sign) *
            std::ldexp(exponent == -149 ? 1 : mantissas(random), exponent));
  return numbers;
}

/// Within 0.6 ulp, or an ulp below the normal range.
void expectReciprocal(float x, float y) {
  double exact = 1.0 / static_cast<double>(x);
  auto rounded = static_cast<float>(exact);
  if (std::isnan(rounded) || std::isinf(rounded)) {
    EXPECT_TRUE(y == rounded || (std::isnan(y) && std::isnan(rounded)))
        << "1 / " << x << " is " << y;
    return;
  }
  double ulp = std::max(
      std::ldexp(1.0, std::ilogb(std::max(std::fabs(exact), 0x1p-126)) - 23),
      0x1p-149);
  double most = std::fabs(exact) < 0x1p-126 ? ulp : 0.6 * ulp;
  EXPECT_LE(std::fabs(y - exact), most)
      << "1 / " << x << " is " << y << ", not " << rounded;
  EXPECT_EQ(std::signbit(y), std::signbit(x)) << "1 / " << x << " is " << y;
}

TEST(GpuMath, Reciprocals) {
  for (const char *target : {"sm_80", "sm_90a"}) {
    std::vector<float> numbers = makeNumbers();
    std::string type = "memref<?x1xf32>";
    GpuKernel kernel("tile.kernel @kernel(%x: " + type + ", %y: " + type +
                         ", %t: i64) {\n  tile.row_map tokens(%t) ins(%x : " +
                         type + ") outs(%y : " + type +
                         ") {\n^bb0(%v: f32):\n"
                         "    %one = arith.constant 1.0 : f32\n"
                         "    %r = arith.divf %one, %v : f32\n"
                         "    tile.yield %r : f32\n  }\n  tile.return\n}\n",
                     target);
    kernel.input(numbers);
    kernel.output(numbers.size() * sizeof(float));
    kernel.run(static_cast<int64_t>(numbers.size()));
    std::vector<float> results = kernel.read<float>(1, numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i)
      expectReciprocal(numbers[i], results[i]);
  }
}

} // namespace
