//===- RanksTest.cpp - plans of several ranks -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/Executor.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"
#include "moert/Package.h"
#include "moert/PlanText.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

using namespace moert;

namespace {

constexpr int64_t kRanks = 3;
enum TensorIndex { X, All, Y };

/// y is the sum over ranks of x, for each rank's own rows, computed by an
/// all-gather and a reduce-scatter without kernels.
Plan makePlan() {
  Plan plan;
  plan.target = "cpu";
  plan.mesh = {kRanks, 1};
  plan.maxTokens = 4 * kRanks;
  plan.numSlots = 1;
  Expr own = Expr::ceilDiv(Expr::tokens(), kRanks);
  plan.tensors = {
      {"x", DType::F32, {own, 2}, TensorRole::Input},
      {"all", DType::F32, {Expr::tokens(), 2}, TensorRole::Workspace, 0},
      {"y", DType::F32, {own, 2}, TensorRole::Output},
  };
  auto pair = [](int64_t in, int64_t out) {
    return std::vector<Argument>{Argument::ofTensor(in),
                                 Argument::ofTensor(out)};
  };
  plan.variants = {{0,
                    plan.maxTokens,
                    {Step::collective(CollectiveKind::AllGather, MeshAxis::Data,
                                      pair(X, All)),
                     Step::collective(CollectiveKind::ReduceScatter,
                                      MeshAxis::Data, pair(All, Y))}}};
  return plan;
}

Step &step(Plan &plan, size_t i) { return plan.variants[0].steps[i]; }

/// `all` is computed by a launch, which the kernel of the sum over ranks may
/// replace.
Plan makeSummingPlan() {
  Plan plan = makePlan();
  plan.target = "sm_90a";
  plan.kernels = {{"sum", 1, 64}, {"scatter", 1, 64}};
  step(plan, 0) =
      Step::launch(0, {Argument::ofTensor(X), Argument::ofTensor(All)});
  Step &scatter = step(plan, 1);
  scatter.kernel = 1;
  scatter.args.push_back(Argument::ofTensor(X));
  scatter.numKernelArgs = 1;
  scatter.replacedStep = 0;
  return plan;
}

/// Two tensors are computed by a launch, which the kernel of their gather may
/// replace; a third tensor is gathered too.
Plan makeCodingPlan() {
  Plan plan = makeSummingPlan();
  plan.kernels.push_back({"gather", 1, 64});
  Expr own = Expr::ceilDiv(Expr::tokens(), kRanks);
  auto add = [&](const std::string &name, const Expr &rows) {
    plan.tensors.push_back(
        {name, DType::F32, {rows, 2}, TensorRole::Workspace, plan.numSlots++});
    return Argument::ofTensor(int64_t(plan.tensors.size()) - 1);
  };
  Argument values = add("values", own), scales = add("scales", own);
  Argument allValues = add("all_values", Expr::tokens());
  Argument allScales = add("all_scales", Expr::tokens());
  Argument x = Argument::ofTensor(X), all = Argument::ofTensor(All);
  Step gather =
      Step::collective(CollectiveKind::AllGather, MeshAxis::Data,
                       {x, all, values, allValues, scales, allScales, x});
  gather.kernel = 2;
  gather.numKernelArgs = 1;
  gather.replacedStep = 0;
  Step scatter = step(plan, 1);
  scatter.args.pop_back();
  scatter.numKernelArgs = 0;
  scatter.replacedStep = -1;
  plan.variants[0].steps = {Step::launch(0, {x, values, scales}), gather,
                            scatter};
  return plan;
}

/// The summing plan in chunks of one column; the first chunk precedes the
/// launch.
Plan makeChunksPlan() {
  Plan plan = makeSummingPlan();
  std::vector<Step> &steps = plan.variants[0].steps;
  Step first = steps[1];
  first.numColumns = 1;
  first.replacedStep = -1;
  steps.insert(steps.begin(), first);
  steps[2].firstColumn = steps[2].numColumns = 1;
  steps[2].replacedStep = 1;
  return plan;
}

/// Runs collectives, or only logs them, and states whether their kernels
/// compute sums.
class PassingCommunicator final : public Communicator {
public:
  explicit PassingCommunicator(std::shared_ptr<Communicator> inner)
      : inner(std::move(inner)) {}

