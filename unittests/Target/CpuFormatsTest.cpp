//===- CpuFormatsTest.cpp - formats of weights on the CPU -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Weights of 4 and 8 bits with scales of every type, zero points and global
// scales, in every order of gate and up, against sums in double.
//
//===----------------------------------------------------------------------===//

#include "KernelHarness.h"
#include "QuantFormat.h"
#include "moec/Dialect/Moe/CodeBook.h"

#include "llvm/ADT/APFloat.h"
#include "gtest/gtest.h"

#include <cmath>
#include <limits>
#include <random>

using namespace moec;
using namespace moec::test;
using moert::DType;

namespace {

double decodeE8M0(uint8_t byte) { return std::ldexp(1.0, int(byte) - 127); }

double decodeFloat8(uint8_t byte) {
  return llvm::APFloat(llvm::APFloat::Float8E4M3FN(), llvm::APInt(8, byte))
      .convertToDouble();
}

/// Value of an element before minima are subtracted; a negative `zero` selects
/// the format's zero point.
double decode(const Format &format, uint8_t code, int zero) {
  static constexpr double halves[8] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  if (format.storage == "f4E2M1FN")
    return code < 8 ? halves[code] : -halves[code - 8];
  if (format.storage == "!moe.nf4")
    return moe::kNF4[code];
  if (format.storage == "f8E4M3FN")
    return decodeFloat8(code);
  if (zero >= 0)
    return code - zero;
  if (format.storage != "i4")
    return int8_t(code);
  return format.hasMinimum ? code : code - 8;
}

DType getScaleType(const Format &format) {
  if (format.scale == "f32")
    return DType::F32;
  if (format.scale == "bf16")
    return DType::BF16;
  if (format.scale == "f16")
    return DType::F16;
  return format.scale == "f8E4M3FN" ? DType::F8E4M3 : DType::I8;
}

/// One expert of `order` ("" for no gate) with inputs of f32.
struct Product {
  Format format;
  std::string order;
  int64_t sizeK;
  static constexpr int64_t rows = 5;

  bool hasHalves() const { return order == "gate_up" || order == "up_gate"; }
  int64_t getColumns() const { return 18; }
  int64_t getWeightRows() const { return order.empty() ? 18 : 36; }
  int64_t getScaleRows() const {
    int64_t half = getWeightRows() / (hasHalves() ? 2 : 1);
    return format.getScaleRows(half) * (hasHalves() ? 2 : 1);
  }
  int64_t getScaleRow(int64_t row) const {
    int64_t half = getWeightRows() / (hasHalves() ? 2 : 1);
    int64_t inside = format.rows ? row % half / format.rows : 0;
    return row / half * format.getScaleRows(half) + inside;
  }
  int64_t getWeightRow(int64_t column, int64_t isUp) const {
    if (order.empty())
      return column;
    if (order == "interleaved")
      return 2 * column + isUp;
    return column + (isUp == (order == "gate_up") ? getColumns() : 0);
  }

