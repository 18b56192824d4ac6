//===- GpuProduct.cpp - products of any formats on a GPU --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GpuProduct.h"

#include "GpuKernel.h"
#include "moec/Dialect/Moe/CodeBook.h"

#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/bit.h"

#include <cmath>
#include <cstdlib>
#include <random>

using namespace moec;
using namespace moec::test;

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

static const llvm::fltSemantics &getSemantics(const std::string &type) {
  if (type == "bf16")
    return llvm::APFloat::BFloat();
  if (type == "f16")
    return llvm::APFloat::IEEEhalf();
  if (type == "f32")
    return llvm::APFloat::IEEEsingle();
  if (type == "f8E8M0FNU")
    return llvm::APFloat::Float8E8M0FNU();
  return llvm::APFloat::Float8E4M3FN();
}

static void addElement(Elements &elements, llvm::APFloat x,
                       const std::string &type) {
  bool lost;
  x.convert(getSemantics(type), llvm::APFloat::rmNearestTiesToEven, &lost);
  llvm::APInt bits = x.bitcastToAPInt();
  for (unsigned byte = 0; byte < bits.getBitWidth() / 8; ++byte)
    elements.bytes.push_back(uint8_t(bits.extractBitsAsZExtValue(8, 8 * byte)));
  x.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven,
            &lost);
  elements.values.push_back(x.convertToDouble());
}

Elements test::makeElements(const std::string &type, int64_t count,
                            unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Elements elements;
  for (int64_t i = 0; i < count; ++i)
    addElement(elements,
               llvm::APFloat(std::ldexp(normal(random), i % 11 == 0 ? -8 : 0)),
               type);
  return elements;
}

/// Rounded to the type of the tables.
static double roundTo(float value, const std::string &type) {
  llvm::APFloat number(value);
  bool isInexact;
  number.convert(getSemantics(type), llvm::APFloat::rmNearestTiesToEven,
                 &isInexact);
  return number.convertToFloat();
}

