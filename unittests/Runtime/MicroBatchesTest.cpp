//===- MicroBatchesTest.cpp - runs as two halves of a batch -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ranks are threads on the host device, against the halves as batches of their
// own; and one rank by itself, whose calls are written down.
//
//===----------------------------------------------------------------------===//

#include "moert/CudaDevice.h"
#include "moert/Executor.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"
#include "runtime/src/plan/BatchHalves.h"
#include "unittests/Runtime/CudaTesting.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <thread>

using namespace moert;

namespace {

constexpr int64_t kColumns = 20;
/// Tokens of a rank.
constexpr int64_t kMostOwn = 16;
enum TensorIndex { X, Factor, All, Sums, Part, Beside, Y, Again };

std::vector<Argument> tensors(std::vector<int64_t> indices, bool counts) {
  std::vector<Argument> args;
  for (int64_t index : indices)
    args.push_back(Argument::ofTensor(index));
  if (counts)
    args.push_back(Argument::ofTokens());
  return args;
}

/// A dispatch, experts whose sums are of the tokens of the batch too, a combine
/// over each axis, and what is beside all that on a stream of its own. Batches
/// of more than four tokens of a rank gather twice.
Plan makePlan(const Mesh &mesh) {
  Plan plan;
  plan.target = "cpu";
  plan.mesh = mesh;
  int64_t ranks = mesh.tokenRanks();
  plan.maxTokens = kMostOwn * ranks;
  plan.numSlots = 5;
  plan.numStreams = plan.numEvents = 2;
  Expr own = Expr::ceilDiv(Expr::tokens(), ranks);
  auto workspace = [&](const char *name, const Expr &rows, int64_t slot) {
    return TensorDecl{
        name, DType::F32, {rows, kColumns}, TensorRole::Workspace, slot};
  };
  plan.tensors = {
      {"x", DType::F32, {own, kColumns}, TensorRole::Input},
      {"factor", DType::F32, {1}, TensorRole::Weight},
      workspace("all", Expr::tokens(), 0),
      workspace("sums", Expr::tokens(), 1),
      workspace("part", own, 2),
      workspace("beside", own, 3),
      {"y", DType::F32, {own, kColumns}, TensorRole::Output},
      workspace("again", Expr::tokens(), 4),
  };
  plan.kernels = {{"experts", Expr::tokens()},
                  {"beside", own},
                  {"add", own},
                  {"gather", Expr::min(Expr::tokens(), 1)},
                  {"scatter", Expr::min(Expr::tokens(), 1)}};
  std::vector<Step> steps = {
      Step::record(0, 0), Step::wait(0, 1),
      Step::launch(1, tensors({X, Factor, Beside}, false), /*stream=*/1),
      Step::record(1, 1)};
  auto collect = [&](CollectiveKind kind, MeshAxis axis, int64_t in,
                     int64_t out, int64_t kernel) {
    steps.push_back(
        Step::collective(kind, axis, tensors({in, out}, /*counts=*/false)));
    steps.back().kernel = kernel;
    steps.back().toResults = kind == CollectiveKind::AllGather;
  };
  bool hasDispatch = mesh.dp > 1;
  if (hasDispatch)
    collect(CollectiveKind::AllGather, MeshAxis::Data, X, All, 3);
  steps.push_back(Step::launch(
      0, tensors({hasDispatch ? All : X, Factor, Sums}, /*counts=*/true)));
  int64_t part = Sums;
  if (hasDispatch) {
    collect(CollectiveKind::ReduceScatter, MeshAxis::Data, Sums, Part, 4);
    part = Part;
  }
  if (mesh.tp > 1)
    collect(CollectiveKind::AllReduce, MeshAxis::Tensor, part, part, -1);
  steps.push_back(Step::wait(1, 0));
  steps.push_back(Step::launch(2, tensors({part, Beside, Y}, false)));
  plan.variants = {{0, 4 * ranks, steps},
                   {4 * ranks + 1, plan.maxTokens, steps}};
  if (hasDispatch) {
    Step again = steps[4];
    again.args[1] = Argument::ofTensor(Again);
    std::vector<Step> &longer = plan.variants[1].steps;
    longer.insert(longer.begin() + 4, again);
  }
  return plan;
}

float *at(uint64_t slot, int64_t row) {
  return reinterpret_cast<float *>(slot) + row * kColumns;
}

ModuleImage makeImage() {
  ModuleImage image;
  image.lookup = [](const std::string &name) -> Result<HostKernelFn> {
    static const std::map<std::string, HostKernelFn> kernels = {
        {"experts",
         [](const uint64_t *args, int64_t row) {
           for (int64_t c = 0; c < kColumns; ++c)
             at(args[2], row)[c] = *at(args[1], 0) * at(args[0], row)[c] +
                                   static_cast<float>(args[3]) / 64;
         }},
        {"beside",
         [](const uint64_t *args, int64_t row) {
           for (int64_t c = 0; c < kColumns; ++c)
             at(args[2], row)[c] = at(args[0], row)[c] - *at(args[1], 0);
         }},
        {"add",
         [](const uint64_t *args, int64_t row) {
           for (int64_t c = 0; c < kColumns; ++c)
             at(args[2], row)[c] = at(args[0], row)[c] + at(args[1], row)[c];
         }},
        {"gather", [](const uint64_t *, int64_t) {}},
        {"scatter", [](const uint64_t *, int64_t) {}}};
    auto found = kernels.find(name == "joined" ? "experts" : name);
    if (found == kernels.end())
      return notFound(name);
    return found->second;
  };
  return image;
}

/// What an executor and a communicator give to streams, in this order.
struct Call {
  enum Kind { Launch, Record, Wait, Meet } kind;
  const void *stream;
  const void *event = nullptr;
  std::string what = {};
};

/// The host device, written down.
class LoggedDevice final : public Device {
public:
  explicit LoggedDevice(std::vector<Call> &log)
      : log(log), host(std::move(*createHostDevice(1))) {}