  void run() const;
};

void Product::run() const {
  int64_t n = getWeightRows(), length = format.getRowLength(sizeK),
          scaleColumns = format.getScaleColumns(sizeK),
          numGlobal = hasHalves() ? 2 : 1;
  std::vector<int64_t> scaleShape = {getScaleRows(), scaleColumns};
  Array x(DType::F32, {rows, sizeK}), w(DType::I8, {n, length}),
      s(getScaleType(format), scaleShape),
      z(format.hasMinimum ? getScaleType(format) : DType::I8, scaleShape),
      g(DType::F32, {numGlobal}), y(DType::F32, {rows, getColumns()});
  x.randomize(1);
  g.randomize(2);
  std::mt19937 engine(3);
  auto *values = static_cast<uint8_t *>(w.data()),
       *zeros = static_cast<uint8_t *>(z.data());
  for (int64_t i = 0; i < w.size(); ++i) {
    values[i] = engine();
    // NaN of e4m3 has tests of its own.
    if (format.storage == "f8E4M3FN" && (values[i] & 0x7F) == 0x7F)
      values[i] = 0x7E;
  }
  if (format.hasMinimum)
    z.randomize(5);
  else
    for (int64_t i = 0; i < z.size(); ++i)
      zeros[i] = engine();
  if (format.scale == "f8E8M0FNU")
    for (int64_t i = 0; i < s.size(); ++i)
      static_cast<uint8_t *>(s.data())[i] = 120 + engine() % 12;
  else
    s.randomize(4);

  auto element = [&](int64_t row, int64_t i) {
    uint8_t code = format.areHalves()
                       ? values[row * length + i / 2] >> 4 * (i % 2) & 15
                       : values[row * length + i];
    int64_t at = getScaleRow(row) * scaleColumns +
                 (format.columns ? i / format.columns : 0);
    float scale = format.scale == "f8E8M0FNU"
                      ? decodeE8M0(static_cast<uint8_t *>(s.data())[at])
                      : s.get(at);
    if (format.hasGlobalScale)
      scale *= float(g.get(hasHalves() ? row / (n / 2) : 0));
    double number =
        decode(format, code, format.hasZeroPoint ? zeros[at] : -1) * scale;
    return format.hasMinimum ? number - z.get(at) : number;
  };

  std::string dims =
      std::to_string(scaleShape[0]) + "x" + std::to_string(scaleShape[1]) + "x";
  std::string xt = x.getType(true), yt = y.getType(true), gt = g.getType(),
              wt = "memref<" + std::to_string(n) + "x" +
                   std::to_string(length) + "x" + format.getElement("") + ">",
              st = "memref<" + dims + format.scale + ">",
              zt = "memref<" + dims +
                   (format.hasMinimum ? format.scale : "i8") + ">";
  CompiledKernels kernels(
      "tile.kernel @k(%x: " + xt + ", %w: " + wt + ", %s: " + st +
      ", %z: " + zt + ", %g: " + gt + ", %y: " + yt +
      ", %t: i64) {\n tile.gemm tokens(%t) ins(%x, %w : " + xt + ", " + wt +
      ") weight_scale(%s : " + st + ")" +
      (format.hasZeroPoint || format.hasMinimum
           ? " weight_zero_point(%z : " + zt + ")"
           : "") +
      (format.hasGlobalScale ? " weight_global_scale(%g : " + gt + ")" : "") +
      " outs(%y : " + yt + ")" +
      (order.empty() ? ""
                     : " epilogue {\n^bb0(%gate: f32, %up: f32):\n"
                       "%two = arith.constant 2.0 : f32\n"
                       "%d = arith.mulf %up, %two : f32\n"
                       "%r = arith.addf %gate, %d : f32\ntile.yield %r : f32\n"
                       "}") +
      " {" + format.getAttribute("weight_quant", false) +
      (order.empty() ? ""
                     : "layout = #moe.weight_layout<order = " + order + ">, ") +
      "config = #tile.cpu_gemm<register_rows = 2, register_columns = 4, "
      "block_k = 16, columns_per_cta = 16, lanes = 8, rows_per_cta = "
      "4>}\ntile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k", ceilDiv(rows, 4) * ceilDiv(getColumns(), 16),
              {&x, &w, &s, &z, &g, &y}, rows);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < getColumns(); ++column) {
      double sum = 0, size = 0;
      for (int64_t isUp = 0; isUp < (order.empty() ? 1 : 2); ++isUp)
        for (int64_t i = 0; i < sizeK; ++i) {
          double term = x.get(row, i) * (isUp ? 2 : 1) *
                        element(getWeightRow(column, isUp), i);
          sum += term;
          size += std::fabs(term);
        }
      ASSERT_NEAR(y.get(row, column), sum, 2e-6 * size)
          << row << ", " << column << " of " << format.storage << " "
          << format.scale << " " << order << " K " << sizeK;
    }
}

const char *const kOrders[] = {"", "gate_up", "up_gate", "interleaved"};

TEST(CpuFormats, Fp4) {
  for (const char *order : kOrders)
    for (const Format &format : {kMxfp4, kNvfp4})
      for (int64_t sizeK : {32, 96, 288})
        Product{format, order, sizeK}.run();
}

