//===- GpuSuite.cpp - tests of the runtime on a real GPU --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels are written by hand, so that nothing of the compiler is needed. A
// machine without a GPU fails every test.
//
//===----------------------------------------------------------------------===//

#include "moert/CudaDevice.h"
#include "moert/Executor.h"
#include "runtime/src/cuda/Context.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>

using namespace moert;

#define ASSERT_OK(expression)                                                  \
  do {                                                                         \
    const Status asserted = (expression);                                      \
    ASSERT_TRUE(asserted) << asserted.toString();                              \
  } while (false)

namespace {

/// step: out[i] = in[i] * 2 + 1 for i < 4 * tokens. staged: the same of in[i],
/// through 100 KB of dynamic shared memory.
constexpr char kPtx[] = R"(
.version 7.0
.target sm_80
.address_size 64
.extern .shared .align 16 .b8 dynamic[];

.visible .entry step(.param .u64 in, .param .u64 out, .param .u64 tokens)
{
  .reg .pred %p;
  .reg .b32 %r<4>;
  .reg .b64 %d<8>;
  .reg .f32 %f<3>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r1, %r1, 128, %r2;
  cvt.u64.u32 %d1, %r1;
  ld.param.u64 %d2, [tokens];
  shl.b64 %d2, %d2, 2;
  setp.ge.u64 %p, %d1, %d2;
  @%p ret;
  ld.param.u64 %d3, [in];
  ld.param.u64 %d4, [out];
  shl.b64 %d1, %d1, 2;
  add.u64 %d3, %d3, %d1;
  add.u64 %d4, %d4, %d1;
  ld.global.f32 %f1, [%d3];
  fma.rn.f32 %f1, %f1, 0f40000000, 0f3F800000;
  st.global.f32 [%d4], %f1;
  ret;
}

.visible .entry staged(.param .u64 in, .param .u64 out, .param .u64 tokens)
{
  .reg .pred %p;
  .reg .b32 %r<6>;
  .reg .b64 %d<8>;
  .reg .f32 %f<3>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r1, %r1, 128, %r2;
  cvt.u64.u32 %d1, %r1;
  ld.param.u64 %d2, [tokens];
  shl.b64 %d2, %d2, 2;
  setp.ge.u64 %p, %d1, %d2;
  mov.u32 %r3, dynamic;
  mad.lo.u32 %r4, %r2, 796, %r3;
  ld.param.u64 %d3, [in];
  ld.param.u64 %d4, [out];
  shl.b64 %d1, %d1, 2;
  add.u64 %d3, %d3, %d1;
  add.u64 %d4, %d4, %d1;
  @!%p ld.global.f32 %f1, [%d3];
  @!%p st.shared.f32 [%r4], %f1;
  bar.sync 0;
  @!%p ld.shared.f32 %f2, [%r4];
  @!%p fma.rn.f32 %f2, %f2, 0f40000000, 0f3F800000;
  @!%p st.global.f32 [%d4], %f2;
  ret;
}
)";

/// copied: out[i] = in[i] * 2 + 1 for i < 4 * tokens; 16 rows of in come by the
/// tensor map.
constexpr char kMapPtx[] = R"(
.version 8.0
.target sm_90
.address_size 64

.visible .entry copied(.param .u64 in, .param .u64 out, .param .u64 tokens,
                       .param .align 64 .b8 map[128])
{
  .reg .pred %p;
  .reg .b32 %r<8>;
  .reg .b64 %d<6>;
  .reg .f32 %f<2>;
  .shared .align 128 .b8 tile[256];
  .shared .align 8 .b64 barrier;
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mov.u32 %r3, tile;
  mov.u32 %r4, barrier;
  setp.ne.u32 %p, %r1, 0;
  @%p bra started;
  mbarrier.init.shared.b64 [%r4], 1;
  fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r4], 256;
  mov.b64 %d1, map;
  cvta.param.u64 %d1, %d1;
  mov.u32 %r5, 0;
  shl.b32 %r6, %r2, 4;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes
    [%r3], [%d1, {%r5, %r6}], [%r4];
