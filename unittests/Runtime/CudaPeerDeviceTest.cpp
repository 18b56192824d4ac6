//===- CudaPeerDeviceTest.cpp - driver calls that fail between ranks ------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Two ranks on two emulated GPUs make heaps for each other: as threads of a
// process, and as if they were processes of their own.

#include "moert/CudaDevice.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"
#include "moert/PeerCommunicator.h"
#include "unittests/Runtime/CudaTesting.h"

#include <gtest/gtest.h>

#include <thread>

using namespace moert;
using namespace moert::test;

namespace {

/// Ranks of other processes, as what they share says.
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

private:
  std::unique_ptr<PeerDevice> inner;
};

/// One rank, as far as it came.
struct Rank {
  std::shared_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  Status status;

  Status start(LocalGroup &group, int64_t rank, bool isProcess);
};

/// Until the first error.
Status Rank::start(LocalGroup &group, int64_t rank, bool isProcess) {
  Result<std::unique_ptr<Device>> made =
      createCudaDevice(int(rank), kFakeDriver);
  if (!made) {
    // Who has joined and leaves is not waited for.
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
      createCudaPeerDevice(*device, int(rank), kFakeDriver);
  if (!peer)
    return peer.status();
  if (isProcess)
    *peer = std::make_unique<OtherProcess>(std::move(*peer));
  options.peer = std::move(*peer);
  Result<std::unique_ptr<Communicator>> created =
      createPeerCommunicator(options);
  if (!created)
    return created.status();
  communicator = std::move(*created);
  Status reserved = communicator->reserve(MeshAxis::Data, 64);
  // There is no half of one: whatever is asked answers the same.
  if (!reserved) {
    EXPECT_EQ(communicator->reserve(MeshAxis::Data, 64).message(),
              reserved.message());
    EXPECT_EQ(communicator->agree("test", "alive").message(),
              reserved.message());
  }
  return reserved;
}

/// What both answer, and how many calls of the driver there were until then;
/// afterwards they are gone.
struct Outcome {
  Status statuses[2];
  int numCalls = 0;
};

Outcome makeOnBoth(const FakeCuda &fake, bool isProcess) {
  auto group = *LocalGroup::create({2, 1}, /*limitSeconds=*/20);
  Rank ranks[2];
  auto onBoth = [&](auto body) {
    std::vector<std::thread> threads;
    for (int64_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] { body(ranks[rank], rank); });
    for (std::thread &thread : threads)
      thread.join();
  };
  Outcome run;
  onBoth([&](Rank &rank, int64_t number) {
    run.statuses[number] = rank.start(*group, number, isProcess);
    // Whom the other one need not wait for.
    if (!run.statuses[number])
      rank.communicator.reset();
  });
  run.numCalls = int(fake.calls.size());
  onBoth([](Rank &rank, int64_t) {
    rank.communicator.reset();
    rank.device.reset();
  });
  return run;
}

/// Whether what is left are heaps whole, which others may write to, and what
/// keeps them.
bool isLeftForOthers(const FakeCuda &fake) {
  constexpr size_t granule = size_t(2) << 20;
  return fake.streams.empty() && fake.events.empty() &&
         std::all_of(fake.allocations.begin(), fake.allocations.end(),
                     [](const auto &allocation) {
                       return allocation.second.size % granule == 0;
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
      // What fails at the end has nobody to answer to.
      if (failAt > run.numCalls)
        continue;
      numLeft += !leaks.empty();
      std::string call = fake.calls[size_t(failAt - 1)];
      const Status &first = run.statuses[0], &second = run.statuses[1];
      if (first && second) {
        // Memory and streams that were needed for a moment; a handle, which
        // ranks of one process do without.
        EXPECT_TRUE(call.find("cuCtx") == 0 || call == "cuMemFree" ||
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
    // Which call has what number follows from the order of threads, so that
    // one may be missed above; here the first ones of a function fail.
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
    // Of what can fail in either phase, on either rank.
    std::vector<std::string> texts = {
        "has memory of other ranks over dp 'allocation of ",
        " bytes that other ranks write to: ",
        "a handle of that memory: cuDeviceGetUuid: CUDA_ERROR_FAKE",
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

/// One of two heaps fits: the other rank unmaps it before it is freed.
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
