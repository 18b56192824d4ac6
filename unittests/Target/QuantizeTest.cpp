//===- QuantizeTest.cpp - block fp8 on the CPU ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace moec;
using namespace moec::test;
using moert::DType;

namespace {

constexpr int64_t kGroup = 128;

int64_t ceilDiv(int64_t x, int64_t y) { return (x + y - 1) / y; }

uint32_t getBits(const Array &array, int64_t i) {
  int64_t bytes = moert::dtypeBits(array.getDType()) / 8;
  uint32_t bits = 0;
  std::memcpy(&bits, static_cast<char *>(array.data()) + i * bytes, bytes);
  return bits;
}

void setBits(const Array &array, int64_t i, uint32_t bits) {
  int64_t bytes = moert::dtypeBits(array.getDType()) / 8;
  std::memcpy(static_cast<char *>(array.data()) + i * bytes, &bits, bytes);
}

/// The formula of docs/use/layers.md with the FPU's f32, and LLVM's e4m3.
struct Expected {
  Expected(const Array &input, int64_t row, int64_t group) {
    int64_t columns = input.getShape()[1], first = group * kGroup;
    int64_t size = std::min(kGroup, columns - first);
    auto get = [&](int64_t i) {
      return static_cast<float>(input.get(row, first + i));
    };
    float largest = 0;
    for (int64_t i = 0; i < size; ++i)
      if (float x = std::fabs(get(i)); x > largest || std::isnan(x)) {
        largest = x;
        if (std::isnan(x))
          break;
      }
    scale = (std::isnan(largest) ? largest : std::max(largest, 1e-10f)) / 448;
    Array quotients(DType::F8E4M3, {size});
    for (int64_t i = 0; i < size; ++i) {
      quotients.set(i, get(i) / scale);
      rounded.push_back(getBits(quotients, i));
    }
  }
  float scale;
  std::vector<uint32_t> rounded;
};

bool isNaN(uint32_t code) { return (code & 0x7F) == 0x7F; }

void expectQuantized(const Array &input, const Array &rounded,
                     const Array &scales, int64_t rows) {
  int64_t columns = input.getShape()[1], groups = ceilDiv(columns, kGroup);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t group = 0; group < groups; ++group) {
      Expected expected(input, row, group);
      float scale = static_cast<float>(scales.get(row, group));
      ASSERT_TRUE(scale == expected.scale ||
                  (std::isnan(scale) && std::isnan(expected.scale)))
          << row << ", " << group << ": " << scale << ", " << expected.scale;
      for (size_t i = 0; i < expected.rounded.size(); ++i) {
        uint32_t code = getBits(rounded, row * columns + group * kGroup + i);
        ASSERT_TRUE(code == expected.rounded[i] ||
                    (isNaN(code) && isNaN(expected.rounded[i])))
            << row << ", " << group << ", " << i << ": " << code << ", "
            << expected.rounded[i] << " of "
            << input.get(row, group * kGroup + i) << " / " << scale;
      }
    }
}

/// Rows from `counted` on are behind the last offset; below 0: no offsets.
void runQuantize(const Array &input, int64_t lanes, int64_t counted = -1) {
  int64_t rows = input.getShape()[0], columns = input.getShape()[1];
  Array rounded(DType::F8E4M3, {rows, columns}),
      scales(DType::F32, {rows, ceilDiv(columns, kGroup)}),
      offsets(DType::I32, {3});
  for (int64_t i = 0; i < rounded.size(); ++i)
    setBits(rounded, i, 0x55);
  scales.fill(77);
  offsets.set(1, counted / 2);
  offsets.set(2, counted);
  std::string x = input.getType(true), q = rounded.getType(true),
              s = scales.getType(true);
  bool hasOffsets = counted >= 0;
  CompiledKernels kernels(
      "tile.kernel @k(%x: " + x + ", %o: memref<3xi32>, %q: " + q +
      ", %s: " + s +
      ", %t: i64) {\n tile.quantize <storage = f8E4M3FN, scale = f32, "
      "granularity = group, block = [1, 128], dynamic = true> tokens(%t) "
      "ins(%x : " +
      x + ")" + (hasOffsets ? " offsets(%o : memref<3xi32>)" : "") +
      " outs(%q, %s : " + q + ", " + s + ") {" +
      (hasOffsets ? "top_k = 2 : i64, " : "") +
      "config = #tile.cpu_quantize<lanes = " + std::to_string(lanes) +
      ", rows_per_cta = 3>}\ntile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k", ceilDiv(rows, 3), {&input, &offsets, &rounded, &scales},
              hasOffsets ? rows / 2 : rows);
  expectQuantized(input, rounded, scales, hasOffsets ? counted : rows);
  for (int64_t row = std::max<int64_t>(counted, 0); hasOffsets && row < rows;
       ++row) {
    EXPECT_EQ(getBits(rounded, row * columns), 0x55u);
    EXPECT_EQ(scales.get(row, 0), 77);
  }
}

