//===- WeightsTest.cpp - what quantized weights stand for -----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Reference/Product.h"
#include "gtest/gtest.h"

#include <cmath>

using namespace moec;
using namespace moec::reference;

namespace {

using Bytes = std::vector<uint8_t>;
using Numbers = std::vector<double>;

/// A stack of quantized matrices in memory.
struct Weights {
  OperandQuantization quantization;
  int64_t rows = 1, columns = 0;
  moert::DType dtype = moert::DType::I8, scaleType = moert::DType::F32;
  Bytes elements, scales, zeroPoints, minima, globalScales;
  bool hasHalves = false;

  Weights(StorageType storage, Granularity granularity, int64_t blockRows = 0,
          int64_t blockColumns = 0) {
    quantization.storage = storage;
    quantization.granularity = granularity;
    quantization.blockRows = blockRows;
    quantization.blockColumns = blockColumns;
  }

  /// The numbers of a matrix, row by row: what the unit vectors multiply to.
  Numbers decode(int64_t matrix = 0) const {
    Matrix unit(columns, columns), out(columns, rows);
    for (int64_t i = 0; i < columns; ++i)
      unit.row(i)[i] = 1;
    auto weight = makeSource(elements.data(), dtype);
    auto scale = makeSource(scales.data(), scaleType);
    auto zeroPoint = makeSource(zeroPoints.data(), moert::DType::I8);
    auto global = makeSource(globalScales.data(), moert::DType::F32);
    Product product = {&unit, weight.get(), matrix * rows, &out};
    product.scales = scale.get();
    product.zeroPoints = zeroPoints.empty() ? nullptr : zeroPoint.get();
    auto minimum = makeSource(minima.data(), scaleType);
    product.minima = minima.empty() ? nullptr : minimum.get();
    product.globalScales = globalScales.empty() ? nullptr : global.get();
    product.quantization = &quantization;
    product.hasHalves = hasHalves;
    computeProducts({product}, 1);
    Numbers numbers;
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t i = 0; i < columns; ++i)
        numbers.push_back(out.row(i)[n]);
    return numbers;
  }
};

template <typename T>
Bytes toBytes(const std::vector<T> &values) {
  const auto *bytes = reinterpret_cast<const uint8_t *>(values.data());
  return Bytes(bytes, bytes + values.size() * sizeof(T));
}

Bytes floats(const std::vector<float> &values) { return toBytes(values); }

const Bytes kAllPairs = {0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE};

TEST(ReferenceWeights, CodesOfE2M1) {
  Weights weights(StorageType::Fp4E2M1, Granularity::Group, 1, 16);
  weights.columns = 16;
  weights.elements = kAllPairs;
  weights.scaleType = moert::DType::F8E8M0;
  weights.scales = {127};
  EXPECT_EQ(weights.decode(), (Numbers{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1,
                                       -1.5, -2, -3, -4, -6}));
}

/// The numbers of docs/use/layers.md, times a scale.
TEST(ReferenceWeights, CodesOfNF4) {
  Weights weights(StorageType::NF4, Granularity::Group, 1, 16);
  weights.columns = 16;
  weights.elements = kAllPairs;
  weights.scales = floats({2});
  Numbers numbers = weights.decode();
  EXPECT_EQ(numbers[0], -2);
  EXPECT_EQ(numbers[7], 0);
  EXPECT_EQ(numbers[15], 2);
  const Numbers rest = {-0.6961928009986877,  -0.5250730514526367,
                        -0.39491748809814453, -0.28444138169288635,
                        -0.18477343022823334, -0.09105003625154495};
  for (size_t i = 0; i < rest.size(); ++i)
    EXPECT_EQ(numbers[i + 1], 2 * rest[i]) << i;
  const Numbers above = {0.07958029955625534, 0.16093020141124725,
                         0.24611230194568634, 0.33791524171829224,
                         0.44070982933044434, 0.5626170039176941,
                         0.7229568362236023};
  for (size_t i = 0; i < above.size(); ++i)
    EXPECT_EQ(numbers[i + 8], 2 * above[i]) << i;
}

TEST(ReferenceWeights, ScalesArePowersOfTwo) {
  for (auto [byte, scale] :
       std::vector<std::pair<uint8_t, double>>{{0, 0x1p-127},
                                               {1, 0x1p-126},
                                               {127, 1},
                                               {200, 0x1p73},
                                               {254, 0x1p127}}) {
    Weights weights(StorageType::Fp4E2M1, Granularity::Group, 1, 4);
    weights.columns = 4;
    weights.elements = {0x80, 0xF7};
    weights.scaleType = moert::DType::F8E8M0;
    weights.scales = {byte};
    EXPECT_EQ(weights.decode(), (Numbers{0, 0, 6 * scale, -6 * scale}));
  }
}

TEST(ReferenceWeights, NaNScaleSpoilsZerosOfItsGroup) {
  Weights weights(StorageType::Fp4E2M1, Granularity::Group, 1, 2);
  weights.columns = 4;
  weights.elements = {0x80, 0x22};
  weights.scaleType = moert::DType::F8E8M0;
  weights.scales = {255, 127};
  // A unit vector meets all groups of a row.
  for (double number : weights.decode())
    EXPECT_TRUE(std::isnan(number));
}