started:
  bar.sync 0;
waiting:
  mbarrier.try_wait.parity.shared.b64 %p, [%r4], 0;
  @!%p bra waiting;
  mad.lo.u32 %r2, %r2, 64, %r1;
  cvt.u64.u32 %d2, %r2;
  ld.param.u64 %d3, [tokens];
  shl.b64 %d3, %d3, 2;
  setp.ge.u64 %p, %d2, %d3;
  @%p ret;
  shl.b32 %r1, %r1, 2;
  add.u32 %r3, %r3, %r1;
  ld.shared.f32 %f1, [%r3];
  fma.rn.f32 %f1, %f1, 0f40000000, 0f3F800000;
  ld.param.u64 %d4, [out];
  shl.b64 %d2, %d2, 2;
  add.u64 %d4, %d4, %d2;
  st.global.f32 [%d4], %f1;
  ret;
}
)";

constexpr int64_t kRows = 1000;
constexpr int64_t kShared = 100 * 1024;
/// Launches of one run.
constexpr int kLaunches = 6;

ModuleImage makeImage() {
  ModuleImage image;
  image.kind = ModuleImage::Kind::Ptx;
  image.modules.emplace_back(kPtx, kPtx + sizeof(kPtx) - 1);
  return image;
}

/// y is x after six steps; the fourth is staged, the third and fifth are on a
/// second stream.
Plan makePlan() {
  Plan plan;
  plan.target = "sm_80";
  plan.maxTokens = kRows;
  plan.numSlots = 2;
  plan.numStreams = 2;
  plan.numEvents = 4;
  Expr tokens = Expr::tokens();
  plan.tensors = {
      {"x", DType::F32, {tokens, 4}, TensorRole::Input},
      {"a", DType::F32, {tokens, 4}, TensorRole::Workspace, 0, 16},
      {"b", DType::F32, {tokens, 4}, TensorRole::Workspace, 1, 16},
      {"y", DType::F32, {tokens, 4}, TensorRole::Output},
  };
  Expr grid = Expr::ceilDiv(tokens * 4, 128);
  plan.kernels = {{"step", grid, 128, 0}, {"staged", grid, 128, kShared}};
  auto launch = [](int64_t kernel, int64_t from, int64_t to, int64_t stream) {
    return Step::launch(kernel,
                        {Argument::ofTensor(from), Argument::ofTensor(to),
                         Argument::ofTokens()},
                        stream);
  };
  plan.variants = {{0,
                    kRows,
                    {launch(0, 0, 1, 0), launch(0, 1, 2, 0), Step::record(0, 0),
                     Step::wait(0, 1), launch(0, 2, 1, 1), Step::record(1, 1),
                     Step::wait(1, 0), launch(1, 1, 2, 0), Step::record(2, 0),
                     Step::wait(2, 1), launch(0, 2, 1, 1), Step::record(3, 1),
                     Step::wait(3, 0), launch(0, 1, 3, 0)}}};
  return plan;
}

float expected(float x) {
  for (int i = 0; i < kLaunches; ++i)
    x = x * 2 + 1;
  return x;
}

