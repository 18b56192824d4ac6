//===- CommunicatorTest.cpp - tests of LocalGroup -------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CommunicatorTesting.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <functional>
#include <thread>

using namespace moert;
using namespace moert::test;
using Rank = moert::test::RankOfTest;

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::shared_ptr<LocalGroup> makeGroup(const Mesh &mesh, double limit = 60) {
  Result<std::shared_ptr<LocalGroup>> group = LocalGroup::create(mesh, limit);
  EXPECT_TRUE(group) << group.status().message();
  return *group;
}

/// Calls `body` for every rank in its own thread and returns the ranks'
/// statuses. A rank leaves when its body returns.
template <typename Body>
std::vector<Status> runRanks(const Mesh &mesh, double limit, Body body) {
  std::shared_ptr<LocalGroup> group = makeGroup(mesh, limit);
  std::unique_ptr<Device> device = *createHostDevice(1);
  std::vector<Status> statuses(static_cast<size_t>(mesh.numRanks()));
  std::vector<std::unique_ptr<Communicator>> members;
  for (int64_t i = 0; i < mesh.numRanks(); ++i)
    members.push_back(*group->join(i, *device));
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < mesh.numRanks(); ++i)
    threads.emplace_back([&, i] {
      auto index = static_cast<size_t>(i);
      std::unique_ptr<Stream> stream = *device->createStream();
      statuses[index] = body(Rank{*members[index], *stream, i});
      members[index].reset();
    });
  for (std::thread &thread : threads)
    thread.join();
  return statuses;
}

} // namespace

TEST(LocalGroupTest, EveryMeshMovesAndSumsRows) {
  for (const Mesh &mesh : allMeshes())
    for (const Status &status : runRanks(mesh, 60, [&](const Rank &rank) {
           EXPECT_EQ(rank.communicator.rank(), rank.index);
           return runRandomly(rank, 1000 * mesh.dp + mesh.tp);
         }))
      EXPECT_TRUE(status) << mesh.str() << ": " << status.toString();
}

TEST(LocalGroupTest, OneRankIsAGroup) {
  for (const Status &status : runRanks(
           {1, 1}, 60, [](const Rank &rank) { return runRandomly(rank, 3); }))
    EXPECT_TRUE(status) << status.toString();
}

TEST(LocalGroupTest, GathersTypesThatAreNotSummed) {
  auto statuses = runRanks({3, 1}, 60, [](const Rank &rank) {
    int64_t id = 100 + rank.index;
    uint8_t byte = uint8_t(rank.index);
    std::vector<int64_t> ids(3);
    std::vector<uint8_t> bytes(3);
    Status status = rank.run(CollectiveKind::AllGather, MeshAxis::Data,
                             {{&id, ids.data(), DType::I64, 1},
                              {&byte, bytes.data(), DType::F8E4M3, 1}},
                             "steps[0]");
    EXPECT_EQ(ids, (std::vector<int64_t>{100, 101, 102}));
    EXPECT_EQ(bytes, (std::vector<uint8_t>{0, 1, 2}));
    return status;
  });
  expectAllSay(statuses, StatusCode::Ok, {});
}

/// The receive buffer is the send buffer, or contains it.
TEST(LocalGroupTest, WorksInPlace) {
  auto statuses = runRanks({4, 1}, 60, [](const Rank &rank) {
    for (int round = 0; round < 200; ++round) {
      std::vector<float> row(4);
      auto own = static_cast<size_t>(rank.index);
      row[own] = static_cast<float>(round + rank.index);
      Status status =
          rank.run(CollectiveKind::AllGather, MeshAxis::Data,
                   {{&row[own], row.data(), DType::F32, 1}}, "gather");
      auto base = static_cast<float>(round);
      EXPECT_EQ(row, (std::vector<float>{base, base + 1, base + 2, base + 3}));
      if (status)
        status = rank.run(CollectiveKind::AllReduce, MeshAxis::Data,
                          {{row.data(), row.data(), DType::F32, 4}}, "reduce");
      EXPECT_EQ(row[3], 4 * (base + 3));
      if (status)
        status = rank.run(CollectiveKind::ReduceScatter, MeshAxis::Data,
                          {{row.data(), &row[1], DType::F32, 1}}, "scatter");
      EXPECT_EQ(row[1], 16 * (base + static_cast<float>(rank.index)));
      if (!status)
        return status;
    }
    return Status::ok();
  });
  expectAllSay(statuses, StatusCode::Ok, {});
}

TEST(LocalGroupTest, RanksAgree) {
  auto statuses = runRanks({2, 2}, 60, [](const Rank &rank) {
    Status status = rank.communicator.agree("the package", "0123abcd");
    return status ? rank.communicator.agree("the mesh", "dp 2 x tp 2") : status;
  });
  expectAllSay(statuses, StatusCode::Ok, {});
}

