//===- MicroBatchesTesting.h - ranks that run halves ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A layer of several ranks, ranks as threads on the host device, and a device
// and a communicator that log their calls.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_MICROBATCHESTESTING_H
#define MOEC_UNITTESTS_RUNTIME_MICROBATCHESTESTING_H

#include "moert/Executor.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>

namespace moert::halves {

constexpr int64_t kColumns = 20;
/// Maximum number of tokens of a rank.
constexpr int64_t kMostOwn = 16;
enum TensorIndex { X, Factor, All, Sums, Part, Beside, Y, Again };

inline std::vector<Argument> tensors(std::vector<int64_t> indices,
                                     bool counts) {
  std::vector<Argument> args;
  for (int64_t index : indices)
    args.push_back(Argument::ofTensor(index));
  if (counts)
    args.push_back(Argument::ofTokens());
  return args;
}

/// A dispatch; experts, with sums that include the batch's tokens; a combine
/// over each axis; and concurrent work on a stream of its own. Batches of more
/// than four tokens per rank gather twice.
inline Plan makePlan(const Mesh &mesh) {
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

inline float *at(uint64_t slot, int64_t row) {
  return reinterpret_cast<float *>(slot) + row * kColumns;
}

inline ModuleImage makeImage() {
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

/// A call of an executor or communicator on a stream, in order.
struct Call {
  enum Kind { Launch, Record, Wait, Meet } kind;
  const void *stream;
  const void *event = nullptr;
  std::string what = {};
};

/// The host device with logged calls.
class LoggedDevice final : public DeviceWithoutGraphs {
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
  Result<StreamState> inspect(Stream &stream) override {
    return StreamState{reinterpret_cast<uintptr_t>(&stream), std::nullopt};
  }
  Result<TensorMap> encodeTensorMap(const TensorMapRecipe &recipe) override {
    return host->encodeTensorMap(recipe);
  }

  int numAllocations = 0;

private:
  std::vector<Call> &log;
  std::unique_ptr<Device> host;
};

/// Meets other ranks through `inner`, or none if it is null; has memory as
/// results() if it runs kernels.
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
    bool isReserved = axis == MeshAxis::Data && !memory.empty();
    return makesSums && isReserved ? memory.data() : nullptr;
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
  /// Per gather: the address where its first part is received, and the bytes.
  std::vector<std::pair<char *, int64_t>> received;

private:
  const Mesh ranks;
  const int64_t ownRank;
  std::shared_ptr<Communicator> inner;
};

/// One rank, with tensors for the maximum token count.
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

  /// Binds rows from `first` on.
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

/// All ranks of a mesh. Each operation runs in a thread per rank.
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

inline std::vector<Mesh> makeMeshes() {
  return {{2, 1}, {1, 2}, {4, 1}, {2, 2}, {8, 1}, {4, 2}, {2, 4}};
}

} // namespace moert::halves

#endif // MOEC_UNITTESTS_RUNTIME_MICROBATCHESTESTING_H
