//===- DeviceCases.cpp - tests of the runtime on a GPU ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceCases.h"

#include "../../../runtime/src/cuda/Context.h"
#include "../../../runtime/src/support/Threads.h"
#include "DeviceKernels.h"
#include "Tools/Run/PlanRun.h"
#include "llvm/Support/FormatVariadic.h"

#include <cstring>
#include <map>
#include <mutex>

using namespace moec::gputest;
using namespace moert;

#define REQUIRE_OK(expression)                                                 \
  do {                                                                         \
    if (!outcome.expect(expression))                                           \
      return;                                                                  \
  } while (false)

#define EXPECT(condition)                                                      \
  do {                                                                         \
    if (!(condition))                                                          \
      outcome.fail("expected " #condition);                                    \
  } while (false)

namespace {

class DeviceCase {
public:
  DeviceCase(Device &device, Outcome &outcome)
      : device(device), outcome(outcome) {
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 17) - 8;
  }

  void runsEagerOnItsOwnAndOnACallersStream();
  void graphsReplayWhatRanEagerly();
  void threadsAndExecutorsAreIndependent();
  void failuresSayWhatToDo();
  void tensorMapsAreEncoded();
  void kernelsCopyByTheirTensorMaps();
  void runsCostLittleMoreThanTheirLaunches();
  void runsOnSeveralStreamsFollowEachOther();
  void threadsTakeTurnsWithAStreamEach();
  void graphsKeepTheirWorkspace();
  void graphsOutliveTheirExecutor();
  void graphsSeeWeightsThatArePreparedAgain();

private:
  /// Runs many times; for one of several threads.
  void runOften();

  bool allocate(std::unique_ptr<Buffer> &buffer, size_t bytes) {
    Result<std::unique_ptr<Buffer>> made = device.allocate(bytes, 256);
    if (!outcome.expect(made.status()))
      return false;
    buffer = std::move(*made);
    return true;
  }

  bool bind(Executor &executor, std::unique_ptr<Buffer> &in,
            std::unique_ptr<Buffer> &out) {
    return allocate(in, x.size() * 4) && allocate(out, x.size() * 4) &&
           outcome.expect(device.copyIn(in->data(), x.data(), x.size() * 4)) &&
           outcome.expect(executor.bind(
               "x", {in->data(), DType::F32, {kPlanRows, 4}, {}})) &&
           outcome.expect(executor.bind(
               "y", {out->data(), DType::F32, {kPlanRows, 4}, {}}));
  }

  /// Creates an executor with x and y bound.
  bool start(std::unique_ptr<Executor> &executor, const Plan &plan,
             std::unique_ptr<Buffer> &in, std::unique_ptr<Buffer> &out) {
    auto made = Executor::create(plan, device, makeStepImage());
    if (!outcome.expect(made.status()))
      return false;
    executor = std::move(*made);
    return bind(*executor, in, out);
  }

  std::unique_ptr<Graph> capture(Executor &executor, Stream &stream,
                                 int64_t tokens) {
    auto graph = captureGraph(device, stream,
                              [&] { return executor.run(tokens, &stream); });
    if (!outcome.expect(graph.status()))
      return nullptr;
    return std::move(*graph);
  }

  /// Replays the graphs, by their token counts, and checks y.
  void expectReplays(Stream &stream, const Buffer &out,
                     const std::map<int64_t, std::unique_ptr<Graph>> &graphs) {
    for (const auto &[tokens, graph] : graphs) {
      REQUIRE_OK(device.fill(stream, out.data(), 0xFF, out.size()));
      REQUIRE_OK(device.launchGraph(stream, *graph));
      REQUIRE_OK(device.synchronize(stream));
      expectRows(out, tokens);
    }
  }

  void expectRows(const Buffer &out, int64_t tokens) {
    std::vector<float> y(static_cast<size_t>(tokens) * 4);
    REQUIRE_OK(device.copyOut(y.data(), out.data(), y.size() * 4));
    for (size_t i = 0; i < y.size(); ++i)
      if (y[i] != stepAll(x[i]))
        return outcome.fail(llvm::formatv("y[{0}] is {1}, expected {2}", i,
                                          y[i], stepAll(x[i])));
  }

  Device &device;
  Outcome &outcome;
  std::vector<float> x = std::vector<float>(kPlanRows * 4);
};

} // namespace

