//===- ExpertSpareTest.cpp - layers that share spare memory for moves -----===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Balance.h"
#include "moert/ExpertMove.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <thread>

using namespace moert;

namespace {

using Ids = std::vector<int64_t>;
using Views = std::vector<std::pair<std::string, TensorView>>;

/// Sizes of the published tests of EPLB's moves.
struct Sizes {
  int64_t ranks, layers, here, experts;
};

/// Kernels that are never run.
ModuleImage makeImage() {
  ModuleImage image;
  image.lookup = [](const std::string &) -> Result<HostKernelFn> {
    return HostKernelFn([](const uint64_t *, int64_t) {});
  };
  return image;
}

/// Weights and tables of one layer on one rank, without steps.
Plan makeWeightsPlan(const Sizes &sizes) {
  Plan plan;
  plan.target = "cpu";
  plan.mesh = {sizes.ranks, 1};
  plan.maxTokens = sizes.ranks;
  int64_t physical = sizes.ranks * sizes.here;
  constexpr TensorRole weight = TensorRole::Weight;
  plan.tensors = {
      {"experts.w2", DType::U16, {sizes.here, 5, 3}, weight},
      {"experts.w2_scale", DType::U8, {sizes.here, 5}, weight},
      {"placement.local_ids", DType::I32, {physical}, weight},
      {"replicas.physical_ids", DType::I32, {sizes.experts, physical}, weight},
      {"replicas.counts", DType::I32, {sizes.experts}, weight}};
  plan.variants = {{0, plan.maxTokens, {}}};
  return plan;
}

/// Memory that a layer can exchange for the spare.
struct LayerMemory {
  explicit LayerMemory(const Sizes &sizes)
      : sizes(sizes), w2(static_cast<size_t>(sizes.here * 15)),
        scale(static_cast<size_t>(sizes.here * 5)),
        ids(static_cast<size_t>(sizes.experts * sizes.ranks * sizes.here)),
        counts(static_cast<size_t>(sizes.experts)) {}

  void fill(const Ids &map, int64_t layer, int64_t rank) {
    auto value = [&](size_t i, size_t each) {
      auto index = static_cast<int64_t>(i / each);
      int64_t expert = map[static_cast<size_t>(rank * sizes.here + index)];
      return (layer * 31 + expert) * 15 + static_cast<int64_t>(i % each);
    };
    for (size_t i = 0; i < w2.size(); ++i)
      w2[i] = static_cast<uint16_t>(value(i, 15));
    for (size_t i = 0; i < scale.size(); ++i)
      scale[i] = static_cast<uint8_t>(value(i, 5));
    ReplicaTables tables = *makeReplicaTables(map, sizes.experts,
                                              static_cast<int64_t>(map.size()));
    ids = tables.physicalIds;
    counts = tables.counts;
  }

  Views views() {
    int64_t physical = sizes.ranks * sizes.here;
    return {
        {"experts.w2", {w2.data(), DType::U16, {sizes.here, 5, 3}, {}}},
        {"experts.w2_scale", {scale.data(), DType::U8, {sizes.here, 5}, {}}},
        {"replicas.physical_ids",
         {ids.data(), DType::I32, {sizes.experts, physical}, {}}},
        {"replicas.counts", {counts.data(), DType::I32, {sizes.experts}, {}}}};
  }

  bool operator==(const LayerMemory &other) const {
    return w2 == other.w2 && scale == other.scale && ids == other.ids &&
           counts == other.counts;
  }