//===----------------------------------------------------------------------===//
// Failures reach all ranks in time
//===----------------------------------------------------------------------===//

/// A limit that successful tests never reach.
static constexpr double kLongLimit = 60;
/// Maximum time to see a failure that does not depend on the limit.
static constexpr double kSoon = 20;

TEST(LocalGroupTest, DifferencesAreErrorsOnAllRanks) {
  float values[16] = {};
  struct Case {
    const char *expected;
    std::function<Status(const Rank &)> odd;
  };
  auto reduce = [&](const Rank &rank, MeshAxis axis, DType dtype, int64_t count,
                    size_t numParts = 1) {
    // Each rank has its own output, though no data is moved.
    std::vector<float> out(16);
    return rank.run(CollectiveKind::AllReduce, axis,
                    std::vector<CollectivePart>(
                        numParts, {values, out.data(), dtype, count}),
                    "variants[0].steps[4]");
  };
  const Case cases[] = {
      {"rank 1 has all_reduce over dp at variants[0].steps[4], rank 2 has "
       "all_gather over dp at variants[0].steps[4]",
       [&](const Rank &rank) {
         std::vector<float> out(16);
         return rank.run(CollectiveKind::AllGather, MeshAxis::Data,
                         {{values, out.data(), DType::F32, 2}},
                         "variants[0].steps[4]");
       }},
      {"rank 1 has all_reduce over dp at variants[0].steps[4], rank 2 has "
       "all_reduce over tp at variants[0].steps[4]",
       [&](const Rank &rank) {
         return reduce(rank, MeshAxis::Tensor, DType::F32, 2);
       }},
      {"rank 1 has 1 parts, rank 2 has 3 in all_reduce over dp",
       [&](const Rank &rank) {
         return reduce(rank, MeshAxis::Data, DType::F32, 2, 3);
       }},
      {"rank 1 has 2 of f32, rank 2 has 2 of bf16 in part 0",
       [&](const Rank &rank) {
         return reduce(rank, MeshAxis::Data, DType::BF16, 2);
       }},
      {"rank 1 has 2 of f32, rank 2 has 0 of f32 in part 0",
       [&](const Rank &rank) {
         return reduce(rank, MeshAxis::Data, DType::F32, 0);
       }},
      {"rank 1 has all_reduce over dp at variants[0].steps[4], rank 2 has "
       "all_reduce over dp at variants[0].steps[5]",
       [&](const Rank &rank) { return rank.step("variants[0].steps[5]"); }},
      {"rank 1 has variants[0].steps[4] (all_reduce over dp), rank 2 has the "
       "package 'abc'",
       [&](const Rank &rank) {
         return rank.communicator.agree("the package", "abc");
       }},
  };
  for (const Case &test : cases) {
    auto begin = Clock::now();
    // Rank 0 comes last, so that the message does not depend on the order.
    std::atomic<int> numFailed{0};
    auto statuses = runRanks({2, 2}, kLongLimit, [&](const Rank &rank) {
      while (rank.index == 0 && numFailed < 3)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (rank.index == 3)
        while (numFailed < 2)
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
      Status status = rank.index == 2
                          ? test.odd(rank)
                          : reduce(rank, MeshAxis::Data, DType::F32, 2);
      ++numFailed;
      EXPECT_EQ(rank.communicator.check().message(), status.message());
      EXPECT_EQ(rank.communicator.agree("later", "1").message(),
                status.message());
      return status;
    });
    EXPECT_LT(secondsSince(begin), kSoon);
    expectAllSay(statuses, StatusCode::InvalidArgument, {test.expected});
  }
}

TEST(LocalGroupTest, MessagesReachTheirRanks) {
  for (const Mesh &mesh : {Mesh{1, 1}, Mesh{3, 1}, Mesh{2, 2}, Mesh{1, 4}})
    for (const Status &status :
         runRanks(mesh, kLongLimit,
                  [](const Rank &rank) { return sendToEach(rank); }))
      EXPECT_TRUE(status) << status.message();
}

TEST(LocalGroupTest, MessagesThatDoNotMeetAreErrorsOnAllRanks) {
  for (const WrongRing &ring : wrongRings()) {
    auto statuses = runRanks({3, 1}, kLongLimit, [&](const Rank &rank) {
      return sendAround(rank, ring);
    });
    expectAllSay(statuses, ring.code, ring.texts);
  }
}

