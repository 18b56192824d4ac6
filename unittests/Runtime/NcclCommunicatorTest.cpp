//===- NcclCommunicatorTest.cpp - tests of ranks connected by NCCL --------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/NcclCommunicator.h"
#include "../../runtime/src/comm/nccl/Library.h"
#include "CudaTesting.h"
#include "NcclTesting.h"
#include "moert/CudaDevice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <tuple>

#include <unistd.h>

using namespace moert;
using namespace moert::test;

/// A limit that successful tests never reach.
static constexpr double kLongLimit = 60;

static void expectSays(const Status &status, StatusCode code,
                       const std::vector<std::string> &texts) {
  EXPECT_EQ(status.code(), code) << status.toString();
  for (const std::string &text : texts)
    EXPECT_NE(status.message().find(text), std::string::npos)
        << "'" << text << "' in: " << status.message();
}

/// Runs all kinds of collectives over one axis, with values that identify rank
/// and element.
static Status useAxis(const NcclRankOfTest &rank, MeshAxis axis) {
  const Mesh &mesh = rank.communicator.mesh();
  auto size = static_cast<size_t>(mesh.size(axis));
  auto own = static_cast<size_t>(mesh.index(axis, rank.index));
  auto valueOf = [&](size_t index, size_t i) {
    return float(mesh.peer(axis, rank.index, int64_t(index))) * 100 + float(i);
  };
  constexpr size_t count = 5;
  std::vector<float> send(count * size), gathered(count * size), part(count),
      sum(count * size), expected(count * size), total(count * size);
  std::vector<uint8_t> byte(1, uint8_t(own)), bytes(size), byteOrder;
  for (size_t i = 0; i < send.size(); ++i) {
    send[i] = valueOf(own, i);
    expected[i] = valueOf(i / count, i % count);
    for (size_t index = 0; index < size; ++index)
      total[i] += valueOf(index, i);
  }
  for (size_t index = 0; index < size; ++index)
    byteOrder.push_back(uint8_t(index));
  Status status = rank.run(CollectiveKind::AllGather, axis,
                           {{send.data(), gathered.data(), DType::F32, count},
                            {nullptr, nullptr, DType::BF16, 0},
                            {byte.data(), bytes.data(), DType::F8E4M3, 1}},
                           "steps[0]");
  if (status)
    status =
        rank.run(CollectiveKind::ReduceScatter, axis,
                 {{send.data(), part.data(), DType::F32, count}}, "steps[1]");
  if (status)
    status =
        rank.run(CollectiveKind::AllReduce, axis,
                 {{send.data(), sum.data(), DType::F32, int64_t(count * size)}},
                 "steps[2]");
  // Each rank sends a block to each rank.
  std::vector<float> blocks(size), received(size), toThis(size);
  for (size_t index = 0; index < size; ++index) {
    blocks[index] = valueOf(own, index);
    toThis[index] = valueOf(index, own);
  }
  if (status)
    status =
        rank.communicator.allToAll(rank.stream, axis, blocks.data(),
                                   received.data(), sizeof(float), "steps[3]");
  if (status)
    status = rank.communicator.synchronize(rank.stream);
  if (!status)
    return status;
  EXPECT_EQ(received, toThis);
  EXPECT_EQ(gathered, expected);
  EXPECT_EQ(bytes, byteOrder);
  EXPECT_EQ(sum, total);
  EXPECT_EQ(part, std::vector<float>(total.begin() + own * count,
                                     total.begin() + (own + 1) * count));
  return rank.communicator.check();
}

TEST(NcclCommunicatorTest, MovesAndSumsRows) {
  for (const Mesh &mesh :
       {Mesh{1, 1}, Mesh{2, 1}, Mesh{1, 4}, Mesh{2, 2}, Mesh{3, 2}, Mesh{4, 4}})
    for (int numPolls : {0, 3}) {
      FakeNccl &fake = resetFakeNccl();
      fake.numPolls = numPolls;
      auto statuses =
          runNcclRanks(mesh, kLongLimit, [&](const NcclRankOfTest &rank) {
            EXPECT_EQ(rank.communicator.rank(), rank.index);
            EXPECT_EQ(rank.communicator.library(),
                      std::string("NCCL 2.28.9 (") + kFakeNccl + ")");
            Status status = rank.communicator.agree("the hash", "abc");
            for (MeshAxis axis : {MeshAxis::Data, MeshAxis::Tensor})
              if (status && (mesh.size(axis) > 1 || mesh.numRanks() == 1))
                status = useAxis(rank, axis);
            return status;
          });
      for (const Status &status : statuses)
        EXPECT_TRUE(status) << mesh.str() << ": " << status.toString();
      EXPECT_EQ(ncclLeaks(), "") << mesh.str();
      bool splits = mesh.dp > 1 && mesh.tp > 1;
      const std::vector<std::string> &calls = fake.calls[0];
      EXPECT_EQ(std::count(calls.begin(), calls.end(), "ncclCommSplit"),
                splits ? 2 : 0);
      EXPECT_EQ(std::count(calls.begin(), calls.end(), "ncclCommDestroy"),
                splits ? 3 : 1);
    }
}