void DeviceCase::runOften() {
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  if (!start(executor, makeStepPlan(), in, out))
    return;
  for (int i = 0; i < 200; ++i)
    REQUIRE_OK(executor->run(kPlanRows));
  REQUIRE_OK(executor->synchronize());
  expectRows(*out, kPlanRows);
}

void DeviceCase::runsEagerOnItsOwnAndOnACallersStream() {
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  if (!start(executor, makeStepPlan(), in, out))
    return;
  for (int64_t tokens : {1L, 33L, 1000L, 0L}) {
    REQUIRE_OK(executor->run(tokens));
    REQUIRE_OK(executor->synchronize());
    expectRows(*out, tokens);
  }
  Result<std::unique_ptr<Stream>> stream = device.wrapStream(nullptr);
  REQUIRE_OK(stream.status());
  REQUIRE_OK(device.fill(**stream, out->data(), 0xFF, out->size()));
  REQUIRE_OK(executor->run(kPlanRows, stream->get()));
  REQUIRE_OK(device.synchronize(**stream));
  expectRows(*out, kPlanRows);
}

void DeviceCase::graphsReplayWhatRanEagerly() {
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  if (!start(executor, makeStepPlan(), in, out))
    return;
  REQUIRE_OK(executor->run(kPlanRows));
  REQUIRE_OK(executor->synchronize());
  Result<std::unique_ptr<Stream>> stream = device.createStream();
  REQUIRE_OK(stream.status());
  auto graph = captureGraph(device, **stream, [&] {
    return executor->run(kPlanRows, stream->get());
  });
  REQUIRE_OK(graph.status());
  for (int i = 0; i < 100; ++i) {
    REQUIRE_OK(device.fill(**stream, out->data(), 0xFF, out->size()));
    REQUIRE_OK(device.launchGraph(**stream, **graph));
    REQUIRE_OK(device.synchronize(**stream));
    expectRows(*out, kPlanRows);
  }
  // A failed capture leaves the stream usable.
  auto failed = captureGraph(device, **stream,
                             [&] { return internalError("on purpose"); });
  EXPECT(failed.status().message() == "on purpose");
  REQUIRE_OK(executor->run(kPlanRows, stream->get()));
  REQUIRE_OK(device.synchronize(**stream));
}

void DeviceCase::threadsAndExecutorsAreIndependent() {
  std::vector<Outcome> outcomes(4);
  REQUIRE_OK(moert::runTogether(outcomes.size(), [&](size_t t) {
    // A case per thread, because outcomes are not thread-safe.
    DeviceCase(device, outcomes[t]).runOften();
  }));
  for (Outcome &one : outcomes)
    for (std::string &failure : one.failures)
      outcome.fail(std::move(failure));
}

void DeviceCase::failuresSayWhatToDo() {
  ModuleImage image;
  image.kind = ModuleImage::Kind::Ptx;
  std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n"
                     ".visible .entry k() { nonsense; }\n";
  image.modules.emplace_back(text.begin(), text.end());
  Status status = device.loadModule(image).status();
  EXPECT(status.message().find("CUDA_ERROR_INVALID_PTX (218)") !=
         std::string::npos);
  EXPECT(status.message().find("the driver's compiler says: ") !=
         std::string::npos);
  image.kind = ModuleImage::Kind::Cubin;
  EXPECT(!device.loadModule(image));

  auto module = device.loadModule(makeStepImage());
  REQUIRE_OK(module.status());
  Status missing = (*module)->kernel("nobody").status();
  EXPECT(missing.code() == StatusCode::NotFound);

  auto tooMuch = device.allocate(size_t(1) << 50, 256);
  EXPECT(tooMuch.status().code() == StatusCode::ResourceExhausted);

  auto executor = Executor::create(makeStepPlan(), device, makeStepImage());
  REQUIRE_OK(executor.status());
  Status host =
      (*executor)->bind("x", {x.data(), DType::F32, {kPlanRows, 4}, {}});
  EXPECT(host.code() == StatusCode::InvalidArgument);
  EXPECT(!device.checkTarget("sm_75a"));
}

