//===- BenchRoutingTest.cpp - tests of measured routings --------*- C++ -*-===//
//-*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Tools/Bench/Rows/Routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

using namespace moec::bench;

static BenchLayer makeLayer(int64_t experts, int64_t local, int64_t topK) {
  BenchLayer layer;
  layer.name = "layer";
  layer.numExperts = experts;
  layer.localExperts = local;
  layer.topK = topK;
  layer.hiddenSize = layer.intermediateSize = 128;
  return layer;
}

TEST(BenchRouting, ExpertsOfATokenDiffer) {
  BenchLayer layer = makeLayer(16, 16, 8);
  for (double exponent : {0.0, 1.0}) {
    Row row = {0, 100, exponent, "layer"};
    Routing routing = drawRouting(layer, row, 7, 0);
    ASSERT_EQ(routing.ids.size(), 800u);
    for (size_t first = 0; first < 800; first += 8) {
      std::set<int32_t> ids(routing.ids.begin() + first,
                            routing.ids.begin() + first + 8);
      EXPECT_EQ(ids.size(), 8u);
      EXPECT_GE(*ids.begin(), 0);
      EXPECT_LT(*ids.rbegin(), 16);
      float sum = 0;
      for (size_t j = first; j < first + 8; ++j)
        sum += routing.weights[j];
      EXPECT_NEAR(sum, 1, 1e-5);
    }
    EXPECT_EQ(routing.rows, 800);
    EXPECT_EQ(routing.experts, 16);
  }
}

TEST(BenchRouting, AreReproducibleAndDiffer) {
  BenchLayer layer = makeLayer(64, 64, 4);
  Row row = {0, 20, 0, "layer"};
  EXPECT_EQ(drawRouting(layer, row, 1, 0).ids,
            drawRouting(layer, row, 1, 0).ids);
  EXPECT_NE(drawRouting(layer, row, 1, 0).ids,
            drawRouting(layer, row, 1, 1).ids);
  EXPECT_NE(drawRouting(layer, row, 1, 0).ids,
            drawRouting(layer, row, 2, 0).ids);
}

TEST(BenchRouting, OtherRanksHaveTheRest) {
  BenchLayer layer = makeLayer(64, 8, 8);
  Row row = {0, 4000, 0, "layer"};
  Routing routing = drawRouting(layer, row, 1, 0);
  EXPECT_EQ(*std::max_element(routing.ids.begin(), routing.ids.end()), 7);
  EXPECT_EQ(routing.rows, std::count_if(routing.ids.begin(), routing.ids.end(),
                                        [](int32_t id) { return id >= 0; }));
  EXPECT_NEAR(static_cast<double>(routing.rows), 4000, 250);
}

TEST(BenchRouting, ZipfFollowsThePowerOfTheRank) {
  BenchLayer layer = makeLayer(32, 32, 1);
  Row row = {0, 60000, 1, "layer"};
  Routing routing = drawRouting(layer, row, 3, 0);
  std::vector<int64_t> counts(32);
  for (int32_t id : routing.ids)
    ++counts[id];
  std::sort(counts.rbegin(), counts.rend());
  double harmonic = 0;
  for (int i = 1; i <= 32; ++i)
    harmonic += 1.0 / i;
  for (int rank : {1, 2, 4, 16})
    EXPECT_NEAR(static_cast<double>(counts[rank - 1]),
                60000 / (harmonic * rank), 60000 / (harmonic * rank) * 0.1);
}

TEST(BenchRouting, OneExpertTakesAllTokens) {
  BenchLayer layer = makeLayer(64, 16, 1);
  Row row = {0, 300, 0, "layer@one", true};
  std::set<int32_t> experts;
  for (int64_t i = 0; i < 8; ++i) {
    Routing routing = drawRouting(layer, row, 1, i);
    EXPECT_EQ(routing.experts, 1);
    EXPECT_EQ(routing.rows, 300);
    for (int32_t id : routing.ids)
      EXPECT_EQ(id, routing.ids.front());
    for (float weight : routing.weights)
      EXPECT_EQ(weight, 1);
    experts.insert(routing.ids.front());
  }
  // Other runs choose another expert, so that weights are read from memory.
  EXPECT_GT(experts.size(), 2u);
}

TEST(BenchRouting, ComesNearToWhatWasRecorded) {
  BenchLayer layer = makeLayer(256, 32, 8);
  Row row = {0, 1, 0, "layer"};
  Peer peer;
  peer.expertsTouched = 1.625;
  peer.operations = 1.625 * 2 * layer.getExpertElements();
  Work work = getWork(layer, row, drawRoutings(layer, row, 8, &peer));
  EXPECT_NEAR(work.experts, 1.625, 0.2);
  EXPECT_NEAR(work.rows, 1.625, 0.2);
  EXPECT_NEAR(work.operations, peer.operations, 0.13 * peer.operations);
}