/// All stored values; integers as stored, with other numbers of type `element`.
static Elements makeQuantized(const Format &format, const std::string &element,
                              int64_t count, unsigned seed) {
  static const double kE2M1[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::mt19937 random(seed);
  Elements elements;
  for (int64_t i = 0; i < count; ++i) {
    uint8_t code = uint8_t(random() % (format.areHalves() ? 16 : 256));
    if (format.storage == "f4E2M1FN")
      elements.values.push_back((code & 8 ? -1 : 1) * kE2M1[code & 7]);
    else if (format.storage == "!moe.nf4")
      elements.values.push_back(roundTo(moec::moe::kNF4[code], element));
    else if (format.storage == "i8" && !format.hasZeroPoint)
      elements.values.push_back(int8_t(code));
    else
      elements.values.push_back(code);
    if (format.areHalves() && i % 2)
      elements.bytes.back() |= uint8_t(code << 4);
    else
      elements.bytes.push_back(code);
  }
  return elements;
}

static Elements makeOperand(const Format &format, const std::string &element,
                            int64_t count, unsigned seed) {
  if (!format.isQuantized())
    return makeElements(element, count, seed);
  if (format.storage == "f8E4M3FN")
    return makeElements(format.storage, count, seed);
  return makeQuantized(format, element, count, seed);
}

static Elements makeScales(const std::string &type, int64_t count,
                           unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(0.25, 4);
  Elements scales;
  for (int64_t i = 0; i < count; ++i)
    addElement(scales, llvm::APFloat(uniform(random)), type);
  return scales;
}

//===----------------------------------------------------------------------===//
// Text
//===----------------------------------------------------------------------===//

namespace {

constexpr int64_t kTokens = 37, kGroups = 3;
/// Each token has two slots if there are groups.
constexpr int64_t kPositions = 2 * kTokens;

/// Sizes of a product's tensors.
struct Sizes {
  explicit Sizes(const Product &p) : p(p) {}

  const Product &p;

  int64_t getWeightsPerColumn() const { return p.order.empty() ? 1 : 2; }
  int64_t getWeightRows() const { return getWeightsPerColumn() * p.columns; }
  int64_t getGroups() const { return p.isGrouped ? kGroups : 1; }
  bool hasHalves() const {
    return getWeightsPerColumn() == 2 && p.order != "interleaved";
  }
  int64_t getInputScaleColumns() const {
    return p.input.getScaleColumns(p.sizeK);
  }
  int64_t getScaleColumns() const { return p.weight.getScaleColumns(p.sizeK); }
  int64_t getScaleRows() const {
    return hasHalves() ? 2 * p.weight.getScaleRows(p.columns)
                       : p.weight.getScaleRows(getWeightRows());
  }
  int64_t getNumScales() const {
    return getGroups() * getScaleRows() * getScaleColumns();
  }
  int64_t getGlobalScales() const { return hasHalves() ? 2 : 1; }
  /// The weight row of a column of a projection, and its row of scales.
  int64_t getWeightRow(int64_t projection, int64_t column) const {
    if (p.order == "interleaved")
      return 2 * column + projection;
    if (p.order == "up_gate")
      projection = 1 - projection;
    return projection * p.columns + column;
  }
  int64_t getScaleRow(int64_t row) const {
    auto inside = [&](int64_t at) {
      return p.weight.rows ? at / p.weight.rows : 0;
    };
    if (!hasHalves())
      return inside(row);
    return row / p.columns * p.weight.getScaleRows(p.columns) +
           inside(row % p.columns);
  }
};

/// A kernel's text, to which operands are appended.
class Text {
public:
  explicit Text(const Product &p) : p(p), sizes(p) {}

  std::string get() {
    std::string x = getType("?x" + number(p.sizeK), p.input);
    std::string w = getType(leading(sizes.getWeightRows()) + "x" +
                                number(p.weight.getRowLength(p.sizeK)),
                            p.weight);
    arguments = "%x: " + x + ", %w: " + w;
    phase = "tile.gemm tokens(%t) ins(%x, %w : " + x + ", " + w + ")";
    if (p.input.isQuantized()) {
      add("input_scale", "%a",
          p.input.rows
              ? "memref<?x" + number(sizes.getInputScaleColumns()) + "xf32>"
              : "memref<1xf32>");
      attributes += p.input.getAttribute("input_quant", true);
    }
    if (p.weight.isQuantized())
      addWeightOperands();
    if (p.isGrouped) {
      add("offsets", "%o", "memref<" + number(kGroups + 1) + "xi32>");
      add("source", "%s", "memref<?xi32>");
    }
    std::string y = "memref<?x" + number(p.columns) + "xf32>";
    arguments += ", %y: " + y;
    phase += " outs(%y : " + y + ")";
    if (!p.order.empty()) {
      phase += " epilogue {\n^bb0(%g: f32, %u: f32):\n"
               "  %c = arith.constant 3.0 : f32\n"
               "  %1 = arith.mulf %g, %c : f32\n"
               "  %2 = arith.addf %1, %u : f32\n  tile.yield %2 : f32\n}";
      addAttribute("layout = #moe.weight_layout<order = " + p.order + ">");
    }
    if (!p.config.empty())
      addAttribute("config = #tile." + p.config);
    return "tile.kernel @kernel(" + arguments + ", %t: i64) {\n" + phase +
           " {" + attributes.substr(0, attributes.size() - 2) +
           "}\ntile.return\n}\n";
  }

private:
  static std::string number(int64_t value) { return std::to_string(value); }
  std::string leading(int64_t rows) const {
    return (p.isGrouped ? number(kGroups) + "x" : "") + number(rows);
  }
  std::string getType(const std::string &shape, const Format &format) const {
    return "memref<" + shape + "x" + format.getElement(p.element) + ">";
  }
  void add(const std::string &keyword, const std::string &name,
           const std::string &type) {
    arguments += ", " + name + ": " + type;
    phase += " " + keyword + "(" + name + " : " + type + ")";
  }
  void addAttribute(const std::string &attribute) {
    attributes += attribute + ", ";
  }
  void addWeightOperands() {
    std::string shape = "memref<" + leading(sizes.getScaleRows()) + "x" +
                        number(sizes.getScaleColumns()) + "x";
    add("weight_scale", "%b", shape + p.weight.scale + ">");
    if (p.weight.hasZeroPoint)
      add("weight_zero_point", "%z", shape + "i8>");
    if (p.weight.hasMinimum)
      add("weight_zero_point", "%z", shape + p.weight.scale + ">");
    if (p.weight.hasGlobalScale)
      add("weight_global_scale", "%e",
          "memref<" + leading(sizes.getGlobalScales()) + "xf32>");
    attributes += p.weight.getAttribute("weight_quant", false);
  }

  const Product &p;
  Sizes sizes;
  std::string arguments, phase, attributes;
};

/// A gemm's tensors and the expected result.
class Run {
public:
  explicit Run(const Product &p)
      : p(p), sizes(p),
        x(makeOperand(p.input, p.element, kTokens * p.sizeK, 1)),
        w(makeOperand(p.weight, p.element,
                      sizes.getGroups() * sizes.getWeightRows() * p.sizeK, 2)),
        a(makeScales("f32", kTokens * sizes.getInputScaleColumns(), 3)),
        b(makeScales(p.weight.scale, sizes.getNumScales(), 4)),
        global(
            makeScales("f32", sizes.getGroups() * sizes.getGlobalScales(), 5)),
        minima(makeScales(p.weight.scale, sizes.getNumScales(), 7)) {
    std::mt19937 random(6);
    for (int64_t i = 0; i < sizes.getNumScales(); ++i)
      zeros.push_back(uint8_t(random()));
    for (int64_t i = 0; i < kPositions; ++i)
      source.push_back(int32_t(i * 7 % kTokens));
  }

  void run(const std::string &target, double tolerance);

private:
  int64_t getRows() const { return p.isGrouped ? kPositions : kTokens; }
  double getInputScale(int64_t row, int64_t k) const {
    if (!p.input.isQuantized())
      return 1;
    return a.values[(p.input.rows ? row : 0) * sizes.getInputScaleColumns() +
                    (p.input.columns ? k / p.input.columns : 0)];
  }
  /// The value; `size` is its magnitude.
  double getWeight(int64_t group, int64_t row, int64_t k, double &size) const;
  double getSum(int64_t group, int64_t row, int64_t weightRow,
                double &size) const;
  void check(const std::vector<float> &y, double tolerance) const;

  const Product &p;
  Sizes sizes;
  Elements x, w, a, b, global, minima;
  std::vector<uint8_t> zeros;
  /// One group is empty.
  std::vector<int32_t> offsets{0, 51, 51, int32_t(kPositions)}, source;
};

double Run::getWeight(int64_t group, int64_t row, int64_t k,
                      double &size) const {
  double q = w.values[(group * sizes.getWeightRows() + row) * p.sizeK + k];
  size = std::fabs(q);
  if (!p.weight.isQuantized())
    return q;
  int64_t at = (group * sizes.getScaleRows() + sizes.getScaleRow(row)) *
                   sizes.getScaleColumns() +
               (p.weight.columns ? k / p.weight.columns : 0);
  bool isFromMiddle = p.weight.storage == "i4" && !p.weight.hasMinimum;
  double zero = p.weight.hasZeroPoint ? zeros[at] : isFromMiddle ? 8 : 0;
  double scale = b.values[at];
  if (p.weight.hasGlobalScale)
    scale *= global.values[group * sizes.getGlobalScales() +
                           (sizes.hasHalves() ? row / p.columns : 0)];
  double minimum = p.weight.hasMinimum ? minima.values[at] : 0;
  size = std::fabs((q - zero) * scale) + minimum;
  return (q - zero) * scale - minimum;
}

double Run::getSum(int64_t group, int64_t row, int64_t weightRow,
                   double &size) const {
  double sum = 0;
  for (int64_t k = 0; k < p.sizeK; ++k) {
    double input = x.values[row * p.sizeK + k] * getInputScale(row, k);
    double weightSize;
    sum += input * getWeight(group, weightRow, k, weightSize);
    size += std::fabs(input) * weightSize;
  }
  return sum;
}

void Run::check(const std::vector<float> &y, double tolerance) const {
  for (int64_t position = 0; position < getRows(); ++position) {
    int64_t group = 0, row = position;
    if (p.isGrouped) {
      row = source[position];
      while (position >= offsets[group + 1])
        ++group;
    }
    for (int64_t column = 0; column < p.columns; ++column) {
      double size = 0;
      double expected = getSum(group, row, sizes.getWeightRow(0, column), size);
      if (sizes.getWeightsPerColumn() == 2)
        expected = 3 * expected +
                   getSum(group, row, sizes.getWeightRow(1, column), size);
      ASSERT_NEAR(y[position * p.columns + column], expected,
                  3 * tolerance * size)
          << position << ", " << column;
    }
  }
}

void Run::run(const std::string &target, double tolerance) {
  GpuKernel kernel(getText(p), target);
  size_t result = 0;
  auto add = [&](const auto &values) {
    kernel.input(values);
    ++result;
  };
  add(x.bytes);
  add(w.bytes);
  if (p.input.isQuantized())
    add(a.bytes);
  if (p.weight.isQuantized())
    add(b.bytes);
  if (p.weight.hasZeroPoint)
    add(zeros);
  if (p.weight.hasMinimum)
    add(minima.bytes);
  if (p.weight.hasGlobalScale)
    add(global.bytes);
  if (p.isGrouped) {
    add(offsets);
    add(source);
  }
  kernel.output(getRows() * p.columns * sizeof(float));
  kernel.run(kTokens);
  if (testing::Test::HasFatalFailure())
    return;
  check(kernel.read<float>(result, getRows() * p.columns), tolerance);
}

} // namespace

std::vector<std::string> test::takeTargets() {
  if (std::getenv("MOEC_ALL_CASES"))
    return {"sm_80", "sm_90a"};
  // The Thue-Morse sequence selects every other product, the Rudin-Shapiro
  // sequence its target. Neither has a period, so no loop of a test always gets
  // the same target. Each test begins with sm_90a.
  static const testing::TestInfo *test = nullptr;
  static unsigned number = 0;
  if (test != testing::UnitTest::GetInstance()->current_test_info()) {
    test = testing::UnitTest::GetInstance()->current_test_info();
    number = 0;
  }
  const unsigned n = number++;
  if (llvm::popcount(n) % 2)
    return {};
  return {llvm::popcount(n & n >> 1) % 2 ? "sm_80" : "sm_90a"};
}

void test::runInTurns(const Product &product) {
  for (const std::string &target : takeTargets())
    runProduct(product, target);
}

std::string test::getText(const Product &p) { return Text(p).get(); }

void test::runProduct(const Product &p, const std::string &target,
                      double tolerance) {
  SCOPED_TRACE(target + " " + p.element + " " +
               p.input.getAttribute("input", false) +
               p.weight.getAttribute("weight", false) + "K " +
               std::to_string(p.sizeK) + " " + p.order + " " + p.config);
  Run(p).run(target, tolerance);
}