class GpuSuite : public ::testing::Test {
protected:
  void SetUp() override {
    Result<std::unique_ptr<Device>> made = createCudaDevice(0);
    ASSERT_TRUE(made) << made.status().toString();
    device = std::move(*made);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i % 17) - 8;
  }

  void allocate(std::unique_ptr<Buffer> &buffer, size_t bytes) {
    Result<std::unique_ptr<Buffer>> made = device->allocate(bytes, 256);
    ASSERT_TRUE(made) << made.status().toString();
    buffer = std::move(*made);
  }

  /// An executor with x and y bound.
  void start(std::unique_ptr<Executor> &executor, const Plan &plan,
             std::unique_ptr<Buffer> &in, std::unique_ptr<Buffer> &out) {
    auto made = Executor::create(plan, *device, makeImage());
    ASSERT_TRUE(made) << made.status().toString();
    executor = std::move(*made);
    allocate(in, x.size() * 4);
    allocate(out, x.size() * 4);
    ASSERT_OK(device->copyIn(in->data(), x.data(), x.size() * 4));
    ASSERT_OK(executor->bind("x", {in->data(), DType::F32, {kRows, 4}, {}}));
    ASSERT_OK(executor->bind("y", {out->data(), DType::F32, {kRows, 4}, {}}));
  }

  void expectRows(const Buffer &out, int64_t tokens) {
    std::vector<float> y(static_cast<size_t>(tokens) * 4);
    ASSERT_OK(device->copyOut(y.data(), out.data(), y.size() * 4));
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(y[i], expected(x[i])) << i;
  }

  std::unique_ptr<Device> device;
  std::vector<float> x = std::vector<float>(kRows * 4);
};

double seconds() {
  auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

} // namespace

TEST_F(GpuSuite, RunsEagerOnItsOwnAndOnACallersStream) {
  printf("%s, %s\n", device->name().c_str(), device->architecture().c_str());
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  start(executor, makePlan(), in, out);
  for (int64_t tokens : {1L, 33L, 1000L, 0L}) {
    ASSERT_OK(executor->run(tokens));
    ASSERT_OK(executor->synchronize());
    expectRows(*out, tokens);
  }
  // The default stream.
  Result<std::unique_ptr<Stream>> stream = device->wrapStream(nullptr);
  ASSERT_OK(stream.status());
  ASSERT_OK(device->fill(**stream, out->data(), 0xFF, out->size()));
  ASSERT_OK(executor->run(kRows, stream->get()));
  ASSERT_OK(device->synchronize(**stream));
  expectRows(*out, kRows);
}

TEST_F(GpuSuite, GraphsReplayWhatRanEagerly) {
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  start(executor, makePlan(), in, out);
  ASSERT_OK(executor->run(kRows));
  ASSERT_OK(executor->synchronize());
  Result<std::unique_ptr<Stream>> stream = device->createStream();
  ASSERT_OK(stream.status());
  auto graph = captureGraph(
      *device, **stream, [&] { return executor->run(kRows, stream->get()); });
  ASSERT_OK(graph.status());
  for (int i = 0; i < 100; ++i) {
    ASSERT_OK(device->fill(**stream, out->data(), 0xFF, out->size()));
    ASSERT_OK(device->launchGraph(**stream, **graph));
    ASSERT_OK(device->synchronize(**stream));
    expectRows(*out, kRows);
  }
  // A capture that goes wrong leaves the stream usable.
  auto failed = captureGraph(*device, **stream,
                             [&] { return internalError("on purpose"); });
  EXPECT_EQ(failed.status().message(), "on purpose");
  ASSERT_OK(executor->run(kRows, stream->get()));
  ASSERT_OK(device->synchronize(**stream));
}

TEST_F(GpuSuite, ThreadsAndExecutorsAreIndependent) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      std::unique_ptr<Buffer> in, out;
      std::unique_ptr<Executor> executor;
      start(executor, makePlan(), in, out);
      for (int i = 0; i < 200; ++i)
        ASSERT_OK(executor->run(kRows));
      ASSERT_OK(executor->synchronize());
      expectRows(*out, kRows);
    });
  for (std::thread &thread : threads)
    thread.join();
}

