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
#include "QuantFormat.h"

#include "llvm/ADT/APFloat.h"

#include <cmath>
#include <cstring>
#include <random>

using namespace moec;
using namespace moec::test;

namespace {

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

/// Elements of a type, as they are in memory and as numbers.
struct Elements {
  std::vector<uint8_t> bytes;
  std::vector<double> values;
};

Elements makeElements(const std::string &type, int64_t count, unsigned seed) {
  const llvm::fltSemantics &semantics =
      type == "bf16"  ? llvm::APFloat::BFloat()
      : type == "f16" ? llvm::APFloat::IEEEhalf()
      : type == "f32" ? llvm::APFloat::IEEEsingle()
                      : llvm::APFloat::Float8E4M3FN();
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Elements elements;
  for (int64_t i = 0; i < count; ++i) {
    // Small ones too, which have fewer digits.
    llvm::APFloat x(std::ldexp(normal(random), i % 11 == 0 ? -8 : 0));
    bool lost;
    x.convert(semantics, llvm::APFloat::rmNearestTiesToEven, &lost);
    llvm::APInt bits = x.bitcastToAPInt();
    for (unsigned byte = 0; byte < bits.getBitWidth() / 8; ++byte)
      elements.bytes.push_back(
          uint8_t(bits.extractBitsAsZExtValue(8, 8 * byte)));
    x.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven,
              &lost);
    elements.values.push_back(x.convertToDouble());
  }
  return elements;
}

std::vector<float> makeScales(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0.25, 4);
  std::vector<float> scales(count);
  for (float &scale : scales)
    scale = uniform(random);
  return scales;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

struct Product {
  Format input, weight;
  /// The type of what is not quantized.
  std::string element = "bf16";
  int64_t depth = 288, columns = 72;
  /// Gate and up; "" for one plane.
  std::string order;
  bool isGrouped = false;
  std::string config;

  int64_t getPlanes() const { return order.empty() ? 1 : 2; }
  int64_t getWeightRows() const { return getPlanes() * columns; }
  bool hasHalves() const { return getPlanes() == 2 && order != "interleaved"; }
  std::string getType(const Format &format) const {
    return format.getElement(element);
  }
  int64_t getScaleRows() const {
    return hasHalves() ? 2 * weight.getScaleRows(columns)
                       : weight.getScaleRows(getWeightRows());
  }
  /// The weight row of a column of a plane, and its row of scales.
  int64_t getWeightRow(int64_t plane, int64_t column) const {
    if (order == "interleaved")
      return 2 * column + plane;
    if (order == "up_gate")
      plane = 1 - plane;
    return plane * columns + column;
  }
  int64_t getScaleRow(int64_t row) const {
    auto inside = [&](int64_t at) {
      return weight.rows ? at / weight.rows : 0;
    };
    if (!hasHalves())
      return inside(row);
    return row / columns * weight.getScaleRows(columns) + inside(row % columns);
  }
};

constexpr int64_t kTokens = 37, kGroups = 3;
/// Of a token twice, where there are groups.
constexpr int64_t kPositions = 2 * kTokens;

int64_t getInputScaleColumns(const Product &p) {
  return p.input.getScaleColumns(p.depth);
}