TEST(CpuFormats, NF4) {
  for (const char *order : kOrders)
    Product{kNF4, order, 192}.run();
  Product{kChannel.with("!moe.nf4", "bf16"), "gate_up", 150}.run();
}

TEST(CpuFormats, Integers) {
  for (std::string storage : {"i8", "i4"})
    for (bool hasZeroPoint : {false, true})
      for (std::string scale : {"f32", "bf16", "f16"}) {
        for (const Format &format : {kGroup32, kGroup128})
          Product{format.with(storage, scale, hasZeroPoint), "up_gate", 256}
              .run();
        // The last vector of a row is not full.
        for (const char *order : kOrders)
          Product{kChannel.with(storage, scale, hasZeroPoint), order, 150}
              .run();
      }
}

TEST(CpuFormats, Minima) {
  for (std::string storage : {"i8", "i4"})
    for (std::string scale : {"f32", "bf16", "f16"})
      for (const char *order : kOrders)
        for (const Format &format : {kGroup16, kGroup32, kGroup128})
          Product{format.withMinima(storage, scale), order, 256}.run();
}

TEST(CpuFormats, ScalesOfFloat8) {
  for (std::string scale : {"bf16", "f16", "f8E8M0FNU", "f8E4M3FN"})
    for (const Format &format : {kBlock, kGroup32, kTensor})
      Product{format.with("f8E4M3FN", scale), "gate_up", 256}.run();
}

/// The least scale, a subnormal, is not flushed, and NaN reaches zeros.
TEST(CpuFormats, EndsOfE8M0) {
  Array x(DType::F32, {1, 32}), w(DType::I8, {4, 16}), s(DType::I8, {4, 1}),
      y(DType::F32, {1, 4});
  x.fill(0x1p100);
  std::fill_n(static_cast<uint8_t *>(w.data()), 64, 0);
  auto *values = static_cast<uint8_t *>(w.data()),
       *scales = static_cast<uint8_t *>(s.data());
  // 6 in front; -0 everywhere; 0 of a NaN scale; 0.5 at the end.
  values[0] = 7;
  std::fill_n(values + 16, 16, 0x88);
  values[3 * 16 + 15] = 0x10;
  scales[0] = 0;
  scales[1] = 254;
  scales[2] = 255;
  scales[3] = 1;
  std::string ins = "memref<?x32xf32>, memref<4x16xi8>";
  CompiledKernels kernels(
      "tile.kernel @k(%x: memref<?x32xf32>, %w: memref<4x16xi8>, %s: "
      "memref<4x1xf8E8M0FNU>, %y: memref<?x4xf32>, %t: i64) {\n tile.gemm "
      "tokens(%t) ins(%x, %w : " +
      ins +
      ") weight_scale(%s : memref<4x1xf8E8M0FNU>) outs(%y : memref<?x4xf32>) "
      "{" +
      kMxfp4.getAttribute("weight_quant", false) +
      "config = #tile.cpu_gemm<register_rows = 1, register_columns = 4, "
      "block_k = 16, columns_per_cta = 4, lanes = 8, rows_per_cta = "
      "1>}\ntile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k", 1, {&x, &w, &s, &y}, 1);
  EXPECT_EQ(y.get(0), 6 * 0x1p100 * 0x1p-127);
  EXPECT_EQ(y.get(1), 0);
  EXPECT_TRUE(std::isnan(y.get(2)));
  EXPECT_EQ(y.get(3), 0.5 * 0x1p100 * 0x1p-126);
}