TEST(CpuQuantize, EveryBF16) {
  // Quantized values of all magnitudes below the largest of the group.
  Array input(DType::BF16, {512, kGroup});
  for (int64_t i = 0; i < input.size(); ++i)
    setBits(input, i, static_cast<uint32_t>(i));
  for (int64_t lanes : {4, 8, 16})
    runQuantize(input, lanes);
  // All exponents in each group, all finite.
  for (int64_t i = 0; i < input.size(); ++i)
    setBits(input, i, static_cast<uint32_t>(i * 40503 % 65536) & 0xBFFF);
  runQuantize(input, 8);
}

TEST(CpuQuantize, TiesAndNeighbours) {
  // The scale is 1 with a largest of 448: every halfway point, and the floats
  // next to it.
  std::vector<float> values = {448};
  for (int code = 0; code < 0x7E; ++code) {
    Array two(DType::F8E4M3, {2});
    setBits(two, 0, code);
    setBits(two, 1, code + 1);
    auto half = static_cast<float>((two.get(0) + two.get(1)) / 2);
    for (float x : {half, std::nextafter(half, 0.0f),
                    std::nextafter(half, 1000.0f), -half})
      values.push_back(x);
  }
  Array input(DType::F32, {5, kGroup});
  for (int64_t i = 0; i < input.size(); ++i)
    input.set(i, i % kGroup == 0 ? 448 : values[i % values.size()]);
  for (int64_t lanes : {4, 8, 16})
    runQuantize(input, lanes);
}

// field-bug: flashinfer#5024, kernels-community#680
TEST(CpuQuantize, SmallAndNotFinite) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  Array input(DType::F32, {6, 2 * kGroup});
  input.randomize(3);
  for (int64_t i = 0; i < kGroup; ++i) {
    input.set(i, 0);
    input.set(2 * kGroup + i, i % 2 ? 1e-10 : -3e-12);
    input.set(4 * kGroup + i, i * 1e-44);
  }
  input.set(6 * kGroup + 5, inf);
  input.set(8 * kGroup + 127, nan);
  input.set(10 * kGroup + 3, -inf);
  input.set(10 * kGroup + 4, -nan);
  for (int64_t lanes : {4, 8, 16})
    runQuantize(input, lanes);
}

TEST(CpuQuantize, ColumnTails) {
  for (DType dtype : {DType::F32, DType::BF16, DType::F16})
    for (int64_t columns : {1, 7, 16, 127, 129, 200, 384, 391}) {
      Array input(dtype, {5, columns});
      input.randomize(4);
      for (int64_t lanes : {4, 8, 16})
        runQuantize(input, lanes);
    }
}

