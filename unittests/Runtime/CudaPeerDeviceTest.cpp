//===- CudaPeerDeviceTest.cpp - failures of driver calls between ranks ----===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Two ranks on two emulated GPUs make heaps for each other, as threads of one
// process and as if in separate processes.

#include "CudaTesting.h"
#include "moert/CudaDevice.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"
#include "moert/PeerCommunicator.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

using namespace moert;
using namespace moert::test;

namespace {

/// Pretends to be in another process by its handles.
class OtherProcess : public PeerDevice {
public:
  explicit OtherProcess(std::unique_ptr<PeerDevice> inner)
      : inner(std::move(inner)) {}

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override {
    return inner->allocate(bytes);
  }
  Result<PeerHandle> share(const Buffer &buffer) override {
    Result<PeerHandle> handle = inner->share(buffer);
    if (handle)
      ++handle->process;
    return handle;
  }
  Result<std::unique_ptr<Buffer>> open(const PeerHandle &handle) override {
    return inner->open(handle);
  }
  Status launch(Stream &stream, Kernel &kernel, const LaunchDims &dims,
                const LaunchArgs &args) override {
    return inner->launch(stream, kernel, dims, args);
  }
  Status prepareCopies(size_t lanes) override {
    return inner->prepareCopies(lanes);
  }
  Status copy(Stream &stream, const std::vector<PeerCopy> &copies) override {
    return inner->copy(stream, copies);
  }

private:
  std::unique_ptr<PeerDevice> inner;
};

/// One rank, with its status.
struct Rank {
  std::shared_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  Status status;

  /// Starts on the GPU of the rank's number, or on `gpu`.
  Status start(LocalGroup &group, int64_t rank, bool isProcess,
               std::optional<int> gpu = {});
};

/// Returns the first error.
Status Rank::start(LocalGroup &group, int64_t rank, bool isProcess,
                   std::optional<int> gpu) {
  int ordinal = gpu.value_or(int(rank));
  Result<std::unique_ptr<Device>> made = createCudaDevice(ordinal, kFakeDriver);
  if (!made) {
    // Join and leave, so that the other rank does not wait.
    std::unique_ptr<Device> host = *createHostDevice(1);
    (void)group.join(rank, *host);
    return made.status();
  }
  device = std::move(*made);
  Result<std::unique_ptr<Communicator>> base = group.join(rank, *device);
  if (!base)
    return base.status();
  PeerOptions options;
  options.base = std::move(*base);
  options.device = device;
  options.limitSeconds = 20;
  Result<std::unique_ptr<PeerDevice>> peer =
      createCudaPeerDevice(*device, ordinal, kFakeDriver);
  if (!peer)
    return peer.status();
  if (isProcess)
    *peer = std::make_unique<OtherProcess>(std::move(*peer));
  options.peer = std::move(*peer);
  Result<std::unique_ptr<PeerCommunicator>> created =
      createPeerCommunicator(options);
  if (!created)
    return created.status();
  communicator = std::move(*created);
  Status reserved = communicator->reserve(MeshAxis::Data, 64, 512);
  // A communicator that failed to reserve must return the same error for every
  // call.
  if (!reserved) {
    EXPECT_EQ(communicator->reserve(MeshAxis::Data, 64, 512).message(),
              reserved.message());
    EXPECT_EQ(communicator->agree("test", "alive").message(),
              reserved.message());
  }
  return reserved;
}

/// The statuses of both ranks, and the number of driver calls up to then.
struct Outcome {
  Status statuses[2];
  int numCalls = 0;
};

template <typename BodyT>
void onBoth(Rank (&ranks)[2], BodyT body) {
  std::vector<std::thread> threads;
  for (int64_t rank = 0; rank < 2; ++rank)
    threads.emplace_back([&, rank] { body(ranks[rank], rank); });
  for (std::thread &thread : threads)
    thread.join();
}

Outcome makeOnBoth(const FakeCuda &fake, bool isProcess) {
  auto group = *LocalGroup::create({2, 1}, /*limitSeconds=*/20);
  Rank ranks[2];
  Outcome run;
  onBoth(ranks, [&](Rank &rank, int64_t number) {
    run.statuses[number] = rank.start(*group, number, isProcess);
    // Free it, so that the other rank does not wait.
    if (!run.statuses[number])
      rank.communicator.reset();
  });
  run.numCalls = int(fake.calls.size());
  onBoth(ranks, [](Rank &rank, int64_t) {
    rank.communicator.reset();
    rank.device.reset();
  });
  return run;
}

/// Whether only whole heaps are left, which other ranks may write to, and the
/// objects that keep them.
bool isLeftForOthers(const FakeCuda &fake) {
  constexpr size_t granularity = size_t(2) << 20;
  return fake.streams.empty() && fake.events.empty() &&
         std::all_of(fake.allocations.begin(), fake.allocations.end(),
                     [](const auto &allocation) {
                       return allocation.second.size % granularity == 0;
                     });
}

} // namespace

