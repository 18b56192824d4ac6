//===- GenerateTest.cpp - tests of generated tensors ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TensorTesting.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace moec;
using namespace moec::testing;

static std::string getBytes(const HostTensor &tensor) {
  return std::string(reinterpret_cast<const char *>(tensor.data()),
                     tensor.getNumBytes());
}

static std::vector<HostTensor> makeLayer() {
  return makeTensors(
      {{"hidden_states", Role::Input, ElementType::BF16, {5, 64}},
       {"topk_ids", Role::Input, ElementType::I32, {5, 3}},
       {"topk_weights", Role::Input, ElementType::F32, {5, 3}},
       {"num_valid_tokens", Role::Input, ElementType::I32, {1}},
       // Large enough for several threads.
       {"experts.w13", Role::Weight, ElementType::F16, {4, 512, 64}},
       {"experts.w13_bias", Role::Weight, ElementType::F32, {4, 512}}});
}

TEST(Generate, DependsOnSeedAndNameAlone) {
  auto generate = [](uint64_t seed) {
    std::vector<HostTensor> tensors = makeLayer();
    EXPECT_TRUE(generateTensors(tensors, {seed, 4}));
    return tensors;
  };
  std::vector<HostTensor> a = generate(1), b = generate(1), c = generate(2);
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(getBytes(a[i]), getBytes(b[i])) << a[i].name;
    if (a[i].name != "num_valid_tokens")
      EXPECT_NE(getBytes(a[i]), getBytes(c[i])) << a[i].name;
  }

  // Values depend neither on other tensors, nor on the order.
  std::vector<HostTensor> alone = makeTensors(
      {{"experts.w13", Role::Weight, ElementType::F16, {4, 512, 64}}});
  ASSERT_TRUE(generateTensors(alone, {1, 4}));
  EXPECT_EQ(getBytes(alone[0]), getBytes(a[4]));
}

TEST(Generate, KeepsIntermediatesOfTheOrderOfOne) {
  std::vector<HostTensor> tensors = makeTensors(
      {{"hidden_states", Role::Input, ElementType::F32, {100, 64}},
       {"experts.w2", Role::Weight, ElementType::F32, {2, 100, 64}}});
  ASSERT_TRUE(generateTensors(tensors, {3, 2}));
  for (const HostTensor &tensor : tensors) {
    double sum = 0;
    auto *values = reinterpret_cast<const float *>(tensor.data());
    for (int64_t i = 0; i < tensor.getNumElements(); ++i)
      sum += double(values[i]) * values[i];
    double expected = tensor.role == Role::Input ? 1.0 : 1.0 / 64;
    EXPECT_NEAR(sum / tensor.getNumElements() / expected, 1.0, 0.05);
  }
}

/// A layer of 64 and 128 contracted elements, two per byte, with scales of 32.
static std::vector<HostTensor> makePairs() {
  return makeTensors(
      {{"experts.w13", Role::Weight, ElementType::I8, {2, 256, 32}},
       {"experts.w13_scale", Role::Weight, ElementType::F8E8M0, {2, 256, 2}},
       {"experts.w2", Role::Weight, ElementType::I8, {2, 64, 64}},
       {"experts.w2_scale", Role::Weight, ElementType::F32, {2, 64, 4}},
       {"experts.w2_zero_point", Role::Weight, ElementType::I8, {2, 64, 4}},
       {"experts.w2_global_scale", Role::Weight, ElementType::F32, {2, 1}}});
}