TEST(CpuQuantize, StopsAtTheLastOffset) {
  Array input(DType::BF16, {14, 150});
  input.randomize(5);
  for (int64_t counted : {0, 1, 7, 14})
    runQuantize(input, 8, counted);
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

struct Product {
  int64_t rows, sizeK, columns, lanes = 8, m = 2, n = 4, k = 32;
};

void runProduct(const Product &p, const Array &input, const Array &weight) {
  int64_t blocks = ceilDiv(p.sizeK, kGroup);
  Array inputScale(DType::F32, {p.rows, blocks}),
      weightScale(DType::F32, {ceilDiv(p.columns, kGroup), blocks}),
      result(DType::F32, {p.rows, p.columns});
  inputScale.randomize(6);
  weightScale.randomize(7);
  std::string x = input.getType(true), w = weight.getType(),
              xs = inputScale.getType(true), ws = weightScale.getType(),
              y = result.getType(true);
  auto number = [](int64_t value) { return std::to_string(value); };
  CompiledKernels kernels(
      "tile.kernel @k(%x: " + x + ", %w: " + w + ", %xs: " + xs +
      ", %ws: " + ws + ", %y: " + y +
      ", %t: i64) {\n tile.gemm tokens(%t) ins(%x, %w"
      " : " +
      x + ", " + w + ") input_scale(%xs : " + xs +
      ") weight_scale(%ws : " + ws + ") outs(%y : " + y +
      ") {input_quant = #moe.quant<storage = f8E4M3FN, scale = f32, "
      "granularity = group, block = [1, 128], dynamic = true>, weight_quant = "
      "#moe.quant<storage = f8E4M3FN, scale = f32, granularity = block, block "
      "= [128, 128]>, config = #tile.cpu_gemm<"
      "register_rows = " +
      number(p.m) + ", register_columns = " + number(p.n) + ", block_k = " +
      number(p.k) + ", columns_per_cta = 16, lanes = " + number(p.lanes) +
      ", rows_per_cta = 4>}\ntile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k", ceilDiv(p.rows, 4) * ceilDiv(p.columns, 16),
              {&input, &weight, &inputScale, &weightScale, &result}, p.rows);
  for (int64_t row = 0; row < p.rows; ++row)
    for (int64_t column = 0; column < p.columns; ++column) {
      double sum = 0, size = 0;
      for (int64_t k = 0; k < p.sizeK; ++k) {
        double scale = inputScale.get(row, k / kGroup) *
                       weightScale.get(column / kGroup, k / kGroup);
        double term = input.get(row, k) * weight.get(column, k) * scale;
        sum += term;
        size += std::fabs(term);
      }
      double actual = result.get(row, column);
      if (std::isnan(sum))
        EXPECT_TRUE(std::isnan(actual)) << row << ", " << column;
      else
        EXPECT_NEAR(actual, sum, 1e-6 * size) << row << ", " << column;
    }
}

TEST(CpuGemmE4M3, EveryCode) {
  // Row r reads each code against a single 1.
  constexpr int64_t rows = 3, sizeK = 256;
  Array input(DType::F8E4M3, {rows, sizeK}),
      weight(DType::F8E4M3, {sizeK, sizeK});
  for (int64_t i = 0; i < sizeK; ++i) {
    weight.set(i * sizeK + i, 1);
    for (int64_t row = 0; row < rows; ++row)
      setBits(input, row * sizeK + i, isNaN(i) ? 0 : static_cast<uint32_t>(i));
  }
  runProduct({rows, sizeK, sizeK}, input, weight);
}

TEST(CpuGemmE4M3, NaNStaysInItsRow) {
  constexpr int64_t rows = 5, sizeK = 300, columns = 20;
  Array input(DType::F8E4M3, {rows, sizeK}),
      weight(DType::F8E4M3, {columns, sizeK});
  input.randomize(8);
  weight.randomize(9);
  setBits(input, 1 * sizeK + 17, 0x7F);
  setBits(input, 3 * sizeK + 299, 0xFF);
  for (int64_t lanes : {4, 8, 16})
    runProduct({rows, sizeK, columns, lanes}, input, weight);
}

TEST(CpuGemmE4M3, Tails) {
  for (int64_t sizeK : {1, 3, 15, 16, 17, 100, 127, 128, 129, 135, 256, 400})
    for (int64_t lanes : {4, 8, 16}) {
      Array input(DType::F8E4M3, {7, sizeK}),
          weight(DType::F8E4M3, {130, sizeK});
      input.randomize(10);
      weight.randomize(11);
      runProduct({7, sizeK, 130, lanes}, input, weight);
    }
}

TEST(CpuGemmE4M3, KDividesABlock) {
  CompiledKernels kernels(
      "tile.kernel @k(%x: memref<?x256xf8E4M3FN>, %w: memref<8x256xf8E4M3FN>, "
      "%xs: memref<?x2xf32>, %ws: memref<1x2xf32>, %y: memref<?x8xf32>, "
      "%t: i64) {\n tile.gemm tokens(%t) ins(%x, %w : "
      "memref<?x256xf8E4M3FN>, memref<8x256xf8E4M3FN>) input_scale(%xs : "
      "memref<?x2xf32>) weight_scale(%ws : memref<1x2xf32>) outs(%y : "
      "memref<?x8xf32>) {input_quant = #moe.quant<storage = f8E4M3FN, scale = "
      "f32, granularity = group, block = [1, 128], dynamic = true>, "
      "weight_quant = #moe.quant<storage = f8E4M3FN, scale = f32, granularity "
      "= block, block = [128, 128]>, config = "
      "#tile.cpu_gemm<register_rows = 2, register_columns = 4, block_k = 48, "
      "columns_per_cta = 8, lanes = 8, rows_per_cta = 4>}\ntile.return\n}\n");
  EXPECT_NE(kernels.getErrors().find(
                "takes 48 elements of K at a time; change step to a "
                "divisor of the 128 that are dequantized at once"),
            std::string::npos)
      << kernels.getErrors();
}

} // namespace
