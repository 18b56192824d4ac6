//===- Float8Test.cpp - values of 8 bits on simulated GPUs ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Bits of tile.quantize, to e4m3 and int8, and of e4m3 that products read.
// llvm::APFloat rounds and decodes for the tests.

#include "GpuKernel.h"

#include "llvm/ADT/APFloat.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

using namespace mlir;
using namespace moec;
using namespace moec::test;

namespace {

const llvm::fltSemantics &e4m3() { return llvm::APFloat::Float8E4M3FN(); }

uint8_t toE4M3(float value) {
  llvm::APFloat x(value);
  bool lost;
  x.convert(e4m3(), llvm::APFloat::rmNearestTiesToEven, &lost);
  return static_cast<uint8_t>(x.bitcastToAPInt().getZExtValue());
}

float fromE4M3(uint8_t code) {
  llvm::APFloat x(e4m3(), llvm::APInt(8, code));
  return x.convertToFloat();
}

bool isNaN(uint8_t code) { return (code & 0x7F) == 0x7F; }

const char *const kTargets[] = {"sm_80", "sm_90a"};

//===----------------------------------------------------------------------===//
// tile.quantize
//===----------------------------------------------------------------------===//

struct QuantizeCase {
  std::string dtype;
  int64_t rows, columns;
  /// Positions of two groups of rows, of two per token; fewer than `rows`.
  bool hasOffsets = false;
  /// A scale of each row, instead of each 128 neighbours.
  bool areRows = false;
  /// int8 instead of e4m3.
  bool areIntegers = false;
  /// Neighbours that share a scale, and whether that is a power of two.
  int64_t group = 128;
  bool arePowers = false;

  int64_t getGroup() const { return areRows ? columns : group; }
  int64_t getNumGroups() const {
    return (columns + getGroup() - 1) / getGroup();
  }
  /// The scale of a group of zeros.
  float getLeast() const {
    return areRows && !areIntegers ? 1.0f / 512 : 1e-10f;
  }
  float getLargestValue() const { return areIntegers ? 127 : 448; }
  std::string getStorage() const { return areIntegers ? "i8" : "f8E4M3FN"; }
  /// Halfway between two quantized values, the `i`-th of 126.
  float getMiddle(int64_t i) const {
    return areIntegers ? float(i) + 0.5f
                       : (fromE4M3(uint8_t(i)) + fromE4M3(uint8_t(i + 1))) / 2;
  }
  bool isCode(uint8_t code, float quotient) const {
    if (std::isnan(quotient))
      return areIntegers ? code == 0 : isNaN(code);
    if (!areIntegers)
      return code == toE4M3(quotient);
    return int8_t(code) ==
           std::clamp(std::nearbyint(quotient), -127.0f, 127.0f);
  }
};

class Quantize : public testing::TestWithParam<QuantizeCase> {};

/// The bits that elements of the type have in memory.
template <typename T>
std::vector<T> toBits(const std::vector<float> &values,
                      const llvm::fltSemantics &semantics) {
  std::vector<T> bits;
  for (float value : values) {
    llvm::APFloat x(value);
    bool lost;
    x.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &lost);
    bits.push_back(static_cast<T>(x.bitcastToAPInt().getZExtValue()));
  }
  return bits;
}

/// Rounds to the element type, which has these values exactly.
float roundTo(float value, const llvm::fltSemantics &semantics) {
  llvm::APFloat x(value);
  bool lost;
  x.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &lost);
  return x.convertToFloat();
}

/// Rows of many magnitudes, each with some zeros; then infinities and NaN, and
/// numbers whose quotients lie between two quantized values.
std::vector<float> makeRows(const QuantizeCase &test,
                            const llvm::fltSemantics &semantics) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  float inf = std::numeric_limits<float>::infinity();
  for (int64_t row = 0; row < test.rows; ++row)
    for (int64_t column = 0; column < test.columns; ++column) {
      float value =
          std::ldexp(normal(random), int((row * 5 + column / 128) % 40) - 20);
      if (column % 7 == 3)
        value = column % 2 ? -0.0f : 0.0f;
      if (row == 2)
        value = column % 2 ? -0.0f : 0.0f;
      // Scale 2: halfway between two quantized values, and close to it.
      if (row == 3)
        value = column % 128 == 0
                    ? 2 * test.getLargestValue()
                    : std::nextafter(2 * test.getMiddle(column % 126),
                                     column % 3 == 0   ? inf
                                     : column % 3 == 1 ? -inf
                                                       : value);
      if (row == 4 && column % 128 == 5)
        value = -inf;
      if (row == 5 && column % 128 == 6)
        value = std::nanf("");
      values.push_back(roundTo(value, semantics));
    }
  return values;
}