void DeviceCase::tensorMapsAreEncoded() {
  std::unique_ptr<Buffer> memory;
  allocate(memory, 1 << 20);
  TensorMapRecipe recipe;
  recipe.data = memory->data();
  recipe.dtype = DType::BF16;
  recipe.shape = {128, 512};
  recipe.strideBytes = {1024};
  recipe.box = {64, 64};
  recipe.swizzleBytes = 128;
  auto map = device.encodeTensorMap(recipe);
  REQUIRE_OK(map.status());
  uint64_t zero[16] = {};
  EXPECT(memcmp(map->opaque, zero, sizeof(zero)) != 0);
  recipe.strideBytes = {1000}; // Not a multiple of 16.
  Status status = device.encodeTensorMap(recipe).status();
  EXPECT(!status);
}

void DeviceCase::kernelsCopyByTheirTensorMaps() {
  Plan plan;
  plan.target = "sm_90";
  plan.maxTokens = kPlanRows;
  Expr tokens = Expr::tokens();
  plan.tensors = {
      {"x", DType::F32, {tokens, 4}, TensorRole::Input, -1, 16},
      {"y", DType::F32, {tokens, 4}, TensorRole::Output},
  };
  plan.kernels = {
      {"copied",
       Expr::ceilDiv(tokens, 16),
       64,
       0,
       {{0, {TensorMapDecl::kOwnRows, 4}, {0, 1}, {1, 1}, {16, 4}}}}};
  plan.variants = {
      {0,
       kPlanRows,
       {Step::launch(0, {Argument::ofTensor(0), Argument::ofTensor(1),
                         Argument::ofTokens()})}}};
  ModuleImage image = makeStepImage();
  image.modules.emplace_back(kMapPtx, kMapPtx + std::strlen(kMapPtx));
  auto executor = Executor::create(plan, device, image);
  if (!device.checkTarget("sm_90")) {
    EXPECT(!executor);
    return;
  }
  REQUIRE_OK(executor.status());
  std::unique_ptr<Buffer> in, out;
  allocate(in, x.size() * 4);
  allocate(out, x.size() * 4);
  REQUIRE_OK(device.copyIn(in->data(), x.data(), x.size() * 4));
  REQUIRE_OK(
      (*executor)->bind("x", {in->data(), DType::F32, {kPlanRows, 4}, {}}));
  REQUIRE_OK(
      (*executor)->bind("y", {out->data(), DType::F32, {kPlanRows, 4}, {}}));
  for (int64_t tokens : {1000L, 33L, 1L, 0L, 1000L}) {
    REQUIRE_OK((*executor)->run(tokens));
    REQUIRE_OK((*executor)->synchronize());
    std::vector<float> y(static_cast<size_t>(tokens) * 4);
    REQUIRE_OK(device.copyOut(y.data(), out->data(), y.size() * 4));
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT(y[i] == x[i] * 2 + 1);
  }
}