  const std::string &name() const override { return host->name(); }
  Status checkTarget(const std::string &target) const override {
    return host->checkTarget(target);
  }
  Result<std::unique_ptr<Buffer>> allocate(size_t bytes,
                                           size_t alignment) override {
    ++numAllocations;
    return host->allocate(bytes, alignment);
  }
  Status copyIn(void *dst, const void *src, size_t bytes) override {
    return host->copyIn(dst, src, bytes);
  }
  Status copyOut(void *dst, const void *src, size_t bytes) override {
    return host->copyOut(dst, src, bytes);
  }
  Status fill(Stream &stream, void *dst, uint8_t value, size_t bytes) override {
    log.push_back({Call::Launch, &stream});
    return host->fill(stream, dst, value, bytes);
  }
  Result<std::unique_ptr<Module>>
  loadModule(const ModuleImage &image) override {
    return host->loadModule(image);
  }
  Result<std::unique_ptr<Stream>> createStream() override {
    return host->createStream();
  }
  Result<std::unique_ptr<Event>> createEvent() override {
    return host->createEvent();
  }
  Status launch(Stream &stream, Kernel &kernel, const LaunchDims &dims,
                const LaunchArgs &args) override {
    log.push_back({Call::Launch, &stream});
    return host->launch(stream, kernel, dims, args);
  }
  Status record(Stream &stream, Event &event) override {
    log.push_back({Call::Record, &stream, &event});
    return host->record(stream, event);
  }
  Status wait(Stream &stream, Event &event) override {
    log.push_back({Call::Wait, &stream, &event});
    return host->wait(stream, event);
  }
  Status synchronize(Stream &stream) override {
    return host->synchronize(stream);
  }
  Result<TensorMap> encodeTensorMap(const TensorMapRecipe &recipe) override {
    return host->encodeTensorMap(recipe);
  }

  int numAllocations = 0;

private:
  std::vector<Call> &log;
  std::unique_ptr<Device> host;
};

/// Meets others by way of `inner`, or nobody; has memory that rows are copied
/// to.
class LoggedCommunicator final : public Communicator {
public:
  LoggedCommunicator(const Mesh &mesh, int64_t rank,
                     std::shared_ptr<Communicator> inner = nullptr)
      : ranks(mesh), ownRank(rank), inner(std::move(inner)) {}

  const Mesh &mesh() const override { return ranks; }
  int64_t rank() const override { return ownRank; }
  Status agree(const std::string &subject, const std::string &what) override {
    return inner ? inner->agree(subject, what) : Status::ok();
  }
  Status reserve(MeshAxis axis, int64_t, int64_t resultBytes) override {
    if (axis == MeshAxis::Data)
      memory.assign(static_cast<size_t>(resultBytes), 0x55);
    return Status::ok();
  }
  int64_t leastCopiedBytes() const override { return leastBytes; }
  void *results(MeshAxis axis) override {
    return axis == MeshAxis::Data && !memory.empty() ? memory.data() : nullptr;
  }
  bool runsKernels() const override { return makesSums; }
  Status run(Stream &stream, const Collective &collective) override {
    log.push_back({Call::Meet, &stream, nullptr, collective.where});
    received.push_back({static_cast<char *>(collective.parts[0].receive),
                        collective.parts[0].count * 4 * ranks.dp});
    return inner ? inner->run(stream, collective) : Status::ok();
  }
  Status transfer(Stream &, const Transfer &) override { return Status::ok(); }
  Status synchronize(Stream &) override { return Status::ok(); }
  Status check() override { return Status::ok(); }
  void abort(const std::string &reason) override {
    if (inner)
      inner->abort(reason);
  }

  int64_t leastBytes = kNeverCopied;
  bool makesSums = false;
  std::vector<char> memory;
  std::vector<Call> log;
  /// Of each collective, where its first part is received if it gathers, and
  /// the bytes.
  std::vector<std::pair<char *, int64_t>> received;

private:
  const Mesh ranks;
  const int64_t ownRank;
  std::shared_ptr<Communicator> inner;
};

/// One rank with tensors for the most tokens.
struct Rank {
  std::vector<float> x = std::vector<float>(kMostOwn * kColumns);
  std::vector<float> y = x;
  float factor = 1.5f;
  std::unique_ptr<Executor> executor;

  Status start(Plan plan, Device &device, int64_t number, int64_t fromTokens,
               bool poison = false) {
    ExecutorOptions options;
    options.poison = poison;
    int64_t rows = plan.maxTokens / plan.mesh.tokenRanks();
    auto made = Executor::create(std::move(plan), device, makeImage(), options);
    if (!made)
      return made.status();
    executor = std::move(*made);
    if (Status status = executor->useMicroBatches(fromTokens); !status)
      return status;
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(10 * number + 1) + static_cast<float>(i) / 8;
    if (Status status = bindFactor(); !status)
      return status;
    if (Status status = bindFrom(0, rows); !status)
      return status;
    return executor->prepareWeights().status();
  }