TEST(Generate, MakesAllCodesOfQuantizedWeights) {
  std::vector<HostTensor> tensors = makePairs();
  ASSERT_TRUE(generateTensors(tensors, {5, 2}));
  std::vector<int> counts(16);
  for (int64_t i = 0; i < tensors[0].getNumElements(); ++i) {
    ++counts[tensors[0].data()[i] & 0xF];
    ++counts[tensors[0].data()[i] >> 4];
  }
  for (int count : counts)
    EXPECT_NEAR(count, 2048, 200);
  // Powers of two about 1 / (4 * sqrt(128)).
  for (int64_t i = 0; i < tensors[1].getNumElements(); ++i) {
    EXPECT_GE(tensors[1].data()[i], 127 - 9);
    EXPECT_LE(tensors[1].data()[i], 127 - 5);
  }
  // Values of 4 bits are centered at 8.
  for (int64_t i = 0; i < tensors[4].getNumElements(); ++i) {
    EXPECT_GE(tensors[4].data()[i], 1);
    EXPECT_LE(tensors[4].data()[i], 15);
  }
}

TEST(Generate, MakesQuantizedWeightsOfTheSizeOfOthers) {
  std::vector<HostTensor> tensors = makePairs();
  ASSERT_TRUE(generateTensors(tensors, {5, 2}));
  auto *scales = reinterpret_cast<const float *>(tensors[3].data());
  auto *global = reinterpret_cast<const float *>(tensors[5].data());
  double sum = 0;
  int64_t count = 2 * 64 * 128;
  for (int64_t i = 0; i < count; ++i) {
    int64_t row = i / 128, group = row * 4 + i % 128 / 32;
    int code = tensors[2].data()[i / 2] >> i % 2 * 4 & 0xF;
    double value = (code - tensors[4].data()[group]) * double(scales[group]) *
                   global[row / 64];
    EXPECT_GT(scales[group], 0);
    sum += value * value;
  }
  double variance = sum / double(count) * 128;
  EXPECT_GT(variance, 0.25);
  EXPECT_LT(variance, 4);
}

/// The mean of w2's scales, next to a w13 of another type; both have 64 and 128
/// contracted elements and a gate.
static double getMeanScale(ElementType first, int64_t firstBytes,
                           int64_t secondBytes) {
  std::vector<HostTensor> tensors = makeTensors(
      {{"experts.w13", Role::Weight, first, {2, 256, firstBytes}},
       {"experts.w13_scale", Role::Weight, ElementType::F32, {2, 256, 1}},
       {"experts.w2", Role::Weight, ElementType::I8, {2, 64, secondBytes}},
       {"experts.w2_scale", Role::Weight, ElementType::F32, {2, 64, 1}}});
  EXPECT_TRUE(generateTensors(tensors, {5, 2}));
  auto *scales = reinterpret_cast<const float *>(tensors[3].data());
  double sum = 0;
  for (int64_t i = 0; i < tensors[3].getNumElements(); ++i)
    sum += scales[i];
  return sum / double(tensors[3].getNumElements());
}

TEST(Generate, KnowsPairsOfEachWeight) {
  double ofBytes = 1 / (74 * std::sqrt(128.0));
  double ofPairs = 1 / (4 * std::sqrt(128.0));
  EXPECT_NEAR(getMeanScale(ElementType::F8E4M3, 64, 128) / ofBytes, 1, 0.2);
  EXPECT_NEAR(getMeanScale(ElementType::I8, 64, 128) / ofBytes, 1, 0.2);
  EXPECT_NEAR(getMeanScale(ElementType::F8E4M3, 64, 64) / ofPairs, 1, 0.2);
  EXPECT_NEAR(getMeanScale(ElementType::I8, 64, 64) / ofPairs, 1, 0.2);
}

TEST(Generate, MakesRoutingThatMakesSense) {
  std::vector<HostTensor> tensors = makeLayer();
  ASSERT_TRUE(generateTensors(tensors, {0, 4}));
  auto *ids = reinterpret_cast<const int32_t *>(tensors[1].data());
  auto *weights = reinterpret_cast<const float *>(tensors[2].data());
  for (int row = 0; row < 5; ++row) {
    std::set<int32_t> distinct(ids + 3 * row, ids + 3 * row + 3);
    EXPECT_EQ(distinct.size(), 3u);
    EXPECT_GE(*distinct.begin(), 0);
    EXPECT_LT(*distinct.rbegin(), 4);
    EXPECT_NEAR(weights[3 * row] + weights[3 * row + 1] + weights[3 * row + 2],
                1.0f, 1e-6);
  }
  EXPECT_EQ(*reinterpret_cast<const int32_t *>(tensors[3].data()), 5);
}