/// Compares the host time of a run with that of its bare launches, on one
/// stream, so that both do the same.
void DeviceCase::runsCostLittleMoreThanTheirLaunches() {
  using namespace moert::cuda;
  constexpr int kRepeats = 2000;
  Plan plan = makeStepPlan();
  auto launch = [](int64_t from, int64_t to) {
    return Step::launch(0, {Argument::ofTensor(from), Argument::ofTensor(to),
                            Argument::ofTokens()});
  };
  plan.variants[0].steps = {launch(0, 1), launch(1, 2), launch(2, 1),
                            launch(1, 2), launch(2, 1), launch(1, 3)};
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  if (!start(executor, plan, in, out))
    return;

  Result<std::shared_ptr<const Driver>> driver = Driver::open("");
  REQUIRE_OK(driver.status());
  const Driver &cu = **driver;
  auto context = Context::create(*driver, 0);
  REQUIRE_OK(context.status());
  double bare = 1e9, run = 1e9, replay = 1e9;
  CUstream stream = nullptr;
  REQUIRE_OK((*context)->within([&]() -> Status {
    MOERT_CUDA(cu, cuStreamCreate, (&stream, CU_STREAM_NON_BLOCKING));
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    MOERT_CUDA(cu, cuModuleLoadDataEx,
               (&module, kStepPtx, 0, nullptr, nullptr));
    MOERT_CUDA(cu, cuModuleGetFunction, (&function, module, "step"));
    auto wrapped = device.wrapStream(stream);
    uint64_t args[] = {reinterpret_cast<uintptr_t>(in->data()),
                       reinterpret_cast<uintptr_t>(out->data()), 8};
    void *params[] = {&args[0], &args[1], &args[2]};
    CUlaunchConfig config = {1, 1, 1, 128, 1, 1, 0, stream, nullptr, 0};
    if (Status status = executor->run(8, wrapped->get()); !status)
      return status;
    auto graph = captureGraph(device, **wrapped,
                              [&] { return executor->run(8, wrapped->get()); });
    if (!graph)
      return graph.status();
    // Alternates both and takes the best of each; rounds are short enough that
    // the stream's queue never fills.
    for (int round = 0; round < 20; ++round) {
      double begin = moec::getSeconds();
      for (int i = 0; i < kRepeats / 20; ++i)
        for (int k = 0; k < kPlanLaunches; ++k)
          MOERT_CUDA(cu, cuLaunchKernelEx,
                     (&config, function, params, nullptr));
      bare = std::min(bare, moec::getSeconds() - begin);
      MOERT_CUDA(cu, cuStreamSynchronize, (stream));
      begin = moec::getSeconds();
      for (int i = 0; i < kRepeats / 20; ++i)
        if (Status status = executor->run(8, wrapped->get()); !status)
          return status;
      run = std::min(run, moec::getSeconds() - begin);
      MOERT_CUDA(cu, cuStreamSynchronize, (stream));
      begin = moec::getSeconds();
      for (int i = 0; i < kRepeats / 20; ++i)
        if (Status status = device.launchGraph(**wrapped, **graph); !status)
          return status;
      replay = std::min(replay, moec::getSeconds() - begin);
      MOERT_CUDA(cu, cuStreamSynchronize, (stream));
    }
    MOERT_CUDA(cu, cuModuleUnload, (module));
    MOERT_CUDA(cu, cuStreamDestroy, (stream));
    return Status::ok();
  }));
  bare /= kRepeats / 20;
  run /= kRepeats / 20;
  replay /= kRepeats / 20;
  outcome.figures["bare_launches_us"] = bare * 1e6;
  outcome.figures["run_us"] = run * 1e6;
  outcome.figures["graph_launch_us"] = replay * 1e6;
  outcome.note =
      llvm::formatv("host time: {0} bare cuLaunchKernelEx {1:F2} us, "
                    "one run of them {2:F2} us, one cuGraphLaunch "
                    "{3:F2} us",
                    kPlanLaunches, bare * 1e6, run * 1e6, replay * 1e6);
  EXPECT(run - bare < 2e-6);
}