TEST_P(Quantize, HasTheBitsOfADivision) {
  const QuantizeCase &test = GetParam();
  const llvm::fltSemantics &semantics =
      test.dtype == "f32"    ? llvm::APFloat::IEEEsingle()
      : test.dtype == "bf16" ? llvm::APFloat::BFloat()
                             : llvm::APFloat::IEEEhalf();
  std::string n = std::to_string(test.columns);
  int64_t groups = test.getNumGroups();
  std::string scale = "memref<?x" + std::to_string(groups) + "xf32>";
  std::string x = "memref<?x" + n + "x" + test.dtype + ">";
  std::string q = "memref<?x" + n + "x" + test.getStorage() + ">";
  std::string text = "tile.kernel @kernel(%x: " + x;
  if (test.hasOffsets)
    text += ", %o: memref<3xi32>";
  text += ", %q: " + q + ", %s: " + scale + ", %t: i64) {\n" +
          "tile.quantize <storage = " + test.getStorage() +
          ", scale = f32, granularity = " +
          (test.areRows
               ? "token"
               : "group, block = [1, " + std::to_string(test.group) + "]") +
          ", dynamic = true" + (test.arePowers ? ", power_of_two = true" : "") +
          "> tokens(%t) ins(%x : " + x + ")";
  if (test.hasOffsets)
    text += " offsets(%o : memref<3xi32>)";
  text += " outs(%q, %s : " + q + ", " + scale + ")";
  if (test.hasOffsets)
    text += " {top_k = 2 : i64}";
  text += "\ntile.return\n}";

  std::vector<float> values = makeRows(test, semantics);
  int64_t written = test.hasOffsets ? test.rows - 3 : test.rows;
  for (std::string target : kTargets) {
    GpuKernel kernel(text, target);
    if (test.dtype == "f32")
      kernel.input(toBits<uint32_t>(values, semantics));
    else
      kernel.input(toBits<uint16_t>(values, semantics));
    if (test.hasOffsets)
      kernel.input(std::vector<int32_t>{0, 1, int32_t(written)});
    // Memory that no thread writes can be read back.
    kernel.input(std::vector<uint8_t>(values.size(), 0x55));
    kernel.input(std::vector<float>(test.rows * groups, 0.5));
    kernel.run(test.hasOffsets ? test.rows / 2 : test.rows);
    if (HasFatalFailure())
      return;
    size_t first = test.hasOffsets ? 2 : 1;
    auto quantized = kernel.read<uint8_t>(first, values.size());
    auto scales = kernel.read<float>(first + 1, test.rows * groups);
    for (int64_t row = 0; row < test.rows; ++row)
      for (int64_t group = 0; group < groups; ++group) {
        int64_t begin = test.getGroup() * group;
        int64_t end = std::min(begin + test.getGroup(), test.columns);
        const float *of = &values[row * test.columns];
        float most = 0;
        for (int64_t i = begin; i < end; ++i)
          // NaN stays.
          if (!std::isnan(most) && !(std::fabs(of[i]) <= most))
            most = std::fabs(of[i]);
        float expected = std::isnan(most) ? most
                                          : std::fmax(most, test.getLeast()) /
                                                test.getLargestValue();
        // 2^ceil(log2(s)) of docs/use/layers.md.
        if (test.arePowers && std::isfinite(expected))
          expected = float(std::exp2(std::ceil(std::log2(double(expected)))));
        float actual = scales[row * groups + group];
        if (row >= written) {
          ASSERT_EQ(actual, 0.5) << target << " row " << row;
          for (int64_t i = begin; i < end; ++i)
            ASSERT_EQ(quantized[row * test.columns + i], 0x55);
          continue;
        }
        ASSERT_TRUE(std::isnan(expected) ? std::isnan(actual)
                                         : actual == expected)
            << target << " row " << row << " group " << group << ": " << actual
            << " is not " << expected;
        for (int64_t i = begin; i < end; ++i) {
          uint8_t code = quantized[row * test.columns + i];
          float quotient = of[i] / expected;
          ASSERT_TRUE(test.isCode(code, quotient))
              << target << " row " << row << " column " << i << ": " << of[i]
              << " / " << expected << " became " << int(code);
        }
      }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Float8, Quantize,
    testing::Values(QuantizeCase{"bf16", 11, 512}, QuantizeCase{"f16", 9, 200},
                    QuantizeCase{"f32", 9, 384}, QuantizeCase{"bf16", 7, 37},
                    QuantizeCase{"f32", 7, 130},
                    QuantizeCase{"bf16", 12, 320, true},
                    // A thread has one vector and none,
                    // several, or single elements.
                    QuantizeCase{"bf16", 9, 200, false, true},
                    QuantizeCase{"bf16", 12, 5632, true, true},
                    QuantizeCase{"f32", 9, 2052, false, true},
                    QuantizeCase{"f16", 7, 37, true, true},
                    QuantizeCase{"bf16", 9, 200, false, true, true},
                    QuantizeCase{"f16", 12, 2880, true, true, true},
                    QuantizeCase{"f32", 9, 2052, false, true, true},
                    QuantizeCase{"bf16", 7, 37, true, true, true},
                    QuantizeCase{"bf16", 9, 208, false, false, false, 32, true},
                    QuantizeCase{"f32", 9, 96, true, false, false, 32, true},
                    QuantizeCase{"f16", 7, 37, false, false, false, 32, true},
                    QuantizeCase{"f16", 9, 160, false, false, false, 64},
                    QuantizeCase{"bf16", 9, 384, true, false, false, 128,
                                 true}),
    [](const testing::TestParamInfo<QuantizeCase> &info) {
      return info.param.dtype + "_" + std::to_string(info.param.columns) +
             (info.param.hasOffsets ? "_offsets" : "") +
             (info.param.areRows ? "_rows" : "") +
             (info.param.areIntegers ? "_integers" : "") +
             (info.param.group != 128
                  ? "_group" + std::to_string(info.param.group)
                  : "") +
             (info.param.arePowers ? "_powers" : "");
    });

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// Row r has value r at one index, where weights have 1, so that results cover
/// all 8-bit values.
TEST(Float8, ProductsReadEveryCode) {
  constexpr int64_t numValues = 256, sizeK = 160, columns = 32;
  std::string text = R"(
    tile.kernel @kernel(%x: memref<?x160xf8E4M3FN>, %w: memref<32x160xf8E4M3FN>,
        %a: memref<?x2xf32>, %b: memref<1x2xf32>, %y: memref<?x32xf32>, %t: i64) {
      tile.gemm tokens(%t) ins(%x, %w : memref<?x160xf8E4M3FN>, memref<32x160xf8E4M3FN>)
          input_scale(%a : memref<?x2xf32>) weight_scale(%b : memref<1x2xf32>)
          outs(%y : memref<?x32xf32>)
          {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = group, block = [1, 128], dynamic = true>, weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block = [128, 128]>, config = #tile.sm80_gemm<block_m = 32, block_n = 32, block_k = 128, vector_width = 4>}
      tile.return
    })";
  // Index of the one in each column, in both blocks of scales.
  auto place = [](int64_t column) { return column * 5; };
  std::vector<uint8_t> x(numValues * sizeK), w(columns * sizeK);
  std::vector<float> rowScales(numValues * 2), blockScales{0.5, 2};
  for (int64_t code = 0; code < numValues; ++code) {
    for (int64_t column = 0; column < columns; ++column)
      x[code * sizeK + place(column)] = uint8_t(code + column);
    rowScales[2 * code] = 1 + float(code) / 256;
    rowScales[2 * code + 1] = 3;
  }
  for (int64_t column = 0; column < columns; ++column)
    w[column * sizeK + place(column)] = toE4M3(1);
  for (std::string target : kTargets) {
    GpuKernel kernel(text, target);
    kernel.input(x);
    kernel.input(w);
    kernel.input(rowScales);
    kernel.input(blockScales);
    kernel.output(numValues * columns * sizeof(float));
    kernel.run(numValues);
    if (HasFatalFailure())
      return;
    auto y = kernel.read<float>(4, numValues * columns);
    for (int64_t code = 0; code < numValues; ++code) {
      bool hasNaN = false;
      for (int64_t column = 0; column < columns; ++column)
        hasNaN |= isNaN(uint8_t(code + column));
      for (int64_t column = 0; column < columns; ++column) {
        int64_t block = place(column) / 128;
        float expected = fromE4M3(uint8_t(code + column)) *
                         (rowScales[2 * code + block] * blockScales[block]);
        float actual = y[code * columns + column];
        // 0 times NaN is NaN.
        ASSERT_TRUE(hasNaN ? std::isnan(actual) : actual == expected)
            << target << " code " << code << " column " << column << ": "
            << actual << " is not " << expected;
      }
    }
  }
}

} // namespace
