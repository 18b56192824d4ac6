//===- QuantGranularityTest.cpp - scales of every granularity ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the CPU decodes beside block fp8: scales of a tensor, a channel, a
// token, groups and blocks of other sizes, and operands of which one alone is
// quantized, against sums in double.
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"
#include "QuantFormat.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <cmath>

using namespace moec;
using namespace moec::test;
using moert::DType;

namespace {

DType getType(const Format &format) {
  return format.isQuantized() ? DType::F8E4M3 : DType::BF16;
}

double getScale(const Format &format, const Array &scales, int64_t row,
                int64_t column) {
  if (!format.isQuantized())
    return 1;
  return scales.get(format.rows ? row / format.rows : 0,
                    format.columns ? column / format.columns : 0);
}

void runProduct(const Format &inputFormat, const Format &weightFormat,
                int64_t sizeK, int64_t k) {
  constexpr int64_t rows = 7, columns = 37;
  Array input(getType(inputFormat), {rows, sizeK}),
      weight(getType(weightFormat), {columns, sizeK}),
      inputScale(
          DType::F32,
          inputFormat.rows
              ? std::vector<int64_t>{rows, inputFormat.getScaleColumns(sizeK)}
              : std::vector<int64_t>{1}),
      weightScale(DType::F32, {weightFormat.getScaleRows(columns),
                               weightFormat.getScaleColumns(sizeK)}),
      result(DType::F32, {rows, columns});
  input.randomize(1);
  weight.randomize(2);
  inputScale.randomize(3);
  weightScale.randomize(4);
  std::string x = input.getType(true), w = weight.getType(),
              xs = inputScale.getType(inputFormat.rows != 0),
              ws = weightScale.getType(), y = result.getType(true);
  CompiledKernels kernels(
      "tile.kernel @k(%x: " + x + ", %w: " + w + ", %xs: " + xs +
      ", %ws: " + ws + ", %y: " + y +
      ", %t: i64) {\n tile.gemm tokens(%t) ins(%x, %w : " + x + ", " + w + ")" +
      (inputFormat.isQuantized() ? " input_scale(%xs : " + xs + ")" : "") +
      (weightFormat.isQuantized() ? " weight_scale(%ws : " + ws + ")" : "") +
      " outs(%y : " + y + ") {" +
      inputFormat.getAttribute("input_quant", true) +
      weightFormat.getAttribute("weight_quant", false) +
      "config = #tile.cpu_gemm<register_rows = 2, register_columns = 4, "
      "block_k = " +
      std::to_string(k) +
      ", columns_per_cta = 16, lanes = 8, rows_per_cta = "
      "4>}\ntile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k", ceilDiv(rows, 4) * ceilDiv(columns, 16),
              {&input, &weight, &inputScale, &weightScale, &result}, rows);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      double sum = 0, size = 0;
      for (int64_t i = 0; i < sizeK; ++i) {
        double term = input.get(row, i) * weight.get(column, i) *
                      getScale(inputFormat, inputScale, row, i) *
                      getScale(weightFormat, weightScale, column, i);
        sum += term;
        size += std::fabs(term);
      }
      ASSERT_NEAR(result.get(row, column), sum, 2e-6 * size)
          << row << ", " << column << ", K " << sizeK;
    }
}

TEST(QuantGranularity, Products) {
  for (int64_t sizeK : {32, 128, 200, 392}) {
    for (const Format &weight : {kTensor, kChannel, kBlock})
      for (const Format &input : {kPlain, kToken, kTensor, kGroup128})
        runProduct(input, weight, sizeK, 32);
    for (const Format &weight : {kGroup32, kSmallBlock})
      for (const Format &input : {kPlain, kToken, kGroup32})
        runProduct(input, weight, sizeK, 16);
    runProduct(kToken, kPlain, sizeK, 32);
  }
}