  Status bindFactor() {
    return executor->bind("factor", {&factor, DType::F32, {1}, {}});
  }

  /// Rows from `first` on.
  Status bindFrom(int64_t first, int64_t rows) {
    for (auto [name, data] : {std::pair("x", &x), {"y", &y}})
      if (Status status = executor->bind(name, {data->data() + first * kColumns,
                                                DType::F32,
                                                {rows, kColumns},
                                                {}});
          !status)
        return status;
    return Status::ok();
  }
};

/// All ranks of a mesh, each in a thread for each thing that they do.
struct Group {
  explicit Group(const Mesh &mesh)
      : mesh(mesh), device(std::move(*createHostDevice(1))),
        group(*LocalGroup::create(mesh, /*limitSeconds=*/20)),
        ranks(static_cast<size_t>(mesh.numRanks())) {}

  template <typename Body>
  std::vector<Status> onRanks(Body body) {
    std::vector<Status> statuses(ranks.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks.size(); ++rank)
      threads.emplace_back(
          [&, rank] { statuses[rank] = body(int64_t(rank), ranks[rank]); });
    for (std::thread &thread : threads)
      thread.join();
    return statuses;
  }

  template <typename Body>
  void expectOnRanks(Body body) {
    for (const Status &status : onRanks(body))
      EXPECT_TRUE(status) << mesh.str() << ": " << status.toString();
  }

  std::vector<Status> start(int64_t fromTokens, bool poison = false) {
    return onRanks([&](int64_t number, Rank &rank) {
      Status status =
          rank.start(makePlan(mesh), *device, number, fromTokens, poison);
      return status ? rank.executor->useCommunicator(
                          std::move(*group->join(number, *device)))
                    : status;
    });
  }

  void run(int64_t own) {
    expectOnRanks([&](int64_t, Rank &rank) {
      return rank.executor->run(own * mesh.tokenRanks());
    });
  }

  void fillResults() {
    for (Rank &rank : ranks)
      rank.y.assign(rank.y.size(), -1);
  }

  std::vector<std::vector<float>> results() {
    std::vector<std::vector<float>> all;
    for (Rank &rank : ranks)
      all.push_back(rank.y);
    return all;
  }

  Mesh mesh;
  std::unique_ptr<Device> device;
  std::shared_ptr<LocalGroup> group;
  std::vector<Rank> ranks;
};

std::vector<Mesh> makeMeshes() {
  return {{2, 1}, {1, 2}, {4, 1}, {2, 2}, {8, 1}, {4, 2}, {2, 4}};
}

/// Which steps come before which, as streams and events say.
struct Order {
  explicit Order(const std::vector<Call> &log) {
    std::map<const void *, std::set<size_t>> streams, events;
    for (size_t i = 0; i < log.size(); ++i) {
      std::set<size_t> &known = streams[log[i].stream];
      if (log[i].kind == Call::Wait)
        known.insert(events[log[i].event].begin(), events[log[i].event].end());
      before.push_back(known);
      known.insert(i);
      if (log[i].kind == Call::Record)
        events[log[i].event] = known;
    }
  }

  std::vector<std::set<size_t>> before;
};

/// Whether all collectives follow each other, and how many there are.
bool areOrdered(const std::vector<Call> &log, size_t &count) {
  Order order(log);
  count = 0;
  bool ordered = true;
  for (size_t i = 0; i < log.size(); ++i) {
    if (log[i].kind != Call::Meet)
      continue;
    ++count;
    for (size_t j = 0; j < i; ++j)
      if (log[j].kind == Call::Meet && order.before[i].count(j) == 0)
        ordered = false;
  }
  return ordered;
}

/// Whether all is between the caller's first call and the last one.
bool isBetween(const std::vector<Call> &log) {
  Order order(log);
  for (size_t i = 1; i + 1 < log.size(); ++i)
    if (order.before[i].count(0) == 0 || order.before.back().count(i) == 0)
      return false;
  return true;
}

/// One rank by itself.
class LoggedRank : public ::testing::Test {
protected:
  void start(const Plan &plan, int64_t least = 1,
             int64_t leastCopied = Communicator::kNeverCopied) {
    auto made = std::make_shared<LoggedCommunicator>(plan.mesh, 0);
    communicator = made;
    communicator->leastBytes = leastCopied;
    communicator->makesSums = leastCopied != Communicator::kNeverCopied;
    device = std::make_unique<LoggedDevice>(communicator->log);
    Status status = rank.start(plan, *device, 0, least);
    if (status)
      status = rank.executor->useCommunicator(made);
    ASSERT_TRUE(status) << status.toString();
  }

  /// What a run gives to streams, between two calls on the caller's.
  std::vector<Call> run(int64_t tokens) {
    std::unique_ptr<Stream> stream = *device->createStream();
    communicator->received.clear();
    EXPECT_TRUE(rank.executor->run(tokens, stream.get()));
    communicator->log.clear();
    communicator->received.clear();
    communicator->log.push_back({Call::Launch, stream.get()});
    Status status = rank.executor->run(tokens, stream.get());
    EXPECT_TRUE(status) << status.toString();
    communicator->log.push_back({Call::Launch, stream.get()});
    return communicator->log;
  }