TEST_F(GpuSuite, FailuresSayWhatToDo) {
  ModuleImage image;
  image.kind = ModuleImage::Kind::Ptx;
  std::string text = ".version 7.0\n.target sm_80\n.address_size 64\n"
                     ".visible .entry k() { nonsense; }\n";
  image.modules.emplace_back(text.begin(), text.end());
  Status status = device->loadModule(image).status();
  printf("%s\n", status.message().c_str());
  EXPECT_NE(status.message().find("CUDA_ERROR_INVALID_PTX (218)"),
            std::string::npos);
  EXPECT_NE(status.message().find("the driver's compiler says: "),
            std::string::npos);
  image.kind = ModuleImage::Kind::Cubin;
  EXPECT_FALSE(device->loadModule(image));

  auto module = device->loadModule(makeImage());
  ASSERT_OK(module.status());
  Status missing = (*module)->kernel("nobody").status();
  printf("%s\n", missing.message().c_str());
  EXPECT_EQ(missing.code(), StatusCode::NotFound);

  auto tooMuch = device->allocate(size_t(1) << 50, 256);
  printf("%s\n", tooMuch.status().message().c_str());
  EXPECT_EQ(tooMuch.status().code(), StatusCode::ResourceExhausted);

  auto executor = Executor::create(makePlan(), *device, makeImage());
  ASSERT_OK(executor.status());
  Status host = (*executor)->bind("x", {x.data(), DType::F32, {kRows, 4}, {}});
  printf("%s\n", host.message().c_str());
  EXPECT_EQ(host.code(), StatusCode::InvalidArgument);
  EXPECT_FALSE(device->checkTarget("sm_75a"));
}

TEST_F(GpuSuite, TensorMapsAreEncoded) {
  std::unique_ptr<Buffer> memory;
  allocate(memory, 1 << 20);
  TensorMapRecipe recipe;
  recipe.data = memory->data();
  recipe.dtype = DType::BF16;
  recipe.shape = {128, 512};
  recipe.strideBytes = {1024};
  recipe.box = {64, 64};
  recipe.swizzleBytes = 128;
  auto map = device->encodeTensorMap(recipe);
  ASSERT_OK(map.status());
  uint64_t zero[16] = {};
  EXPECT_NE(memcmp(map->opaque, zero, sizeof(zero)), 0);
  recipe.strideBytes = {1000}; // No multiple of 16.
  Status status = device->encodeTensorMap(recipe).status();
  printf("%s\n", status.message().c_str());
  EXPECT_FALSE(status);
}

TEST_F(GpuSuite, KernelsCopyByTheirTensorMaps) {
  Plan plan;
  plan.target = "sm_90";
  plan.maxTokens = kRows;
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
       kRows,
       {Step::launch(0, {Argument::ofTensor(0), Argument::ofTensor(1),
                         Argument::ofTokens()})}}};
  ModuleImage image = makeImage();
  image.modules.emplace_back(kMapPtx, kMapPtx + sizeof(kMapPtx) - 1);
  auto executor = Executor::create(plan, *device, image);
  if (!device->checkTarget("sm_90")) {
    EXPECT_FALSE(executor);
    return;
  }
  ASSERT_OK(executor.status());
  std::unique_ptr<Buffer> in, out;
  allocate(in, x.size() * 4);
  allocate(out, x.size() * 4);
  ASSERT_OK(device->copyIn(in->data(), x.data(), x.size() * 4));
  ASSERT_OK((*executor)->bind("x", {in->data(), DType::F32, {kRows, 4}, {}}));
  ASSERT_OK((*executor)->bind("y", {out->data(), DType::F32, {kRows, 4}, {}}));
  for (int64_t tokens : {1000L, 33L, 1L, 0L, 1000L}) {
    ASSERT_OK((*executor)->run(tokens));
    ASSERT_OK((*executor)->synchronize());
    std::vector<float> y(static_cast<size_t>(tokens) * 4);
    ASSERT_OK(device->copyOut(y.data(), out->data(), y.size() * 4));
    for (size_t i = 0; i < y.size(); ++i)
      ASSERT_EQ(y[i], x[i] * 2 + 1) << i;
  }
}