TEST(ReferenceWeights, CodesOfInt4) {
  Weights weights(StorageType::Int4, Granularity::Channel);
  weights.columns = 16;
  weights.elements = kAllPairs;
  weights.scales = floats({0.5f});
  Numbers expected;
  for (int code = 0; code < 16; ++code)
    expected.push_back((code - 8) * 0.5);
  EXPECT_EQ(weights.decode(), expected);
}

TEST(ReferenceWeights, ZeroPointsAreUnsigned) {
  Weights weights(StorageType::Int4, Granularity::Group, 1, 2);
  weights.columns = 4;
  weights.elements = {0x2F, 0x2F};
  weights.scaleType = moert::DType::F16;
  weights.scales = toBytes<uint16_t>({0x3E00, 0x3E00});
  weights.zeroPoints = {255, 3};
  EXPECT_EQ(weights.decode(), (Numbers{(15 - 255) * 1.5, (2 - 255) * 1.5,
                                       (15 - 3) * 1.5, (2 - 3) * 1.5}));
}

TEST(ReferenceWeights, MinimaAreSubtractedBehindScales) {
  Weights weights(StorageType::Int4, Granularity::Group, 1, 2);
  weights.columns = 4;
  weights.elements = {0x2F, 0x2F};
  weights.scaleType = moert::DType::F16;
  weights.scales = toBytes<uint16_t>({0x3E00, 0x3E00});
  // 0.25 and -2.
  weights.minima = toBytes<uint16_t>({0x3400, 0xC000});
  EXPECT_EQ(weights.decode(), (Numbers{15 * 1.5 - 0.25, 2 * 1.5 - 0.25,
                                       15 * 1.5 + 2, 2 * 1.5 + 2}));
  Weights bytes(StorageType::Int8, Granularity::Group, 1, 2);
  bytes.columns = 2;
  bytes.elements = {0x80, 0x7F};
  bytes.scales = floats({0.5f});
  bytes.minima = floats({3});
  EXPECT_EQ(bytes.decode(), (Numbers{-128 * 0.5 - 3, 127 * 0.5 - 3}));
}

TEST(ReferenceWeights, BytesHaveASignWithoutZeroPoints) {
  Weights weights(StorageType::Int8, Granularity::Channel);
  weights.columns = 4;
  weights.elements = {0x00, 0x7F, 0x80, 0xFF};
  weights.scaleType = moert::DType::BF16;
  weights.scales = toBytes<uint16_t>({0x3E80});
  EXPECT_EQ(weights.decode(), (Numbers{0, 127 * 0.25, -128 * 0.25, -0.25}));
  weights.zeroPoints = {128};
  EXPECT_EQ(weights.decode(), (Numbers{-128 * 0.25, -0.25, 0, 127 * 0.25}));
  // Only the bits count, whatever a file calls them.
  weights.dtype = moert::DType::U8;
  EXPECT_EQ(weights.decode(), (Numbers{-128 * 0.25, -0.25, 0, 127 * 0.25}));
  weights.zeroPoints.clear();
  EXPECT_EQ(weights.decode(), (Numbers{0, 127 * 0.25, -128 * 0.25, -0.25}));
}

TEST(ReferenceWeights, ProductOfScalesIsFloat) {
  Weights weights(StorageType::Fp4E2M1, Granularity::Group, 1, 2);
  weights.columns = 2;
  weights.elements = {0x22};
  weights.scaleType = moert::DType::F8E4M3;
  // 0.5625.
  weights.scales = {0x31};
  float third = 1.0f / 3;
  weights.globalScales = floats({third});
  auto product = double(0.5625f * third);
  EXPECT_NE(product, 0.5625 * double(third));
  EXPECT_EQ(weights.decode(), (Numbers{product, product}));
}

TEST(ReferenceWeights, HalvesHaveScalesOfTheirOwn) {
  // Two matrices of four rows, in groups of two elements.
  Weights weights(StorageType::Int8, Granularity::Group, 1, 2);
  weights.rows = 4;
  weights.columns = 4;
  weights.hasHalves = true;
  weights.elements = Bytes(32, 1);
  weights.scales =
      floats({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  weights.globalScales = floats({1, 2, 4, 8});
  EXPECT_EQ(weights.decode(0),
            (Numbers{1, 1, 2, 2, 3, 3, 4, 4, 10, 10, 12, 12, 14, 14, 16, 16}));
  EXPECT_EQ(weights.decode(1), (Numbers{36, 36, 40, 40, 44, 44, 48, 48, 104,
                                        104, 112, 112, 120, 120, 128, 128}));
}

TEST(ReferenceWeights, ScalesOfBlocksAndTensors) {
  // Halves of three rows are blocks of two and of one.
  Weights weights(StorageType::Int4, Granularity::Block, 2, 4);
  weights.rows = 6;
  weights.columns = 6;
  weights.hasHalves = true;
  weights.elements = Bytes(18, 0x99);
  weights.scales = floats({1, 2, 3, 4, 5, 6, 7, 8});
  Numbers expected;
  for (int block : {0, 0, 1, 2, 2, 3})
    for (int column : {0, 0, 0, 0, 1, 1})
      expected.push_back(2 * block + column + 1);
  EXPECT_EQ(weights.decode(), expected);

  weights.quantization.granularity = Granularity::Tensor;
  weights.scales = floats({1, 2});
  expected.assign(18, 1);
  expected.resize(36, 2);
  EXPECT_EQ(weights.decode(), expected);
}

} // namespace