std::string getText(const Product &p) {
  auto memref = [](const std::string &shape, const std::string &type) {
    return "memref<" + shape + "x" + type + ">";
  };
  auto number = [](int64_t value) { return std::to_string(value); };
  std::string g = p.isGrouped ? number(kGroups) + "x" : "";
  std::string x = memref("?x" + number(p.depth), p.getType(p.input)),
              w = memref(g + number(p.getWeightRows()) + "x" + number(p.depth),
                         p.getType(p.weight)),
              a = p.input.rows
                      ? memref("?x" + number(getInputScaleColumns(p)), "f32")
                      : "memref<1xf32>",
              b = memref(g + number(p.getScaleRows()) + "x" +
                             number(p.weight.getScaleColumns(p.depth)),
                         "f32"),
              y = memref("?x" + number(p.columns), "f32");
  std::string arguments = "%x: " + x + ", %w: " + w,
              attributes = p.input.getAttribute("input_quant", true) +
                           p.weight.getAttribute("weight_quant", false);
  std::string phase =
      "tile.contract tokens(%t) ins(%x, %w : " + x + ", " + w + ")";
  if (p.input.isQuantized()) {
    arguments += ", %a: " + a;
    phase += " input_scale(%a : " + a + ")";
  }
  if (p.weight.isQuantized()) {
    arguments += ", %b: " + b;
    phase += " weight_scale(%b : " + b + ")";
  }
  if (p.isGrouped) {
    arguments +=
        ", %o: memref<" + number(kGroups + 1) + "xi32>, %s: memref<?xi32>";
    phase += " offsets(%o : memref<" + number(kGroups + 1) +
             "xi32>) source(%s : memref<?xi32>)";
  }
  phase += " outs(%y : " + y + ")";
  if (!p.order.empty()) {
    phase += " epilogue {\n^bb0(%g: f32, %u: f32):\n"
             "  %c = arith.constant 3.0 : f32\n"
             "  %1 = arith.mulf %g, %c : f32\n"
             "  %2 = arith.addf %1, %u : f32\n  tile.yield %2 : f32\n}";
    attributes += "layout = #moe.weight_layout<order = " + p.order + ">, ";
  }
  if (!p.config.empty())
    attributes += "config = #tile." + p.config + ", ";
  return "tile.kernel @kernel(" + arguments + ", %y: " + y + ", %t: i64) {\n" +
         phase + " {" + attributes.substr(0, attributes.size() - 2) +
         "}\ntile.return\n}\n";
}

/// `tolerance`: of the sum of the magnitudes of all terms.
void runProduct(const Product &p, const std::string &target,
                double tolerance = 2e-6) {
  SCOPED_TRACE(target + " " + p.getType(p.input) + " " + p.input.granularity +
               " x " + p.getType(p.weight) + " " + p.weight.granularity +
               ", depth " + std::to_string(p.depth) + " " + p.order + " " +
               p.config);
  int64_t groups = p.isGrouped ? kGroups : 1;
  int64_t inputColumns = getInputScaleColumns(p);
  int64_t weightColumns = p.weight.getScaleColumns(p.depth);
  Elements x = makeElements(p.getType(p.input), kTokens * p.depth, 1);
  Elements w = makeElements(p.getType(p.weight),
                            groups * p.getWeightRows() * p.depth, 2);
  std::vector<float> a = makeScales(kTokens * inputColumns, 3);
  std::vector<float> b =
      makeScales(groups * p.getScaleRows() * weightColumns, 4);
  // One group is empty.
  std::vector<int32_t> offsets{0, 51, 51, int32_t(kPositions)}, source;
  for (int64_t i = 0; i < kPositions; ++i)
    source.push_back(int32_t(i * 7 % kTokens));

  GpuKernel kernel(getText(p), target);
  kernel.input(x.bytes);
  kernel.input(w.bytes);
  size_t result = 2;
  if (p.input.isQuantized()) {
    kernel.input(a);
    ++result;
  }
  if (p.weight.isQuantized()) {
    kernel.input(b);
    ++result;
  }
  int64_t rows = kTokens;
  if (p.isGrouped) {
    kernel.input(offsets);
    kernel.input(source);
    result += 2;
    rows = kPositions;
  }
  kernel.output(rows * p.columns * sizeof(float));
  kernel.run(kTokens);
  if (testing::Test::HasFatalFailure())
    return;
  auto y = kernel.read<float>(result, rows * p.columns);

  for (int64_t position = 0; position < rows; ++position) {
    int64_t group = 0, row = position;
    if (p.isGrouped) {
      row = source[position];
      while (position >= offsets[group + 1])
        ++group;
    }
    auto getSum = [&](int64_t plane, int64_t column, double &size) {
      int64_t weightRow =
          group * p.getWeightRows() + p.getWeightRow(plane, column);
      int64_t scaleRow = group * p.getScaleRows() +
                         p.getScaleRow(p.getWeightRow(plane, column));
      double sum = 0;
      for (int64_t k = 0; k < p.depth; ++k) {
        double term =
            x.values[row * p.depth + k] * w.values[weightRow * p.depth + k];
        if (p.input.isQuantized())
          term *= a[(p.input.rows ? row : 0) * inputColumns +
                    (p.input.columns ? k / p.input.columns : 0)];
        if (p.weight.isQuantized())
          term *= b[scaleRow * weightColumns +
                    (p.weight.columns ? k / p.weight.columns : 0)];
        sum += term;
        size += std::fabs(term);
      }
      return sum;
    };
    for (int64_t column = 0; column < p.columns; ++column) {
      double size = 0;
      double expected = getSum(0, column, size);
      if (p.getPlanes() == 2)
        expected = 3 * expected + getSum(1, column, size);
      ASSERT_NEAR(y[position * p.columns + column], expected,
                  3 * tolerance * size)
          << position << ", " << column;
    }
  }
}