TEST(CudaPeerDeviceTest, EveryDriverCallMayFail) {
  for (bool isProcess : {false, true}) {
    std::string phases;
    int numCalls = 0, numLeft = 0;
    for (int failAt = 0; failAt <= numCalls; ++failAt) {
      FakeCuda &fake = resetFakeCuda();
      fake.failAt = failAt;
      Outcome run = makeOnBoth(fake, isProcess);
      EXPECT_EQ(fake.freedWhileMapped, 0) << "when call " << failAt << " fails";
      std::string leaks = fake.leaks();
      if (failAt == 0) {
        for (const Status &status : run.statuses)
          ASSERT_TRUE(status) << status.message();
        EXPECT_EQ(leaks, "");
        numCalls = int(fake.calls.size());
        std::set<std::string> made(fake.calls.begin(), fake.calls.end());
        for (const char *call :
             {"cuDeviceGetUuid", "cuDeviceCanAccessPeer", "cuIpcGetMemHandle",
              isProcess ? "cuIpcOpenMemHandle" : "cuCtxEnablePeerAccess"})
          EXPECT_TRUE(made.count(call)) << call << " is never called";
        continue;
      }
      EXPECT_TRUE(leaks.empty() || isLeftForOthers(fake)) << leaks;
      // Failures during destruction are not reported.
      if (failAt > run.numCalls)
        continue;
      numLeft += !leaks.empty();
      std::string call = fake.calls[size_t(failAt - 1)];
      const Status &first = run.statuses[0], &second = run.statuses[1];
      if (first && second) {
        // Failures that must not matter: releasing temporary memory or streams,
        // and getting a handle, which ranks of one process do not need.
        EXPECT_TRUE(call.find("cuCtx") == 0 || call == "cuMemFree" ||
                    call == "cuThreadExchangeStreamCaptureMode" ||
                    call == "cuStreamDestroy" || call == "cuIpcGetMemHandle")
            << "the failure of " << call << " is lost";
        continue;
      }
      EXPECT_FALSE(first) << call << ": " << second.message();
      EXPECT_FALSE(second) << call << ": " << first.message();
      std::string both = first.message() + "\n" + second.message() + "\n";
      EXPECT_NE(both.find(call), std::string::npos) << call << ": " << both;
      phases += both;
    }
    // The numbering of calls depends on the order of threads, so the loop above
    // may miss one; make the first calls of these functions fail.
    for (const char *call :
         {"cuDeviceGetUuid", "cuDeviceCanAccessPeer",
          isProcess ? "cuIpcOpenMemHandle" : "cuCtxEnablePeerAccess"})
      for (int failAt : {1, 2}) {
        FakeCuda &fake = resetFakeCuda();
        fake.failCall = call;
        fake.failAt = failAt;
        for (const Status &status : makeOnBoth(fake, isProcess).statuses)
          phases += status.message() + "\n";
      }
    // Failures in either phase, on either rank.
    std::vector<std::string> texts = {
        "has memory of other ranks over dp 'allocation of ",
        " bytes of peer memory: ",
        "a handle of the peer memory: cuDeviceGetUuid: CUDA_ERROR_FAKE",
        "rank 0 cannot reach the memory of rank 1: ",
        "rank 1 cannot reach the memory of rank 0: ",
        "cuDeviceCanAccessPeer: CUDA_ERROR_FAKE",
        isProcess ? "cuIpcOpenMemHandle: CUDA_ERROR_FAKE"
                  : "cuCtxEnablePeerAccess: CUDA_ERROR_FAKE"};
    if (isProcess)
      texts.push_back("it has no handle for other processes: "
                      "cuIpcGetMemHandle: CUDA_ERROR_FAKE");
    for (const std::string &text : texts)
      EXPECT_NE(phases.find(text), std::string::npos) << text;
    printf("%d calls, %d of them leave a heap to other ranks\n", numCalls,
           numLeft);
  }
}