TEST(Generate, MakesAnOrderOfColumnsForEachExpert) {
  std::vector<HostTensor> tensors = makeTensors(
      {{"experts.w13_columns", Role::Weight, ElementType::I32, {3, 40}}});
  ASSERT_TRUE(generateTensors(tensors, {1, 4}));
  auto *columns = reinterpret_cast<const int32_t *>(tensors[0].data());
  std::set<std::vector<int32_t>> orders;
  for (int64_t expert = 0; expert < 3; ++expert) {
    std::vector<int32_t> order(columns + expert * 40,
                               columns + (expert + 1) * 40);
    orders.insert(order);
    std::sort(order.begin(), order.end());
    for (int32_t i = 0; i < 40; ++i)
      EXPECT_EQ(order[size_t(i)], i);
  }
  EXPECT_EQ(orders.size(), 3U);
}

TEST(Generate, SurvivesOddWeights) {
  std::vector<HostTensor> tensors =
      makeTensors({{"experts.w13", Role::Weight, ElementType::I8, {}},
                   {"experts.w13_scale", Role::Weight, ElementType::F8E8M0, {}},
                   {"experts.w2", Role::Weight, ElementType::I8, {3}},
                   {"experts.w2_scale", Role::Weight, ElementType::F32, {3}}});
  EXPECT_TRUE(generateTensors(tensors, {0, 1}));
  tensors = makeTensors(
      {{"experts.w13", Role::Weight, ElementType::I8, {4, 4}},
       {"experts.w13_scale", Role::Weight, ElementType::I64, {4, 1}}});
  EXPECT_FALSE(generateTensors(tensors, {0, 1}));
}

TEST(Generate, SurvivesOddShapes) {
  std::vector<HostTensor> tensors =
      makeTensors({{"hidden_states", Role::Input, ElementType::F32, {0, 64}},
                   {"topk_ids", Role::Input, ElementType::I32, {3, 0}},
                   {"topk_weights", Role::Input, ElementType::BF16, {}},
                   {"gate.hash_table", Role::Weight, ElementType::I32, {}},
                   {"input_ids", Role::Input, ElementType::I32, {4}},
                   {"scale", Role::Weight, ElementType::F64, {}}});
  // With more ids per token than experts, ids repeat.
  EXPECT_TRUE(generateTensors(tensors, {0, 1}));
}

TEST(Generate, LeavesWhatIsGiven) {
  std::vector<HostTensor> tensors = makeLayer();
  tensors[3].isGiven = true;
  *reinterpret_cast<int32_t *>(tensors[3].data()) = 2;
  ASSERT_TRUE(generateTensors(tensors, {0, 4}));
  EXPECT_EQ(*reinterpret_cast<const int32_t *>(tensors[3].data()), 2);
}

TEST(Generate, RefusesDtypesWithoutARule) {
  for (ElementType dtype :
       {ElementType::I8, ElementType::I64, ElementType::Bool}) {
    std::vector<HostTensor> tensors =
        makeTensors({{"w", Role::Weight, dtype, {3}}});
    moert::Status status = generateTensors(tensors, {0, 4});
    ASSERT_FALSE(status);
    EXPECT_NE(status.message().find("'w' of dtype"), std::string::npos);
  }
  // Ids must be integers, even if the IR has another type.
  std::vector<HostTensor> tensors =
      makeTensors({{"topk_ids", Role::Input, ElementType::F32, {3, 2}}});
  EXPECT_FALSE(generateTensors(tensors, {0, 4}));
}
