//===- GpuQuantTest.cpp - scales of every granularity on a GPU --*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Products of e4m3 beside block fp8 on simulated GPUs, against sums in double:
// scales of a tensor, a channel, a token, groups and blocks of other sizes, and
// operands of which one alone is quantized.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"
#include "GpuProduct.h"

#include "llvm/ADT/APFloat.h"

#include <cmath>
#include <cstring>

using namespace moec;
using namespace moec::test;

namespace {

/// Scales of whole rows in any mix, behind the loop.
TEST(GpuQuant, WholeRows) {
  for (const Format &weight : {kTensor, kChannel})
    for (std::string order : {"", "gate_up", "up_gate", "interleaved"})
      for (const Format &input : {kToken, kTensor})
        runInTurns({input, weight, "bf16", 288, 72, order, true});
}

/// On Hopper, tensor cores accumulate short rows entirely, and each k tile of
/// long ones: in tiles with weight rows or input rows on the M side, and where
/// consumers share 64 weight rows.
TEST(GpuQuant, WholeRowsOnHopper) {
  for (int64_t sizeK : {288, 2064})
    for (std::string config :
         {"block_n = 128, block_k = 128, stages = 3, block_m = [8, 32]",
          "block_n = 64, block_k = 128, stages = 3, block_m = [16, 64], "
          "no_swap_ab",
          "block_n = 32, block_k = 128, stages = 4, block_m = [32]"})
      runProduct({kToken, kChannel, "bf16", sizeK, 72, "gate_up", true,
                  "sm90_gemm<" + config + ">"},
                 "sm_90a", 4e-6);
}

/// One operand is not quantized; the other is dequantized to its type.
TEST(GpuQuant, OneOperand) {
  for (std::string element : {"bf16", "f16", "f32"}) {
    for (const Format &weight :
         {kTensor, kChannel, kBlock, kTallBlock, kSmallBlock, kGroup32})
      runInTurns({kPlain, weight, element, 288, 72, "gate_up", true});
    for (const Format &input : {kToken, kGroup128, kGroup32})
      runInTurns({input, kPlain, element, 288, 72, "", false});
  }
}

/// Scales of parts of a row are applied inside the loop, those of whole rows
/// before the epilogue.
TEST(GpuQuant, Mixed) {
  for (const Format &weight : {kTensor, kChannel, kSmallBlock, kTallBlock})
    runInTurns({kGroup128, weight, "bf16", 288, 72, "gate_up", true});
  for (const Format &weight : {kBlock, kGroup32, kGroup128, kTallBlock})
    runInTurns({kToken, weight, "bf16", 288, 72, "interleaved", true});
}

/// Rows that are not aligned to 16 bytes, partial k tiles and partial tiles of
/// columns.
TEST(GpuQuant, Tails) {
  for (int64_t sizeK : {7, 40, 129, 200}) {
    runInTurns({kToken, kChannel, "bf16", sizeK, 37, "gate_up", true});
    for (std::string element : {"bf16", "f32"}) {
      runInTurns({kPlain, kChannel, element, sizeK, 37, "", false});
      runInTurns({kPlain, kGroup32, element, sizeK, 37, "", true});
    }
  }
}

/// A k tile has several groups, or is one of several k tiles in a group.
TEST(GpuQuant, Steps) {
  for (std::string k : {"32", "64"})
    for (const Format &weight : {kGroup32, kGroup128, kSmallBlock})
      runProduct({kPlain, weight, "bf16", 288, 72, "", true,
                  "sm80_gemm<block_m = 32, block_n = 64, block_k = " + k +
                      ", vector_width = 4>"},
                 "sm_80");
  for (std::string k : {"64", "128"})
    for (const Format &weight : {kGroup32, kGroup128, kBlock})
      runProduct({kGroup32, weight, "bf16", 288, 72, "up_gate", true,
                  "sm80_gemm<block_m = 32, block_n = 32, block_k = " + k +
                      ", vector_width = 4>"},
                 "sm_80");
}

//===----------------------------------------------------------------------===//
// Scales of tensors
//===----------------------------------------------------------------------===//

float fromBF16(const std::vector<uint8_t> &bytes, int64_t i) {
  uint32_t bits = uint32_t(bytes[2 * i]) << 16 | uint32_t(bytes[2 * i + 1])
                                                     << 24;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

void setBF16(std::vector<uint8_t> &bytes, int64_t i, uint16_t bits) {
  bytes[2 * i] = uint8_t(bits);
  bytes[2 * i + 1] = uint8_t(bits >> 8);
}

constexpr uint16_t kInfinity = 0x7F80, kNaN = 0x7FC0, kNegative = 0x8000;

struct Quantization {
  std::string target, storage;
  float largestCode;
};

const Quantization kQuantizations[] = {{"sm_80", "f8E4M3FN", 448},
                                       {"sm_90a", "f8E4M3FN", 448},
                                       {"sm_80", "i8", 127},
                                       {"sm_90a", "i8", 127}};

/// The largest finite magnitude of the valid rows.
TEST(GpuQuant, ScaleOfATensor) {
  for (auto [target, storage, largestCode] : kQuantizations)
    for (int64_t columns : {37, 264})
      for (int64_t counted : {0, 1, 50}) {
        constexpr int64_t rows = 64;
        std::vector<uint8_t> x = makeElements("bf16", rows * columns, 7).bytes;
        setBF16(x, 3, kInfinity);
        setBF16(x, 5, kNaN);
        // Behind the last valid row.
        setBF16(x, counted * columns, 0x4700);
        std::string memref = "memref<?x" + std::to_string(columns) + "xbf16>";
        GpuKernel kernel(
            "tile.kernel @kernel(%x: " + memref +
                ", %o: memref<3xi32>, %s: memref<1xf32>, %t: i64) {\n"
                "tile.tensor_scale <storage = " +
                storage +
                ", scale = f32, "
                "granularity = tensor, dynamic = true> tokens(%t) ins(%x : " +
                memref +
                ") offsets(%o : memref<3xi32>) outs(%s : memref<1xf32>) "
                "{top_k = 2 : i64}\ntile.return\n}",
            target);
        kernel.input(x);
        kernel.input(std::vector<int32_t>{0, 0, int32_t(counted)});
        kernel.output(sizeof(float));
        kernel.run(rows / 2);
        if (HasFatalFailure())
          return;
        float largest = 1e-10f;
        for (int64_t i = 0; i < counted * columns; ++i)
          if (std::isfinite(fromBF16(x, i)))
            largest = std::max(largest, std::fabs(fromBF16(x, i)));
        EXPECT_EQ(kernel.read<float>(2, 1)[0], largest / largestCode)
            << target << " " << columns << " " << counted;
      }
}

/// The value of a quantized element; of one kept as bf16, the value of those
/// bits.
float toNumber(const std::string &element, uint16_t code) {
  if (element == "i8")
    return int8_t(code);
  bool isKept = element == "bf16";
  llvm::APFloat number(isKept ? llvm::APFloat::BFloat()
                              : llvm::APFloat::Float8E4M3FN(),
                       llvm::APInt(isKept ? 16 : 8, code));
  return number.convertToFloat();
}

/// The type that a quotient is rounded to.
float roundToCode(const std::string &storage, float quotient) {
  if (storage == "i8")
    return std::isnan(quotient)
               ? 0
               : std::fmin(std::fmax(std::nearbyint(quotient), -127), 127);
  if (std::isnan(quotient))
    return quotient;
  llvm::APFloat code(std::fmin(std::fmax(quotient, -448), 448));
  bool lost;
  code.convert(llvm::APFloat::Float8E4M3FN(),
               llvm::APFloat::rmNearestTiesToEven, &lost);
  return code.convertToFloat();
}

/// With a given scale, values beyond the range saturate. `element` is the type
/// in memory.
void quantizeByGiven(const Quantization &quantization,
                     const std::string &element, float scale) {
  constexpr int64_t rows = 5, columns = 1064;
  bool isKept = element == "bf16", areIntegers = quantization.storage == "i8";
  std::vector<uint8_t> x = makeElements("bf16", rows * columns, 8).bytes;
  setBF16(x, 3, kInfinity);
  setBF16(x, 4, kInfinity | kNegative);
  setBF16(x, 5, kNaN);
  std::string values = "memref<?x1064x" + element + ">";
  GpuKernel kernel(
      "tile.kernel @kernel(%x: memref<?x1064xbf16>, %s: memref<1xf32>, %q: " +
          values + ", %t: i64) {\ntile.quantize <storage = " +
          quantization.storage + ", scale = f32, granularity = tensor" +
          (isKept ? ", packing = bf16" : "") +
          "> tokens(%t) ins(%x : memref<?x1064xbf16>) tensor_scale(%s : "
          "memref<1xf32>) outs(%q : " +
          values + ")\ntile.return\n}",
      quantization.target);
  kernel.input(x);
  kernel.input(std::vector<float>{scale});
  int64_t bytes = isKept ? 2 : 1;
  kernel.output(rows * columns * bytes);
  kernel.run(rows);
  if (::testing::Test::HasFatalFailure())
    return;
  auto made = kernel.read<uint8_t>(2, rows * columns * bytes);
  for (int64_t i = 0; i < rows * columns; ++i) {
    uint16_t code = made[bytes * i];
    if (isKept)
      code |= uint16_t(made[2 * i + 1]) << 8;
    float number = toNumber(element, code);
    float expected = roundToCode(quantization.storage, fromBF16(x, i) / scale);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(number)) << i;
      continue;
    }
    ASSERT_EQ(number, expected)
        << i << ": " << fromBF16(x, i) << " / " << scale;
    // An integer has no -0.
    if (!areIntegers)
      ASSERT_EQ(std::signbit(number), std::signbit(expected)) << i;
  }
}

TEST(GpuQuant, GivenScale) {
  for (const Quantization &quantization : kQuantizations)
    for (const std::string &element :
         {quantization.storage, std::string("bf16")})
      for (float scale : {0.0078125f, 3e-3f, 1e-42f, 3e37f}) {
        SCOPED_TRACE(quantization.target + ", " + quantization.storage +
                     " as " + element);
        quantizeByGiven(quantization, element, scale);
      }
}

} // namespace
