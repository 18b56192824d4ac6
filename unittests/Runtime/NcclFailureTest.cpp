//===- NcclFailureTest.cpp - failures of NCCL and of ranks ----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NcclTesting.h"
#include "moert/NcclCommunicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

using namespace moert;
using namespace moert::test;

static constexpr double kLongLimit = 60;
/// Maximum time to see a failure that does not depend on the limit.
static constexpr double kSoon = 20;

using Clock = std::chrono::steady_clock;

static double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

static bool says(const Status &status, const std::string &text) {
  return status.message().find(text) != std::string::npos;
}

/// Uses every NCCL operation. After a failure it aborts, as a program does that
/// gives up.
static Status useNccl(const NcclRankOfTest &rank) {
  // After a failure the communicator uses these until it is destroyed, which is
  // before its thread ends.
  static thread_local float values[8], results[8];
  auto use = [&] {
    Status status = rank.communicator.agree("the package", "abc");
    for (CollectiveKind kind :
         {CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
          CollectiveKind::AllReduce})
      for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor})
        if (status)
          status = rank.run(kind, axis, {{values, results, DType::F32, 2}},
                            "steps[7]");
    for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor})
      if (status)
        status = rank.communicator.allToAll(rank.stream, axis, values, results,
                                            8, "blocks");
    if (status)
      status = rank.communicator.synchronize(rank.stream);
    return status ? rank.communicator.check() : status;
  };
  Status status = use();
  if (!status)
    // Memory of a rank that has ended is not read.
    EXPECT_EQ(rank.communicator.check().message(), status.message());
  return status;
}

TEST(NcclFailureTest, EveryCallMayFail) {
  const Mesh mesh{2, 2};
  constexpr int failRank = 1;
  FakeNccl &fake = resetFakeNccl();
  fake.numPolls = 1;
  for (const Status &status : runNcclRanks(mesh, kLongLimit, useNccl))
    ASSERT_TRUE(status) << status.toString();
  // The number of polls depends on time, except for the first ones.
  std::map<std::string, int> numCalls;
  for (const std::string &call : fake.calls[failRank])
    ++numCalls[call];
  numCalls["ncclCommGetAsyncError"] = 3;
  for (const char *call :
       {"ncclCommInitRankConfig", "ncclCommSplit", "ncclAllGather",
        "ncclReduceScatter", "ncclAllReduce", "ncclSend", "ncclRecv",
        "ncclGroupStart", "ncclGroupEnd", "ncclCommFinalize",
        "ncclCommDestroy"})
    EXPECT_GT(numCalls[call], 0) << call;
  for (const auto &[call, count] : numCalls)
    for (int failAt = 1; failAt <= count; ++failAt) {
      std::string what = call + " number " + std::to_string(failAt);
      FakeNccl &fake = resetFakeNccl();
      fake.numPolls = 1;
      fake.failCall = call;
      fake.failAt = failAt;
      fake.failRank = failRank;
      // After ncclCommDestroy the rank still waits for others.
      fake.failureSpreads = call != "ncclCommDestroy";
      auto begin = Clock::now();
      auto statuses = runNcclRanks(mesh, kLongLimit, useNccl);
      EXPECT_LT(secondsSince(begin), kSoon) << what;
      EXPECT_TRUE(fake.hasFailed) << what;
      EXPECT_EQ(ncclLeaks(), "") << what;
      const Status &status = statuses[failRank];
      // Destructors return no status.
      if (call == "ncclCommFinalize" || call == "ncclCommDestroy") {
        EXPECT_TRUE(status) << status.toString();
        continue;
      }
      EXPECT_EQ(status.code(), StatusCode::Unavailable) << what;
      EXPECT_TRUE(says(status, call + ": what NCCL says (2): the last error; "
                                      "check the network"))
          << what << ": " << status.message();
      EXPECT_TRUE(says(status, "rank 1: ")) << status.message();
    }
}

TEST(NcclFailureTest, TheIdMayFail) {
  FakeNccl &fake = resetFakeNccl();
  setNcclRank(0);
  fake.failCall = "ncclGetUniqueId";
  fake.failAt = 1;
  fake.failCode = nccl::ncclInternalError;
  Status status = makeNcclUniqueId(kFakeNccl).status();
  EXPECT_EQ(status.code(), StatusCode::Internal);
  EXPECT_TRUE(says(status, "ncclGetUniqueId: what NCCL says (3)"))
      << status.message();
}