  std::shared_ptr<LoggedCommunicator> communicator;
  std::unique_ptr<LoggedDevice> device;
  Rank rank;
};

/// The collectives of a log, without where they are in their variant.
std::string turnsOf(const std::vector<Call> &log) {
  std::string turns;
  for (const Call &call : log)
    if (call.kind == Call::Meet)
      turns += (turns.empty() ? "" : " ") + call.what.substr(0, 1) +
               call.what.substr(call.what.rfind('['));
  return turns;
}

} // namespace

//===----------------------------------------------------------------------===//
// Halves
//===----------------------------------------------------------------------===//

TEST(BatchHalvesTest, FirstRowsOfEachRankAreTheFirstHalf) {
  Plan plan = makePlan({4, 1});
  EXPECT_EQ(cutBatch(plan, 4 * 8), (BatchHalves{16, 16}));
  EXPECT_EQ(cutBatch(plan, 4 * 7), (BatchHalves{16, 12}));
  EXPECT_EQ(cutBatch(plan, 4), (BatchHalves{4, 0}));
  EXPECT_EQ(cutBatch(plan, 0), (BatchHalves{0, 0}));
  // Rows of 80 bytes.
  plan.tensors[Y].alignment = 64;
  EXPECT_EQ(cutBatch(plan, 4 * 8), (BatchHalves{16, 16}));
  EXPECT_EQ(cutBatch(plan, 4 * 9), (BatchHalves{32, 4}));
  EXPECT_EQ(cutBatch(plan, 4 * 3), (BatchHalves{12, 0}));
}

TEST(BatchHalvesTest, WorkspacesOfAllCountsHaveRoomSideBySide) {
  for (int64_t alignment : {1, 64})
    for (const Mesh &mesh : makeMeshes()) {
      Plan plan = makePlan(mesh);
      plan.tensors[Y].alignment = alignment;
      int64_t ranks = mesh.tokenRanks(), most = 0;
      for (int64_t own = 0; own <= kMostOwn; ++own) {
        int64_t both = 0;
        for (int64_t half : cutBatch(plan, own * ranks))
          both +=
              layoutWorkspace(plan, plan.variants[plan.findVariant(half)], half)
                  ->bytes;
        most = std::max(most, both);
        EXPECT_GE(*halvesWorkspaceBytes(plan, own * ranks), most);
        EXPECT_GE(*halvesWorkspaceBytes(plan, own * ranks + ranks - 1), most);
      }
    }
}

TEST(BatchHalvesTest, WhatIsOfABatchIsNoHalfs) {
  Plan plan = makePlan({2, 1});
  EXPECT_TRUE(checkHalves(plan));
  auto device = *createHostDevice(1);
  auto refuse = [&](const Plan &wrong, int64_t fromTokens,
                    const std::string &text) {
    auto made = Executor::create(wrong, *device, makeImage());
    ASSERT_TRUE(made) << made.status().toString();
    Status status = (*made)->useMicroBatches(fromTokens);
    EXPECT_EQ(status.message().find("useMicroBatches: " + text), 0U)
        << status.message();
    if (fromTokens > 0)
      EXPECT_EQ((*made)->plan().mesh.numRanks() > 1,
                (*made)->useMicroBatches(0).isOk());
  };
  refuse(plan, -1, "-1; a number of tokens per rank from 1 on, or 0");
  Plan counted = plan;
  auto offsets = int64_t(counted.tensors.size());
  counted.tensors.push_back(
      {"expert_offsets", DType::I32, {3}, TensorRole::Output});
  for (Variant &variant : counted.variants)
    variant.steps.back().args.push_back(Argument::ofTensor(offsets));
  refuse(counted, 4,
         "output 'expert_offsets' is of a whole batch, with no dimension of "
         "tokens that could be cut in two; compile the layer without it, or "
         "run without micro-batches");
  counted.tensors.back().role = TensorRole::Input;
  counted.tensors.back().name = "num_valid_tokens";
  refuse(counted, 4,
         "input 'num_valid_tokens' is of a whole batch, with no dimension of "
         "tokens that could be cut in two; compile the layer without it "
         "(is_padding, of padding_mask, has a value for each token)");
  Plan one = plan;
  one.mesh = {1, 1};
  one.kernels = {{"add", 1}};
  one.numSlots = 0;
  one.tensors = {{"y", DType::F32, {Expr::tokens()}, TensorRole::Output}};
  one.variants = {{0, one.maxTokens, {Step::launch(0, tensors({0}, false))}}};
  refuse(one, 4, "the layer is for one rank, which exchanges nothing");
}

//===----------------------------------------------------------------------===//
// Ranks
//===----------------------------------------------------------------------===//

TEST(MicroBatches, HaveTheBitsOfBatchesOfTheirOwn) {
  for (const Mesh &mesh : makeMeshes()) {
    Group whole(mesh), halved(mesh);
    for (Group *group : {&whole, &halved})
      for (const Status &status :
           group->start(group == &halved ? 1 : 0, /*poison=*/true))
        ASSERT_TRUE(status) << status.toString();
    for (int64_t own : {8, 1, 9, 2, 16, 7, 8}) {
      whole.fillResults();
      halved.fillResults();
      halved.run(own);
      int64_t first = own - own / 2;
      for (auto [begin, rows] :
           {std::pair(int64_t(0), first), std::pair(first, own - first)}) {
        whole.expectOnRanks([&, begin = begin](int64_t, Rank &rank) {
          return rank.bindFrom(begin, kMostOwn - begin);
        });
        whole.run(rows);
      }
      EXPECT_EQ(halved.results(), whole.results()) << mesh.str() << " " << own;
      // What a batch has in common tells it from its halves.
      whole.expectOnRanks(
          [](int64_t, Rank &rank) { return rank.bindFrom(0, kMostOwn); });
      whole.run(own);
      EXPECT_EQ(halved.results() == whole.results(), own == 1) << mesh.str();
    }
  }
}