TEST(NcclCommunicatorTest, GivesNcclTypesAndCounts) {
  FakeNccl &fake = resetFakeNccl();
  std::vector<char> memory(1024);
  auto statuses =
      runNcclRanks({2, 1}, kLongLimit, [&](const NcclRankOfTest &rank) {
        Status status;
        for (DType dtype : {DType::F32, DType::BF16, DType::F16})
          for (CollectiveKind kind :
               {CollectiveKind::AllGather, CollectiveKind::ReduceScatter,
                CollectiveKind::AllReduce})
            if (status)
              status =
                  rank.run(kind, MeshAxis::Data,
                           {{memory.data(), memory.data(), dtype, 0},
                            {memory.data(),
                             memory.data() + 64 * (1 + rank.index), dtype, 3}},
                           "s");
        return status ? rank.communicator.synchronize(rank.stream) : status;
      });
  for (const Status &status : statuses)
    EXPECT_TRUE(status) << status.toString();
  EXPECT_EQ(
      fake.collectives,
      (std::vector<std::string>{
          "ncclAllGather 1 12", "ncclReduceScatter 7 0 3",
          "ncclAllReduce 7 0 3", "ncclAllGather 1 6", "ncclReduceScatter 9 0 3",
          "ncclAllReduce 9 0 3", "ncclAllGather 1 6", "ncclReduceScatter 6 0 3",
          "ncclAllReduce 6 0 3"}));
}

TEST(NcclCommunicatorTest, RanksThatDoNotAgreeAreNamed) {
  resetFakeNccl();
  std::string common(300, 'x');
  auto statuses =
      runNcclRanks({1, 3}, kLongLimit, [&](const NcclRankOfTest &rank) {
        Status status = rank.communicator.agree("the mesh", "dp 1 x tp 3");
        EXPECT_TRUE(status) << status.toString();
        // The difference may be beyond the statement's maximum length.
        bool isLast = rank.index == 2;
        status = rank.communicator.agree("the hash of plan and mesh",
                                         (isLast ? "bb" : "aa") + common +
                                             (rank.index == 1 ? "1" : "0"));
        EXPECT_EQ(rank.step("later").message(), status.message());
        return status;
      });
  for (size_t rank = 0; rank < 3; ++rank)
    expectSays(statuses[rank], StatusCode::InvalidArgument,
               {"rank " + std::to_string(rank) +
                    ": the hash of plan and mesh: ranks differ: rank 0 has "
                    "the hash of plan and mesh 'aaxx",
                "rank 1 has the hash of plan and mesh 'aaxx"});
  EXPECT_EQ(ncclLeaks(), "");
}

TEST(NcclCommunicatorTest, WrongCallsAreRefused) {
  resetFakeNccl();
  float value = 0;
  const std::pair<CollectivePart, const char *> cases[] = {
      {{&value, &value, DType::I32, 1}, "i32 cannot be summed"},
      {{&value, nullptr, DType::F32, 1}, "receive is null"},
      {{&value, &value, DType::F32, 1}, "the axis has one rank"},
  };
  for (const auto &test : cases) {
    auto statuses =
        runNcclRanks({2, 1}, kLongLimit, [&](const NcclRankOfTest &rank) {
          return rank.run(CollectiveKind::AllReduce, MeshAxis::Tensor,
                          {test.first}, "steps[3]");
        });
    for (const Status &status : statuses)
      expectSays(status, StatusCode::InvalidArgument,
                 {"steps[3]", "all_reduce over tp", test.second});
  }
  const std::tuple<MeshAxis, void *, int64_t, const char *> blocks[] = {
      {MeshAxis::Tensor, &value, 4, "blocks: the axis has one rank"},
      {MeshAxis::Data, &value, -1, "blocks: all_to_all of -1 bytes"},
      {MeshAxis::Data, nullptr, 4, "blocks: all_to_all of 4 bytes, with send "},
  };
  for (const auto &[axis, send, bytes, text] : blocks) {
    auto statuses =
        runNcclRanks({2, 1}, kLongLimit,
                     [&, axis = axis, send = send,
                      bytes = bytes](const NcclRankOfTest &rank) {
                       return rank.communicator.allToAll(
                           rank.stream, axis, send, &value, bytes, "blocks");
                     });
    for (const Status &status : statuses)
      expectSays(status, StatusCode::InvalidArgument, {text});
  }
  EXPECT_EQ(ncclLeaks(), "");
  NcclUniqueId id = {};
  for (int64_t rank : {-1, 2})
    expectSays(
        NcclCommunicator::create(ncclOptions({2, 1}, rank, 1), id).status(),
        StatusCode::OutOfRange, {"0 to 1 exist"});
  expectSays(NcclCommunicator::create(ncclOptions({0, 1}, 0, 1), id).status(),
             StatusCode::InvalidArgument, {"dp 0 x tp 1"});
  expectSays(NcclCommunicator::create(ncclOptions({1, 1}, 0, 0), id).status(),
             StatusCode::InvalidArgument, {"a limit of 0 s"});
  NcclOptions options = ncclOptions({32, 1}, 17, 1);
  expectSays(NcclCommunicator::create(options, id).status(),
             StatusCode::OutOfRange, {"GPU 17"});
}