  const Mesh &mesh() const override { return inner->mesh(); }
  int64_t rank() const override { return inner->rank(); }
  Status agree(const std::string &subject, const std::string &what) override {
    return inner->agree(subject, what);
  }
  bool runsKernels() const override { return makesSums; }
  Status run(Stream &stream, const Collective &collective) override {
    firstColumns.push_back(collective.firstColumn.value_or(-1));
    return makesSums ? Status::ok() : inner->run(stream, collective);
  }
  Status transfer(Stream &stream, const Transfer &transfer) override {
    return inner->transfer(stream, transfer);
  }
  Status synchronize(Stream &stream) override {
    return inner->synchronize(stream);
  }
  Status check() override { return inner->check(); }
  void abort(const std::string &reason) override { inner->abort(reason); }

  bool makesSums = false;
  /// Per run.
  std::vector<int64_t> firstColumns;

private:
  std::shared_ptr<Communicator> inner;
};

std::atomic<int> sumsMade{0};

void makeSums(const uint64_t *, int64_t) { ++sumsMade; }

void moveNothing(const uint64_t *, int64_t) {}

void expectRefused(const Plan &plan, const std::string &message) {
  Status status = verifyPlan(plan);
  ASSERT_FALSE(status) << "accepted; expected: " << message;
  EXPECT_NE(status.message().find(message), std::string::npos)
      << status.message();
}

struct Rank {
  std::vector<float> x = std::vector<float>(8), y = std::vector<float>(8, -1);
  std::unique_ptr<Executor> executor;
};

class RanksTest : public ::testing::Test {
protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> created = createHostDevice(1);
    ASSERT_TRUE(created);
    device = std::move(*created);
    Result<std::shared_ptr<LocalGroup>> made =
        LocalGroup::create({kRanks, 1}, /*limitSeconds=*/20);
    ASSERT_TRUE(made) << made.status().toString();
    group = std::move(*made);
  }

  /// Runs `body` on every rank in its own thread and returns the statuses.
  template <typename Body>
  std::vector<Status> onRanks(Body body) {
    std::vector<Status> statuses(kRanks);
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < kRanks; ++rank)
      threads.emplace_back([&, rank] { statuses[rank] = body(rank); });
    for (std::thread &thread : threads)
      thread.join();
    return statuses;
  }

  Status start(Rank &rank, int64_t number, Plan plan = makePlan()) {
    ModuleImage image;
    image.lookup = [](const std::string &name) -> Result<HostKernelFn> {
      if (name == "sum")
        return makeSums;
      if (name == "scatter" || name == "gather")
        return moveNothing;
      return notFound(name);
    };
    Result<std::unique_ptr<Executor>> made =
        Executor::create(std::move(plan), *device, image);
    if (!made)
      return made.status();
    rank.executor = std::move(*made);
    for (size_t i = 0; i < rank.x.size(); ++i)
      rank.x[i] = static_cast<float>(100 * number) + static_cast<float>(i);
    for (auto [name, data] :
         {std::pair("x", rank.x.data()), {"y", rank.y.data()}})
      if (Status status =
              rank.executor->bind(name, {data, DType::F32, {4, 2}, {}});
          !status)
        return status;
    return rank.executor->prepareWeights().status();
  }

  Status join(Rank &rank, int64_t number) {
    Result<std::unique_ptr<Communicator>> joined = group->join(number, *device);
    if (!joined)
      return joined.status();
    return rank.executor->useCommunicator(std::move(*joined));
  }

  /// Starts all ranks on the host, each with a PassingCommunicator.
  std::vector<Status> startPassing(Plan plan) {
    plan.target = "cpu";
    for (KernelDecl &kernel : plan.kernels)
      kernel.block = 0;
    return onRanks([&](int64_t r) -> Status {
      if (Status started = start(ranks[r], r, plan); !started)
        return started;
      joined[r] = std::make_shared<PassingCommunicator>(
          std::move(*group->join(r, *device)));
      return ranks[r].executor->useCommunicator(joined[r]);
    });
  }

  std::unique_ptr<Device> device;
  std::shared_ptr<LocalGroup> group;
  std::shared_ptr<PassingCommunicator> joined[kRanks];
  Rank ranks[kRanks];
};

} // namespace