/// A failure of work on a stream is reported by the next call.
TEST(NcclFailureTest, FailuresOfEarlierCallsAreFound) {
  std::atomic<bool> isWaiting{false};
  FakeNccl &fake = resetFakeNccl();
  fake.failCode = nccl::ncclRemoteError;
  fake.failsLater = true;
  fake.failureSpreads = true;
  auto statuses =
      runNcclRanks({2, 1}, kLongLimit, [&](const NcclRankOfTest &rank) {
        if (rank.index == 1) {
          while (!isWaiting)
            std::this_thread::yield();
          return Status::ok();
        }
        static thread_local float value = 1, sum;
        Status status = rank.run(CollectiveKind::AllReduce, MeshAxis::Data,
                                 {{&value, &sum, DType::F32, 1}}, "steps[7]");
        EXPECT_TRUE(status) << status.toString();
        // No other rank is inside NCCL.
        fake.failCall = "ncclCommGetAsyncError";
        fake.failAt = 1 + static_cast<int>(std::count(fake.calls[0].begin(),
                                                      fake.calls[0].end(),
                                                      "ncclCommGetAsyncError"));
        status = rank.communicator.check();
        EXPECT_EQ(rank.communicator.synchronize(rank.stream).message(),
                  status.message());
        isWaiting = true;
        return status;
      });
  EXPECT_EQ(statuses[0].code(), StatusCode::Unavailable);
  EXPECT_TRUE(says(statuses[0], "rank 0: a collective on a stream: what NCCL "
                                "says (6): the last error; another rank has "
                                "ended"))
      << statuses[0].message();
  EXPECT_EQ(ncclLeaks(), "");
}

//===----------------------------------------------------------------------===//
// Missing ranks
//===----------------------------------------------------------------------===//

/// Long enough to connect on a busy machine.
static constexpr double kLimit = 2;

static void expectMissing(const Status &status, const std::string &where) {
  EXPECT_EQ(status.code(), StatusCode::Unavailable) << status.toString();
  EXPECT_TRUE(says(status, where)) << status.message();
  EXPECT_TRUE(says(status, "is not done after 2 s, so not all of the 4 ranks "
                           "have connected"))
      << status.message();
}

TEST(NcclFailureTest, ARankThatNeverConnects) {
  for (const Mesh &mesh : {Mesh{4, 1}, Mesh{2, 2}}) {
    resetFakeNccl();
    auto begin = Clock::now();
    auto statuses = runNcclRanks(mesh, kLimit, useNccl, /*absent=*/{2});
    EXPECT_LT(secondsSince(begin), kSoon);
    for (size_t rank : {0, 1, 3})
      expectMissing(statuses[rank], "rank " + std::to_string(rank) +
                                        ": connecting: ncclCommInitRankConfig");
    EXPECT_EQ(ncclLeaks(), "");
  }
}

// field-bug: torchtitan#3877
TEST(NcclFailureTest, ARankThatLeavesOutACall) {
  resetFakeNccl();
  std::atomic<int> numFailed{0};
  auto begin = Clock::now();
  auto statuses = runNcclRanks({4, 1}, kLimit, [&](const NcclRankOfTest &rank) {
    if (rank.index == 2) {
      while (numFailed < 3)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return Status::ok();
    }
    Status status = rank.step("steps[7]");
    EXPECT_EQ(rank.communicator.agree("later", "x").message(),
              status.message());
    ++numFailed;
    return status;
  });
  EXPECT_LT(secondsSince(begin), kSoon);
  for (size_t rank : {0, 1, 3})
    expectMissing(statuses[rank], "synchronize: the work of the stream");
  EXPECT_EQ(ncclLeaks(), "");
}

TEST(NcclFailureTest, ARankThatDoesNotAgree) {
  resetFakeNccl();
  std::atomic<int> numFailed{0};
  auto statuses = runNcclRanks({2, 2}, kLimit, [&](const NcclRankOfTest &rank) {
    if (rank.index == 3) {
      while (numFailed < 3)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return Status::ok();
    }
    Status status = rank.communicator.agree("the package", "abc");
    ++numFailed;
    return status;
  });
  for (size_t rank : {0, 1, 2})
    expectMissing(statuses[rank], "the package: the work of the stream");
  EXPECT_EQ(ncclLeaks(), "");
}