//===----------------------------------------------------------------------===//
// Communicators of the caller
//===----------------------------------------------------------------------===//

namespace {

/// Made and ended by the caller, with the same library.
class CallersCommunicator {
public:
  CallersCommunicator(int numRanks, const NcclUniqueId &id, int rank)
      : library(*nccl::Library::open(kFakeNccl)) {
    nccl::ncclUniqueId given = {};
    memcpy(given.internal, id.data(), id.size());
    nccl::ncclConfig_t config;
    config.blocking = 0;
    (void)library->ncclCommInitRankConfig(&comm, numRanks, given, rank,
                                          &config);
    wait();
  }
  ~CallersCommunicator() {
    EXPECT_NE(library->ncclCommFinalize(comm), nccl::ncclInvalidUsage);
    wait();
    EXPECT_EQ(library->ncclCommDestroy(comm), nccl::ncclSuccess);
  }

  nccl::ncclComm_t comm = nullptr;

private:
  void wait() {
    nccl::ncclResult_t state = nccl::ncclInProgress;
    while (state == nccl::ncclInProgress) {
      std::this_thread::yield();
      ASSERT_EQ(library->ncclCommGetAsyncError(comm, &state),
                nccl::ncclSuccess);
    }
  }

  const std::shared_ptr<const nccl::Library> library;
};

} // namespace

/// Adopts a communicator that each rank makes.
static std::vector<Status>
adoptOnRanks(const Mesh &mesh, const Mesh &wanted,
             const std::function<Status(const NcclRankOfTest &)> &body) {
  std::vector<Status> statuses(static_cast<size_t>(mesh.numRanks()));
  NcclUniqueId id = *makeNcclUniqueId(kFakeNccl);
  std::vector<std::thread> threads;
  for (int64_t index = 0; index < mesh.numRanks(); ++index)
    threads.emplace_back([&, index] {
      setNcclRank(index);
      CallersCommunicator given(int(mesh.numRanks()), id, int(index));
      auto device = createCudaDevice(int(index), kFakeDriver);
      auto stream = (*device)->createStream();
      auto adopted = NcclCommunicator::adopt(
          ncclOptions(wanted, index, kLongLimit), given.comm);
      statuses[static_cast<size_t>(index)] =
          adopted ? body({**adopted, **device, **stream, index})
                  : adopted.status();
    });
  for (std::thread &thread : threads)
    thread.join();
  return statuses;
}

TEST(NcclCommunicatorTest, UsesACommunicatorOfTheCallers) {
  for (const Mesh &mesh : {Mesh{2, 1}, Mesh{2, 2}}) {
    FakeNccl &fake = resetFakeNccl();
    fake.numPolls = 2;
    for (const Status &status :
         adoptOnRanks(mesh, mesh, [](const NcclRankOfTest &rank) {
           return useAxis(rank, MeshAxis::Data);
         }))
      EXPECT_TRUE(status) << status.toString();
    EXPECT_EQ(ncclLeaks(), "");
  }
}

TEST(NcclCommunicatorTest, ACommunicatorOfTheCallersOutlivesFailures) {
  resetFakeNccl();
  // The destructor checks that it can still be ended.
  for (const Status &status :
       adoptOnRanks({2, 1}, {2, 1}, [](const NcclRankOfTest &rank) {
         rank.communicator.abort("enough");
         return rank.communicator.check();
       }))
    expectSays(status, StatusCode::Unavailable, {"aborted: enough"});
  EXPECT_EQ(ncclLeaks(), "");
}

TEST(NcclCommunicatorTest, RefusesACommunicatorOfOtherRanks) {
  resetFakeNccl();
  auto body = [](const NcclRankOfTest &) { return Status::ok(); };
  auto statuses = adoptOnRanks({2, 1}, {4, 1}, body);
  for (size_t rank = 0; rank < 2; ++rank) {
    std::string text = std::to_string(rank);
    expectSays(statuses[rank], StatusCode::InvalidArgument,
               {"the given communicator is rank " + text + " of 2 on GPU " +
                text + ", but the layer's is rank " + text + " of 4 on GPU " +
                text + " (dp 4 x tp 1)"});
  }
  expectSays(
      NcclCommunicator::adopt(ncclOptions({1, 1}, 0, 1), nullptr).status(),
      StatusCode::InvalidArgument, {"is null"});
  EXPECT_EQ(ncclLeaks(), "");
}