TEST(MicroBatches, AreRunFromSoManyTokensOn) {
  Group whole({2, 1}), halved({2, 1});
  for (Group *group : {&whole, &halved})
    for (const Status &status : group->start(group == &halved ? 5 : 0))
      ASSERT_TRUE(status) << status.toString();
  for (int64_t own : {4, 5, 4, 0, 6}) {
    whole.fillResults();
    halved.fillResults();
    whole.run(own);
    halved.run(own);
    EXPECT_EQ(halved.results() == whole.results(), own < 5) << own;
  }
}

TEST(MicroBatches, FollowWhatIsBound) {
  Group halved({2, 2}), whole({2, 2});
  for (Group *group : {&whole, &halved})
    for (const Status &status : group->start(group == &halved ? 8 : 0))
      ASSERT_TRUE(status) << status.toString();
  auto expectLike = [&] {
    whole.fillResults();
    halved.fillResults();
    halved.run(8);
    for (int64_t begin : {0, 4}) {
      whole.expectOnRanks([&](int64_t, Rank &rank) {
        std::vector<float> &moved = rank.x;
        Status status = rank.executor->bind(
            "x",
            {moved.data() + begin * kColumns, DType::F32, {4, kColumns}, {}});
        return status
                   ? rank.executor->bind("y", {rank.y.data() + begin * kColumns,
                                               DType::F32,
                                               {4, kColumns},
                                               {}})
                   : status;
      });
      whole.run(4);
    }
    EXPECT_EQ(halved.results(), whole.results());
  };
  expectLike();
  // Elsewhere, where arguments and collectives have the address.
  for (Group *group : {&whole, &halved})
    for (Rank &rank : group->ranks) {
      std::vector<float> others(rank.x.size());
      for (size_t i = 0; i < others.size(); ++i)
        others[i] = rank.x[i] * 3;
      rank.x.swap(others);
      rank.y = std::vector<float>(rank.y.size() + 2);
      rank.y.resize(rank.x.size());
      ASSERT_TRUE(rank.bindFrom(0, kMostOwn));
    }
  expectLike();
  // Another weight.
  for (Group *group : {&whole, &halved})
    for (Rank &rank : group->ranks) {
      rank.factor = 0.25f;
      ASSERT_TRUE(rank.bindFactor());
      ASSERT_TRUE(rank.executor->prepareWeights());
    }
  expectLike();
  // Clones have halves of their own.
  for (Rank &rank : halved.ranks) {
    auto clone = rank.executor->clone();
    ASSERT_TRUE(clone);
    rank.executor = std::move(*clone);
    ASSERT_TRUE(rank.bindFrom(0, kMostOwn));
  }
  expectLike();
}

TEST(MicroBatches, RanksAgreeFromWhereOn) {
  Group group({2, 1});
  for (const Status &status : group.onRanks([&](int64_t number, Rank &rank) {
         Status status = rank.start(makePlan(group.mesh), *group.device, number,
                                    number == 0 ? 0 : 4);
         return status ? rank.executor->useCommunicator(std::move(
                             *group.group->join(number, *group.device)))
                       : status;
       })) {
    EXPECT_FALSE(status);
    EXPECT_NE(
        status.message().find(", two micro-batches from 4 tokens per rank on'"),
        std::string::npos)
        << status.message();
    EXPECT_NE(status.message().find("the layer's plan"), std::string::npos);
  }
}

//===----------------------------------------------------------------------===//
// The order of what is given
//===----------------------------------------------------------------------===//

TEST_F(LoggedRank, CollectivesTakeTurns) {
  start(makePlan({2, 2}));
  EXPECT_EQ(turnsOf(run(2 * 8)), "a[4] b[4] a[6] a[7] b[6] b[7]");
  // The first half is of the variant that gathers twice.
  EXPECT_EQ(turnsOf(run(2 * 9)), "a[4] a[5] b[4] a[7] a[8] b[6] b[7]");
  EXPECT_EQ(turnsOf(run(2)), "a[4] b[4] a[6] a[7] b[6] b[7]");
}

TEST_F(LoggedRank, HalvesWithoutADispatchTakeTurnsToo) {
  start(makePlan({1, 2}));
  EXPECT_EQ(turnsOf(run(8)), "a[5] b[5]");
}

/// Without the waits ahead of turns ranks might begin with different ones.
TEST_F(LoggedRank, CollectivesFollowEachOther) {
  for (const Mesh &mesh : makeMeshes())
    for (int64_t own : {1, 8, 9, 16}) {
      start(makePlan(mesh));
      std::vector<Call> log = run(own * mesh.tokenRanks());
      size_t count = 0;
      EXPECT_TRUE(areOrdered(log, count)) << mesh.str();
      EXPECT_GE(count, 2U);
      std::vector<Call> mutant;
      for (size_t i = 0; i < log.size(); ++i)
        if (log[i].kind != Call::Wait || log[i + 1].kind != Call::Meet)
          mutant.push_back(log[i]);
      EXPECT_LT(mutant.size(), log.size());
      EXPECT_FALSE(areOrdered(mutant, count)) << mesh.str();
    }
}