TEST(CudaPeerDeviceTest, GpusWithoutPeerAccessAreNamed) {
  for (bool isProcess : {false, true}) {
    FakeCuda &fake = resetFakeCuda();
    fake.hasPeers = false;
    for (const Status &status : makeOnBoth(fake, isProcess).statuses)
      EXPECT_NE(status.message().find("has no peer access to cuda:"),
                std::string::npos)
          << status.message();
    EXPECT_EQ(fake.leaks(), "");
    EXPECT_EQ(fake.freedWhileMapped, 0);
  }
}

/// Only one of two heaps fits: the other rank must unmap it before it is freed.
TEST(CudaPeerDeviceTest, MemoryThatIsNotThereIsNamed) {
  FakeCuda &fake = resetFakeCuda();
  fake.memory = size_t(3) << 20;
  for (const Status &status : makeOnBoth(fake, /*isProcess=*/true).statuses)
    EXPECT_NE(status.message().find("CUDA_ERROR_OUT_OF_MEMORY"),
              std::string::npos)
        << status.message();
  EXPECT_EQ(fake.leaks(), "");
  EXPECT_EQ(fake.freedWhileMapped, 0);
}

namespace {

/// Copies from one GPU to three destinations, as from one of four ranks.
struct Copies {
  static constexpr size_t kLanes = 3, kBytes = 64;

  std::unique_ptr<Device> device;
  std::unique_ptr<PeerDevice> peer;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Buffer> from, to;

  Status start();
  Status copy() {
    std::vector<PeerCopy> copies;
    for (size_t lane = 0; lane < kLanes; ++lane)
      copies.push_back({static_cast<char *>(to->data()) + lane * kBytes,
                        from->data(), kBytes, lane});
    return peer->copy(*stream, copies);
  }
  /// Number of destinations with the copied bytes.
  Result<size_t> count() {
    std::vector<char> bytes(kLanes * kBytes);
    if (Status read = device->copyOut(bytes.data(), to->data(), bytes.size());
        !read)
      return read;
    size_t found = 0;
    for (size_t lane = 0; lane < kLanes; ++lane)
      found += bytes[lane * kBytes] == 7 && bytes[lane * kBytes + 63] == 7;
    return found;
  }
};

Status Copies::start() {
  auto take = [](auto result, auto &to) {
    if (result)
      to = std::move(*result);
    return result.status();
  };
  Status status = take(createCudaDevice(0, kFakeDriver), device);
  if (status)
    status = take(createCudaPeerDevice(*device, 0, kFakeDriver), peer);
  if (status)
    status = take(device->createStream(), stream);
  if (status)
    status = take(device->allocate(kBytes, 256), from);
  if (status)
    status = take(device->allocate(kBytes * kLanes, 256), to);
  std::vector<char> bytes(kBytes, 7);
  if (status)
    status = device->copyIn(from->data(), bytes.data(), kBytes);
  return status ? peer->prepareCopies(kLanes - 1) : status;
}

} // namespace