const char *const kTargets[] = {"sm_80", "sm_90a"};

/// Scales of whole rows in any mix, behind the loop.
TEST(GpuQuant, WholeRows) {
  for (std::string target : kTargets)
    for (const Format &weight : {kTensor, kChannel})
      for (std::string order : {"", "gate_up", "up_gate", "interleaved"})
        for (const Format &input : {kToken, kTensor})
          runProduct({input, weight, "bf16", 288, 72, order, true}, target);
}

/// On Hopper tensor cores add up short rows by themselves, and steps of long
/// ones: in bodies with weight rows, or input rows, on the side of 64, and
/// where consumers share 64 weight rows.
TEST(GpuQuant, WholeRowsOnHopper) {
  for (int64_t depth : {288, 2064})
    for (std::string config :
         {"tile_columns = 128, step = 128, stages = 3, tile_rows = [8, 32]",
          "tile_columns = 64, step = 128, stages = 3, tile_rows = [16, 64], "
          "rows_on_m",
          "tile_columns = 32, step = 128, stages = 4, tile_rows = [32]"})
      runProduct({kToken, kChannel, "bf16", depth, 72, "gate_up", true,
                  "sm90_contract<" + config + ">"},
                 "sm_90a", 4e-6);
}

/// One operand is as it is, the other one becomes its type.
TEST(GpuQuant, OneOperand) {
  for (std::string target : kTargets)
    for (std::string element : {"bf16", "f16", "f32"}) {
      for (const Format &weight :
           {kTensor, kChannel, kBlock, kTallBlock, kSmallBlock, kGroup32})
        runProduct({kPlain, weight, element, 288, 72, "gate_up", true}, target);
      for (const Format &input : {kToken, kGroup128, kGroup32})
        runProduct({input, kPlain, element, 288, 72, "", false}, target);
    }
}

/// Parts of a row inside the loop, whole rows in front of the epilogue.
TEST(GpuQuant, Mixed) {
  for (std::string target : kTargets) {
    for (const Format &weight : {kTensor, kChannel, kSmallBlock, kTallBlock})
      runProduct({kGroup128, weight, "bf16", 288, 72, "gate_up", true}, target);
    for (const Format &weight : {kBlock, kGroup32, kGroup128, kTallBlock})
      runProduct({kToken, weight, "bf16", 288, 72, "interleaved", true},
                 target);
  }
}

/// Rows that are not on multiples of 16 bytes, and not whole steps or columns.
TEST(GpuQuant, Tails) {
  for (std::string target : kTargets)
    for (int64_t depth : {7, 40, 129, 200}) {
      runProduct({kToken, kChannel, "bf16", depth, 37, "gate_up", true},
                 target);
      for (std::string element : {"bf16", "f32"}) {
        runProduct({kPlain, kChannel, element, depth, 37, "", false}, target);
        runProduct({kPlain, kGroup32, element, depth, 37, "", true}, target);
      }
    }
}

