//===- CudaDeviceTest.cpp - tests of the CUDA device ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaRun.h"
#include "moert/GpuTarget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>

using namespace moert;
using namespace moert::test;

namespace {

/// Copies a matrix of 3 x 4 bytes, and then all of its rows into every second
/// row of another.
Status copyRows(Device &device, Stream &stream) {
  const uint8_t rows[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  constexpr size_t bytes = sizeof(rows), numRows = 3, rowBytes = 4;
  auto from = device.allocate(bytes, 16), copy = device.allocate(bytes, 16),
       spread = device.allocate(2 * bytes, 16);
  CHECK_OK(from.status());
  CHECK_OK(copy.status());
  CHECK_OK(spread.status());
  CHECK_OK(device.copyIn((*from)->data(), rows, bytes));
  CHECK_OK(device.fill(stream, (*spread)->data(), 0, 2 * bytes));
  CHECK_OK(device.copyRows(stream, {(*copy)->data(), (*from)->data(), rowBytes,
                                    rowBytes, rowBytes, numRows}));
  CHECK_OK(
      device.copyRows(stream, {(*spread)->data(), (*copy)->data(), 2 * rowBytes,
                               rowBytes, rowBytes, numRows}));
  CHECK_OK(device.copyRows(stream, {nullptr, nullptr, 0, 0, 0, numRows}));
  CHECK_OK(device.synchronize(stream));
  std::vector<uint8_t> found(2 * bytes);
  CHECK_OK(device.copyOut(found.data(), (*spread)->data(), found.size()));
  EXPECT_EQ(found,
            (std::vector<uint8_t>{1, 2, 3, 4, 0, 0,  0,  0,  5, 6, 7, 8,
                                  0, 0, 0, 0, 9, 10, 11, 12, 0, 0, 0, 0}));
  return Status::ok();
}

/// Uses every GPU operation of the runtime; returns the first failure.
Status useGpu(std::vector<float> &eager, std::vector<float> &replayed) {
  Result<std::unique_ptr<Device>> made = createCudaDevice(0, kFakeDriver);
  CHECK_OK(made.status());
  Device &device = **made;
  Tensors tensors(device);
  CHECK_OK(tensors.allocate(20));
  ExecutorOptions options;
  options.poison = true;
  auto executor =
      Executor::create(makeGpuPlan(), device, makePtxImage(), options);
  CHECK_OK(executor.status());
  CHECK_OK(tensors.bind(**executor));
  CHECK_OK((*executor)->prepareWeights().status());
  CHECK_OK((*executor)->run(20));
  CHECK_OK((*executor)->synchronize());
  Result<std::vector<float>> y = tensors.readY();
  CHECK_OK(y.status());
  eager = *y;

  Result<std::unique_ptr<Stream>> stream = device.createStream();
  CHECK_OK(stream.status());
  auto begin = device.createTimedEvent(), end = device.createTimedEvent();
  CHECK_OK(begin.status());
  CHECK_OK(end.status());
  CHECK_OK(device.record(**stream, **begin));
  CHECK_OK(device.record(**stream, **end));
  CHECK_OK(device.synchronize(**stream));
  Result<double> seconds = device.elapsedSeconds(**begin, **end);
  CHECK_OK(seconds.status());
  EXPECT_EQ(*seconds, 0.25e-3);
  CHECK_OK(copyRows(device, **stream));
  CHECK_OK(device.isCapturing(**stream).status());
  auto graph = captureGraph(
      device, **stream, [&] { return (*executor)->run(20, stream->get()); });
  CHECK_OK(graph.status());
  CHECK_OK(device.launchGraph(**stream, **graph));
  CHECK_OK(device.synchronize(**stream));
  y = tensors.readY();
  CHECK_OK(y.status());
  replayed = *y;
  return Status::ok();
}

} // namespace

// field-bug: vllm#39288
TEST(CudaDeviceTest, RunsEagerAndAsGraph) {
  FakeCuda &fake = resetFakeCuda();
  std::vector<float> eager, replayed;
  Status status = useGpu(eager, replayed);
  ASSERT_TRUE(status) << status.toString();
  EXPECT_EQ(eager, std::vector<float>(20 * kWidth, expectedAt(20)));
  EXPECT_EQ(eager, replayed);
  EXPECT_EQ(fake.leaks(), "");
  EXPECT_EQ(fake.launches[0], "prepare_scale 1 128 1024");
  EXPECT_EQ(fake.granted["square"], 200 * 1024);
  EXPECT_EQ(fake.granted.count("spread"), 0u);
}

TEST(CudaDeviceTest, EveryDriverCallMayFail) {
  int numCalls = 0;
  for (int failAt = 0; failAt <= numCalls; ++failAt) {
    FakeCuda &fake = resetFakeCuda();
    fake.failAt = failAt;
    std::vector<float> eager, replayed;
    Status status = useGpu(eager, replayed);
    EXPECT_EQ(fake.leaks(), "") << "when call " << failAt << " fails";
    if (failAt == 0) {
      ASSERT_TRUE(status) << status.toString();
      numCalls = static_cast<int>(fake.calls.size());
      // Every driver function must be called, except those that name errors,
      // the one that only NcclCommunicator calls, those of CudaPeerDevice
      // (CudaPeerDeviceTest), and those for graphs of callers
      // (SharedWorkspaceTest).
      std::set<std::string> made(fake.calls.begin(), fake.calls.end());
      const std::set<std::string> ofPeers = {
          "cuDeviceGetUuid",   "cuDeviceCanAccessPeer", "cuCtxEnablePeerAccess",
          "cuIpcGetMemHandle", "cuIpcOpenMemHandle",    "cuIpcCloseMemHandle"};
#define CUDA_SYMBOL(name, exported, version, parameters)                       \
  EXPECT_TRUE(made.count(#name) ||                                             \
              std::string(#name).find("cuGetError") == 0 ||                    \
              std::string(#name) == "cuStreamQuery" ||                         \
              std::string(#name).find("UserObject") != std::string::npos ||    \
              ofPeers.count(#name))                                            \
      << #name << " is never called";
#include "../../runtime/src/cuda/Symbols.def"
      continue;
    }
    std::string call = fake.calls[failAt - 1];
    // Destructors have no status to return.
    if (status) {
      EXPECT_TRUE(call == "cuCtxGetCurrent" || call == "cuCtxPushCurrent" ||
                  call == "cuCtxPopCurrent" || call == "cuMemFree" ||
                  call == "cuThreadExchangeStreamCaptureMode" ||
                  call.find("Destroy") != std::string::npos ||
                  call.find("Release") != std::string::npos ||
                  call.find("Unload") != std::string::npos)
          << "the failure of " << call << " is lost";
      continue;
    }
    EXPECT_NE(status.message().find(call + ": CUDA_ERROR_FAKE (719): what the "
                                           "driver says; "),
              std::string::npos)
        << status.message();
  }
}

TEST(CudaDeviceTest, HotPathNeitherAllocatesNorWaits) {
  FakeCuda &fake = resetFakeCuda();
  Loaded loaded(makeGpuPlan());
  auto &[device, tensors, executor] = loaded;
  ASSERT_TRUE((*executor)->prepareWeights());
  ASSERT_TRUE((*executor)->run(20));
  // Callers such as PyTorch have the primary context current.
  auto &current = fake.current[std::this_thread::get_id()];
  current = {reinterpret_cast<cuda::CUcontext>(uintptr_t(0x1000))};
  fake.calls.clear();
  for (int64_t tokens : {20, 20, 3}) {
    auto stream = (*device)->wrapStream(nullptr);
    ASSERT_TRUE(stream);
    ASSERT_TRUE((*executor)->run(tokens, stream->get()));
  }
  for (const std::string &call : fake.calls)
    EXPECT_TRUE(call == "cuCtxGetCurrent" || call == "cuLaunchKernelEx" ||
                call == "cuTensorMapEncodeTiled" || call == "cuEventRecord" ||
                call == "cuStreamWaitEvent" ||
                call == "cuStreamGetCaptureInfo" || call == "cuStreamGetId")
        << call;
  EXPECT_EQ(
      std::count(fake.calls.begin(), fake.calls.end(), "cuLaunchKernelEx"),
      5 + 5 + 4);
  // Maps of x and h for three tokens.
  EXPECT_EQ(std::count(fake.calls.begin(), fake.calls.end(),
                       "cuTensorMapEncodeTiled"),
            2);
  current.clear();
}

TEST(CudaDeviceTest, LayersStreamsAndThreadsAreIndependent) {
  FakeCuda &fake = resetFakeCuda();
  {
    auto device = createCudaDevice(0, kFakeDriver);
    ASSERT_TRUE(device);
    std::vector<std::thread> threads;
    std::vector<Status> results(4, Status::ok());
    std::vector<std::vector<float>> found(4);
    for (size_t t = 0; t < results.size(); ++t)
      threads.emplace_back([&, t] {
        results[t] = [&]() -> Status {
          Tensors tensors(**device);
          CHECK_OK(tensors.allocate(20));
          // Two layers alternate, one on the executor's stream, one on a stream
          // of the caller's.
          std::vector<std::unique_ptr<Executor>> executors;
          for (int layer = 0; layer < 2; ++layer) {
            auto made =
                Executor::create(makeGpuPlan(), **device, makePtxImage());
            CHECK_OK(made.status());
            executors.push_back(std::move(*made));
            CHECK_OK(tensors.bind(*executors.back()));
            CHECK_OK(executors.back()->prepareWeights().status());
          }
          auto stream = (*device)->createStream();
          CHECK_OK(stream.status());
          for (int64_t i = 0; i < 50; ++i) {
            CHECK_OK(executors[0]->run(i % 20 + 1));
            CHECK_OK(executors[0]->synchronize());
            CHECK_OK(executors[1]->run(20, stream->get()));
            CHECK_OK((*device)->synchronize(**stream));
          }
          Result<std::vector<float>> y = tensors.readY();
          CHECK_OK(y.status());
          found[t] = *y;
          return Status::ok();
        }();
      });
    for (std::thread &thread : threads)
      thread.join();
    for (size_t t = 0; t < results.size(); ++t) {
      EXPECT_TRUE(results[t]) << results[t].toString();
      EXPECT_EQ(found[t], std::vector<float>(20 * kWidth, expectedAt(20)));
    }
  }
  EXPECT_EQ(fake.leaks(), "");
}

TEST(CudaDeviceTest, MissingDriversAreUnavailable) {
  auto missing = createCudaDevice(0, "/nonexistent/libcuda.so.1");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.status().code(), StatusCode::Unavailable);
  EXPECT_NE(missing.status().message().find("the CUDA driver cannot be opened: "
                                            "/nonexistent/libcuda.so.1: "),
            std::string::npos)
      << missing.status().message();
  auto empty = createCudaDevice(0, kEmptyLibrary);
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.status().code(), StatusCode::Unavailable);
  EXPECT_NE(empty.status().message().find(
                " has no function cuGetErrorName, which CUDA 6.0 provides"),
            std::string::npos)
      << empty.status().message();
  EXPECT_FALSE(countCudaDevices(kEmptyLibrary));
}

TEST(CudaDeviceTest, OldDriversAreUsedThroughTheirSymbols) {
  FakeCuda &fake = resetFakeCuda();
  fake.hasNoProcAddress = true;
  auto device = createCudaDevice(1, kFakeDriver);
  ASSERT_TRUE(device) << device.status().toString();
  EXPECT_EQ((*device)->name(), "cuda:1 (Fake GPU)");
  EXPECT_EQ((*device)->architecture(), "sm_90");
  EXPECT_EQ(*countCudaDevices(kFakeDriver), 2);
}

TEST(CudaDeviceTest, NamesDevicesThatAreNotThere) {
  FakeCuda &fake = resetFakeCuda();
  EXPECT_NE(createCudaDevice(2, kFakeDriver)
                .status()
                .message()
                .find("GPU 2 was requested; 0 to 1 exist"),
            std::string::npos);
  fake.numDevices = 0;
  auto none = createCudaDevice(0, kFakeDriver);
  EXPECT_EQ(none.status().code(), StatusCode::Unavailable);
  EXPECT_NE(none.status().message().find("CUDA_VISIBLE_DEVICES"),
            std::string::npos);
}

TEST(CudaDeviceTest, TargetsMatchTheDevice) {
  FakeCuda &fake = resetFakeCuda();
  auto device = createCudaDevice(0, kFakeDriver);
  ASSERT_TRUE(device);
  for (const char *target : {"sm_80", "sm_86", "sm_90", "sm_90a", "sm_90f"})
    EXPECT_TRUE((*device)->checkTarget(target)) << target;
  for (const char *target : {"sm_100", "sm_80a", "sm_100a", "sm_80f", "cpu",
                             "sm_", "sm_9", "sm_90b", "sm_9000", "sm_09"})
    EXPECT_FALSE((*device)->checkTarget(target)) << target;
  EXPECT_EQ((*device)->checkTarget("sm_100a").message(),
            "target 'sm_100a' does not run on cuda:0 (Fake GPU), which is "
            "sm_90; compile for the target sm_90 or an older one without "
            "suffix");
  fake.minor = 0;
  fake.major = 10;
  auto blackwell = createCudaDevice(0, kFakeDriver);
  ASSERT_TRUE(blackwell);
  EXPECT_TRUE((*blackwell)->checkTarget("sm_100a"));
  EXPECT_FALSE((*blackwell)->checkTarget("sm_90a"));
}

TEST(CudaDeviceTest, CtasThatWaitForEachOtherNeedRoom) {
  FakeCuda &fake = resetFakeCuda();
  // square has up to 200 CTAs, each with all shared memory of a multiprocessor;
  // reduce has up to 100 small ones, of which 16 fit on a multiprocessor.
  auto load = [&](int multiprocessors, bool squareIsResident) {
    fake.multiprocessors = multiprocessors;
    Plan plan = makeGpuPlan();
    plan.kernels[3].resident = squareIsResident;
    auto device = createCudaDevice(0, kFakeDriver);
    EXPECT_TRUE(device);
    return Executor::create(plan, **device, makePtxImage()).status();
  };
  EXPECT_TRUE(load(7, false));
  EXPECT_TRUE(load(200, true));
  EXPECT_EQ(fake.granted["square"], 200 * 1024);
  Status status = load(199, true);
  EXPECT_EQ(status.code(), StatusCode::InvalidArgument);
  EXPECT_EQ(status.message(),
            "kernel 'square' needs 200 CTAs at once, but cuda:0 (Fake GPU) "
            "runs at most 199; compile the layer by moe-compile with "
            "--disable=join-products,quantize-inputs");
  EXPECT_EQ(load(6, false).message(),
            "kernel 'reduce' needs 100 CTAs at once, but cuda:0 (Fake GPU) "
            "runs at most 96; compile the layer by moe-compile with "
            "--disable=join-products,quantize-inputs");
  EXPECT_TRUE(fake.launches.empty());
  EXPECT_EQ(fake.leaks(), "");
}

TEST(CudaDeviceTest, SaysWhatIsWrongWithImages) {
  FakeCuda &fake = resetFakeCuda();
  auto device = createCudaDevice(0, kFakeDriver);
  ASSERT_TRUE(device);
  EXPECT_EQ((*device)->loadModule(makeImage()).status().message(),
            "loadModule: the image holds host functions, but a GPU takes cubin "
            "or PTX; compile for the target sm_80 or another GPU target");
  ModuleImage image = makePtxImage();
  fake.compilerLog = "ptxas error : no such instruction\n";
  EXPECT_EQ((*device)->loadModule(image).status().message(),
            "loadModule (PTX, 1 of 2): cuModuleLoadDataEx: CUDA_ERROR_FAKE "
            "(218): what "
            "the driver says; the PTX does not assemble; compile again for "
            "the target of this device, and report it if that does not help; "
            "the driver's compiler says: ptxas error : no such instruction");
  fake.compilerLog.clear();
  std::string text = ".version 9.0\n";
  image.modules = {{text.begin(), text.end()}};
  EXPECT_EQ((*device)->loadModule(image).status().message(),
            "loadModule (PTX, 1 of 1): the PTX needs a driver of CUDA 13.0 or "
            "newer, but this one is of 12.8; update the driver, or compile to "
            "cubin by ptxas");
  image.modules.clear();
  EXPECT_FALSE((*device)->loadModule(image));
  image.modules = {{}};
  EXPECT_FALSE((*device)->loadModule(image));
  auto module = (*device)->loadModule(makePtxImage());
  ASSERT_TRUE(module);
  EXPECT_EQ((*module)->kernel("nobody").status().code(), StatusCode::NotFound);
}

TEST(CudaDeviceTest, ChecksLaunchesAndAddresses) {
  FakeCuda &fake = resetFakeCuda();
  auto device = createCudaDevice(0, kFakeDriver);
  ASSERT_TRUE(device);
  auto module = (*device)->loadModule(makePtxImage());
  ASSERT_TRUE(module);
  auto kernel = (*module)->kernel("square");
  ASSERT_TRUE(kernel);
  auto stream = (*device)->createStream();
  ASSERT_TRUE(stream);
  uint64_t args[3] = {};
  auto launch = [&](LaunchDims dims) {
    return (*device)->launch(**stream, **kernel, dims, {args, 3}).message();
  };
  EXPECT_EQ(launch({0, 32, 0}), "");
  LaunchDims urgent = {1, 32, 0};
  urgent.urgent = true;
  EXPECT_EQ(launch(urgent), "");
  EXPECT_NE(fake.launches.back().find(" 1 32 0 urgent"), std::string::npos);
  EXPECT_NE(launch({1, 0, 0}).find("a block from 1 to 1024 threads"),
            std::string::npos);
  EXPECT_NE(launch({1, 32, 228 * 1024})
                .find("launch of 'square': 233472 bytes of shared memory, "
                      "cuda:0 (Fake GPU) has 232448 per CTA"),
            std::string::npos);

  auto executor = Executor::create(makeGpuPlan(), **device, makePtxImage());
  ASSERT_TRUE(executor);
  std::vector<float> host(kWidth);
  EXPECT_EQ(
      (*executor)
          ->bind("scale", {host.data(), DType::F32, {kWidth}, {}})
          .message(),
      "bind 'scale': an address in the memory of cuda:0 (Fake GPU) expected, "
      "an address unknown to the driver found; copy the tensor to the device");
  auto second = createCudaDevice(1, kFakeDriver);
  ASSERT_TRUE(second);
  auto elsewhere = (*second)->allocate(16, 16);
  ASSERT_TRUE(elsewhere);
  EXPECT_EQ(
      (*executor)
          ->bind("scale", {(*elsewhere)->data(), DType::F32, {kWidth}, {}})
          .message(),
      "bind 'scale': an address in the memory of cuda:0 (Fake GPU) expected, "
      "one of cuda:1 found; copy the tensor to this device");
}

TEST(CudaDeviceTest, MemoryIsAlignedAndBounded) {
  FakeCuda &fake = resetFakeCuda();
  auto device = createCudaDevice(0, kFakeDriver);
  ASSERT_TRUE(device);
  auto none = (*device)->allocate(0, 64);
  ASSERT_TRUE(none);
  EXPECT_EQ((*none)->data(), nullptr);
  auto wide = (*device)->allocate(100, 4096);
  ASSERT_TRUE(wide);
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*wide)->data()) % 4096, 0u);
  EXPECT_FALSE((*device)->allocate(100, 3));
  fake.memory = 1000;
  auto tooMuch = (*device)->allocate(2000, 256);
  EXPECT_EQ(tooMuch.status().code(), StatusCode::ResourceExhausted);
  EXPECT_NE(tooMuch.status().message().find("allocate of 2000 bytes on cuda:0"),
            std::string::npos);
}

TEST(CudaDeviceTest, TensorMapsCountFromTheInnermostDimension) {
  FakeCuda &fake = resetFakeCuda();
  auto device = createCudaDevice(0, kFakeDriver);
  ASSERT_TRUE(device);
  TensorMapRecipe recipe;
  recipe.dtype = DType::BF16;
  recipe.shape = {8, 100, 64};
  recipe.strideBytes = {12800, 128};
  recipe.box = {1, 16, 32};
  recipe.swizzleBytes = 64;
  auto map = (*device)->encodeTensorMap(recipe);
  ASSERT_TRUE(map) << map.status().toString();
  ASSERT_EQ(fake.maps.size(), 1u);
  EXPECT_EQ(fake.maps[0].type, cuda::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
  EXPECT_EQ(fake.maps[0].sizes, (std::vector<uint64_t>{64, 100, 8}));
  EXPECT_EQ(fake.maps[0].strides, (std::vector<uint64_t>{128, 12800}));
  EXPECT_EQ(fake.maps[0].box, (std::vector<uint32_t>{32, 16, 1}));
  EXPECT_EQ(fake.maps[0].swizzle, cuda::CU_TENSOR_MAP_SWIZZLE_64B);
  recipe.swizzleBytes = 48;
  EXPECT_FALSE((*device)->encodeTensorMap(recipe));
  recipe.swizzleBytes = 64;
  recipe.box = {1, 16, 257};
  EXPECT_FALSE((*device)->encodeTensorMap(recipe));
  recipe.box = {1, 16};
  EXPECT_FALSE((*device)->encodeTensorMap(recipe));
  recipe.box = {1, 16, 64};
  EXPECT_NE((*device)->encodeTensorMap(recipe).status().message().find(
                "cuTensorMapEncodeTiled: CUDA_ERROR_FAKE (1)"),
            std::string::npos);
}

namespace {

/// The launches of a run by name, dependent ones with a leading '+'.
std::string launchesOf(const FakeCuda &fake) {
  std::string text;
  for (const std::string &launch : fake.launches) {
    bool isDependent = launch.find(" dependent") != std::string::npos;
    text += (text.empty() ? "" : " ") + std::string(isDependent ? "+" : "") +
            launch.substr(0, launch.find(' '));
  }
  return text;
}

/// The plan for a GPU with dependent launches, marked as the compiler does.
Plan makeDependentPlan() {
  Plan plan = makeGpuPlan();
  plan.target = "sm_90";
  for (size_t i : {1, 2, 3})
    plan.variants[0].steps[i].dependent = true;
  plan.variants[1].steps[6].dependent = true;
  return plan;
}

std::string runTwice(const Plan &plan, int64_t tokens, ExecutorOptions options,
                     int driverVersion = 12080) {
  FakeCuda &fake = resetFakeCuda();
  fake.driverVersion = driverVersion;
  Loaded loaded(plan, options);
  Executor &executor = **loaded.executor;
  EXPECT_TRUE(executor.prepareWeights());
  fake.launches.clear();
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(executor.run(tokens));
  return launchesOf(fake);
}

} // namespace

TEST(CudaDeviceTest, DependentLaunchesBeginEarly) {
  // The first launch of a run follows foreign work.
  EXPECT_EQ(runTwice(makeDependentPlan(), 3, {}),
            "spread +add_one +square +reduce spread +add_one +square +reduce");
  EXPECT_EQ(runTwice(makeDependentPlan(), 20, {}),
            "spread copy add_one +square reduce "
            "spread copy add_one +square reduce");
  ExecutorOptions apart;
  apart.dependentLaunches = false;
  EXPECT_EQ(runTwice(makeDependentPlan(), 3, apart),
            "spread add_one square reduce spread add_one square reduce");
  // Before CUDA 12.3 graphs do not support dependent launches.
  EXPECT_EQ(runTwice(makeDependentPlan(), 3, {}, 12020),
            "spread add_one square reduce spread add_one square reduce");
  EXPECT_EQ(runTwice(makeGpuPlan(), 3, {}),
            "spread add_one square reduce spread add_one square reduce");
}

TEST(CudaDeviceTest, WhoFollowsALaunchOfNoCtasDependsOnTheOneBefore) {
  Plan plan = makeDependentPlan();
  plan.kernels[1].grid = Expr(0);
  EXPECT_EQ(runTwice(plan, 3, {}),
            "add_one +square +reduce add_one +square +reduce");
  plan = makeDependentPlan();
  plan.kernels[2].grid = Expr(0);
  EXPECT_EQ(runTwice(plan, 3, {}),
            "spread +square +reduce spread +square +reduce");
}

TEST(CudaDeviceTest, TracesByTheClockOfTheDevice) {
  resetFakeCuda();
  Loaded loaded(makeGpuPlan());
  Executor &executor = **loaded.executor;
  EXPECT_NE(executor.trace(20).status().message().find("prepare them first"),
            std::string::npos);
  ASSERT_TRUE(executor.prepareWeights());
  auto traced = executor.trace(20);
  ASSERT_TRUE(traced) << traced.status().message();
  std::string names;
  for (const TracedStep &step : *traced) {
    names += (names.empty() ? "" : " ") + step.name +
             (step.stream ? "@" + std::to_string(step.stream) : "");
    // The fake driver reports this time between any two events.
    EXPECT_EQ(step.begin, 0.25e-3);
    EXPECT_EQ(step.end, 0.25e-3);
  }
  EXPECT_EQ(names, "spread copy@1 add_one square reduce");
}

TEST(CudaDeviceTest, TellsWhatIsCaptured) {
  resetFakeCuda();
  auto device = createCudaDevice(0, kFakeDriver);
  ASSERT_TRUE(device);
  auto stream = (*device)->createStream(), other = (*device)->createStream();
  ASSERT_TRUE(stream && other);
  auto isCapturing = [&](Stream &stream) {
    Result<bool> captures = (*device)->isCapturing(stream);
    return captures && *captures;
  };
  EXPECT_FALSE(isCapturing(**stream));
  auto graph = captureGraph(**device, **stream, [&] {
    EXPECT_TRUE(isCapturing(**stream));
    EXPECT_FALSE(isCapturing(**other));
    return Status::ok();
  });
  ASSERT_TRUE(graph);
  EXPECT_FALSE(isCapturing(**stream));
}

TEST(CudaDeviceTest, GraphsKeepDependentLaunches) {
  FakeCuda &fake = resetFakeCuda();
  auto device = createCudaDevice(0, kFakeDriver);
  ASSERT_TRUE(device);
  Tensors tensors(**device);
  ASSERT_TRUE(tensors.allocate(20));
  auto executor =
      Executor::create(makeDependentPlan(), **device, makePtxImage());
  ASSERT_TRUE(executor);
  ASSERT_TRUE(tensors.bind(**executor));
  ASSERT_TRUE((*executor)->prepareWeights());
  auto stream = (*device)->createStream();
  ASSERT_TRUE(stream);
  fake.launches.clear();
  auto graph = captureGraph(**device, **stream,
                            [&] { return (*executor)->run(3, stream->get()); });
  ASSERT_TRUE(graph);
  EXPECT_EQ(launchesOf(fake), "spread +add_one +square +reduce");
}
