//===- GpuFormatsTest.cpp - formats of weights on a GPU ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Products of weights of 4 and 8 bits, whose elements have all quantized
// values, with scales of all types, zero points and global scales, on simulated
// GPUs.
//
//===----------------------------------------------------------------------===//

#include "GpuKernel.h"
#include "GpuProduct.h"

#include "moec/Dialect/Moe/CodeBook.h"
#include "moec/Target/NVPTX.h"

#include "llvm/ADT/APFloat.h"

#include <cmath>
#include <cstdlib>

using namespace moec::test;

namespace {

const Format kLowBlock{"block, block = [32, 96]", 32, 96};

const char *const kTargets[] = {"sm_80", "sm_90a"};

/// With every type of unquantized input, in all orders of gate and up.
TEST(GpuFormats, Fp4) {
  for (std::string element : {"bf16", "f16", "f32"})
    for (const Format &weight : {kMxfp4, kNvfp4}) {
      for (std::string order : {"gate_up", "up_gate", "interleaved"})
        runInTurns({kPlain, weight, element, 288, 72, order, true});
      runInTurns({kPlain, weight, element, 96, 40, "", false});
    }
}

TEST(GpuFormats, NF4) {
  for (std::string target : kTargets)
    for (std::string element : {"bf16", "f16", "f32"})
      for (std::string order : {"gate_up", ""})
        runProduct({kPlain, kNF4, element, 192, 40, order, true}, target);
}

TEST(GpuFormats, Integers) {
  for (std::string element : {"bf16", "f16", "f32"})
    for (std::string storage : {"i4", "i8"})
      for (bool hasZeroPoint : {false, true})
        for (const Format &granularity : {kChannel, kGroup32, kGroup128})
          runInTurns({kPlain, granularity.with(storage, "f32", hasZeroPoint),
                      element, 256, 72, "up_gate", true});
}

/// Types of scales, inside the loop and behind it.
TEST(GpuFormats, Scales) {
  for (std::string scale : {"bf16", "f16", "f8E8M0FNU", "f8E4M3FN"})
    for (std::string storage : {"f8E4M3FN", "i8", "i4", "f4E2M1FN"})
      for (const Format &granularity : {kChannel, kGroup64})
        runInTurns({kPlain, granularity.with(storage, scale), "bf16", 192, 40,
                    "gate_up", true});
}

/// Both operands quantized: the compute type is f16.
TEST(GpuFormats, QuantizedInputs) {
  for (const Format &input : {kToken, kToken.with("i8"), kTensor.with("i8")})
    for (const Format &weight :
         {kMxfp4, kNvfp4, kChannel.with("i8"), kChannel.with("i4"),
          kTensor.with("i8"), kGroup32.with("i4", "f16", true),
          kGroup128.with("i8", "bf16", true)})
      runInTurns({input, weight, "bf16", 256, 72, "gate_up", true});
}

/// An instruction's K covers one of the groups that are dequantized at once.
TEST(GpuFormats, GroupsOfOneProduct) {
  for (std::string element : {"bf16", "f16", "f32"})
    for (const Format &weight :
         {kGroup16.with("i8"), kGroup16.with("i8", "bf16", true),
          kGroup16.with("f8E4M3FN", "f8E8M0FNU"), kGroup48.with("i8", "f16")})
      for (int64_t sizeK : {144, 256})
        runInTurns({kPlain, weight, element, sizeK, 72, "gate_up", true});
  for (const Format &input : {kToken, kToken.with("i8"), kGroup32})
    runInTurns({input, kGroup16.with("f8E4M3FN", "f16"), "bf16", 192, 40,
                "interleaved", true});
}

/// Minima, with inputs whose scales are applied in the loop and behind it.
TEST(GpuFormats, Minima) {
  for (std::string element : {"bf16", "f16", "f32"})
    for (std::string storage : {"i4", "i8"})
      for (std::string scale : {"f32", "bf16", "f16"})
        for (const Format &granularity : {kGroup32, kGroup128})
          runInTurns({kPlain, granularity.withMinima(storage, scale), element,
                      256, 72, "up_gate", true});
  for (const Format &input : {kToken, kTensor.with("i8"), kGroup64})
    for (std::string storage : {"i4", "i8"})
      for (int64_t sizeK : {64, 288})
        runInTurns({input, kGroup32.withMinima(storage), "bf16", sizeK, 37, "",
                    false});
  for (std::string element : {"bf16", "f32"})
    runInTurns({kPlain, kGroup16.withMinima("i8"), element, 144, 40,
                "interleaved", true});
}

/// Blocks, which share zero points too; rows with an odd number of chunks,
/// whose last k tile is partial; columns that do not fill a tile.
TEST(GpuFormats, Tails) {
  for (std::string element : {"bf16", "f32"})
    for (int64_t sizeK : {32, 96, 288})
      for (const Format &weight :
           {kMxfp4, kNvfp4, kChannel.with("i4", "f32", true),
            kGroup32.with("i8", "f32", true)}) {
        runInTurns({kPlain, weight, element, sizeK, 37, "gate_up", true});
        runInTurns({kToken, weight, element, sizeK, 37, "", false});
      }
  for (std::string storage : {"i4", "i8"})
    for (bool hasZeroPoint : {false, true})
      runProduct({kPlain, kLowBlock.with(storage, "bf16", hasZeroPoint), "bf16",
                  192, 72, "gate_up", true},
                 "sm_80");
}

/// Rows of bytes that are not on multiples of 16.
TEST(GpuFormats, Unaligned) {
  for (int64_t sizeK : {7, 40, 129})
    for (bool hasZeroPoint : {false, true})
      for (const Format &input : {kPlain, kToken.with("i8")})
        runInTurns({input, kChannel.with("i8", "f32", hasZeroPoint), "bf16",
                    sizeK, 37, "gate_up", true});
}

/// Checks one gemm per column with a scale for each stored value: `storage` is
/// the type of the weights as text, in which `one` in the first byte is 1.
void expectEveryScale(const std::string &target, const Format &format,
                      uint8_t one, double (*getScale)(int64_t code)) {
  constexpr int64_t numValues = 256, sizeK = 32;
  int64_t groups = format.getScaleColumns(sizeK);
  int64_t rowBytes = format.areHalves() ? sizeK / 2 : sizeK;
  std::string type = "x" + std::to_string(groups) + "x" + format.scale + ">";
  std::string w = "memref<256x" + std::to_string(rowBytes) + "xi8>";
  GpuKernel kernel(
      "tile.kernel @kernel(%x: memref<?x32xbf16>, %w: " + w +
          ", %b: memref<256" + type +
          ", %y: memref<?x256xf32>, %t: i64) {\ntile.gemm tokens(%t) "
          "ins(%x, %w : memref<?x32xbf16>, " +
          w + ") weight_scale(%b : memref<256" + type +
          ") outs(%y : memref<?x256xf32>) {" +
          format.getAttribute("weight_quant", false) +
          "strategy = #moe.strategy<dequantize>}\ntile.return\n}",
      target);
  // 2^60, -2^-3 and 0, as bf16.
  const std::vector<double> inputs{0x1p60, -0x1p-3, 0};
  std::vector<uint16_t> x(inputs.size() * sizeK);
  x[0] = 0x5D80;
  x[sizeK] = 0xBE00;
  std::vector<uint8_t> w13(numValues * rowBytes), scales;
  for (int64_t code = 0; code < numValues; ++code) {
    w13[code * rowBytes] = one;
    scales.insert(scales.end(), groups, uint8_t(code));
  }
  kernel.input(x);
  kernel.input(w13);
  kernel.input(scales);
  kernel.output(inputs.size() * numValues * sizeof(float));
  kernel.run(int64_t(inputs.size()));
  if (testing::Test::HasFatalFailure())
    return;
  auto y = kernel.read<float>(3, inputs.size() * numValues);
  for (size_t row = 0; row < inputs.size(); ++row)
    for (int64_t code = 0; code < numValues; ++code) {
      float expected = float(inputs[row] * getScale(code));
      float actual = y[row * numValues + code];
      ASSERT_TRUE(std::isnan(expected) ? std::isnan(actual)
                                       : actual == expected)
          << target << " row " << row << " code " << code << ": " << actual
          << " is not " << expected;
    }
}

TEST(GpuFormats, EveryScale) {
  auto e8m0 = [](int64_t code) {
    return code == 255 ? std::nan("") : std::ldexp(1.0, int(code) - 127);
  };
  auto e4m3 = [](int64_t code) {
    llvm::APFloat x(llvm::APFloat::Float8E4M3FN(),
                    llvm::APInt(8, uint64_t(code)));
    return double(x.convertToFloat());
  };
  for (std::string target : kTargets) {
    // 1 is code 2 of e2m1.
    expectEveryScale(target, kMxfp4, 2, e8m0);
    expectEveryScale(target, kChannel.with("i8", "f8E8M0FNU"), 1, e8m0);
    expectEveryScale(target, kGroup16.with("f4E2M1FN", "f8E4M3FN"), 2, e4m3);
    expectEveryScale(target, kGroup32.with("i8", "f8E4M3FN"), 1, e4m3);
  }
}

/// Row r of the input is 1 at element r. Row c of the weight has index c at
/// even elements and 15 - c at odd ones. 16-bit results are rounded once, f32
/// results are exact.
TEST(GpuFormats, EveryCodeOfNF4) {
  constexpr int64_t numValues = 16, sizeK = 64;
  for (std::string target : kTargets)
    for (std::string element : {"bf16", "f16", "f32"}) {
      std::string x = "memref<?x64x" + element + ">";
      GpuKernel kernel(
          "tile.kernel @kernel(%x: " + x +
              ", %w: memref<16x32xi8>, %b: memref<16x1xf32>, %y: "
              "memref<?x16xf32>, %t: i64) {\ntile.gemm tokens(%t) ins(%x, "
              "%w : " +
              x +
              ", memref<16x32xi8>) weight_scale(%b : memref<16x1xf32>) outs(%y "
              ": memref<?x16xf32>) {" +
              kNF4.getAttribute("weight_quant", false) +
              "strategy = #moe.strategy<dequantize>}\ntile.return\n}",
          target);
      const llvm::fltSemantics &semantics =
          element == "bf16"  ? llvm::APFloat::BFloat()
          : element == "f16" ? llvm::APFloat::IEEEhalf()
                             : llvm::APFloat::IEEEsingle();
      std::vector<uint32_t> ones(sizeK * sizeK);
      for (int64_t i = 0; i < sizeK; ++i)
        ones[i * sizeK + i] = uint32_t(
            llvm::APFloat(semantics, 1).bitcastToAPInt().getZExtValue());
      if (element == "f32")
        kernel.input(ones);
      else
        kernel.input(std::vector<uint16_t>(ones.begin(), ones.end()));
      std::vector<uint8_t> w;
      for (int64_t code = 0; code < numValues; ++code)
        w.insert(w.end(), sizeK / 2, uint8_t(code | (15 - code) << 4));
      kernel.input(w);
      kernel.input(std::vector<float>(numValues, 2));
      kernel.output(sizeK * numValues * sizeof(float));
      kernel.run(sizeK);
      ASSERT_FALSE(HasFatalFailure());
      auto y = kernel.read<float>(3, sizeK * numValues);
      for (int64_t row = 0; row < sizeK; ++row)
        for (int64_t code = 0; code < numValues; ++code) {
          llvm::APFloat number(moec::moe::kNF4[row % 2 ? 15 - code : code]);
          bool isInexact;
          number.convert(semantics, llvm::APFloat::rmNearestTiesToEven,
                         &isInexact);
          ASSERT_EQ(y[row * numValues + code], 2 * number.convertToFloat())
              << target << " " << element << " row " << row << " code " << code;
        }
    }
}

/// At sizes of gpt-oss, as the schedule chooses its config.
TEST(GpuFormats, FitInRegisters) {
  // Every third pair of operands, in one order of the weight rows; every night
  // all pairs in both orders.
  bool runsAll = std::getenv("MOEC_ALL_CASES");
  unsigned pair = 0;
  for (std::string element : {"bf16", "f32"})
    for (const Format &input : {kPlain, kToken, kToken.with("i8")})
      for (const Format &weight :
           {kMxfp4, kNvfp4, kNF4, kChannel.with("i8"), kChannel.with("i4"),
            kGroup32.with("i4", "bf16", true),
            kGroup128.with("i8", "bf16", true), kGroup32.with("i8"),
            kGroup16.with("i8"), kGroup32.withMinima("i4"),
            kGroup32.withMinima("i8")}) {
        ++pair;
        for (std::string order : {"interleaved", ""}) {
          if (!runsAll && (pair % 3 || order.empty() == (pair % 2 == 0)))
            continue;
          for (const std::string &target : takeTargets()) {
            Product product{input, weight, element, 2880, 2880, order, true};
            GpuKernel kernel(getText(product), target);
            ASSERT_FALSE(kernel.getPtx().empty());
            auto assembled = moec::assemble(kernel.getPtx(), target);
            ASSERT_TRUE(bool(assembled))
                << llvm::toString(assembled.takeError());
            const moec::KernelReport &report = assembled->kernels.front();
            EXPECT_EQ(report.spillStoreBytes, 0) << getText(product);
            EXPECT_EQ(report.stackBytes, 0) << getText(product);
            EXPECT_LT(assembled->cpuSeconds, 5) << getText(product);
          }
        }
      }
}

} // namespace