  Sizes sizes;
  std::vector<uint16_t> w2;
  std::vector<uint8_t> scale;
  std::vector<int32_t> ids, counts;
};

/// A random map with each expert, equal for equal seeds.
Ids drawMap(const Sizes &sizes, uint32_t seed) {
  std::mt19937 random(seed);
  Ids map;
  for (int64_t i = 0; i < sizes.ranks * sizes.here; ++i)
    map.push_back(
        i < sizes.experts ? i : static_cast<int64_t>(random() % sizes.experts));
  std::shuffle(map.begin(), map.end(), random);
  return map;
}

/// Moves all layers of a rank one after another, with one spare.
Status moveLayers(const Sizes &sizes, int64_t rank, Device &device,
                  const std::shared_ptr<Communicator> &communicator) {
  std::vector<std::unique_ptr<Executor>> executors;
  std::vector<LayerMemory> memory(static_cast<size_t>(sizes.layers) + 1,
                                  LayerMemory(sizes));
  std::vector<int32_t> localIds(static_cast<size_t>(sizes.ranks * sizes.here),
                                -1);
  for (int64_t i = 0; i < sizes.here; ++i)
    localIds[static_cast<size_t>(rank * sizes.here + i)] =
        static_cast<int32_t>(i);
  for (uint32_t layer = 0; layer < sizes.layers; ++layer) {
    auto made = Executor::create(makeWeightsPlan(sizes), device, makeImage());
    if (!made)
      return made.status();
    memory[layer].fill(drawMap(sizes, layer), layer, rank);
    Views views = memory[layer].views();
    views.push_back({"placement.local_ids",
                     {localIds.data(),
                      DType::I32,
                      {static_cast<int64_t>(localIds.size())},
                      {}}});
    if (Status status = (*made)->bindAll(views); !status)
      return status;
    executors.push_back(std::move(*made));
  }
  // Index of the memory that no layer uses.
  size_t spare = memory.size() - 1;
  for (uint32_t layer = 0; layer < sizes.layers; ++layer) {
    Ids to = drawMap(sizes, 100 + layer);
    auto move =
        ExpertMove::begin(*executors[layer], device, communicator,
                          {drawMap(sizes, layer), to, memory[spare].views()});
    if (!move)
      return move.status();
    Status status;
    while (status && (*move)->numSteps() > 0)
      status = (*move)->step();
    if (status)
      status = (*move)->switchOver();
    if (!status)
      return status;
    LayerMemory expected(sizes);
    expected.fill(to, layer, rank);
    EXPECT_EQ(memory[spare], expected) << "layer " << layer;
    spare = layer;
  }
  return Status::ok();
}

} // namespace

TEST(ExpertSpareTest, LayersTakeTurnsOfOneSpare) {
  for (const Sizes &sizes :
       {Sizes{2, 1, 2, 3}, Sizes{2, 2, 3, 4}, Sizes{2, 4, 8, 16},
        Sizes{4, 1, 2, 6}, Sizes{4, 2, 2, 5}, Sizes{4, 8, 8, 16},
        Sizes{8, 2, 3, 16}, Sizes{1, 2, 4, 3}}) {
    auto device = createHostDevice(1);
    auto group = LocalGroup::create({sizes.ranks, 1}, 20);
    std::vector<Status> statuses(static_cast<size_t>(sizes.ranks));
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < sizes.ranks; ++rank)
      threads.emplace_back([&, rank] {
        auto joined = (*group)->join(rank, **device);
        statuses[static_cast<size_t>(rank)] =
            joined ? moveLayers(sizes, rank, **device, std::move(*joined))
                   : joined.status();
      });
    for (std::thread &thread : threads)
      thread.join();
    for (const Status &status : statuses)
      EXPECT_TRUE(status) << status.message();
  }
}

TEST(ExpertSpareTest, PreparedWeightsDoNotMove) {
  Plan plan = makeWeightsPlan({1, 1, 2, 2});
  plan.tensors.push_back({"made", DType::U16, {30}, TensorRole::Prepared});
  plan.kernels = {{"look_up", 1}};
  plan.prepare = {
      Step::launch(0, {Argument::ofTensor(0), Argument::ofTensor(5)})};
  auto device = createHostDevice(1);
  auto executor = Executor::create(plan, **device, makeImage());
  ASSERT_TRUE(executor) << executor.status().message();
  auto group = LocalGroup::create({1, 1}, 20);
  auto joined = (*group)->join(0, **device);
  Status status = ExpertMove::begin(**executor, **device, std::move(*joined),
                                    {{0, 1}, {1, 0}, {}})
                      .status();
  EXPECT_NE(status.message().find("the layer has prepared weights"),
            std::string::npos)
      << status.message();
}