TEST_F(RanksTest, RowsGoOutAndSumsComeBack) {
  for (const Status &status : onRanks([&](int64_t r) {
         Status started = start(ranks[r], r);
         return started ? join(ranks[r], r) : started;
       }))
    ASSERT_TRUE(status) << status.toString();
  // Tokens are summed over ranks. Counts go down and up, so that runs are
  // resolved anew.
  for (int64_t own : {4, 1, 0, 3}) {
    for (Rank &rank : ranks)
      rank.y.assign(8, -1);
    for (const Status &status : onRanks(
             [&](int64_t r) { return ranks[r].executor->run(own * kRanks); }))
      ASSERT_TRUE(status) << status.toString();
    for (int64_t r = 0; r < kRanks; ++r)
      for (int64_t i = 0; i < 8; ++i)
        EXPECT_EQ(ranks[r].y[i],
                  i < 2 * own ? static_cast<float>(kRanks) * ranks[r].x[i]
                              : -1.0f);
  }
}

/// Either the collective's kernel or the executor does the launch, as the
/// communicator says at each run.
TEST_F(RanksTest, SumsAreMadeOnce) {
  for (const Status &status : startPassing(makeSummingPlan()))
    ASSERT_TRUE(status) << status.toString();
  for (bool makesSums : {false, true, false}) {
    sumsMade = 0;
    for (const Status &status : onRanks([&](int64_t r) {
           joined[r]->makesSums = makesSums;
           return ranks[r].executor->run(kRanks);
         }))
      ASSERT_TRUE(status) << status.toString();
    EXPECT_EQ(sumsMade, makesSums ? 0 : kRanks);
    EXPECT_TRUE(ranks[0].executor->hasReplaced(Replaced::Sums));
  }
  // Alone, for timing.
  sumsMade = 0;
  std::unique_ptr<Stream> stream = *device->createStream();
  ASSERT_TRUE(ranks[0].executor->runReplaced(Replaced::Sums, *stream));
  ASSERT_TRUE(ranks[0].executor->synchronize(*stream));
  EXPECT_EQ(sumsMade, 1);
}

TEST_F(RanksTest, RowsAreQuantizedOnce) {
  for (const Status &status : startPassing(makeCodingPlan()))
    ASSERT_TRUE(status) << status.toString();
  for (bool quantizes : {false, true, false}) {
    sumsMade = 0;
    for (const Status &status : onRanks([&](int64_t r) {
           joined[r]->makesSums = quantizes;
           return ranks[r].executor->run(kRanks);
         }))
      ASSERT_TRUE(status) << status.toString();
    EXPECT_EQ(sumsMade, quantizes ? 0 : kRanks);
    EXPECT_TRUE(ranks[0].executor->hasReplaced(Replaced::Quantized));
    EXPECT_FALSE(ranks[0].executor->hasReplaced(Replaced::Sums));
  }
  // Alone, for timing.
  sumsMade = 0;
  std::unique_ptr<Stream> stream = *device->createStream();
  ASSERT_TRUE(ranks[0].executor->runReplaced(Replaced::Sums, *stream));
  ASSERT_TRUE(ranks[0].executor->runReplaced(Replaced::Quantized, *stream));
  ASSERT_TRUE(ranks[0].executor->synchronize(*stream));
  EXPECT_EQ(sumsMade, 1);
}