/// Scales that become powers of two: powers stay, others are rounded up,
/// infinity and NaN stay.
TEST(CpuFormats, PowersOfTwo) {
  constexpr int64_t rows = 2, columns = 96, groups = 3;
  Array x(DType::F32, {rows, columns}), q(DType::F8E4M3, {rows, columns}),
      s(DType::F32, {rows, groups});
  x.fill(1);
  const double inf = std::numeric_limits<double>::infinity();
  // 2 * 448; the next number; 448 * 2^-20 less one ulp; NaN and infinity.
  const double largest[] = {896,
                            double(std::nextafter(896.0f, 1e9f)),
                            double(std::nextafter(448 * 0x1p-20f, 0.0f)),
                            0,
                            -inf,
                            std::nan("")};
  for (int64_t i = 0; i < rows * groups; ++i)
    for (int64_t j = 0; j < 32; ++j)
      x.set(i * 32 + j, j == 7 ? largest[i] : 0);
  std::string xt = x.getType(true), st = s.getType(true),
              qt = "memref<?x96xf8E4M3FN>";
  CompiledKernels kernels(
      "tile.kernel @k(%x: " + xt + ", %q: " + qt + ", %s: " + st +
      ", %t: i64) {\n tile.quantize <storage = f8E4M3FN, scale = f32, "
      "granularity = group, block = [1, 32], dynamic = true, power_of_two = "
      "true> tokens(%t) ins(%x : " +
      xt + ") outs(%q, %s : " + qt + ", " + st +
      ") {config = #tile.cpu_quantize<lanes = 8, rows_per_cta = "
      "2>}\ntile.return\n}\n");
  ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
  kernels.run("k", 1, {&x, &q, &s}, rows);
  EXPECT_EQ(s.get(0), 2);
  EXPECT_EQ(s.get(1), 4);
  EXPECT_EQ(s.get(2), 0x1p-20);
  // 1e-10 / 448.
  EXPECT_EQ(s.get(3), 0x1p-42);
  EXPECT_EQ(s.get(4), inf);
  EXPECT_TRUE(std::isnan(s.get(5)));
  auto *values = static_cast<const uint8_t *>(q.data());
  // 448, 224, 448 rounded up, 0.
  EXPECT_EQ(values[7], 0x7E);
  EXPECT_EQ(values[32 + 7], 0x76);
  EXPECT_EQ(values[64 + 7], 0x7E);
  EXPECT_EQ(values[96 + 7], 0);
}

/// int8 rows with one scale each: ties go to even, NaN and infinity go to the
/// scale.
TEST(CpuFormats, RowsOfInt8) {
  for (int64_t columns : {5, 16, 203}) {
    constexpr int64_t rows = 4;
    Array x(DType::F32, {rows, columns}), q(DType::I8, {rows, columns}),
        s(DType::F32, {rows, 1});
    x.randomize(5);
    // Scale 2; then infinity, then zeros.
    x.set(0, 254);
    for (int64_t i = 1; i < columns; ++i)
      x.set(i, i % 2 ? 2 * (i % 120) + 1 : -(2 * (i % 120) + 1));
    x.set(columns + 3, -std::numeric_limits<double>::infinity());
    for (int64_t i = 0; i < columns; ++i)
      x.set(2 * columns + i, 0);
    std::string xt = x.getType(true), qt = q.getType(true),
                st = s.getType(true);
    CompiledKernels kernels(
        "tile.kernel @k(%x: " + xt + ", %q: " + qt + ", %s: " + st +
        ", %t: i64) {\n tile.quantize <storage = i8, scale = f32, granularity "
        "= token, dynamic = true> tokens(%t) ins(%x : " +
        xt + ") outs(%q, %s : " + qt + ", " + st +
        ") {config = #tile.cpu_quantize<lanes = 8, rows_per_cta = "
        "3>}\ntile.return\n}\n");
    ASSERT_TRUE(kernels.isOk()) << kernels.getErrors();
    kernels.run("k", 2, {&x, &q, &s}, rows);
    auto *values = static_cast<const int8_t *>(q.data());
    ASSERT_EQ(s.get(0), 2);
    ASSERT_TRUE(std::isinf(s.get(1)));
    ASSERT_EQ(float(s.get(2)), 1e-10f / 127);
    for (int64_t row : {0, 2, 3})
      for (int64_t i = 0; i < columns; ++i) {
        float quotient = float(x.get(row, i)) / float(s.get(row));
        ASSERT_EQ(values[row * columns + i], std::nearbyint(quotient))
            << row << ", " << i << " of " << columns;
      }
    for (int64_t i = 0; i < columns; ++i)
      ASSERT_EQ(values[columns + i], 0) << i;
  }
}

} // namespace