/// A scale of a whole row that does not fit in registers.
TEST(QuantGranularity, RowsByToken) {
  for (int64_t columns : {5, 256, 1203}) {
    constexpr int64_t rows = 4;
    Array input(DType::BF16, {rows, columns}),
        rounded(DType::F8E4M3, {rows, columns}), scales(DType::F32, {rows, 1});
    input.randomize(5);
    // A row with the least scale.
    for (int64_t i = 0; i < columns; ++i)
      input.set(columns + i, 0x1p-12);
    std::string x = input.getType(true), q = rounded.getType(true),
                s = scales.getType(true);
    CompiledKernels kernels(
        "tile.kernel @k(%x: " + x + ", %q: " + q + ", %s: " + s +
        ", %t: i64) {\n tile.quantize <storage = f8E4M3FN, scale = f32, "
        "granularity = token, dynamic = true> tokens(%t) ins(%x : " +
        x + ") outs(%q, %s : " + q + ", " + s +
        ") {config = #tile.cpu_quantize<lanes = 8, "
        "rows_per_cta = 3>}\ntile.return\n}\n");
    ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
    kernels.run("k", ceilDiv(rows, 3), {&input, &rounded, &scales}, rows);
    for (int64_t row = 0; row < rows; ++row) {
      double largest = 0;
      for (int64_t i = 0; i < columns; ++i)
        largest = std::max(largest, std::fabs(double(input.get(row, i))));
      float scale = std::max(float(largest), 1.0f / 512) / 448.0f;
      ASSERT_EQ(float(scales.get(row, 0)), scale) << row;
      // Half of the last of four digits, or of the least step.
      for (int64_t i = 0; i < columns; ++i) {
        double value = input.get(row, i);
        ASSERT_NEAR(rounded.get(row, i) * scale, value,
                    std::max(std::fabs(value) / 16, scale * 0x1p-10) * 1.0001)
            << row << ", " << i << " of " << columns;
      }
    }
  }
}

/// The scale of all valid rows, computed and then given.
TEST(QuantGranularity, RowsByTensor) {
  for (int64_t columns : {5, 16, 203}) {
    constexpr int64_t rows = 6, counting = 5;
    Array input(DType::F32, {rows, columns}),
        rounded(DType::F8E4M3, {rows, columns}), scale(DType::F32, {1}),
        valid(DType::I32, {1});
    input.randomize(6);
    float nan = std::numeric_limits<float>::quiet_NaN(),
          infinity = std::numeric_limits<float>::infinity();
    input.set(columns, -3.0f);
    input.set(2 * columns + 1, nan);
    input.set(3 * columns + 2, -infinity);
    // The row is padding.
    input.set(5 * columns, 100.0f);
    valid.set(0, counting);
    std::string x = input.getType(true), q = rounded.getType(true);
    CompiledKernels kernels(
        "tile.kernel @find(%x: " + x +
        ", %n: memref<1xi32>, %s: "
        "memref<1xf32>, %t: i64) {\n tile.tensor_scale <storage = f8E4M3FN, "
        "scale = f32, granularity = tensor, dynamic = true> tokens(%t) ins(%x "
        ": " +
        x +
        ") num_valid_tokens(%n : memref<1xi32>) outs(%s : "
        "memref<1xf32>) {config = #tile.cpu_tensor_scale<lanes = 8>}\n"
        "tile.return\n}\n"
        "tile.kernel @quantize(%x: " +
        x + ", %s: memref<1xf32>, %q: " + q +
        ", %t: i64) {\n tile.quantize <storage = f8E4M3FN, scale = f32, "
        "granularity = tensor> tokens(%t) ins(%x : " +
        x + ") tensor_scale(%s : memref<1xf32>) outs(%q : " + q +
        ") {config = #tile.cpu_quantize<lanes = 8, rows_per_cta = "
        "4>}\ntile.return\n}\n");
    ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
    kernels.run("find", 1, {&input, &valid, &scale}, rows);
    double largest = 0;
    for (int64_t row = 0; row < counting; ++row)
      for (int64_t i = 0; i < columns; ++i)
        if (std::isfinite(input.get(row, i)))
          largest = std::max(largest, std::fabs(double(input.get(row, i))));
    float found = float(largest) / 448.0f;
    ASSERT_EQ(float(scale.get(0)), found);
    // Some elements are beyond the range of a given scale.
    scale.set(0, found / 2);
    kernels.run("quantize", ceilDiv(rows, 4), {&input, &scale, &rounded}, rows);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < columns; ++i) {
        float quotient = float(input.get(row, i)) / (found / 2);
        if (std::isnan(quotient)) {
          ASSERT_TRUE(std::isnan(rounded.get(row, i))) << row << ", " << i;
          continue;
        }
        float inside = std::clamp(quotient, -448.0f, 448.0f);
        ASSERT_NEAR(rounded.get(row, i), inside,
                    std::max(std::fabs(inside) / 16, 0x1p-10f) * 1.0001)
            << row << ", " << i << " of " << columns;
      }
    ASSERT_EQ(rounded.get(3, 2), -448);
  }
}

} // namespace
