//===- BalanceTest.cpp - tests of replica placement -----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Balance.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <thread>

using namespace moert;

namespace {

using Ids = std::vector<int64_t>;

BalanceOptions optionsOf(int64_t physical, int64_t groups, int64_t nodes,
                         int64_t ranks, int64_t most = 0) {
  BalanceOptions options;
  options.numPhysical = physical;
  options.numGroups = groups;
  options.numNodes = nodes;
  options.numRanks = ranks;
  options.maxReplicas = most;
  return options;
}

void expectRefused(const Status &status, const std::string &text) {
  ASSERT_FALSE(status) << "accepted; expected: " << text;
  EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
}

} // namespace

/// The example of DeepSeek's EPLB: 12 experts in 4 groups, 16 replicas on 8
/// ranks of 2 nodes.
TEST(BalanceTest, PublishedExample) {
  const std::vector<double> loads[] = {
      {90, 132, 40, 61, 104, 165, 39, 4, 73, 56, 183, 86},
      {20, 107, 104, 64, 19, 197, 187, 157, 172, 86, 16, 27}};
  const Ids expected[] = {{5, 6, 5, 7, 8, 4, 3, 4, 10, 9, 10, 2, 0, 1, 11, 1},
                          {7, 10, 6, 8, 6, 11, 8, 9, 2, 4, 5, 1, 5, 0, 3, 1}};
  for (size_t layer = 0; layer < 2; ++layer) {
    auto map = balanceExperts(loads[layer], optionsOf(16, 4, 2, 8));
    ASSERT_TRUE(map) << map.status().message();
    EXPECT_EQ(*map, expected[layer]);
  }
}

TEST(BalanceTest, EveryMapIsBalanced) {
  struct Case {
    int64_t experts, physical, groups, nodes, ranks, most;
  };
  std::mt19937 random(1);
  for (const Case &each :
       {Case{8, 8, 1, 1, 1, 0}, Case{8, 16, 1, 1, 8, 0},
        Case{16, 24, 4, 2, 4, 0}, Case{12, 18, 3, 2, 6, 0},
        Case{7, 14, 7, 1, 2, 2}, Case{64, 96, 8, 4, 32, 3}}) {
    std::vector<double> loads;
    for (int64_t i = 0; i < each.experts; ++i)
      loads.push_back(static_cast<double>(random() % 1000));
    auto map =
        balanceExperts(loads, optionsOf(each.physical, each.groups, each.nodes,
                                        each.ranks, each.most));
    ASSERT_TRUE(map) << map.status().message();
    Ids counts(loads.size(), 0);
    for (int64_t expert : *map)
      ++counts[static_cast<size_t>(expert)];
    for (size_t i = 0; i < counts.size(); ++i) {
      EXPECT_GE(counts[i], 1) << i;
      if (each.most > 0)
        EXPECT_LE(counts[i], each.most) << i;
    }
    if (each.groups % each.nodes != 0)
      continue;
    // All experts of a group are on one node.
    Ids nodes(static_cast<size_t>(each.groups), -1);
    for (size_t i = 0; i < map->size(); ++i) {
      int64_t node = static_cast<int64_t>(i) / (each.physical / each.nodes);
      int64_t &known =
          nodes[static_cast<size_t>((*map)[i] / (each.experts / each.groups))];
      EXPECT_TRUE(known == -1 || known == node);
      known = node;
    }
  }
}

TEST(BalanceTest, WrongSizesAreRefused) {
  std::vector<double> loads(12, 1);
  struct Case {
    BalanceOptions options;
    const char *text;
  };
  for (const Case &each :
       {Case{optionsOf(11, 1, 1, 1),
             "num_physical: 11 found, one at least for each of 12 experts"},
        Case{optionsOf(16, 5, 1, 1),
             "num_groups: 5 found; it has to divide experts, 12"},
        Case{optionsOf(16, 1, 3, 8),
             "num_nodes: 3 found; it has to divide num_ranks, 8"},
        Case{optionsOf(16, 1, 1, 6),
             "num_ranks: 6 found; it has to divide num_physical, 16"},
        Case{optionsOf(16, 1, 0, 8), "num_nodes: 0 found, at least 1"},
        Case{optionsOf(16, 1, 1, 8, -1), "max_replicas: -1 found"},
        Case{optionsOf(16, 1, 1, 8, 1),
             "max_replicas: 1 found, but 12 experts with as many are fewer "
             "than 16 physical experts"}})
    expectRefused(balanceExperts(loads, each.options).status(), each.text);
  for (double wrong : {-1.0, std::numeric_limits<double>::infinity(),
                       std::numeric_limits<double>::quiet_NaN()}) {
    loads[3] = wrong;
    expectRefused(balanceExperts(loads, optionsOf(16, 1, 1, 8)).status(),
                  "the load of expert 3 is");
  }
}

TEST(BalanceTest, TablesOfAMap) {
  auto tables = makeReplicaTables({2, 0, 2, 1, 2, 0}, 3, 2);
  ASSERT_TRUE(tables) << tables.status().message();
  EXPECT_EQ(tables->counts, (std::vector<int32_t>{2, 1, 2}));
  // The third replica of expert 2 exceeds `maxReplicas`.
  EXPECT_EQ(tables->physicalIds, (std::vector<int32_t>{1, 5, 3, -1, 0, 2}));
  expectRefused(makeReplicaTables({0, 2, 0}, 3, 1).status(),
                "the map has expert 1 nowhere");
  expectRefused(makeReplicaTables({0, 3, 1}, 3, 1).status(),
                "the map has expert 3 at 1; 0 to 2 are there");
  expectRefused(makeReplicaTables({0, 1}, 3, 1).status(),
                "a map of 2 physical experts and 3 experts");
  expectRefused(makeReplicaTables({0, 1}, 2, 3).status(),
                "max_replicas is 3; 1 to the number of physical experts, 2");
}

TEST(BalanceTest, LoadsOfAllRanks) {
  const Ids map = {0, 1, 2, 0, 2, 2};
  auto device = createHostDevice(1);
  ASSERT_TRUE(device);
  for (Mesh mesh : {Mesh{3, 1}, Mesh{1, 3}, Mesh{1, 1}}) {
    auto group = LocalGroup::create(mesh, 20);
    ASSERT_TRUE(group);
    size_t each = map.size() / static_cast<size_t>(mesh.numRanks());
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < mesh.numRanks(); ++rank)
      threads.emplace_back([&, rank] {
        auto joined = (*group)->join(rank, **device);
        ASSERT_TRUE(joined);
        Ids own;
        for (size_t i = 0; i < each; ++i)
          // Exceeds 32 bits.
          own.push_back((int64_t(1) << 40) + rank * static_cast<int64_t>(each) +
                        static_cast<int64_t>(i));
        auto loads = sumLoads(**joined, **device, own, map, 3);
        ASSERT_TRUE(loads) << loads.status().message();
        int64_t base = int64_t(1) << 40;
        EXPECT_EQ(*loads, (Ids{2 * base + 3, base + 1, 3 * base + 11}));
        expectRefused(
            sumLoads(**joined, **device, {1, 2, 3, 4, 5}, map, 3).status(),
            "sumLoads: 5 loads on each of");
      });
    for (std::thread &thread : threads)
      thread.join();
  }
}