TEST_F(LoggedRank, AllIsBetweenWhatTheCallerGives) {
  start(makePlan({2, 2}));
  std::vector<Call> log = run(2 * 8);
  EXPECT_TRUE(isBetween(log));
  // Each wait matters that is not a plan's or a turn's own: the second half's
  // first, and the caller's last one.
  for (bool first : {true, false}) {
    std::vector<Call> mutant = log;
    auto isWait = [](const Call &call) { return call.kind == Call::Wait; };
    if (first)
      mutant.erase(std::find_if(mutant.begin(), mutant.end(), isWait));
    else
      mutant.erase(
          std::next(std::find_if(mutant.rbegin(), mutant.rend(), isWait))
              .base());
    EXPECT_FALSE(isBetween(mutant));
  }
}

TEST_F(LoggedRank, HalvesHaveNoOtherOrder) {
  start(makePlan({2, 1}));
  std::vector<Call> log = run(2 * 8);
  Order order(log);
  // The last collective of the first half is beside what the second launches
  // ahead of its own.
  size_t combine = 0;
  for (size_t i = 0; i < log.size(); ++i)
    if (log[i].kind == Call::Meet && log[i].what.substr(0, 1) == "a")
      combine = i;
  size_t beside = combine;
  while (log[beside].kind != Call::Launch)
    ++beside;
  ASSERT_GT(beside, combine);
  EXPECT_EQ(order.before[beside].count(combine), 0U);
}

/// A product that began sooner would leave no room to the exchange that it is
/// to be beside.
TEST_F(LoggedRank, LaunchesFollowThoseAheadOfTheTurnBefore) {
  start(makePlan({2, 1}));
  std::vector<Call> log = run(2 * 8);
  auto isMeet = [](char half) {
    return [half](const Call &call) {
      return call.kind == Call::Meet && call.what[0] == half;
    };
  };
  auto isLaunch = [](const Call &call) { return call.kind == Call::Launch; };
  auto combine = std::find_if(log.rbegin(), log.rend(), isMeet('a')).base() - 1;
  auto first =
      std::find_if(std::reverse_iterator(combine), log.rend(), isLaunch);
  size_t firsts = first.base() - 1 - log.begin();
  size_t seconds = std::find_if(combine, log.end(), isLaunch) - log.begin();
  EXPECT_EQ(Order(log).before[seconds].count(firsts), 1U);
  ASSERT_EQ(log[seconds - 1].kind, Call::Wait);
  log.erase(log.begin() + static_cast<ptrdiff_t>(seconds) - 1);
  EXPECT_EQ(Order(log).before[seconds - 1].count(firsts), 0U);
}