TEST(LocalGroupTest, RanksThatDoNotAgreeAreNamed) {
  auto statuses = runRanks({2, 1}, kLongLimit, [](const Rank &rank) {
    return rank.communicator.agree("the hash of plan and mesh",
                                   rank.index == 0 ? "aa" : "bb");
  });
  expectAllSay(statuses, StatusCode::InvalidArgument,
               {"ranks differ: rank 0 has the hash of plan and mesh 'aa', rank "
                "1 has the hash of plan and mesh 'bb'"});
}

/// The ranks of `late` come only after all others have given up.
static void expectMissing(const Mesh &mesh, const std::vector<int64_t> &late,
                          const std::string &names) {
  constexpr double limit = 1;
  std::atomic<int64_t> numLeft{mesh.numRanks() -
                               static_cast<int64_t>(late.size())};
  std::vector<double> seconds(static_cast<size_t>(mesh.numRanks()));
  std::atomic<int64_t> numStarted{0};
  auto statuses = runRanks(mesh, limit, [&](const Rank &rank) {
    // Threads may start late on a busy machine.
    ++numStarted;
    while (numStarted < mesh.numRanks())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Status status = rank.step("steps[0]");
    if (!status)
      return status;
    bool isLate = std::find(late.begin(), late.end(), rank.index) != late.end();
    while (isLate && numLeft > 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    auto begin = Clock::now();
    status = rank.step("steps[1]");
    seconds[static_cast<size_t>(rank.index)] = secondsSince(begin);
    if (!isLate) {
      --numLeft;
      // Do not leave before all others have seen the failure.
      while (numLeft > 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return status;
  });
  expectAllSay(
      statuses, StatusCode::Unavailable,
      {"steps[1] (all_reduce over dp): " + names + " did not come within 1 s"});
  for (double time : seconds)
    EXPECT_LT(time, limit + 5);
}

// field-bug: flashinfer#3279
TEST(LocalGroupTest, RanksThatDoNotComeAreNamed) {
  expectMissing({2, 1}, {0}, "rank 0");
  expectMissing({2, 2}, {3}, "rank 3");
  expectMissing({8, 1}, {1, 6}, "ranks 1 and 6");
  expectMissing({2, 4}, {0, 1, 2, 4, 5, 6, 7}, "ranks 0, 1, 2, 4, 5, 6 and 7");
}

/// A rank that skips a step is at another step when the others wait.
// field-bug: Megatron-LM#5749
TEST(LocalGroupTest, SkippedCallsAreNamed) {
  auto begin = Clock::now();
  auto statuses = runRanks({2, 2}, kLongLimit, [](const Rank &rank) {
    for (int i = 0; i < 5; ++i) {
      if (rank.index == 1 && i == 3)
        continue;
      if (Status status = rank.step("steps[" + std::to_string(i) + "]");
          !status)
        return status;
    }
    return Status::ok();
  });
  EXPECT_LT(secondsSince(begin), kSoon);
  expectAllSay(statuses, StatusCode::InvalidArgument,
               {"ranks differ", "at steps[3]", "at steps[4]",
                "rank 1 has all_reduce over dp at steps[4]"});
}

TEST(LocalGroupTest, ARankThatNeverJoinedIsNamed) {
  auto group = makeGroup({3, 1}, 0.2);
  std::unique_ptr<Device> device = *createHostDevice(1);
  std::unique_ptr<Communicator> zero = *group->join(0, *device);
  std::unique_ptr<Communicator> two = *group->join(2, *device);
  Status status = zero->agree("the package", "abc");
  expectAllSay({status}, StatusCode::Unavailable,
               {"the package: ranks 1 and 2 did not come within 0.2 s (rank 1 "
                "never joined)"});
  EXPECT_EQ(two->check().message(), status.message());
}

TEST(LocalGroupTest, ARankThatLeavesBreaksWhatOthersWaitFor) {
  auto begin = Clock::now();
  auto statuses = runRanks({4, 1}, kLongLimit, [](const Rank &rank) {
    Status status = rank.step("steps[0]");
    if (!status || rank.index == 2)
      return status;
    return rank.step("steps[1]");
  });
  EXPECT_LT(secondsSince(begin), kSoon);
  EXPECT_TRUE(statuses[2]) << statuses[2].toString();
  statuses.erase(statuses.begin() + 2);
  expectAllSay(statuses, StatusCode::Unavailable,
               {"steps[1] (all_reduce over dp): rank", " 2 ", "left"});
}

TEST(LocalGroupTest, RanksMayLeaveWhenNobodyWaits) {
  auto group = makeGroup({2, 1});
  std::unique_ptr<Device> device = *createHostDevice(1);
  std::unique_ptr<Communicator> zero = *group->join(0, *device);
  std::unique_ptr<Communicator> one = *group->join(1, *device);
  zero.reset();
  EXPECT_TRUE(one->check());
  expectAllSay({one->agree("the mesh", "x"), one->check()},
               StatusCode::Unavailable,
               {"the mesh: rank 0 left before this call"});
}

TEST(LocalGroupTest, AbortEndsWhatOthersWaitFor) {
  auto begin = Clock::now();
  std::atomic<int> numWaiting{0};
  auto statuses = runRanks({4, 2}, kLongLimit, [&](const Rank &rank) {
    if (rank.index == 5) {
      while (numWaiting < 7)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      rank.communicator.abort("out of memory");
      rank.communicator.abort("another reason");
      return rank.step("steps[7]");
    }
    ++numWaiting;
    Status status = rank.step("steps[7]");
    EXPECT_EQ(rank.step("steps[8]").message(), status.message());
    return status;
  });
  EXPECT_LT(secondsSince(begin), kSoon);
  expectAllSay(statuses, StatusCode::Unavailable,
               {"rank 5: aborted: out of memory"});
}

/// A rank aborts while others are at any point of their calls: they fail, and
/// no memory is read after its lifetime (checked by the address sanitizer).
TEST(LocalGroupTest, AbortAtAnyTime) {
  for (int round = 0; round < 30; ++round) {
    auto statuses = runRanks({4, 1}, kLongLimit, [&](const Rank &rank) {
      for (int i = 0;; ++i) {
        std::vector<float> row(5000, 1), sum(5000);
        if (rank.index == 1 && i == round)
          rank.communicator.abort("enough");
        if (Status status =
                rank.run(CollectiveKind::AllReduce, MeshAxis::Data,
                         {{row.data(), sum.data(), DType::F32, 5000}}, "step");
            !status)
          return status;
      }
    });
    expectAllSay(statuses, StatusCode::Unavailable, {"enough"});
  }
}

TEST(LocalGroupTest, WrongPartsAreErrorsOnAllRanks) {
  float value = 0;
  using Parts = std::vector<CollectivePart>;
  const std::pair<Parts, const char *> cases[] = {
      {{{&value, &value, DType::F32, 0}, {&value, &value, DType::I32, 1}},
       "rank 1: s: all_reduce over tp: part 1: i32 cannot be summed"},
      {{{&value, &value, DType::F32, -1}},
       "a count of -1 elements is out of range"},
      {{{&value, &value, DType::F32, INT64_MAX / 4}},
       "a count of 2305843009213693951 elements is out of range"},
      {{{nullptr, &value, DType::F32, 1}}, "send is null, with a count of 1"},
      {{{&value, nullptr, DType::F32, 1}}, "receive is null"},
  };
  for (const auto &test : cases)
    expectAllSay(runRanks({1, 2}, kLongLimit,
                          [&](const Rank &rank) {
                            if (rank.index == 0)
                              return rank.step("other");
                            return rank.run(CollectiveKind::AllReduce,
                                            MeshAxis::Tensor, test.first, "s");
                          }),
                 StatusCode::InvalidArgument, {test.second});
  expectAllSay(runRanks({1, 1}, kLongLimit,
                        [&](const Rank &rank) {
                          return rank.run(
                              CollectiveKind::AllGather, MeshAxis::Tensor,
                              {{&value, &value, DType::F4E2M1, 1}}, "s");
                        }),
               StatusCode::InvalidArgument, {"f4e2m1", "gather its bytes"});
}

TEST(LocalGroupTest, WrongGroupsAreRefused) {
  for (const Mesh &mesh : {Mesh{0, 1}, Mesh{2, -1}, Mesh{1 << 20, 1 << 20}})
    EXPECT_EQ(LocalGroup::create(mesh, 1).status().code(),
              StatusCode::InvalidArgument);
  for (double limit : {0.0, -1.0, std::nan("")})
    EXPECT_EQ(LocalGroup::create({2, 1}, limit).status().code(),
              StatusCode::InvalidArgument);
  auto group = makeGroup({2, 1}, 1e300);
  std::unique_ptr<Device> device = *createHostDevice(1);
  for (int64_t rank : {-1, 2})
    EXPECT_EQ(group->join(rank, *device).status().code(),
              StatusCode::OutOfRange);
  std::unique_ptr<Communicator> zero = *group->join(0, *device);
  std::unique_ptr<Communicator> one = *group->join(1, *device);
  EXPECT_NE(group->join(0, *device).status().message().find("joined already"),
            std::string::npos);
  // Any limit is representable.
  std::thread other([&] { EXPECT_TRUE(one->agree("a", "b")); });
  EXPECT_TRUE(zero->agree("a", "b"));
  other.join();
}
