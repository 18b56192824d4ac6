//===- ProcessCommunicatorTest.cpp - tests of ranks that are processes ----===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranks are threads here; ProcessDrillTest uses processes.

#include "moert/ProcessCommunicator.h"
#include "../../runtime/src/comm/process/Message.h"
#include "CommunicatorTesting.h"
#include "moert/HostDevice.h"

#include <chrono>
#include <dirent.h>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

using namespace moert;
using namespace moert::test;

namespace {

/// A limit that successful tests never reach.
constexpr double kLongLimit = 60;

/// Calls `body` for every rank in its own thread and returns the ranks'
/// statuses. A rank leaves when its body returns.
template <typename Body>
std::vector<Status> runRanks(const Mesh &mesh, double limit, Body body) {
  Result<ProcessSockets> sockets = ProcessSockets::create(mesh.numRanks());
  EXPECT_TRUE(sockets) << sockets.status().message();
  std::unique_ptr<Device> device = *createHostDevice(1);
  std::vector<Status> statuses(static_cast<size_t>(mesh.numRanks()));
  std::vector<std::vector<int>> ends = sockets->takeAll();
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < mesh.numRanks(); ++i)
    threads.emplace_back([&, i] {
      auto index = static_cast<size_t>(i);
      auto made =
          createProcessCommunicator({mesh, i, ends[index], limit}, *device);
      ASSERT_TRUE(made) << made.status().message();
      std::unique_ptr<Stream> stream = *device->createStream();
      statuses[index] = body(RankOfTest{**made, *stream, i});
    });
  for (std::thread &thread : threads)
    thread.join();
  return statuses;
}

int countOpenFiles() {
  int count = 0;
  DIR *folder = opendir("/proc/self/fd");
  while (folder && readdir(folder))
    ++count;
  closedir(folder);
  return count;
}

