//===- ExpertMoveTest.cpp - tests of moving experts -----------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// A plan that outputs the experts' weights by the replica of each row, so that
// misplaced experts are detected.

#include "moert/ExpertMove.h"
#include "CudaTesting.h"
#include "NcclTesting.h"
#include "moert/Balance.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

using namespace moert;
using namespace moert::test;

namespace {

using Ids = std::vector<int64_t>;
using Views = std::vector<std::pair<std::string, TensorView>>;

constexpr int64_t kRanks = 3, kExperts = 5, kHere = 3, kMost = 3;
constexpr int64_t kPhysical = kRanks * kHere, kOwnRows = 5;
enum TensorIndex {
  W13,
  Bias,
  Shared,
  LocalIds,
  PhysicalIds,
  Counts,
  Partial,
  Y
};

const Ids kFrom = {0, 1, 2, 3, 4, 0, 1, 2, 3};
const Ids kTo = {4, 0, 1, 0, 2, 3, 1, 4, 0};

template <typename T>
T *pointer(uint64_t slot) {
  return reinterpret_cast<T *>(static_cast<uintptr_t>(slot));
}

/// partial[t] = the weights of a replica of expert t % E, if it is local.
void lookUp(const uint64_t *args, int64_t) {
  auto *w13 = pointer<const float>(args[0]);
  auto *bias = pointer<const uint16_t>(args[1]);
  auto *localIds = pointer<const int32_t>(args[2]);
  auto *physicalIds = pointer<const int32_t>(args[3]);
  auto *counts = pointer<const int32_t>(args[4]);
  auto *partial = pointer<float>(args[5]);
  auto tokens = static_cast<int64_t>(args[6]);
  for (int64_t t = 0; t < tokens; ++t) {
    int64_t expert = t % kExperts;
    int64_t replica = t / kExperts % counts[expert];
    int32_t index = localIds[physicalIds[expert * kMost + replica]];
    float *row = partial + 3 * t;
    row[0] = index < 0 ? 0 : w13[2 * index];
    row[1] = index < 0 ? 0 : w13[2 * index + 1];
    row[2] = index < 0 ? 0 : static_cast<float>(bias[index]);
  }
}

Plan makePlan(const std::string &target) {
  Plan plan;
  plan.target = target;
  plan.mesh = {kRanks, 1};
  plan.maxTokens = kOwnRows * kRanks;
  plan.numSlots = 1;
  Expr own = Expr::ceilDiv(Expr::tokens(), kRanks);
  constexpr TensorRole weight = TensorRole::Weight;
  plan.tensors = {
      {"experts.w13", DType::F32, {kHere, 2, 1}, weight},
      {"experts.w2_bias", DType::BF16, {kHere, 1}, weight},
      {"experts.w2_input_scale", DType::F32, {1}, weight},
      {"placement.local_ids", DType::I32, {kPhysical}, weight},
      {"replicas.physical_ids", DType::I32, {kExperts, kMost}, weight},
      {"replicas.counts", DType::I32, {kExperts}, weight},
      {"partial", DType::F32, {Expr::tokens(), 3}, TensorRole::Workspace, 0},
      {"y", DType::F32, {own, 3}, TensorRole::Output},
  };
  if (target != "cpu") {
    // Kernels are not emulated.
    plan.tensors.resize(Partial);
    plan.tensors[W13].strided = true;
    plan.numSlots = 0;
    plan.variants = {{0, plan.maxTokens, {}}};
    return plan;
  }
  plan.kernels = {{"look_up", 1}};
  std::vector<Argument> args;
  for (int64_t tensor : {W13, Bias, LocalIds, PhysicalIds, Counts, Partial})
    args.push_back(Argument::ofTensor(tensor));
  args.push_back(Argument::ofTokens());
  plan.variants = {
      {0,
       plan.maxTokens,
       {Step::launch(0, args),
        Step::collective(
            CollectiveKind::ReduceScatter, MeshAxis::Data,
            {Argument::ofTensor(Partial), Argument::ofTensor(Y)})}}};
  return plan;
}

ModuleImage makeImage() {
  ModuleImage image;
  image.lookup = [](const std::string &name) -> Result<HostKernelFn> {
    if (name != "look_up")
      return notFound(name);
    return &lookUp;
  };
  return image;
}

/// The moving memory of one rank's layer.
struct Memory {
  std::vector<float> w13 = std::vector<float>(kHere * 2, -1);
  std::vector<uint16_t> bias = std::vector<uint16_t>(kHere, 9999);
  std::vector<int32_t> physicalIds =
      std::vector<int32_t>(kExperts * kMost, 12345);
  std::vector<int32_t> counts = std::vector<int32_t>(kExperts, 12345);

