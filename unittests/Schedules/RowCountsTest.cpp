//===- RowCountsTest.cpp - how many rows a group gets -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/RowCounts.h"

#include "gtest/gtest.h"

#include <cmath>

using namespace moec;

namespace {

struct RowCountsTest : testing::Test {
  RowCountsTest() { context.loadDialect<tile::TileDialect>(); }

  RowCounts count(int64_t topK, int64_t experts, int64_t groups,
                  int64_t tokens) {
    return RowCounts(tile::LoadAttr::get(&context, 0, 1 << 20, topK, experts),
                     groups, tokens);
  }

  mlir::MLIRContext context;
};

double sumProbabilities(const RowCounts &counts) {
  double sum = 0;
  for (RowCounts::Entry entry : counts.entries)
    sum += entry.probability;
  return sum;
}

TEST_F(RowCountsTest, DenseHasOneRowPerToken) {
  RowCounts counts = count(1, 1, 1, 100);
  ASSERT_EQ(counts.entries.size(), 1u);
  EXPECT_EQ(counts.entries[0].eighths, 13);
  EXPECT_EQ(counts.rows, 100);
  EXPECT_EQ(counts.active, 1);
  EXPECT_EQ(counts.activeVariance, 0);
}

/// A token picks different experts, however skewed the load is.
TEST_F(RowCountsTest, OneTokenHasTopKGroups) {
  auto make = [&](int64_t groups) {
    return RowCounts(tile::LoadAttr::get(&context, 0, 1 << 20, 8, 256), groups,
                     1, Routing::Zipf);
  };
  EXPECT_NEAR(make(256).active, 8, 1e-6);
  EXPECT_NEAR(make(256).activeVariance, 0, 1e-6);
  // A rank that has some of the experts has some of the groups.
  EXPECT_NEAR(make(64).active, 2, 1e-6);
  EXPECT_NEAR(make(64).activeVariance, 8 * (1.0 / 4) * (3.0 / 4) * 248 / 255,
              1e-6);
}

/// Two shares of all groups are all of them.
TEST_F(RowCountsTest, SomeGroupsAndTheOthers) {
  auto make = [&] {
    return RowCounts(tile::LoadAttr::get(&context, 0, 1 << 20, 1, 16), 16, 1024,
                     Routing::Zipf);
  };
  RowCounts all = make(), few = make(), many = make(), same = make();
  few.keep(16, [](int64_t rows) { return rows <= 64; });
  many.keep(16, [](int64_t rows) { return rows > 64; });
  same.keep(16, [](int64_t) { return true; });
  EXPECT_EQ(same.entries.size(), all.entries.size());
  EXPECT_EQ(same.rows, all.rows);
  EXPECT_EQ(same.activeVariance, all.activeVariance);
  ASSERT_FALSE(few.entries.empty());
  ASSERT_FALSE(many.entries.empty());
  EXPECT_EQ(few.entries.size() + many.entries.size(), all.entries.size());
  for (RowCounts::Entry entry : few.entries)
    EXPECT_LE(entry.eighths, 8);
  EXPECT_NEAR(few.active + many.active, all.active, 1e-9);
  EXPECT_LT(few.rows, many.rows);
  // Each group counts up to 7 rows too many.
  EXPECT_NEAR(few.rows + many.rows, all.rows, 7);
  RowCounts none = make();
  none.keep(16, [](int64_t) { return false; });
  EXPECT_TRUE(none.entries.empty());
  EXPECT_EQ(none.rows, 0);
  EXPECT_EQ(none.active, 0);
  EXPECT_EQ(none.activeVariance, 0);
}

TEST_F(RowCountsTest, OneTokenReachesExactlyItsExperts) {
  RowCounts counts = count(8, 128, 128, 1);
  EXPECT_NEAR(counts.active, 8, 1e-9);
  EXPECT_NEAR(counts.activeVariance, 0, 1e-6);
  ASSERT_EQ(counts.entries.size(), 1u);
  EXPECT_EQ(counts.entries[0].eighths, 1);
  EXPECT_NEAR(counts.entries[0].probability, 1.0 / 16, 1e-9);
}

TEST_F(RowCountsTest, AShareOfTheExpertsGetsItsShareOfTheTokens) {
  RowCounts counts = count(8, 256, 32, 1);
  EXPECT_NEAR(counts.active, 1, 1e-9);
  // Hypergeometric: 8 draws of 256, of which 32 count.
  EXPECT_NEAR(counts.activeVariance, 8 * (1.0 / 8) * (7.0 / 8) * 248 / 255,
              1e-6);
}

/// Compared with the distribution computed from factorials.
TEST_F(RowCountsTest, FollowsTheBinomialDistribution) {
  const int64_t tokens = 300;
  const double pick = 3.0 / 40;
  RowCounts counts = count(3, 40, 40, tokens);
  double mean = 0;
  for (RowCounts::Entry entry : counts.entries) {
    double expected = 0;
    for (int64_t m = 8 * entry.eighths - 7;
         m <= std::min(tokens, 8 * entry.eighths); ++m)
      expected +=
          std::exp(std::lgamma(tokens + 1.0) - std::lgamma(m + 1.0) -
                   std::lgamma(tokens - m + 1.0) + double(m) * std::log(pick) +
                   double(tokens - m) * std::log1p(-pick));
    EXPECT_NEAR(entry.probability, expected, 1e-7) << entry.eighths;
    mean += entry.probability * double(entry.eighths);
  }
  EXPECT_NEAR(sumProbabilities(counts), 1 - std::pow(1 - pick, tokens), 1e-7);
  EXPECT_EQ(counts.rows, tokens * pick);
  // Rounded up, by half an eighth on average.
  EXPECT_NEAR(8 * mean, counts.rows + 3.5, 0.1);
}

TEST_F(RowCountsTest, SameExpertsGetAllTokens) {
  RowCounts counts(tile::LoadAttr::get(&context, 0, 100, 3, 40), 40, 100,
                   Routing::Same);
  ASSERT_EQ(counts.entries.size(), 1u);
  EXPECT_EQ(counts.entries[0].eighths, 13);
  EXPECT_NEAR(counts.entries[0].probability, 3.0 / 40, 1e-9);
  EXPECT_NEAR(counts.active, 3, 1e-9);
  EXPECT_NEAR(counts.activeVariance, 0, 1e-6);
}

/// Equal total rows in fewer experts, some with many.
TEST_F(RowCountsTest, ZipfIsUneven) {
  tile::LoadAttr load = tile::LoadAttr::get(&context, 0, 100, 8, 128);
  RowCounts uniform(load, 128, 64), zipf(load, 128, 64, Routing::Zipf);
  EXPECT_EQ(zipf.rows, uniform.rows);
  EXPECT_LT(zipf.active, 0.95 * uniform.active);
  EXPECT_GT(zipf.entries.back().eighths, 2 * uniform.entries.back().eighths);
  double mean = 0;
  for (RowCounts::Entry entry : zipf.entries)
    mean += entry.probability * 8 * double(entry.eighths);
  // Rounded up, by 0 to 7 rows for groups that have rows.
  EXPECT_GT(mean, zipf.rows);
  EXPECT_LT(mean, zipf.rows + 7 * zipf.active / 128);
}

TEST_F(RowCountsTest, ManyTokensReachAll) {
  RowCounts counts = count(8, 128, 128, 16384);
  EXPECT_NEAR(counts.active, 128, 1e-9);
  EXPECT_NEAR(counts.activeVariance, 0, 1e-6);
  EXPECT_NEAR(sumProbabilities(counts), 1, 1e-9);
}

} // namespace
