//===- QuantizeTest.cpp - rows as values with scales ----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Reference/Quantize.h"
#include "gtest/gtest.h"

#include <cmath>
#include <limits>

using namespace moec;
using namespace moec::reference;

namespace {

using Numbers = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
const double kNaN = std::nan("");

OperandQuantization makeInt8(Granularity granularity) {
  OperandQuantization quantization;
  quantization.storage = StorageType::Int8;
  quantization.granularity = granularity;
  return quantization;
}

/// The values that the quantized values of a row represent.
Numbers quantize(const Numbers &x, const OperandQuantization &quantization,
                 float tensorScale = 0) {
  auto columns = static_cast<int64_t>(x.size());
  Matrix row(1, columns);
  std::copy(x.begin(), x.end(), row.row(0));
  Matrix quantized = quantizeRows(row, quantization, tensorScale, 1);
  return Numbers(quantized.row(0), quantized.row(0) + columns);
}

TEST(ReferenceQuantize, Int8RoundsToEven) {
  EXPECT_EQ(
      quantize({127, 0.5, 1.5, 2.5, -0.5, -127}, makeInt8(Granularity::Token)),
      (Numbers{127, 0, 2, 2, 0, -127}));
}

TEST(ReferenceQuantize, Int8ScaleIsAQuotientOfFloats) {
  auto scale = double(3.0f / 127.0f);
  EXPECT_EQ(quantize({3, -1, 0}, makeInt8(Granularity::Token)),
            (Numbers{127 * scale, -42 * scale, 0}));
  EXPECT_EQ(quantize({0, 0}, makeInt8(Granularity::Token)), (Numbers{0, 0}));
  EXPECT_EQ(makeTensorScale(0, StorageType::Int8), 1e-10f / 127.0f);
  EXPECT_EQ(makeTensorScale(3, StorageType::Int8), 3.0f / 127.0f);
  EXPECT_EQ(makeTensorScale(3, StorageType::Fp8E4M3), 3.0f / 448.0f);
}

/// 450 / 448 is above 1, so that the scale is 2 and the code of 450 / 2 = 225
/// is 224; of 448 it is 1.
TEST(ReferenceQuantize, ScalesOfE8M0ArePowersOfTwo) {
  OperandQuantization powers;
  powers.scale = ScaleType::E8M0;
  powers.granularity = Granularity::Group;
  powers.blockRows = 1;
  powers.blockColumns = 2;
  EXPECT_EQ(quantize({450, 33, 448, 33, 0, 0x1p-50}, powers),
            (Numbers{448, 32, 448, 32, 0, 0x1p-50}));
  for (double value : {kNaN, kInfinity})
    for (double number : quantize({1, value}, powers))
      EXPECT_TRUE(std::isnan(number));
}

TEST(ReferenceQuantize, Int8SpoilsRowsThroughTheirScale) {
  for (double value : {kNaN, kInfinity, -kInfinity})
    for (double number : quantize({1, value}, makeInt8(Granularity::Token)))
      EXPECT_TRUE(std::isnan(number));
}

TEST(ReferenceQuantize, Int8ByAGivenScaleHasEnds) {
  EXPECT_EQ(quantize({127, 128, 1e30, -kInfinity, kNaN, -126.5},
                     makeInt8(Granularity::Tensor), 1),
            (Numbers{127, 127, 127, -127, 0, -126}));
}

} // namespace