/// A step has several parts with scales of their own, or is one of several that
/// share them.
TEST(GpuQuant, Steps) {
  for (std::string k : {"32", "64"})
    for (const Format &weight : {kGroup32, kGroup128, kSmallBlock})
      runProduct({kPlain, weight, "bf16", 288, 72, "", true,
                  "sm80_contract<tile_rows = 32, tile_columns = 64, step = " +
                      k + ", vector_width = 4>"},
                 "sm_80");
  for (std::string k : {"64", "128"})
    for (const Format &weight : {kGroup32, kGroup128, kBlock})
      runProduct({kGroup32, weight, "bf16", 288, 72, "up_gate", true,
                  "sm80_contract<tile_rows = 32, tile_columns = 32, step = " +
                      k + ", vector_width = 4>"},
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

/// The largest of the rows that count and that is finite.
TEST(GpuQuant, ScaleOfATensor) {
  for (std::string target : kTargets)
    for (int64_t columns : {37, 264})
      for (int64_t counted : {0, 1, 50}) {
        constexpr int64_t rows = 64;
        std::vector<uint8_t> x = makeElements("bf16", rows * columns, 7).bytes;
        setBF16(x, 3, kInfinity);
        setBF16(x, 5, kNaN);
        // Behind the last row that counts.
        setBF16(x, counted * columns, 0x4700);
        std::string memref = "memref<?x" + std::to_string(columns) + "xbf16>";
        GpuKernel kernel(
            "tile.kernel @kernel(%x: " + memref +
                ", %o: memref<3xi32>, %s: memref<1xf32>, %t: i64) {\n"
                "tile.tensor_scale <storage = f8E4M3FN, scale = f32, "
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
        EXPECT_EQ(kernel.read<float>(2, 1)[0], largest / 448)
            << target << " " << columns << " " << counted;
      }
}

/// By a scale that is given, what is beyond the range is its end.
TEST(GpuQuant, GivenScale) {
  for (std::string target : kTargets)
    for (float scale : {0.0078125f, 3e-3f, 1e-42f, 3e37f}) {
      constexpr int64_t rows = 5, columns = 1064;
      std::vector<uint8_t> x = makeElements("bf16", rows * columns, 8).bytes;
      setBF16(x, 3, kInfinity);
      setBF16(x, 4, kInfinity | kNegative);
      setBF16(x, 5, kNaN);
      GpuKernel kernel(
          "tile.kernel @kernel(%x: memref<?x1064xbf16>, %s: memref<1xf32>, "
          "%q: memref<?x1064xf8E4M3FN>, %t: i64) {\n"
          "tile.quantize <storage = f8E4M3FN, scale = f32, granularity = "
          "tensor> tokens(%t) ins(%x : memref<?x1064xbf16>) tensor_scale(%s : "
          "memref<1xf32>) outs(%q : memref<?x1064xf8E4M3FN>)\n"
          "tile.return\n}",
          target);
      kernel.input(x);
      kernel.input(std::vector<float>{scale});
      kernel.output(rows * columns);
      kernel.run(rows);
      if (HasFatalFailure())
        return;
      auto codes = kernel.read<uint8_t>(2, rows * columns);
      for (int64_t i = 0; i < rows * columns; ++i) {
        float quotient = fromBF16(x, i) / scale;
        if (std::isnan(quotient)) {
          EXPECT_EQ(codes[i] & 0x7F, 0x7F) << target << " " << i;
          continue;
        }
        llvm::APFloat expected(std::fmin(std::fmax(quotient, -448), 448));
        bool lost;
        expected.convert(llvm::APFloat::Float8E4M3FN(),
                         llvm::APFloat::rmNearestTiesToEven, &lost);
        ASSERT_EQ(codes[i], expected.bitcastToAPInt().getZExtValue())
            << target << " " << i << ": " << fromBF16(x, i) << " / " << scale;
      }
    }
}

} // namespace
