//===- ExchangeTimeTest.cpp - tests of what moving rows takes -------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Schedules/ExchangeTime.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace moec;
using moert::CollectiveKind;

static const PartFacts &h200 = *findPart("h200");

/// Times of NCCL 2.28.9 on H200s, in us: an all-gather of rows of 7392 bytes
/// and a reduce-scatter of rows of 14336, of a rank.
TEST(ExchangeTimeTest, IsNearToWhatWasMeasured) {
  struct Measured {
    int64_t ranks;
    double rows, gatherUs, scatterUs;
  };
  const Measured measured[] = {{2, 1, 9.1, 10.8},     {2, 128, 17.4, 23.7},
                               {2, 512, 34.9, 47.4},  {2, 4096, 143.8, 269.6},
                               {4, 1, 16.0, 13.2},    {4, 128, 40.9, 42.3},
                               {4, 512, 66.1, 101.3}, {4, 4096, 318.6, 595.7}};
  for (const Measured &one : measured) {
    SCOPED_TRACE(one.rows);
    double gather = predictExchange(CollectiveKind::AllGather, one.ranks,
                                    one.rows * 7392, h200)
                        .us;
    double scatter = predictExchange(CollectiveKind::ReduceScatter, one.ranks,
                                     one.rows * 14336, h200)
                         .us;
    // The one outlier is the gather of 128 rows by 4 ranks.
    EXPECT_LT(std::abs(std::log(gather / one.gatherUs)), 0.26);
    EXPECT_LT(std::abs(std::log(scatter / one.scatterUs)), 0.17);
  }
}

TEST(ExchangeTimeTest, MoreTakesLonger) {
  for (CollectiveKind kind :
       {CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
        CollectiveKind::AllReduce}) {
    double before = 0;
    for (double bytes = 1; bytes < 1e10; bytes *= 4) {
      ExchangeTime time = predictExchange(kind, 4, bytes, h200);
      EXPECT_GT(time.us, before);
      EXPECT_LT(time.floorUs, time.us);
      EXPECT_LT(time.us, predictExchange(kind, 8, bytes, h200).us + 1e-9);
      EXPECT_GE(time.us, predictExchange(kind, 4, bytes, *findPart("b200")).us);
      before = time.us;
    }
  }
  // Bytes of an all-reduce are those of all ranks; the two others count those
  // of one rank.
  double both = predictExchange(CollectiveKind::AllReduce, 4, 4e9, h200).us;
  double gather = predictExchange(CollectiveKind::AllGather, 4, 1e9, h200).us;
  EXPECT_NEAR(both / gather, 2, 0.05);
}

/// Rows of DeepSeek-V3 by kernels that write to the memory of other ranks, on
/// H200s, in us: gathers, and reduce-scatters with the sums that they make.
TEST(ExchangeTimeTest, PeersAreNearToWhatWasMeasured) {
  struct Measured {
    int64_t ranks;
    double rows, share, gatherUs, scatterUs;
  };
  const Measured measured[] = {
      {2, 1, 1, 4.0, 6.2},         {2, 128, 1, 6.6, 12.4},
      {2, 512, 1, 15.1, 40.7},     {2, 4096, 1, 91.3, 259.1},
      {4, 1, 1, 4.8, 8.3},         {4, 128, 1, 12.9, 24.4},
      {4, 512, 0.904, 33.4, 81.3}, {4, 4096, 0.904, 222.3, 486.3}};
  for (const Measured &one : measured) {
    SCOPED_TRACE(one.rows);
    double others = double(one.ranks - 1) * one.rows;
    double sums =
        double(one.ranks) * one.rows * 14336 * (8 / double(one.ranks) + 1);
    double gather =
        predictPeerExchange({one.ranks, others * (64 + 7392 * one.share)}, h200)
            .us;
    double scatter =
        predictPeerExchange(
            {one.ranks, others * 14336 * one.share, /*sums=*/true, sums}, h200)
            .us;
    EXPECT_LT(std::abs(std::log(gather / one.gatherUs)), 0.08);
    EXPECT_LT(std::abs(std::log(scatter / one.scatterUs)), 0.16);
  }
}