/// A communicator that runs kernels makes one run per chunk, any other one run
/// in all.
TEST_F(RanksTest, ChunksNeedKernels) {
  for (const Status &status : startPassing(makeChunksPlan()))
    ASSERT_TRUE(status) << status.toString();
  for (bool makesSums : {false, true, false}) {
    sumsMade = 0;
    for (const Status &status : onRanks([&](int64_t r) {
           joined[r]->makesSums = makesSums;
           joined[r]->firstColumns.clear();
           return ranks[r].executor->run(kRanks);
         }))
      ASSERT_TRUE(status) << status.toString();
    EXPECT_EQ(sumsMade, makesSums ? 0 : kRanks);
    for (const auto &rank : joined)
      EXPECT_EQ(rank->firstColumns, makesSums ? std::vector<int64_t>({0, 1})
                                              : std::vector<int64_t>({1}));
  }
  Result<std::vector<TracedStep>> traced = std::vector<TracedStep>();
  for (const Status &status : onRanks([&](int64_t r) {
         joined[r]->makesSums = true;
         auto made = ranks[r].executor->trace(kRanks);
         if (r == 0)
           traced = made;
         return made.status();
       }))
    ASSERT_TRUE(status) << status.toString();
  ASSERT_EQ(traced->size(), 2U);
  EXPECT_EQ((*traced)[0].name, "reduce_scatter dp columns 0 to 0");
  EXPECT_EQ((*traced)[1].name, "reduce_scatter dp columns 1 to 1");
}

/// Waiting for a stream ends when a rank is known to have failed.
TEST_F(RanksTest, WaitsEndWithTheCommunicator) {
  std::shared_ptr<Communicator> joined[kRanks];
  for (const Status &status : onRanks([&](int64_t r) {
         Status started = start(ranks[r], r);
         joined[r] = std::move(*group->join(r, *device));
         return started ? ranks[r].executor->useCommunicator(joined[r])
                        : started;
       }))
    ASSERT_TRUE(status) << status.toString();
  EXPECT_TRUE(ranks[0].executor->synchronize());
  joined[2]->abort("out of memory");
  Status status = ranks[0].executor->synchronize();
  EXPECT_NE(status.message().find("rank 2: aborted: out of memory"),
            std::string::npos)
      << status.message();
}

TEST_F(RanksTest, WhatARunNeedsIsSaid) {
  ASSERT_TRUE(start(ranks[0], 0));
  Status alone = ranks[0].executor->run(kRanks);
  EXPECT_NE(alone.message().find("dp 3 x tp 1; give it a communicator first"),
            std::string::npos)
      << alone.message();
  Status uneven = ranks[0].executor->run(4);
  EXPECT_NE(uneven.message().find("a group of 3 ranks; give a multiple"),
            std::string::npos)
      << uneven.message();
  Result<std::shared_ptr<LocalGroup>> other = LocalGroup::create({1, 2}, 1);
  ASSERT_TRUE(other);
  Status wrong = ranks[0].executor->useCommunicator(
      std::move(*(*other)->join(0, *device)));
  EXPECT_NE(
      wrong.message().find("the mesh dp 1 x tp 2, but the layer has dp 3"),
      std::string::npos)
      << wrong.message();
  EXPECT_FALSE(ranks[0].executor->useCommunicator(nullptr));
}

TEST_F(RanksTest, RanksOfOtherPlansAreRefusedAtOnce) {
  Plan other = makePlan();
  step(other, 1).args[1] = Argument::ofTensor(Y);
  other.maxTokens = 8 * kRanks;
  other.variants[0].maxTokens = other.maxTokens;
  std::vector<Status> statuses = onRanks([&](int64_t r) {
    Status started = start(ranks[r], r, r == 2 ? other : makePlan());
    return started ? join(ranks[r], r) : started;
  });
  for (const Status &status : statuses) {
    EXPECT_FALSE(status);
    EXPECT_NE(status.message().find("the layer's plan"), std::string::npos)
        << status.message();
  }
}