TEST(NcclFailureTest, SlowRanksAreNoFailure) {
  FakeNccl &fake = resetFakeNccl();
  fake.numPolls = 2;
  fake.delay = 2;
  for (const Status &status :
       runNcclRanks({2, 2}, kLongLimit, [](const NcclRankOfTest &rank) {
         std::this_thread::sleep_for(
             std::chrono::milliseconds(20 * rank.index));
         return useNccl(rank);
       }))
    EXPECT_TRUE(status) << status.toString();
  EXPECT_EQ(ncclLeaks(), "");
}

TEST(NcclFailureTest, AbortEndsAWait) {
  resetFakeNccl();
  auto begin = Clock::now();
  std::atomic<int> numFailed{0};
  auto statuses =
      runNcclRanks({2, 1}, kLongLimit, [&](const NcclRankOfTest &rank) {
        if (rank.index == 1) {
          while (numFailed < 1)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          rank.communicator.abort("nobody is left");
          return rank.communicator.check();
        }
        std::thread watchdog([&] {
          setNcclRank(0);
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
          rank.communicator.abort("rank 1 is late");
          rank.communicator.abort("another reason");
        });
        Status status = rank.step("steps[0]");
        watchdog.join();
        ++numFailed;
        return status;
      });
  EXPECT_LT(secondsSince(begin), kSoon);
  EXPECT_TRUE(says(statuses[0], "rank 0: aborted: rank 1 is late"))
      << statuses[0].message();
  EXPECT_TRUE(says(statuses[1], "rank 1: aborted: nobody is left"))
      << statuses[1].message();
  EXPECT_EQ(ncclLeaks(), "");
}

/// NCCL itself hangs: destroying the communicator does not, and leaks device
/// memory that kernels may still use.
TEST(NcclFailureTest, AnAbortThatDoesNotComeBack) {
  FakeNccl &fake = resetFakeNccl();
  fake.abortHangs = true;
  auto begin = Clock::now();
  auto statuses =
      runNcclRanks({1, 1}, kLongLimit, [&](const NcclRankOfTest &rank) {
        rank.communicator.abort("enough");
        return rank.communicator.check();
      });
  EXPECT_LT(secondsSince(begin), kSoon);
  EXPECT_TRUE(says(statuses[0], "aborted: enough"));
  EXPECT_NE(fakeCudaOfNccl().leaks().find("1 allocations"), std::string::npos);
  letAbortEnd();
  // The thread left behind ends.
  while (!ncclIsEmpty())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(NcclFailureTest, EveryDriverCallMayFail) {
  int numCalls = 0;
  for (int failAt = 0; failAt <= numCalls; ++failAt) {
    resetFakeNccl();
    FakeCuda &cuda = fakeCudaOfNccl();
    cuda.failAt = failAt;
    auto statuses = runNcclRanks({1, 1}, kLongLimit, useNccl);
    EXPECT_EQ(ncclLeaks(), "") << "when call " << failAt << " fails";
    if (failAt == 0) {
      ASSERT_TRUE(statuses[0]) << statuses[0].toString();
      numCalls = static_cast<int>(cuda.calls.size());
      EXPECT_NE(
          std::find(cuda.calls.begin(), cuda.calls.end(), "cuStreamQuery"),
          cuda.calls.end());
      continue;
    }
    std::string call = cuda.calls[static_cast<size_t>(failAt - 1)];
    if (statuses[0]) {
      EXPECT_TRUE(call == "cuCtxGetCurrent" || call == "cuCtxPushCurrent" ||
                  call == "cuCtxPopCurrent" || call == "cuMemFree" ||
                  call == "cuThreadExchangeStreamCaptureMode" ||
                  call.find("Destroy") != std::string::npos ||
                  call.find("Release") != std::string::npos)
          << "the failure of " << call << " is lost";
      continue;
    }
    EXPECT_TRUE(says(statuses[0], call + ": CUDA_ERROR_FAKE (719)"))
        << statuses[0].message();
  }
}