  void fill(const Ids &map, int64_t rank) {
    for (int64_t index = 0; index < kHere; ++index) {
      int64_t expert = map[static_cast<size_t>(rank * kHere + index)];
      for (int64_t i = 0; i < 2; ++i)
        w13[static_cast<size_t>(2 * index + i)] =
            static_cast<float>(10 * expert + i + 1);
      bias[static_cast<size_t>(index)] = static_cast<uint16_t>(100 + expert);
    }
    ReplicaTables tables = *makeReplicaTables(map, kExperts, kMost);
    physicalIds = tables.physicalIds;
    counts = tables.counts;
  }

  Views views() {
    return {{"experts.w13", {w13.data(), DType::F32, {kHere, 2, 1}, {}}},
            {"experts.w2_bias", {bias.data(), DType::BF16, {kHere, 1}, {}}},
            {"replicas.physical_ids",
             {physicalIds.data(), DType::I32, {kExperts, kMost}, {}}},
            {"replicas.counts", {counts.data(), DType::I32, {kExperts}, {}}}};
  }

  bool operator==(const Memory &other) const {
    return w13 == other.w13 && bias == other.bias &&
           physicalIds == other.physicalIds && counts == other.counts;
  }
};

Memory filled(const Ids &map, int64_t rank) {
  Memory memory;
  memory.fill(map, rank);
  return memory;
}

/// Tensors in memory of a device.
struct OnDevice {
  OnDevice(Device &device, Views given) : device(device), host(given) {
    for (auto &[name, view] : given) {
      buffers.push_back(std::move(*device.allocate(bytesOf(view), 256)));
      EXPECT_TRUE(
          device.copyIn(buffers.back()->data(), view.data, bytesOf(view)));
      view.data = buffers.back()->data();
      views.emplace_back(name, view);
    }
  }
  static size_t bytesOf(const TensorView &view) {
    int64_t bytes = dtypeBits(view.dtype) / 8;
    for (int64_t size : view.shape)
      bytes *= size;
    return static_cast<size_t>(bytes);
  }
  /// Copies back to the host tensors.
  void read() {
    for (size_t i = 0; i < host.size(); ++i)
      EXPECT_TRUE(device.copyOut(host[i].second.data, buffers[i]->data(),
                                 bytesOf(host[i].second)));
  }

  Device &device;
  const Views host;
  Views views;
  std::vector<std::unique_ptr<Buffer>> buffers;
};

struct Rank {
  int64_t index = 0;
  Device *device = nullptr;
  std::unique_ptr<Executor> executor;
  /// The communicators of runs and of moves.
  std::shared_ptr<Communicator> runs, moves;
  Memory old, spare;
  std::vector<int32_t> localIds = std::vector<int32_t>(kPhysical, -1);
  std::vector<float> y = std::vector<float>(kOwnRows * 3);
  float scale = 1;

  /// Memory of a layer with the map kFrom.
  Views fillOld() {
    old.fill(kFrom, index);
    for (int64_t i = 0; i < kHere; ++i)
      localIds[static_cast<size_t>(index * kHere + i)] =
          static_cast<int32_t>(i);
    Views views = old.views();
    views.push_back({"placement.local_ids",
                     {localIds.data(), DType::I32, {kPhysical}, {}}});
    views.push_back({"experts.w2_input_scale", {&scale, DType::F32, {1}, {}}});
    return views;
  }

  Status bind() {
    Views views = fillOld();
    views.push_back({"y", {y.data(), DType::F32, {kOwnRows, 3}, {}}});
    return executor->bindAll(views);
  }

  Result<std::unique_ptr<ExpertMove>> begin() { return begin(kFrom, kTo); }
  Result<std::unique_ptr<ExpertMove>> begin(const Ids &from, const Ids &to) {
    return ExpertMove::begin(*executor, *device, moves,
                             {from, to, spare.views()});
  }