/// A communicator of two ranks, and the other rank's socket.
std::pair<std::unique_ptr<Communicator>, int> makeHalf(Device &device,
                                                       double limit) {
  int pair[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  auto made =
      createProcessCommunicator({{2, 1}, 0, {-1, pair[0]}, limit}, device);
  EXPECT_TRUE(made) << made.status().message();
  return {std::move(*made), pair[1]};
}

void sendBytes(int socket, const std::string &bytes) {
  EXPECT_EQ(write(socket, bytes.data(), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
}

std::string makeMessage(MessageKind kind, const std::string &bytes) {
  MessageHead head;
  head.kind = kind;
  head.bytes = static_cast<uint32_t>(bytes.size());
  return std::string(reinterpret_cast<const char *>(&head), sizeof(head)) +
         bytes;
}

} // namespace

TEST(ProcessCommunicatorTest, EveryMeshMovesAndSumsRows) {
  int before = countOpenFiles();
  for (const Mesh &mesh : allMeshes(8))
    for (const Status &status :
         runRanks(mesh, kLongLimit, [&](const RankOfTest &rank) {
           EXPECT_EQ(rank.communicator.rank(), rank.index);
           return runRandomly(rank, 1000 * mesh.dp + mesh.tp);
         }))
      EXPECT_TRUE(status) << mesh.str() << ": " << status.toString();
  EXPECT_EQ(countOpenFiles(), before);
}

/// More than a socket buffers, in both directions at a time.
TEST(ProcessCommunicatorTest, MovesManyRows) {
  constexpr size_t kCount = 3 << 20;
  auto statuses = runRanks({3, 1}, kLongLimit, [](const RankOfTest &rank) {
    std::vector<float> own(kCount, static_cast<float>(rank.index + 1)),
        sum(kCount), all(3 * kCount);
    Status status =
        rank.run(CollectiveKind::AllReduce, MeshAxis::Data,
                 {{own.data(), sum.data(), DType::F32, kCount}}, "steps[0]");
    EXPECT_EQ(sum, std::vector<float>(kCount, 6));
    if (status)
      status =
          rank.run(CollectiveKind::AllGather, MeshAxis::Data,
                   {{own.data(), all.data(), DType::F32, kCount}}, "steps[1]");
    EXPECT_EQ(all[2 * kCount], 3);
    EXPECT_EQ(all[2 * kCount - 1], 2);
    return status;
  });
  expectAllSay(statuses, StatusCode::Ok, {});
}

/// Few bytes, and more than a socket buffers; collectives still work
/// afterwards.
TEST(ProcessCommunicatorTest, MessagesReachTheirRanks) {
  for (const Mesh &mesh : {Mesh{1, 1}, Mesh{3, 1}, Mesh{2, 2}})
    for (const Status &status :
         runRanks(mesh, kLongLimit, [](const RankOfTest &rank) {
           for (int64_t scale : {1, 100000})
             if (Status sent = sendToEach(rank, scale); !sent)
               return sent;
           return rank.step("steps[0]");
         }))
      EXPECT_TRUE(status) << mesh.str() << ": " << status.toString();
}

TEST(ProcessCommunicatorTest, MessagesThatDoNotMeetAreErrorsOnAllRanks) {
  for (const WrongRing &ring : wrongRings()) {
    auto statuses = runRanks({3, 1}, kLongLimit, [&](const RankOfTest &rank) {
      Status status = sendAround(rank, ring);
      // Later calls return the same error.
      EXPECT_EQ(sendAround(rank, ring).message(), status.message());
      return status;
    });
    expectAllSay(statuses, ring.code, ring.texts);
  }
}

TEST(ProcessCommunicatorTest, DifferencesAreErrorsOnAllRanks) {
  auto statuses = runRanks({2, 2}, kLongLimit, [](const RankOfTest &rank) {
    // A late rank may already learn of the next call's failure here.
    (void)rank.communicator.agree("the package", "abc");
    Status status = rank.step("steps[" + std::to_string(rank.index / 3) + "]");
    // Later calls return the same error.
    EXPECT_EQ(rank.step("steps[2]").message(), status.message());
    EXPECT_EQ(rank.communicator.check().message(), status.message());
    return status;
  });
  expectAllSay(statuses, StatusCode::InvalidArgument,
               {"ranks differ", "rank 3 has all_reduce over dp at steps[1]"});
}

TEST(ProcessCommunicatorTest, AbortTellsAll) {
  auto statuses = runRanks({3, 1}, kLongLimit, [](const RankOfTest &rank) {
    if (rank.index == 1) {
      rank.communicator.abort("out of memory");
      return rank.communicator.check();
    }
    return rank.step("steps[3]");
  });
  expectAllSay(statuses, StatusCode::Unavailable,
               {"rank 1: aborted: out of memory"});
}

TEST(ProcessCommunicatorTest, WhoLeavesIsNamed) {
  auto statuses = runRanks({3, 1}, kLongLimit, [](const RankOfTest &rank) {
    return rank.index == 1 ? Status::ok() : rank.step("steps[3]");
  });
  for (size_t i : {0, 2})
    EXPECT_NE(statuses[i].message().find("rank 1"), std::string::npos)
        << statuses[i].message();
}

TEST(ProcessCommunicatorTest, WhoDoesNotComeIsNamed) {
  auto begin = std::chrono::steady_clock::now();
  auto statuses = runRanks({3, 1}, 0.3, [&](const RankOfTest &rank) {
    if (rank.index != 1)
      return rank.step("steps[3]");
    while (rank.communicator.check() &&
           std::chrono::steady_clock::now() - begin < std::chrono::seconds(20))
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return rank.communicator.check();
  });
  expectAllSay(statuses, StatusCode::Unavailable,
               {"steps[3] (all_reduce over dp): rank 1 did not come within "
                "0.3 s"});
}

TEST(ProcessCommunicatorTest, WhoStopsInTheMiddleIsNamed) {
  std::unique_ptr<Device> device = *createHostDevice(1);
  auto [communicator, other] = makeHalf(*device, 0.3);
  std::unique_ptr<Stream> stream = *device->createStream();
  float in = 0, out = 0;
  CollectivePart part{&in, &out, DType::F32, 1};
  Collective collective;
  collective.kind = CollectiveKind::AllReduce;
  collective.parts = &part;
  collective.numParts = 1;
  collective.where = "steps[3]";
  Request request;
  request.collective = &collective;
  sendBytes(other, makeMessage(MessageKind::Come, encodeRequest(request)));
  Status status = communicator->run(*stream, collective);
  EXPECT_NE(status.message().find("rank 1 did not come within 0.3 s with the "
                                  "rest of the rows"),
            std::string::npos)
      << status.message();
  close(other);
}

TEST(ProcessCommunicatorTest, BytesThatAreNoMessageAreRefused) {
  std::unique_ptr<Device> device = *createHostDevice(1);
  std::string subject = "the package", what = "abc";
  Request request;
  request.subject = &subject;
  request.what = &what;
  std::string whole = encodeRequest(request);
  for (const std::string &bytes : {
           std::string(64, 'x'),
           makeMessage(MessageKind::Come, whole.substr(0, whole.size() - 1)),
           makeMessage(MessageKind::Come, whole + "x"),
           makeMessage(MessageKind::Come, ""),
           makeMessage(MessageKind::Rows, "rows of nothing"),
           makeMessage(MessageKind::Failed, ""),
           makeMessage(MessageKind(77), ""),
           makeMessage(MessageKind::Come, whole) +
               makeMessage(MessageKind::Rows, "x"),
       }) {
    auto [communicator, other] = makeHalf(*device, kLongLimit);
    sendBytes(other, bytes);
    Status status = communicator->agree(subject, what);
    EXPECT_NE(status.message().find("rank 1 has sent an invalid message"),
              std::string::npos)
        << status.message();
    close(other);
  }
}

TEST(MessageTest, WhatIsNotWholeIsNoRequest) {
  auto numbers = [](std::initializer_list<int64_t> values) {
    return std::string(reinterpret_cast<const char *>(values.begin()),
                       values.size() * sizeof(int64_t));
  };
  std::string text = "abcdefgh";
  CollectivePart part{nullptr, nullptr, DType::BF16, 3};
  Collective collective;
  collective.parts = &part;
  collective.numParts = 1;
  collective.where = text;
  Transfer transfer;
  transfer.where = text;
  transfer.sends.resize(1);
  Request requests[3];
  requests[0].subject = requests[0].what = &text;
  requests[1].collective = &collective;
  requests[2].transfer = &transfer;
  for (const Request &request : requests) {
    std::string whole = encodeRequest(request);
    EXPECT_TRUE(decodeRequest(whole));
    EXPECT_FALSE(decodeRequest(whole + '\0'));
    for (size_t size = 0; size < whole.size(); ++size)
      EXPECT_FALSE(decodeRequest(whole.substr(0, size)));
  }
  // A text that extends beyond the end, where the next number is read, and one
  // that goes back to where the remaining data would fit.
  EXPECT_FALSE(decodeRequest(numbers({0, 1 << 20, 0})));
  EXPECT_FALSE(decodeRequest(numbers({0, INT64_MAX, 0})));
  EXPECT_FALSE(decodeRequest(numbers({1, 1, 0, -24})));
}

TEST(ProcessCommunicatorTest, TheEndOfAProcessIsSeen) {
  std::unique_ptr<Device> device = *createHostDevice(1);
  auto [communicator, other] = makeHalf(*device, kLongLimit);
  EXPECT_TRUE(communicator->check());
  sendBytes(other, "moe");
  EXPECT_TRUE(communicator->check());
  close(other);
  Status status = communicator->check();
  EXPECT_NE(status.message().find("rank 1 is gone"), std::string::npos)
      << status.message();
}

TEST(ProcessCommunicatorTest, SocketsAreForAllOthers) {
  std::unique_ptr<Device> device = *createHostDevice(1);
  for (const ProcessOptions &options : {
           ProcessOptions{{2, 1}, 2, {}, 1},
           ProcessOptions{{2, 1}, 0, {-1}, 1},
           ProcessOptions{{2, 1}, 0, {-1, -1}, 1},
           ProcessOptions{{0, 1}, 0, {-1}, 1},
           ProcessOptions{{1, 1}, 0, {-1}, 0},
       })
    EXPECT_FALSE(createProcessCommunicator(options, *device));
}