TEST(RankPlanTest, AccountsForEveryElement) {
  EXPECT_TRUE(verifyPlan(makePlan())) << verifyPlan(makePlan()).message();
  Plan plan = makePlan();
  plan.mesh = {2, 1};
  expectRefused(plan,
                "variants[0].steps[0].args[1] is 'all' of 24 elements for "
                "8 of 'x'; all_gather of 2 ranks, which makes 16,");
}

TEST(RankPlanTest, RefusesWhatNoRankCouldDo) {
  Plan plan = makePlan();
  plan.mesh = {1, kRanks};
  expectRefused(plan, "variants[0].steps[0].kind is a collective; a launch "
                      "(mesh.dp is 1) is accepted");
  plan = makePlan();
  plan.maxTokens = plan.variants[0].maxTokens = 13;
  expectRefused(plan, "max_tokens is 13; a multiple of mesh.dp, 3,");
  plan = makePlan();
  step(plan, 0).args.pop_back();
  expectRefused(plan, "steps[0].args is a list of 1; pairs of an input");
  plan = makePlan();
  step(plan, 0).args[0] = Argument::ofTokens();
  expectRefused(plan, "steps[0].args[0] is a scalar; a tensor");
  plan = makePlan();
  plan.tensors[All].dtype = DType::BF16;
  expectRefused(plan, "steps[0].args[1] is of type bf16; a tensor of f32");
  plan = makePlan();
  plan.prepare = {step(plan, 0)};
  expectRefused(plan, "prepare[0]");
}

/// Kernel-only arguments of a collective.
TEST(RankPlanTest, TellsWhatIsForTheKernelAlone) {
  Plan plan = makePlan();
  plan.target = "sm_90a";
  plan.kernels = {{"gather", 1, 64}};
  Step &gather = step(plan, 0);
  gather.args.push_back(Argument::ofTensor(X));
  gather.numKernelArgs = 1;
  expectRefused(plan, "steps[0].kernel_args is 1; 0 to 0");
  gather.kernel = 0;
  EXPECT_TRUE(verifyPlan(plan)) << verifyPlan(plan).message();
  EXPECT_EQ(gather.numPairs(), 1U);
  gather.numKernelArgs = 2;
  expectRefused(plan, "steps[0].args is a list of 3, 2 for kernels among "
                      "them; pairs of an input");
  gather.numKernelArgs = 4;
  expectRefused(plan, "steps[0].kernel_args is 4; 0 to 3");
}

TEST(RankPlanTest, KernelsMakeSumsOfWhatTheyGet) {
  EXPECT_TRUE(verifyPlan(makeSummingPlan()))
      << verifyPlan(makeSummingPlan()).message();
  EXPECT_NE(printPlan(makeSummingPlan()).find("\"replaced_step\":0"),
            std::string::npos);
  auto refuse = [](void (*change)(Plan &), const std::string &message) {
    Plan plan = makeSummingPlan();
    change(plan);
    expectRefused(plan, message);
  };
  refuse([](Plan &plan) { step(plan, 1).replacedStep = 1; },
         "steps[1].replaced_step is 1; 0 to 0");
  refuse(
      [](Plan &plan) {
        step(plan, 1).kernel = -1;
        step(plan, 1).numKernelArgs = 0;
        step(plan, 1).args.pop_back();
      },
      "steps[1].replaced_step is 0; -1 (of a collective with a kernel");
  refuse([](Plan &plan) { step(plan, 0).args[1] = Argument::ofTensor(X); },
         "replaced_step is 0; the launch that makes 'all'");
  refuse(
      [](Plan &plan) {
        step(plan, 1).args.pop_back();
        step(plan, 1).numKernelArgs = 0;
      },
      "replaced_step is 0, whose 'x' the kernel does not get; a launch all of "
      "whose "
      "tensors it gets");
  // Other steps that read the launch's result, or depend on its existence.
  refuse(
      [](Plan &plan) {
        plan.kernels.push_back({"more", 1, 64});
        plan.variants[0].steps.push_back(
            Step::launch(2, {Argument::ofTensor(All)}));
      },
      "whose result steps[2] has as an argument too");
  refuse(
      [](Plan &plan) {
        plan.kernels.push_back({"more", 1, 64});
        Step more = Step::launch(2, {Argument::ofTensor(X)});
        more.dependent = true;
        std::vector<Step> &steps = plan.variants[0].steps;
        steps.insert(steps.begin() + 1, more);
      },
      "steps[1].dependent is true; false (the launch before it may be left "
      "out)");
}