//===----------------------------------------------------------------------===//
// The library and the environment
//===----------------------------------------------------------------------===//

namespace {

/// Sets an environment variable temporarily.
class ScopedVariable {
public:
  ScopedVariable(const char *name, const char *value) : name(name) {
    if (const char *set = getenv(name))
      before = set;
    if (value)
      setenv(name, value, 1);
    else
      unsetenv(name);
  }
  ~ScopedVariable() {
    if (before)
      setenv(name, before->c_str(), 1);
    else
      unsetenv(name);
  }

private:
  const char *const name;
  std::optional<std::string> before;
};

} // namespace

TEST(NcclLibraryTest, UnusableLibrariesAreRefused) {
  FakeNccl &fake = resetFakeNccl();
  expectSays(makeNcclUniqueId("/nowhere/libnccl.so.2").status(),
             StatusCode::Unavailable,
             {"NCCL cannot be opened: /nowhere/libnccl.so.2", "2.19.0",
              "MOERT_NCCL_LIBRARY"});
  expectSays(makeNcclUniqueId(kEmptyLibrary).status(), StatusCode::Unavailable,
             {kEmptyLibrary, "is not NCCL"});
  expectSays(makeNcclUniqueId(kPartialNccl).status(), StatusCode::Unavailable,
             {"NCCL 2.28.9 (", "has no function ncclGetErrorString"});
  for (auto [version, text] :
       {std::pair(21805, "NCCL 2.18.5 ("), std::pair(2708, "NCCL 2.7.8 (")}) {
    fake.version = version;
    expectSays(makeNcclUniqueId(kFakeNccl).status(), StatusCode::Unavailable,
               {text, "is too old; install 2.19.0"});
  }
  fake.version = 21900;
  EXPECT_TRUE(makeNcclUniqueId(kFakeNccl));
}

TEST(NcclLibraryTest, TheEnvironmentNamesALibrary) {
  resetFakeNccl();
  ScopedVariable library("MOERT_NCCL_LIBRARY", kFakeNccl);
  EXPECT_TRUE(makeNcclUniqueId());
  // A path given by the caller takes precedence.
  EXPECT_FALSE(makeNcclUniqueId(kEmptyLibrary));
}

TEST(NcclLibraryTest, MulticastStaysOff) {
  resetFakeNccl();
  {
    ScopedVariable unset("NCCL_NVLS_ENABLE", nullptr);
    EXPECT_TRUE(makeNcclUniqueId(kFakeNccl));
    EXPECT_STREQ(getenv("NCCL_NVLS_ENABLE"), "0");
  }
  ScopedVariable on("NCCL_NVLS_ENABLE", "1");
  expectSays(makeNcclUniqueId(kFakeNccl).status(), StatusCode::InvalidArgument,
             {"NCCL_NVLS_ENABLE=1", "set it to 0 or unset it"});
}

/// The only rank of a job, by a file that is removed afterwards in any case,
/// since the token may be used again.
TEST(NcclLibraryTest, ALauncherStartsARank) {
  FakeNccl &fake = resetFakeNccl();
  setNcclRank(0);
  std::string folder = testing::TempDir() + "moert-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ScopedVariable variables[] = {{"RANK", "0"},
                                {"WORLD_SIZE", "1"},
                                {"LOCAL_RANK", "0"},
                                {"MOERT_JOB_TOKEN", "a start"},
                                {"MOERT_BOOTSTRAP_FOLDER", folder.c_str()}};
  NcclOptions options = ncclOptions({1, 1}, 7, kLongLimit);
  {
    auto made = NcclCommunicator::fromEnvironment(options);
    ASSERT_TRUE(made) << made.status().toString();
    EXPECT_EQ((*made)->rank(), 0);
    EXPECT_TRUE((*made)->agree("the hash", "abc"));
  }
  fake.failCall = "ncclCommInitRankConfig";
  fake.failAt = 2;
  EXPECT_FALSE(NcclCommunicator::fromEnvironment(options));
  EXPECT_TRUE(NcclCommunicator::fromEnvironment(options));
  EXPECT_EQ(ncclLeaks(), "");
  options.mesh = {2, 1};
  expectSays(NcclCommunicator::fromEnvironment(options).status(),
             StatusCode::InvalidArgument,
             {"the launcher has started 1 ranks, but the mesh has 2 (dp 2 x tp "
              "1)"});
  EXPECT_EQ(rmdir(folder.c_str()), 0) << "something is left in the folder";
}