  Status run() {
    std::fill(y.begin(), y.end(), -1.0f);
    Status status = executor->run(kOwnRows * kRanks);
    if (status)
      status = executor->synchronize();
    for (int64_t t = 0; status && t < kOwnRows; ++t) {
      int64_t expert = (index * kOwnRows + t) % kExperts;
      auto row = y.begin() + 3 * t;
      EXPECT_EQ(row[0], static_cast<float>(10 * expert + 1)) << t;
      EXPECT_EQ(row[1], static_cast<float>(10 * expert + 2)) << t;
      EXPECT_EQ(row[2], static_cast<float>(100 + expert)) << t;
    }
    return status;
  }
};

/// Runs `body` on every rank in its own thread and returns the statuses.
template <typename Body>
std::vector<Status> runRanks(Body body, double limit = 20) {
  auto device = createHostDevice(1);
  auto runs = LocalGroup::create({kRanks, 1}, 20);
  auto moves = LocalGroup::create({kRanks, 1}, limit);
  std::vector<Status> statuses(kRanks);
  std::vector<std::thread> threads;
  for (int64_t index = 0; index < kRanks; ++index)
    threads.emplace_back([&, index] {
      auto work = [&]() -> Status {
        Rank rank;
        rank.index = index;
        rank.device = device->get();
        auto made = Executor::create(makePlan("cpu"), **device, makeImage());
        if (!made)
          return made.status();
        rank.executor = std::move(*made);
        for (bool isOfRuns : {true, false}) {
          auto joined = (isOfRuns ? *runs : *moves)->join(index, **device);
          if (!joined)
            return joined.status();
          (isOfRuns ? rank.runs : rank.moves) = std::move(*joined);
        }
        Status status = rank.bind();
        if (status)
          status = rank.executor->useCommunicator(rank.runs);
        if (status)
          status = rank.run();
        if (!status)
          return status;
        return body(rank);
      };
      statuses[static_cast<size_t>(index)] = work();
    });
  for (std::thread &thread : threads)
    thread.join();
  return statuses;
}

void expectOk(const std::vector<Status> &statuses) {
  for (const Status &status : statuses)
    EXPECT_TRUE(status) << status.message();
}

void expectRefused(const Status &status, const std::string &text) {
  ASSERT_FALSE(status) << "accepted; expected: " << text;
  EXPECT_NE(status.message().find(text), std::string::npos) << status.message();
}

/// All steps of a move, calling `between` after each.
Status stepAll(ExpertMove &move, const std::function<Status()> &between) {
  while (move.numSteps() > 0) {
    if (Status status = move.step(); !status)
      return status;
    if (Status status = between(); !status)
      return status;
  }
  return Status::ok();
}

} // namespace

TEST(ExpertMoveTest, LayersRunWhileExpertsMove) {
  expectOk(runRanks([](Rank &rank) -> Status {
    auto move = rank.begin();
    if (!move)
      return move.status();
    EXPECT_EQ((*move)->numSteps(), kHere);
    if (Status status = stepAll(**move, [&] { return rank.run(); }); !status)
      return status;
    expectRefused((*move)->step(), "all 3 steps were given");
    // Until then runs use the old map, and its memory is unchanged.
    EXPECT_EQ(rank.old, filled(kFrom, rank.index));
    EXPECT_EQ(rank.executor->bound("experts.w13")->data, rank.old.w13.data());
    if (Status status = (*move)->switchOver(); !status)
      return status;
    EXPECT_EQ(rank.spare, filled(kTo, rank.index));
    EXPECT_EQ(rank.executor->bound("experts.w13")->data, rank.spare.w13.data());
    expectRefused((*move)->step(), "the move of experts has ended");
    expectRefused((*move)->switchOver(), "the move of experts has ended");
    // The old memory is no longer read.
    rank.old = Memory();
    return rank.run();
  }));
}

/// A layer's old memory receives its experts in the next move.
TEST(ExpertMoveTest, MapsFollowEachOther) {
  expectOk(runRanks([](Rank &rank) -> Status {
    const Ids maps[] = {kFrom, kTo, {0, 1, 2, 3, 4, 4, 4, 3, 2}, kTo, kFrom};
    Memory *memory[] = {&rank.old, &rank.spare};
    for (size_t i = 1; i < std::size(maps); ++i) {
      auto move =
          ExpertMove::begin(*rank.executor, *rank.device, rank.moves,
                            {maps[i - 1], maps[i], memory[i % 2]->views()});
      if (!move)
        return move.status();
      Status status = stepAll(**move, [] { return Status::ok(); });
      if (status)
        status = (*move)->switchOver();
      if (status)
        status = rank.run();
      if (!status)
        return status;
      EXPECT_EQ(*memory[i % 2], filled(maps[i], rank.index)) << i;
    }
    return Status::ok();
  }));
}

/// The layer's own communicator can also move experts.
TEST(ExpertMoveTest, OneCommunicatorDoesBoth) {
  expectOk(runRanks([](Rank &rank) -> Status {
    rank.moves = rank.runs;
    auto move = rank.begin();
    if (!move)
      return move.status();
    Status status = stepAll(**move, [&] { return rank.run(); });
    if (status)
      status = (*move)->switchOver();
    return status ? rank.run() : status;
  }));
}