/// Host time of a run against that of its launches alone. One stream, so that
/// the two do the same.
TEST_F(GpuSuite, RunsCostLittleMoreThanTheirLaunches) {
  using namespace moert::cuda;
  constexpr int kRepeats = 2000;
  Plan plan = makePlan();
  auto launch = [](int64_t from, int64_t to) {
    return Step::launch(0, {Argument::ofTensor(from), Argument::ofTensor(to),
                            Argument::ofTokens()});
  };
  plan.variants[0].steps = {launch(0, 1), launch(1, 2), launch(2, 1),
                            launch(1, 2), launch(2, 1), launch(1, 3)};
  std::unique_ptr<Buffer> in, out;
  std::unique_ptr<Executor> executor;
  start(executor, plan, in, out);

  Result<std::shared_ptr<const Driver>> driver = Driver::open("");
  ASSERT_OK(driver.status());
  const Driver &cu = **driver;
  auto context = Context::create(*driver, 0);
  ASSERT_OK(context.status());
  double bare = 1e9, run = 1e9, replay = 1e9;
  CUstream stream = nullptr;
  ASSERT_OK((*context)->within([&]() -> Status {
    MOERT_CUDA(cu, cuStreamCreate, (&stream, CU_STREAM_NON_BLOCKING));
    CUmodule module = nullptr;
    CUfunction function = nullptr;
    MOERT_CUDA(cu, cuModuleLoadDataEx, (&module, kPtx, 0, nullptr, nullptr));
    MOERT_CUDA(cu, cuModuleGetFunction, (&function, module, "step"));
    auto wrapped = device->wrapStream(stream);
    uint64_t args[] = {reinterpret_cast<uintptr_t>(in->data()),
                       reinterpret_cast<uintptr_t>(out->data()), 8};
    void *params[] = {&args[0], &args[1], &args[2]};
    CUlaunchConfig config = {1, 1, 1, 128, 1, 1, 0, stream, nullptr, 0};
    if (Status status = executor->run(8, wrapped->get()); !status)
      return status;
    auto graph = captureGraph(*device, **wrapped,
                              [&] { return executor->run(8, wrapped->get()); });
    if (!graph)
      return graph.status();
    // Rounds in turns, the best of each; few enough at a time that the queue
    // of the stream never fills.
    for (int round = 0; round < 20; ++round) {
      double begin = seconds();
      for (int i = 0; i < kRepeats / 20; ++i)
        for (int k = 0; k < kLaunches; ++k)
          MOERT_CUDA(cu, cuLaunchKernelEx,
                     (&config, function, params, nullptr));
      bare = std::min(bare, seconds() - begin);
      MOERT_CUDA(cu, cuStreamSynchronize, (stream));
      begin = seconds();
      for (int i = 0; i < kRepeats / 20; ++i)
        if (Status status = executor->run(8, wrapped->get()); !status)
          return status;
      run = std::min(run, seconds() - begin);
      MOERT_CUDA(cu, cuStreamSynchronize, (stream));
      begin = seconds();
      for (int i = 0; i < kRepeats / 20; ++i)
        if (Status status = device->launchGraph(**wrapped, **graph); !status)
          return status;
      replay = std::min(replay, seconds() - begin);
      MOERT_CUDA(cu, cuStreamSynchronize, (stream));
    }
    MOERT_CUDA(cu, cuModuleUnload, (module));
    MOERT_CUDA(cu, cuStreamDestroy, (stream));
    return Status::ok();
  }));
  bare /= kRepeats / 20;
  run /= kRepeats / 20;
  replay /= kRepeats / 20;
  printf("host time: %d bare cuLaunchKernelEx %.2f us, one run of %d launches "
         "%.2f us, %.2f us more; one cuGraphLaunch of it %.2f us\n",
         kLaunches, bare * 1e6, kLaunches, run * 1e6, (run - bare) * 1e6,
         replay * 1e6);
  EXPECT_LT(run - bare, 2e-6);
}
