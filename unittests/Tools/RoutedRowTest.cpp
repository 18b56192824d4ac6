//===- RoutedRowTest.cpp - tests of the reference's selection ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Reference/Router.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace moec;
using namespace moec::reference;

/// Keys are the logits.
static Call makeCall(int64_t numExperts, int64_t topK) {
  Call call;
  call.spec.numExperts = numExperts;
  call.spec.topK = topK;
  call.spec.routing.score = Score::Identity;
  return call;
}

TEST(RoutedRow, EqualKeysGoToTheFirst) {
  Call call = makeCall(4, 2);
  Router router(call);
  RoutedRow row(router, {1.0, 2.0, 2.0, 2.0}, 0);
  EXPECT_EQ(row.getIds(), llvm::ArrayRef<int64_t>({1, 2}));
  EXPECT_TRUE(row.accepts({1, 2}));
  EXPECT_FALSE(row.accepts({2, 1}));
  EXPECT_FALSE(row.accepts({1, 3}));
  EXPECT_FALSE(row.accepts({1, 1}));
}

/// 1 + 1e-9 rounds to 1 in f32; 4 ulps are a near tie, 5 are not.
TEST(RoutedRow, NearKeysMayComeInEitherOrder) {
  Call call = makeCall(2, 1);
  Router router(call);
  double ulp = std::ldexp(1.0, -23);
  for (double more : {ulp, 4 * ulp}) {
    RoutedRow row(router, {1.0, 1.0 + more}, 0);
    EXPECT_TRUE(row.accepts({0})) << more;
    EXPECT_TRUE(row.accepts({1})) << more;
  }
  RoutedRow row(router, {1.0, 1.0 + 5 * ulp}, 0);
  EXPECT_FALSE(row.accepts({0}));
  EXPECT_TRUE(row.accepts({1}));
  RoutedRow equal(router, {1.0, 1.0 + 1e-9}, 0);
  EXPECT_TRUE(equal.accepts({0}));
  EXPECT_FALSE(equal.accepts({1}));
}

/// Softmax scores are ordered by their logits, but not with a bias.
TEST(RoutedRow, SharesMayComeInTheOrderOfLogits) {
  Call call = makeCall(2, 1);
  call.spec.routing.score = Score::Softmax;
  Router router(call);
  RoutedRow near(router, {1.0, 1.0 + 1e-9}, 0);
  EXPECT_TRUE(near.accepts({0}));
  EXPECT_TRUE(near.accepts({1}));
  RoutedRow equal(router, {1.0, 1.0}, 0);
  EXPECT_FALSE(equal.accepts({1}));
  RoutedRow far(router, {1.0, 1.0 + 1e-5}, 0);
  EXPECT_FALSE(far.accepts({0}));
}

TEST(RoutedRow, DistancesAreWholeUlps) {
  Call call = makeCall(4, 1);
  Router router(call);
  double ulp = std::ldexp(1.0, -23);
  RoutedRow row(router, {1.0, 1.0 + ulp, 1.0 + 3 * ulp, -1.0}, 0);
  EXPECT_EQ(row.getKeyDistance(0, 0), 0);
  EXPECT_EQ(row.getKeyDistance(0, 1), 1);
  EXPECT_EQ(row.getKeyDistance(2, 0), 3);
  EXPECT_GT(row.getKeyDistance(0, 3), int64_t(1) << 30);
}

/// Infinities and NaN are replaced; values beyond f32 are infinite.
TEST(RoutedRow, KeysThatAreNotFinite) {
  double infinity = std::numeric_limits<double>::infinity();
  Call call = makeCall(4, 1);
  call.spec.routing.nonfinite = NonFinite::NegInf;
  Router router(call);
  RoutedRow row(router, {std::nan(""), 1e39, -1.0, infinity}, 0);
  EXPECT_EQ(row.getIds(), llvm::ArrayRef<int64_t>({2}));
  EXPECT_FALSE(row.accepts({1}));
  RoutedRow dead(router, {infinity, std::nan(""), 1e39, -infinity}, 0);
  EXPECT_EQ(dead.getIds(), llvm::ArrayRef<int64_t>({0}));
  EXPECT_FALSE(dead.accepts({2}));
}