/// Runs follow each other without waiting, and write to separate memory.
void DeviceCase::runsOnSeveralStreamsFollowEachOther() {
  constexpr size_t kRuns = 24;
  for (int round = 0; round < 10; ++round) {
    std::unique_ptr<Buffer> in, out;
    std::unique_ptr<Executor> executor;
    if (!start(executor, makeStepPlan(), in, out))
      return;
    std::vector<std::unique_ptr<Stream>> streams;
    for (int i = 0; i < 3; ++i) {
      auto stream = device.createStream();
      REQUIRE_OK(stream.status());
      streams.push_back(std::move(*stream));
    }
    std::vector<std::unique_ptr<Buffer>> outs(kRuns);
    // Larger counts make the workspace grow.
    auto tokensOf = [](size_t i) { return int64_t(1 + i * 331 % 1000); };
    for (size_t i = 0; i < kRuns; ++i) {
      if (!allocate(outs[i], x.size() * 4))
        return;
      REQUIRE_OK(executor->bind(
          "y", {outs[i]->data(), DType::F32, {kPlanRows, 4}, {}}));
      REQUIRE_OK(executor->run(tokensOf(i), streams[i % 3].get()));
    }
    REQUIRE_OK(executor->synchronize());
    for (size_t i = 0; i < kRuns; ++i)
      expectRows(*outs[i], tokensOf(i));
  }
}

void DeviceCase::threadsTakeTurnsWithAStreamEach() {
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  if (!start(executor, makeStepPlan(), in, out))
    return;
  std::mutex turn;
  std::vector<Outcome> outcomes(4);
  auto work = [&](DeviceCase &one, int64_t first) {
    Outcome &outcome = one.outcome;
    std::unique_ptr<Buffer> own;
    auto stream = device.createStream();
    REQUIRE_OK(stream.status());
    if (!one.allocate(own, x.size() * 4))
      return;
    for (int64_t i = 0; i < 50; ++i) {
      int64_t tokens = 1 + (first + i * 331) % kPlanRows;
      {
        std::lock_guard<std::mutex> lock(turn);
        REQUIRE_OK(
            executor->bind("y", {own->data(), DType::F32, {kPlanRows, 4}, {}}));
        REQUIRE_OK(executor->run(tokens, stream->get()));
      }
      REQUIRE_OK(device.synchronize(**stream));
      one.expectRows(*own, tokens);
    }
  };
  REQUIRE_OK(moert::runTogether(outcomes.size(), [&](size_t t) {
    DeviceCase one(device, outcomes[t]);
    work(one, int64_t(t) * 97);
  }));
  for (Outcome &one : outcomes)
    for (std::string &failure : one.failures)
      outcome.fail(std::move(failure));
}

void DeviceCase::graphsKeepTheirWorkspace() {
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  if (!start(executor, makeStepPlan(), in, out))
    return;
  auto stream = device.createStream();
  REQUIRE_OK(stream.status());
  REQUIRE_OK(executor->run(8, stream->get()));
  std::map<int64_t, std::unique_ptr<Graph>> graphs;
  for (int64_t tokens : {8, 1, 513, 64})
    if (!(graphs[tokens] = capture(*executor, **stream, tokens)))
      return;
  REQUIRE_OK(executor->run(kPlanRows, stream->get()));
  REQUIRE_OK(device.synchronize(**stream));
  for (int i = 0; i < 3; ++i)
    expectReplays(**stream, *out, graphs);
}

void DeviceCase::graphsOutliveTheirExecutor() {
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  if (!start(executor, makeStepPlan(), in, out))
    return;
  auto stream = device.createStream();
  REQUIRE_OK(stream.status());
  std::map<int64_t, std::unique_ptr<Graph>> graphs;
  for (int64_t tokens : {1L, 64L, kPlanRows})
    if (!(graphs[tokens] = capture(*executor, **stream, tokens)))
      return;
  executor.reset();
  // Other buffers get the freed memory.
  std::vector<std::unique_ptr<Buffer>> others(64);
  for (std::unique_ptr<Buffer> &other : others) {
    if (!allocate(other, 1 << 20))
      return;
    REQUIRE_OK(device.fill(**stream, other->data(), 0xFF, other->size()));
  }
  expectReplays(**stream, *out, graphs);
}