TEST(RankPlanTest, KernelsQuantizeTheirInputs) {
  Plan plan = makeCodingPlan();
  EXPECT_TRUE(verifyPlan(plan)) << verifyPlan(plan).message();
  // The launch's input is moved, but not computed, by the kernel.
  for (size_t pair = 0; pair < 3; ++pair)
    EXPECT_EQ(isMadeByKernel(step(plan, 1), plan.variants[0], pair), pair > 0);
  EXPECT_FALSE(isMadeByKernel(step(plan, 2), plan.variants[0], 0));
  auto refuse = [](void (*change)(Plan &), const std::string &message) {
    Plan plan = makeCodingPlan();
    change(plan);
    expectRefused(plan, message);
  };
  refuse([](Plan &plan) { step(plan, 1).replacedStep = 2; },
         "steps[1].replaced_step is 2; 0 to 0");
  refuse([](Plan &plan) { step(plan, 0).args.resize(1); },
         "replaced_step is 0; the launch that makes some of its inputs, which "
         "are workspace,");
  refuse(
      [](Plan &plan) {
        plan.tensors[3].role = TensorRole::Output;
        plan.tensors[3].slot = -1;
      },
      "replaced_step is 0; the launch that makes some of its inputs");
  refuse(
      [](Plan &plan) { step(plan, 0).args.push_back(Argument::ofTensor(Y)); },
      "replaced_step is 0, whose 'y' the kernel does not get");
  // Another reader of the scales, such as a shared expert.
  refuse(
      [](Plan &plan) {
        plan.kernels.push_back({"more", 1, 64});
        plan.variants[0].steps.push_back(
            Step::launch(3, {step(plan, 0).args[2]}));
      },
      "whose result steps[3] has as an argument too");
}

TEST(RankPlanTest, ChunksAreAWhole) {
  EXPECT_TRUE(verifyPlan(makeChunksPlan()))
      << verifyPlan(makeChunksPlan()).message();
  std::string text = printPlan(makeChunksPlan());
  EXPECT_NE(text.find("\"first_column\":1,\"num_columns\":1"),
            std::string::npos)
      << text;
  auto refuse = [](void (*change)(Plan &), const std::string &message) {
    Plan plan = makeChunksPlan();
    change(plan);
    expectRefused(plan, message);
  };
  refuse([](Plan &plan) { step(plan, 0).numColumns = -1; },
         "steps[0].num_columns is -1; 0 (of a collective with a kernel");
  refuse([](Plan &plan) { step(plan, 0).numColumns = 3; },
         "steps[0].num_columns is 3; a divisor of the columns of 'all'");
  refuse([](Plan &plan) { step(plan, 0).firstColumn = 2; },
         "steps[0].first_column is 2; 0 to 1");
  refuse([](Plan &plan) { step(plan, 0).firstColumn = 1; },
         "steps[0].first_column is 1; 0 (the collective before it is not the "
         "chunk of the previous columns)");
  refuse([](Plan &plan) { step(plan, 2).firstColumn = 0; },
         "steps[0].first_column is 0; 1 (the collective after it is not the "
         "chunk of the next columns)");
  refuse([](Plan &plan) { step(plan, 2).replacedStep = -1; },
         "steps[2].replaced_step is -1; the launch that makes the sums");
  refuse(
      [](Plan &plan) {
        std::vector<Step> &steps = plan.variants[0].steps;
        std::swap(steps[0], steps[1]);
        steps[1].replacedStep = 0;
        steps[2].replacedStep = 0;
      },
      "steps[1].replaced_step is 0; -1 (other chunks follow)");
}