/// Each would keep CTAs of the other out for ever.
TEST_F(LoggedRank, BatchesWithLaunchesOfAllCtasAreWhole) {
  Plan plan = makePlan({2, 1});
  plan.kernels.push_back({"joined", Expr::tokens()});
  plan.kernels.back().resident = true;
  for (Step &step : plan.variants[0].steps)
    if (step.kind == Step::Kind::Launch && step.kernel == 0)
      step.kernel = int64_t(plan.kernels.size()) - 1;
  start(plan);
  EXPECT_EQ(turnsOf(run(2 * 8)).find('a'), std::string::npos);
  EXPECT_NE(turnsOf(run(2 * 12)).find('a'), std::string::npos);
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

TEST_F(LoggedRank, WorkspacesOfCallersHoldBothHalves) {
  start(makePlan({2, 1}), /*least=*/8);
  int64_t bytes = *rank.executor->workspaceBytes(2 * 8);
  EXPECT_GE(bytes, *workspaceBytes(rank.executor->plan(), 2 * 8));
  std::vector<char> memory(static_cast<size_t>(bytes) + 512, 0x55);
  char *aligned = memory.data();
  while (reinterpret_cast<uintptr_t>(aligned) % kWorkspaceAlignment != 0)
    ++aligned;
  EXPECT_TRUE(rank.executor->run(2 * 8, {aligned, bytes}));
  for (char *past = aligned + bytes; past < &memory.back(); ++past)
    ASSERT_EQ(*past, 0x55);
  const Plan &plan = rank.executor->plan();
  int64_t one = layoutWorkspace(plan, plan.variants[0], 2 * 4)->bytes;
  std::string half = std::to_string(one);
  int64_t few = one + kWorkspaceAlignment;
  Status status = rank.executor->run(2 * 8, {aligned, few});
  EXPECT_EQ(status.message(),
            "run: the workspace has " + std::to_string(few) +
                " bytes, 16 tokens in two micro-batches need " + half +
                " and " + half + "; allocate what workspaceBytes() answers");
  EXPECT_FALSE(rank.executor->run(2 * 8, {aligned + 1, bytes}));
  // Of fewer tokens it is that of one batch.
  EXPECT_TRUE(rank.executor->run(2 * 4, {aligned, few}));
  EXPECT_FALSE(rank.executor->run(2 * 8, {aligned, few}));
  EXPECT_TRUE(rank.executor->run(2 * 8, {aligned, bytes}));
}

TEST_F(LoggedRank, SharedSlotsAreCutInTwo) {
  start(makePlan({2, 1}), /*least=*/8);
  int64_t bytes = *rank.executor->workspaceBytes(2 * 16);
  auto shared = SharedWorkspace::create(*device, bytes);
  ASSERT_TRUE(shared);
  ASSERT_TRUE(rank.executor->useWorkspace(*shared, 1));
  int before = device->numAllocations;
  run(2 * 16);
  EXPECT_EQ(device->numAllocations, before);
  char *slot = static_cast<char *>((*shared)->slot(1).data);
  std::set<char *> places;
  for (auto [received, count] : communicator->received)
    places.insert(received);
  // Of each half what is gathered, once more too, and what is scattered.
  EXPECT_EQ(places.size(), 6U);
  EXPECT_GE(*places.begin(), slot);
  EXPECT_LT(*places.rbegin(), slot + bytes);
  ASSERT_TRUE(rank.executor->useWorkspace(nullptr, 0));
  run(2 * 16);
  EXPECT_EQ(device->numAllocations, before + 1);
}

/// What comes to both halves has places of its own, in what one batch has.
TEST_F(LoggedRank, RowsAreCopiedToPlacesOfBothHalves) {
  start(makePlan({2, 1}), /*least=*/1, /*leastCopied=*/80);
  std::vector<char> &memory = communicator->memory;
  // Longer variants gather twice.
  EXPECT_EQ(memory.size(), size_t(2 * kMostOwn * kColumns * 4) * 2);
  for (int64_t own = 2; own <= 8; ++own) {
    run(2 * own);
    auto [first, firstBytes] = communicator->received[0];
    auto [second, secondBytes] = communicator->received[1];
    EXPECT_EQ(first, memory.data()) << own;
    EXPECT_GE(second, first + firstBytes) << own;
    EXPECT_LE(second + secondBytes, memory.data() + memory.size()) << own;
    auto traced = rank.executor->trace(2 * own);
    ASSERT_TRUE(traced);
    int64_t numCopied = 0;
    for (const TracedStep &step : *traced)
      numCopied += step.name.find("(rows copied)") != std::string::npos;
    // Of fewer bytes the kernel moves them, to the same places.
    constexpr int64_t ownBytes = kColumns * 4, least = 80;
    int64_t halves[] = {own - own / 2, own / 2};
    EXPECT_EQ(numCopied, std::count_if(std::begin(halves), std::end(halves),
                                       [&](int64_t rows) {
                                         return rows * ownBytes >= least;
                                       }))
        << own;
  }
  // Nothing comes for a half of no tokens.
  run(2);
  EXPECT_EQ(communicator->received[0].first, memory.data());
}

/// Another layer has had more of them made since. A rank that went on in those
/// of then would never meet one that had to resolve its run anew.
TEST_F(LoggedRank, ResultsAreTheNewestOnes) {
  for (int64_t least : {1, 9}) {
    start(makePlan({2, 1}), least, /*leastCopied=*/80);
    std::vector<char> former;
    for (int64_t own : {8, 8, 6}) {
      run(2 * own);
      const std::vector<char> &memory = communicator->memory;
      // A batch as a whole gathers twice, its halves once each.
      for (size_t i = 0; i < 2; ++i) {
        char *received = communicator->received[i].first;
        EXPECT_TRUE(received >= memory.data() &&
                    received < memory.data() + memory.size())
            << least << " " << own;
      }
      former.swap(communicator->memory);
      communicator->memory.assign(former.size(), 0x55);
    }
  }
}

/// Each result is rounded up, so that two halves may take more than a whole.
TEST_F(LoggedRank, HalvesHaveRoomForWhatIsRoundedUp) {
  Plan plan = makePlan({2, 1});
  plan.maxTokens = plan.variants[0].maxTokens = 2 * 3;
  plan.variants.pop_back();
  start(plan, /*least=*/1, /*leastCopied=*/80);
  std::vector<char> &memory = communicator->memory;
  run(2 * 3);
  auto [first, firstBytes] = communicator->received[0];
  auto [second, secondBytes] = communicator->received[1];
  EXPECT_EQ(first, memory.data());
  EXPECT_EQ(second,
            memory.data() +
                kWorkspaceAlignment * ((firstBytes + kWorkspaceAlignment - 1) /
                                       kWorkspaceAlignment));
  EXPECT_LE(second + secondBytes, memory.data() + memory.size());
}

//===----------------------------------------------------------------------===//
// What is asked of runs
//===----------------------------------------------------------------------===//

TEST_F(LoggedRank, TracesSayWhichHalf) {
  start(makePlan({2, 1}), /*least=*/8);
  auto traced = rank.executor->trace(2 * 8);
  ASSERT_TRUE(traced) << traced.status().toString();
  std::string names;
  for (const TracedStep &step : *traced)
    names += step.name + "@" + std::to_string(step.stream) + "\n";
  EXPECT_EQ(names, "a: beside@1\na: all_gather dp@0\n"
                   "b: beside@3\nb: all_gather dp@2\n"
                   "a: experts@0\na: reduce_scatter dp@0\n"
                   "b: experts@2\nb: reduce_scatter dp@2\n"
                   "a: add@0\nb: add@2\n");
  traced = rank.executor->trace(2 * 7);
  ASSERT_TRUE(traced);
  EXPECT_EQ(traced->front().name, "beside");
}

TEST_F(LoggedRank, WorkspaceTensorsOfTwoAreNotShown) {
  start(makePlan({2, 1}), /*least=*/8);
  run(2 * 8);
  EXPECT_EQ(rank.executor->view("sums").status().message(),
            "view 'sums': the latest run was two micro-batches, each with a "
            "tensor of its own; run fewer tokens, or leave out "
            "useMicroBatches()");
  auto y = rank.executor->view("y");
  ASSERT_TRUE(y) << y.status().toString();
  EXPECT_EQ(y->data, rank.y.data());
  EXPECT_EQ(y->shape, std::vector<int64_t>({8, kColumns}));
  run(2 * 7);
  EXPECT_TRUE(rank.executor->view("sums"));
}

/// Kernels of collectives make them for both halves, or nobody does.
TEST_F(LoggedRank, SumsAreThoseOfBothHalves) {
  Plan plan = makePlan({2, 1});
  plan.tensors[Sums].slot = 1;
  for (Variant &variant : plan.variants) {
    size_t experts = 0;
    for (size_t i = 0; i < variant.steps.size(); ++i) {
      Step &step = variant.steps[i];
      if (step.kind == Step::Kind::Launch && step.kernel == 0)
        experts = i;
      if (step.kind != Step::Kind::Collective ||
          step.collectiveKind != CollectiveKind::ReduceScatter)
        continue;
      step.replacedStep = int64_t(experts);
      // Its kernel reads what is gathered ahead of its flags.
      step.args.push_back(Argument::ofTensor(Factor));
      step.args.push_back(Argument::ofTensor(All));
      step.numKernelArgs = 2;
    }
  }
  start(plan);
  size_t launched = run(2 * 8).size();
  EXPECT_TRUE(rank.executor->hasReplaced(Replaced::Sums));
  communicator->makesSums = true;
  EXPECT_EQ(run(2 * 8).size(), launched - 2);
  communicator->log.clear();
  std::unique_ptr<Stream> stream = *device->createStream();
  ASSERT_TRUE(rank.executor->runReplaced(Replaced::Sums, *stream));
  EXPECT_EQ(communicator->log.size(), 2U);
}

/// On the emulated driver: a graph has both halves, and capturing allocates
/// nothing.
TEST(MicroBatches, AreCapturedInAGraph) {
  test::FakeCuda &fake = test::resetFakeCuda();
  {
    auto device = std::move(*createCudaDevice(0, test::kFakeDriver));
    // `copy` of rows of four.
    Plan plan;
    plan.target = "sm_80";
    plan.mesh = {2, 1};
    plan.maxTokens = 16;
    plan.numSlots = 1;
    Expr own = Expr::ceilDiv(Expr::tokens(), 2);
    plan.tensors = {
        {"x", DType::F32, {own, 4}, TensorRole::Input, -1, 16},
        {"all", DType::F32, {Expr::tokens(), 4}, TensorRole::Workspace, 0},
        {"y", DType::F32, {own, 4}, TensorRole::Output, -1, 16}};
    plan.kernels = {{"copy", own, 128}};
    std::vector<Argument> copied = tensors({0, 2}, false);
    copied.push_back(Argument::ofScalar(own));
    plan.variants = {{0,
                      16,
                      {Step::collective(CollectiveKind::AllGather,
                                        MeshAxis::Data, tensors({0, 1}, false)),
                       Step::launch(0, copied)}}};
    auto made = Executor::create(plan, *device, test::makePtxImage());
    ASSERT_TRUE(made) << made.status().toString();
    Executor &executor = **made;
    ASSERT_TRUE(executor.useMicroBatches(1));
    auto communicator =
        std::make_shared<LoggedCommunicator>(plan.mesh, /*rank=*/0);
    ASSERT_TRUE(executor.useCommunicator(communicator));
    EXPECT_EQ(executor.useMicroBatches(2).message(),
              "useMicroBatches: ranks have agreed on what they run; call it "
              "ahead of useCommunicator()");
    std::vector<float> values(8 * 4);
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = static_cast<float>(i);
    auto x = std::move(*device->allocate(values.size() * 4, 256));
    auto y = std::move(*device->allocate(values.size() * 4, 256));
    ASSERT_TRUE(device->copyIn(x->data(), values.data(), values.size() * 4));
    ASSERT_TRUE(executor.bind("x", {x->data(), DType::F32, {8, 4}, {}}));
    ASSERT_TRUE(executor.bind("y", {y->data(), DType::F32, {8, 4}, {}}));
    ASSERT_TRUE(executor.prepareWeights());
    auto stream = std::move(*device->createStream());
    ASSERT_TRUE(executor.run(2 * 7, stream.get()));
    fake.launches.clear();
    size_t allocated = fake.allocations.size(), streams = fake.streams.size();
    auto graph = captureGraph(
        *device, *stream, [&] { return executor.run(2 * 7, stream.get()); });
    ASSERT_TRUE(graph) << graph.status().toString();
    EXPECT_EQ(fake.launches,
              std::vector<std::string>({"copy 4 128 0", "copy 3 128 0"}));
    EXPECT_EQ(fake.allocations.size(), allocated);
    EXPECT_EQ(fake.streams.size(), streams);
    std::vector<float> found(values.size(), -1);
    ASSERT_TRUE(device->copyIn(y->data(), found.data(), found.size() * 4));
    ASSERT_TRUE(device->launchGraph(*stream, **graph));
    ASSERT_TRUE(device->copyOut(found.data(), y->data(), found.size() * 4));
    EXPECT_TRUE(std::equal(values.begin(), values.end() - 4, found.begin()));
    EXPECT_EQ(found.back(), -1);
  }
  EXPECT_EQ(fake.leaks(), "");
}