/// y is `step` of a prepared weight, which is `step` of x.
void DeviceCase::graphsSeeWeightsThatArePreparedAgain() {
  Plan plan;
  plan.target = "sm_80";
  plan.maxTokens = kPlanRows;
  Expr tokens = Expr::tokens();
  plan.tensors = {{"x", DType::F32, {kPlanRows, 4}, TensorRole::Weight},
                  {"p", DType::F32, {kPlanRows, 4}, TensorRole::Prepared},
                  {"y", DType::F32, {tokens, 4}, TensorRole::Output}};
  plan.kernels = {{"step", Expr::ceilDiv(kPlanRows, 32), 128}};
  auto tensor = [](int64_t index) { return Argument::ofTensor(index); };
  plan.prepare = {
      Step::launch(0, {tensor(0), tensor(1), Argument::ofScalar(kPlanRows)})};
  plan.variants = {
      {0,
       kPlanRows,
       {Step::launch(0, {tensor(1), tensor(2), Argument::ofTokens()})}}};
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  if (!start(executor, plan, in, out))
    return;
  REQUIRE_OK(executor->prepareWeights().status());
  auto stream = device.createStream();
  REQUIRE_OK(stream.status());
  std::unique_ptr<Graph> graph = capture(*executor, **stream, kPlanRows);
  if (!graph)
    return;
  for (float factor : {1.0f, 2.0f, -3.0f}) {
    std::vector<float> weight = x, y(x.size());
    for (float &value : weight)
      value *= factor;
    REQUIRE_OK(device.copyIn(in->data(), weight.data(), weight.size() * 4));
    REQUIRE_OK(executor->prepareAgain().status());
    for (bool replayed : {false, true}) {
      REQUIRE_OK(device.fill(**stream, out->data(), 0xFF, out->size()));
      REQUIRE_OK(replayed ? device.launchGraph(**stream, *graph)
                          : executor->run(kPlanRows, stream->get()));
      REQUIRE_OK(device.synchronize(**stream));
      REQUIRE_OK(device.copyOut(y.data(), out->data(), y.size() * 4));
      for (size_t i = 0; i < y.size(); ++i)
        EXPECT(y[i] == 2 * (2 * weight[i] + 1) + 1);
    }
  }
}

std::vector<Case>
moec::gputest::makeDeviceCases(const std::unique_ptr<SuiteContext> &shared) {
  struct Named {
    const char *name;
    void (DeviceCase::*run)();
  };
  constexpr Named all[] = {
      {"eager", &DeviceCase::runsEagerOnItsOwnAndOnACallersStream},
      {"graphs", &DeviceCase::graphsReplayWhatRanEagerly},
      {"threads", &DeviceCase::threadsAndExecutorsAreIndependent},
      {"failures", &DeviceCase::failuresSayWhatToDo},
      {"tensor_maps", &DeviceCase::tensorMapsAreEncoded},
      {"tensor_map_copies", &DeviceCase::kernelsCopyByTheirTensorMaps},
      {"streams", &DeviceCase::runsOnSeveralStreamsFollowEachOther},
      {"stream_of_each_thread", &DeviceCase::threadsTakeTurnsWithAStreamEach},
      {"graphs_and_larger_run", &DeviceCase::graphsKeepTheirWorkspace},
      {"graphs_outlive", &DeviceCase::graphsOutliveTheirExecutor},
      {"prepare_again", &DeviceCase::graphsSeeWeightsThatArePreparedAgain},
      {"launch_cost", &DeviceCase::runsCostLittleMoreThanTheirLaunches},
  };
  std::vector<Case> cases;
  for (const Named &named : all)
    cases.push_back({std::string("device/") + named.name,
                     [&shared, named] {
                       Outcome outcome;
                       DeviceCase one(shared->device, outcome);
                       (one.*named.run)();
                       return outcome;
                     },
                     /*isAlone=*/true});
  return cases;
}