/// Ranks that began with different collectives would deadlock.
TEST(RankPlanTest, RefusesCollectivesWithoutAnOrder) {
  Plan plan = makePlan();
  plan.numStreams = 2;
  plan.numEvents = 2;
  plan.numSlots = 2;
  plan.tensors.push_back(
      {"more", DType::F32, {Expr::tokens(), 2}, TensorRole::Workspace, 1});
  std::vector<Step> &steps = plan.variants[0].steps;
  Step beside = Step::collective(CollectiveKind::AllGather, MeshAxis::Data,
                                 {Argument::ofTensor(X), Argument::ofTensor(3)},
                                 /*stream=*/1);
  steps.insert(steps.begin(), {Step::record(0, 0), Step::wait(0, 1), beside,
                               Step::record(1, 1)});
  steps.push_back(Step::wait(1, 0));
  expectRefused(plan, "steps[2] and variants[0].steps[4] are collectives of "
                      "which neither is complete before the other begins");
  // After the wait their order is the same on every rank.
  std::rotate(steps.begin() + 4, steps.end() - 1, steps.end());
  EXPECT_TRUE(verifyPlan(plan)) << verifyPlan(plan).message();
}

/// Writes the package, with an image for its kernels, to a file and reads it.
static Result<Package> writeAndRead(Package &package, const std::string &name) {
  std::string text = ".version 8.0\n.target sm_90a\n";
  package.programs[0].images = {
      {"sm_90a", ModuleImage::Kind::Ptx, {{text.begin(), text.end()}}}};
  std::string path = ::testing::TempDir() + "/" + name + ".moepkg";
  if (Status written = writePackage(path, package); !written)
    return written;
  return Package::open(path);
}

TEST(RankPlanTest, PackagesHaveMeshAndCollectives) {
  Package package;
  package.programs.resize(1);
  package.programs[0].plan = makePlan();
  package.programs[0].plan.target = "sm_90a";
  package.programs[0].plan.kernels = {{"gather", 1, 64}};
  Step &gather = step(package.programs[0].plan, 0);
  gather.kernel = 0;
  gather.args.push_back(Argument::ofTensor(X));
  gather.numKernelArgs = 1;
  Result<Package> read = writeAndRead(package, "ranks");
  ASSERT_TRUE(read) << read.status().toString();
  const Plan &plan = read->programs[0].plan;
  EXPECT_EQ(plan.mesh, makePlan().mesh);
  EXPECT_EQ(printPlan(plan), printPlan(package.programs[0].plan));
  EXPECT_NE(printPlan(plan).find("\"collective\":\"reduce_scatter\""),
            std::string::npos);
  EXPECT_EQ(plan.variants[0].steps[0].numKernelArgs, 1);
  EXPECT_EQ(plan.variants[0].steps[0].replacedStep, -1);
}

TEST(RankPlanTest, PackagesHaveStepsThatKernelsDo) {
  Package package;
  package.programs.resize(1);
  package.programs[0].plan = makeSummingPlan();
  Result<Package> read = writeAndRead(package, "sums");
  ASSERT_TRUE(read) << read.status().toString();
  EXPECT_EQ(read->programs[0].plan.variants[0].steps[1].replacedStep, 0);
}

TEST(RankPlanTest, PackagesHaveChunks) {
  Package package;
  package.programs.resize(1);
  package.programs[0].plan = makeChunksPlan();
  Result<Package> read = writeAndRead(package, "chunks");
  ASSERT_TRUE(read) << read.status().toString();
  const Step &last = read->programs[0].plan.variants[0].steps[2];
  EXPECT_EQ(last.firstColumn, 1);
  EXPECT_EQ(last.numColumns, 1);
}