/// Wherever a rank dies, all others report its name and continue with the old
/// map.
// field-bug: vllm#39942
TEST(ExpertMoveTest, ARankThatDiesLeavesTheOldMap) {
  for (int64_t steps = 0; steps <= kHere; ++steps)
    for (bool aborts : {true, false})
      expectOk(runRanks([&](Rank &rank) -> Status {
        auto move = rank.begin();
        Status status = move.status();
        for (int64_t i = 0; i < steps && status; ++i)
          status = (*move)->step();
        if (rank.index == 1) {
          if (!status)
            return status;
          if (aborts)
            rank.moves->abort("out of memory");
          move->reset();
          rank.moves.reset();
        } else {
          if (status)
            status = stepAll(**move, [] { return Status::ok(); });
          if (status)
            status = (*move)->switchOver();
          expectRefused(status, "rank 1");
          expectRefused(status, aborts ? "out of memory" : "left");
          // A failed move stays failed.
          if (move)
            expectRefused((*move)->switchOver(), "rank 1");
          EXPECT_EQ(rank.executor->bound("replicas.counts")->data,
                    rank.old.counts.data());
        }
        EXPECT_EQ(rank.old, filled(kFrom, rank.index));
        return rank.run();
      }));
}

TEST(ExpertMoveTest, ARankThatDoesNotComeIsNamed) {
  expectOk(runRanks(
      [](Rank &rank) -> Status {
        auto move = rank.begin();
        if (!move)
          return move.status();
        if (rank.index != 2)
          expectRefused((*move)->step(), "rank 2 did not come within 0.2 s");
        return rank.run();
      },
      /*limit=*/0.2));
}

TEST(ExpertMoveTest, RanksAgreeAboutTheMaps) {
  for (const Status &status : runRanks([](Rank &rank) -> Status {
         return rank.begin(kFrom, rank.index == 1 ? kFrom : kTo).status();
       }))
    expectRefused(status, "the maps of experts: ranks differ");
}

TEST(ExpertMoveTest, WrongMapsAndMemoryAreRefused) {
  expectOk(runRanks([](Rank &rank) -> Status {
    auto refused = [&](const Ids &from, const Ids &to,
                       const std::string &text) {
      expectRefused(rank.begin(from, to).status(), text);
    };
    Ids shorter(kFrom.begin(), kFrom.end() - 1), other = kFrom;
    std::swap(other[0], other[1]);
    refused(shorter, kTo,
            "a move of experts: from: 9 physical experts expected, 8 found");
    refused(kFrom, {0, 1, 2, 3, 3, 0, 1, 2, 3},
            "to: the map has expert 4 nowhere");
    refused(kFrom, {0, 1, 2, 3, 4, 5, 1, 2, 3},
            "to: the map has expert 5 at 5");
    refused(other, kTo,
            "from: 'replicas.physical_ids' has physical expert 0 for expert 0, "
            "but the map assigns it to 1; give the layer's map");
    rank.localIds[4] = 2;
    refused(kFrom, kTo, "'placement.local_ids' has 2 for physical expert 4");
    rank.localIds[4] = rank.index == 1 ? 1 : -1;

    auto begin = [&](ExpertMoveOptions options) {
      return ExpertMove::begin(*rank.executor, *rank.device, rank.moves,
                               std::move(options))
          .status();
    };
    auto views = rank.spare.views();
    views.pop_back();
    expectRefused(begin({kFrom, kTo, views}),
                  "memory for 'replicas.counts' is needed, but not given");
    views = rank.spare.views();
    views.push_back(views.back());
    expectRefused(begin({kFrom, kTo, views}), "5 tensors given, of which 4");
    views = rank.spare.views();
    views[0].second.shape[0] = 2;
    expectRefused(begin({kFrom, kTo, views}),
                  "bind 'experts.w13': shape [3, 2, 1] expected");
    expectRefused(begin({kFrom, kTo, rank.old.views()}),
                  "'experts.w13' is memory that the layer is bound to");
    rank.moves.reset();
    expectRefused(begin({kFrom, kTo, rank.spare.views()}),
                  "a communicator of the layer's mesh, dp 3 x tp 1, expected, "
                  "none found");
    return rank.run();
  }));
}

TEST(ExpertMoveTest, LayersWithoutReplicasHaveNothingToMove) {
  Plan plan = makePlan("cpu");
  plan.tensors[Counts].name = "other";
  EXPECT_TRUE(ExpertMove::tensorNames(plan).empty());
  EXPECT_EQ(
      ExpertMove::tensorNames(makePlan("cpu")),
      (std::vector<std::string>{"experts.w13", "experts.w2_bias",
                                "replicas.physical_ids", "replicas.counts"}));
}