/// Ranks of one process on one GPU wait for each other, so their kernels are
/// refused unless all fit at once; processes are time-sliced.
TEST(CudaPeerDeviceTest, RanksOfAGpuNeedRoomForAllOfThem) {
  for (bool isProcess : {false, true}) {
    // Launched kernels have no rows to reduce.
    resetFakeCuda().kernel = nullptr;
    auto group = *LocalGroup::create({2, 1}, /*limitSeconds=*/20);
    Rank ranks[2];
    onBoth(ranks, [&](Rank &rank, int64_t number) {
      // One rank is in another process.
      rank.status =
          rank.start(*group, number, isProcess && number == 1, /*gpu=*/0);
    });
    onBoth(ranks, [&](Rank &rank, int64_t) {
      ASSERT_TRUE(rank.status) << rank.status.message();
      auto module = rank.device->loadModule(makePtxImage());
      auto stream = rank.device->createStream();
      ASSERT_TRUE(module && stream);
      CollectivePart part{&rank, &rank, DType::U8, 4};
      Collective collective;
      collective.parts = &part;
      collective.numParts = 1;
      collective.kernel = *(*module)->kernel("reduce");
      // Two fit on a multiprocessor, 264 on the GPU.
      collective.dims.block = 1024;
      collective.dims.grid = 133;
      std::string message =
          rank.communicator->run(**stream, collective).message();
      EXPECT_EQ(
          message.find("2 ranks share the GPU, which cannot run 133 "
                       "CTAs of each at once; compile the layer by moe-compile "
                       "with --config=all_gather_dp:ctas=132") !=
              std::string::npos,
          !isProcess)
          << message;
    });
    onBoth(ranks, [](Rank &rank, int64_t) { rank.communicator.reset(); });
  }
}

/// Lanes begin after the stream's earlier work and are joined to it, so that
/// copies can be captured.
TEST(CudaPeerDeviceTest, LanesOfCopiesForkAndJoin) {
  FakeCuda &fake = resetFakeCuda();
  {
    Copies copies;
    ASSERT_TRUE(copies.start());
    size_t before = fake.calls.size();
    auto graph = captureGraph(*copies.device, *copies.stream,
                              [&] { return copies.copy(); });
    ASSERT_TRUE(graph) << graph.status().message();
    std::string order;
    for (size_t i = before; i < fake.calls.size(); ++i)
      if (const std::string &call = fake.calls[i];
          call.find("cuEvent") == 0 || call.find("cuStreamWait") == 0 ||
          call.find("cuMemcpy") == 0)
        order += (order.empty() ? "" : " ") + call;
    EXPECT_EQ(order, "cuEventRecord cuStreamWaitEvent cuStreamWaitEvent "
                     "cuMemcpyDtoDAsync cuMemcpyDtoDAsync cuMemcpyDtoDAsync "
                     "cuEventRecord cuStreamWaitEvent cuEventRecord "
                     "cuStreamWaitEvent");
    EXPECT_EQ(*copies.count(), 0U);
    ASSERT_TRUE(copies.device->launchGraph(*copies.stream, **graph));
    EXPECT_EQ(*copies.count(), Copies::kLanes);
    PeerCopy unknown{copies.to->data(), copies.from->data(), 1, Copies::kLanes};
    EXPECT_EQ(copies.peer->copy(*copies.stream, {unknown}).message(),
              "lane 3 of copies was not prepared");
  }
  EXPECT_EQ(fake.leaks(), "");
}

TEST(CudaPeerDeviceTest, EveryCallOfACopyMayFail) {
  size_t numFailed = 0;
  for (const char *call : {"cuStreamCreate", "cuEventCreate", "cuEventRecord",
                           "cuStreamWaitEvent", "cuMemcpyDtoDAsync"})
    for (int failAt = 1; failAt <= 4; ++failAt) {
      FakeCuda &fake = resetFakeCuda();
      fake.failCall = call;
      fake.failAt = failAt;
      {
        Copies copies;
        Status status = copies.start();
        if (status)
          status = copies.copy();
        bool isReached = size_t(std::count(fake.calls.begin(), fake.calls.end(),
                                           call)) >= size_t(failAt);
        EXPECT_EQ(!status.isOk(), isReached) << call << " " << failAt;
        if (isReached)
          EXPECT_NE(status.message().find(std::string(call) + ": CUDA_ERROR"),
                    std::string::npos)
              << status.message();
        numFailed += isReached;
        // Streams and devices may be destroyed in any order.
        copies.peer.reset();
      }
      EXPECT_EQ(fake.leaks(), "");
    }
  EXPECT_EQ(numFailed, 4U + 3 + 3 + 4 + 3);
}