//===----------------------------------------------------------------------===//
// Through NCCL
//===----------------------------------------------------------------------===//

namespace {

/// Ranks of the emulated NCCL, each with its layer and spare memory of twice
/// the size.
std::vector<Status>
runNccl(double limit,
        const std::function<Status(Rank &, OnDevice &, OnDevice &)> &body) {
  return runNcclRanks(
      {kRanks, 1}, limit, [&](const NcclRankOfTest &own) -> Status {
        Rank rank;
        rank.index = own.index;
        rank.device = &own.device;
        rank.moves = std::shared_ptr<Communicator>(
            std::shared_ptr<Communicator>(), &own.communicator);
        auto made =
            Executor::create(makePlan("sm_80"), own.device, makePtxImage());
        if (!made)
          return made.status();
        rank.executor = std::move(*made);
        rank.spare.w13.resize(kHere * 4, -1);
        Views spareViews = rank.spare.views();
        spareViews[0].second.shape = {kHere, 4, 1};
        OnDevice layer(own.device, rank.fillOld());
        OnDevice spare(own.device, spareViews);
        spare.views[0].second.shape = {kHere, 2, 1};
        if (Status status = rank.executor->bindAll(layer.views); !status)
          return status;
        Status status = body(rank, layer, spare);
        layer.read();
        EXPECT_EQ(rank.old, filled(kFrom, rank.index));
        return status;
      });
}

} // namespace

TEST(ExpertMoveTest, NcclMovesExperts) {
  for (int numPolls : {0, 2}) {
    resetFakeNccl().numPolls = numPolls;
    expectOk(runNccl(20, [](Rank &rank, OnDevice &, OnDevice &spare) -> Status {
      // Gaps are allowed between experts, but not within one.
      auto begin = [&](std::vector<int64_t> strides) {
        spare.views[0].second.strides = std::move(strides);
        return ExpertMove::begin(*rank.executor, *rank.device, rank.moves,
                                 {kFrom, kTo, spare.views});
      };
      expectRefused(begin({4, 2, 1}).status(),
                    "'experts.w13' has gaps between the rows of an expert");
      auto move = begin({4, 1, 1});
      if (!move)
        return move.status();
      Status status = stepAll(**move, [] { return Status::ok(); });
      if (status)
        status = (*move)->switchOver();
      if (!status)
        return status;
      spare.read();
      std::vector<float> wide = rank.spare.w13;
      rank.spare.w13.clear();
      for (size_t i = 0; i < wide.size(); ++i)
        if (i % 4 < 2)
          rank.spare.w13.push_back(wide[i]);
        else
          EXPECT_EQ(wide[i], -1);
      EXPECT_EQ(rank.spare, filled(kTo, rank.index));
      EXPECT_EQ(rank.executor->bound("experts.w2_bias")->data,
                spare.views[1].second.data);
      auto loads = sumLoads(*rank.moves, *rank.device, {1, rank.index, 10}, kTo,
                            kExperts);
      if (!loads)
        return loads.status();
      EXPECT_EQ(*loads, (Ids{0 + 1 + 10, 10 + 1, 1, 10, 1 + 2}));
      return Status::ok();
    }));
    EXPECT_EQ(ncclLeaks(), "");
  }
}

TEST(ExpertMoveTest, NcclLeavesTheOldMapWhereItFails) {
  for (int at : {1, 3}) {
    FakeNccl &fake = resetFakeNccl();
    fake.failRank = 1;
    fake.failCall = "ncclSend";
    fake.failAt = at;
    fake.failCode = nccl::ncclSystemError;
    std::vector<Status> statuses =
        runNccl(2, [](Rank &rank, OnDevice &layer, OnDevice &spare) {
          auto move = ExpertMove::begin(*rank.executor, *rank.device,
                                        rank.moves, {kFrom, kTo, spare.views});
          Status status = move.status();
          if (status)
            status = stepAll(**move, [] { return Status::ok(); });
          if (status)
            status = (*move)->switchOver();
          EXPECT_EQ(rank.executor->bound("experts.w13")->data,
                    layer.views[0].second.data);
          return status;
        });
    EXPECT_TRUE(fake.hasFailed);
    for (const Status &status : statuses)
      EXPECT_FALSE(status);
    expectRefused(statuses[1], "rank 1: a move of experts, step");
    expectRefused(statuses[1], "ncclSend");
  }
}
