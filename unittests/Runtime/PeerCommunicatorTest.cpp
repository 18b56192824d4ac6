//===- PeerCommunicatorTest.cpp - tests of ranks that share memory --------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranks are threads on the host, whose device launches nothing: this tests the
// communicator around its kernels.

#include "moert/PeerCommunicator.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"
#include "moert/PeerHeap.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

using namespace moert;

namespace {

class View : public Buffer {
public:
  explicit View(const PeerHandle &handle) : handle(handle) {}
  void *data() const override {
    return reinterpret_cast<void *>(handle.address);
  }
  size_t size() const override { return handle.bytes; }

private:
  PeerHandle handle;
};

class NoKernel : public Kernel {
public:
  const std::string &name() const override { return text; }

private:
  std::string text = "exchange";
};

/// Host memory; records its launches.
class HostPeer : public PeerDevice {
public:
  explicit HostPeer(Device &device) : device(device) {}

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override {
    if (refusesMemory)
      return unavailable("out of memory");
    auto buffer = device.allocate(bytes, 256);
    memset((*buffer)->data(), 0, bytes);
    return buffer;
  }
  Result<PeerHandle> share(const Buffer &buffer) override {
    PeerHandle handle;
    handle.address = reinterpret_cast<uintptr_t>(buffer.data());
    handle.bytes = buffer.size();
    handle.uuid[0] = sharesGpu;
    return handle;
  }
  Result<std::unique_ptr<Buffer>> open(const PeerHandle &handle) override {
    if (refusesAccess || handle.bytes == 0)
      return unavailable("no peer access");
    return std::unique_ptr<Buffer>(std::make_unique<View>(handle));
  }
  Status launch(Stream &, Kernel &, const LaunchDims &given,
                const LaunchArgs &args) override {
    dims = given;
    slots.assign(args.slots, args.slots + args.numSlots);
    return Status::ok();
  }

  Status prepareCopies(size_t count) override {
    if (refusesStreams)
      return unavailable("no streams");
    lanes = count;
    return Status::ok();
  }
  Status copy(Stream &, const std::vector<PeerCopy> &given) override {
    EXPECT_TRUE(slots.empty()) << "the kernel is launched ahead of copies";
    copies = given;
    for (const PeerCopy &copy : given)
      memcpy(copy.to, copy.from, copy.bytes);
    return Status::ok();
  }

  Device &device;
  bool refusesStreams = false;
  /// All ranks are on one GPU.
  bool sharesGpu = false;
  size_t lanes = 0;
  std::vector<PeerCopy> copies;
  bool refusesAccess = false, refusesMemory = false;
  LaunchDims dims;
  std::vector<uint64_t> slots;
};

struct Rank {
  int64_t index;
  PeerCommunicator &communicator;
  HostPeer &peer;
  Stream &stream;

  int64_t *word(size_t slot, int64_t offset) const {
    return reinterpret_cast<int64_t *>(peer.slots[slot] +
                                       static_cast<uint64_t>(offset));
  }
};

/// Runs `body` on every rank after `prepare`, and returns each rank's status.
std::vector<Status>
runRanks(const Mesh &mesh,
         const std::function<void(int64_t, HostPeer &)> &prepare,
         const std::function<Status(Rank)> &body,
         const std::vector<int64_t> &leastCopiedBytes = {}) {
  auto group = *LocalGroup::create(mesh, 20);
  std::shared_ptr<Device> device = *createHostDevice(1);
  std::vector<Status> statuses(static_cast<size_t>(mesh.numRanks()));
  std::vector<std::shared_ptr<Communicator>> bases;
  for (int64_t i = 0; i < mesh.numRanks(); ++i)
    bases.push_back(*group->join(i, *device));
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < mesh.numRanks(); ++i)
    threads.emplace_back([&, i] {
      auto peer = std::make_shared<HostPeer>(*device);
      prepare(i, *peer);
      PeerOptions options;
      options.base = std::move(bases[static_cast<size_t>(i)]);
      options.device = device;
      options.peer = peer;
      options.limitSeconds = 2;
      if (!leastCopiedBytes.empty())
        options.leastCopiedBytes = leastCopiedBytes[size_t(i)];
      auto made = createPeerCommunicator(options);
      ASSERT_TRUE(made);
      std::unique_ptr<Stream> stream = *device->createStream();
      statuses[static_cast<size_t>(i)] = body(Rank{i, **made, *peer, *stream});
    });
  for (std::thread &thread : threads)
    thread.join();
  return statuses;
}

void prepareNothing(int64_t, HostPeer &) {}

NoKernel kernel;

/// A gather over dp of four rows per rank.
Collective makeGather(const std::vector<CollectivePart> &parts) {
  Collective collective;
  collective.parts = parts.data();
  collective.numParts = parts.size();
  collective.where = "steps[3]";
  collective.dims.grid = 1;
  collective.rows = 4;
  collective.kernel = &kernel;
  return collective;
}

Status gatherToResults(const Rank &rank,
                       const std::vector<CollectivePart> &parts) {
  Collective collective = makeGather(parts);
  collective.toResults = true;
  return rank.communicator.run(rank.stream, collective);
}

/// A gather of four bytes; nothing is launched.
Status gather(const Rank &rank, std::vector<uint8_t> &send,
              std::vector<uint8_t> &receive, bool hasKernel = true,
              const std::vector<const void *> &kernelArgs = {},
              std::optional<int64_t> firstColumn = {}) {
  const std::vector<CollectivePart> parts{
      {send.data(), receive.data(), DType::U8, 4}};
  Collective collective = makeGather(parts);
  collective.kernelArgs = kernelArgs;
  collective.firstColumn = firstColumn;
  if (!hasKernel)
    collective.kernel = nullptr;
  return rank.communicator.run(rank.stream, collective);
}

/// Reserves memory and gathers.
Status reserveAndGather(const Rank &rank, std::vector<uint8_t> &send,
                        std::vector<uint8_t> &receive, bool hasKernel = true) {
  auto ranks = static_cast<int64_t>(receive.size() / send.size());
  Status reserved = rank.communicator.reserve(
      MeshAxis::Data,
      PeerHeap::partBytes(ranks, static_cast<int64_t>(send.size())),
      /*resultBytes=*/0);
  return reserved ? gather(rank, send, receive, hasKernel) : reserved;
}

} // namespace

TEST(PeerCommunicator, KernelsGetHeapsFromTheOwnOneOn) {
  Mesh mesh{3, 2};
  std::vector<Status> statuses =
      runRanks(mesh, prepareNothing, [&](Rank rank) -> Status {
        std::vector<uint8_t> send(4), receive(12);
        if (Status status = reserveAndGather(rank, send, receive); !status)
          return status;
        EXPECT_EQ(rank.peer.slots.size(), 1U + 1 + 3 + 1);
        EXPECT_EQ(rank.peer.slots[0], reinterpret_cast<uintptr_t>(send.data()));
        EXPECT_EQ(rank.peer.slots[1],
                  reinterpret_cast<uintptr_t>(receive.data()));
        EXPECT_EQ(rank.peer.slots[5], 4U);
        for (int64_t distance = 0; distance < 3; ++distance) {
          auto slot = static_cast<size_t>(2 + distance);
          EXPECT_EQ(*rank.word(slot, PeerHeap::kIndex),
                    (mesh.index(MeshAxis::Data, rank.index) + distance) % 3);
          EXPECT_EQ(*rank.word(slot, PeerHeap::kLimit), 2000000000);
          EXPECT_EQ(*rank.word(slot, PeerHeap::kBufferBytes), 256);
        }
        // Kernel-only arguments precede the heaps.
        int table = 0;
        if (Status status = gather(rank, send, receive, true, {&table});
            !status)
          return status;
        EXPECT_EQ(rank.peer.slots.size(), 1U + 1 + 1 + 3 + 1);
        EXPECT_EQ(rank.peer.slots[2], reinterpret_cast<uintptr_t>(&table));
        EXPECT_EQ(*rank.word(3, PeerHeap::kLimit), 2000000000);
        // The first column is after the heaps, ahead of the rows.
        if (Status status = gather(rank, send, receive, true, {}, 3); !status)
          return status;
        EXPECT_EQ(rank.peer.slots.size(), 1U + 1 + 3 + 1 + 1);
        EXPECT_EQ(rank.peer.slots[5], 3U);
        EXPECT_EQ(rank.peer.slots[6], 4U);
        if (Status status = gather(rank, send, receive, true, {&table});
            !status)
          return status;
        // Memory that no rank has written is NaN.
        EXPECT_EQ(*rank.word(3, PeerHeap::kBuffers), -1);
        return rank.communicator.check();
      });
  for (const Status &status : statuses)
    EXPECT_TRUE(status) << status.message();
}

/// Parts of a gather in results() are copied to all ranks, and the kernel,
/// launched after the copies, is told.
TEST(PeerCommunicator, RowsAreCopiedToWhereTheyAreRead) {
  Mesh mesh{3, 2};
  std::vector<Status> statuses =
      runRanks(mesh, prepareNothing, [&](Rank rank) -> Status {
        Communicator &ranks = rank.communicator;
        EXPECT_EQ(ranks.results(MeshAxis::Data), nullptr);
        for (int64_t bytes : {64, 300})
          if (Status made = ranks.reserve(MeshAxis::Data, bytes, bytes); !made)
            return made;
        EXPECT_EQ(rank.peer.lanes, 1U);
        auto *first = static_cast<uint8_t *>(ranks.results(MeshAxis::Data));
        EXPECT_EQ(ranks.results(MeshAxis::Tensor), nullptr);
        EXPECT_EQ(first[0], 0xff);
        // An address from before the results grew.
        if (Status made = ranks.reserve(MeshAxis::Data, 64, 900); !made)
          return made;
        EXPECT_NE(ranks.results(MeshAxis::Data), first);
        auto number = static_cast<uint8_t>(10 * rank.index);
        std::vector<uint8_t> big(4, number), small(4);
        if (Status given = gatherToResults(
                rank,
                {{small.data(), first + 32, DType::U8, 4},
                 {big.data(), first + 16, DType::U8, 4, /*isCopied=*/true}});
            !given)
          return given;
        EXPECT_EQ(rank.peer.slots.back(), 4 | uint64_t(2) << 32);
        // All ranks meet in the earlier heaps.
        EXPECT_EQ(*rank.word(4, PeerHeap::kBufferBytes), 512);
        EXPECT_EQ(rank.peer.copies.size(), 3U);
        for (const PeerCopy &copy : rank.peer.copies)
          EXPECT_EQ(copy.bytes, 4U);
        // Wait until all ranks have copied.
        if (Status agreed = ranks.agree("test", "copied"); !agreed)
          return agreed;
        for (int64_t index = 0; index < 3; ++index)
          EXPECT_EQ(first[16 + 4 * index + 3],
                    10 * mesh.peer(MeshAxis::Data, rank.index, index));
        EXPECT_EQ(first[15], 0xff);
        EXPECT_EQ(first[16 + 12], 0xff);
        return ranks.check();
      });
  for (const Status &status : statuses)
    EXPECT_TRUE(status) << status.message();
}

/// Otherwise a kernel would write to unrelated memory of other ranks.
TEST(PeerCommunicator, WhatIsToResultsLiesThere) {
  Mesh mesh{3, 1};
  std::vector<Status> statuses =
      runRanks(mesh, prepareNothing, [&](Rank rank) -> Status {
        Communicator &ranks = rank.communicator;
        if (Status made = ranks.reserve(MeshAxis::Data, 64, 256); !made)
          return made;
        std::vector<uint8_t> send(100);
        auto *last = static_cast<uint8_t *>(ranks.results(MeshAxis::Data)) + 16;
        return gatherToResults(rank, {{send.data(), last, DType::U8, 100}});
      });
  for (const Status &status : statuses)
    EXPECT_NE(status.message().find(
                  "is to results, but a part is not received there"),
              std::string::npos)
        << status.message();
}

/// Over the link a rank sends to one peer at a time and receives from one: all
/// begin with the next rank.
TEST(PeerCommunicator, CopiesGoAroundTheRanks) {
  for (bool sharesGpu : {false, true}) {
    std::vector<Status> statuses = runRanks(
        {4, 1}, [&](int64_t, HostPeer &peer) { peer.sharesGpu = sharesGpu; },
        [&](Rank rank) -> Status {
          Communicator &ranks = rank.communicator;
          if (Status made = ranks.reserve(MeshAxis::Data, 64, 16); !made)
            return made;
          EXPECT_EQ(rank.peer.lanes, sharesGpu ? 3U : 1U);
          std::vector<uint8_t> send(4);
          auto *result = static_cast<uint8_t *>(ranks.results(MeshAxis::Data));
          if (Status given =
                  gatherToResults(rank, {{send.data(), result, DType::U8, 4,
                                          /*isCopied=*/true}});
              !given)
            return given;
          const std::vector<PeerCopy> &copies = rank.peer.copies;
          EXPECT_EQ(copies.size(), 4U);
          auto *own = reinterpret_cast<uint8_t *>(rank.word(2, 0));
          for (size_t next = 0; next < copies.size(); ++next) {
            EXPECT_EQ(copies[next].lane, sharesGpu ? next : next > 0);
            auto *heap = reinterpret_cast<uint8_t *>(rank.word(2 + next, 0));
            EXPECT_EQ(copies[next].to, heap + (result - own) + 4 * rank.index);
          }
          return ranks.agree("test", "looked");
        });
    for (const Status &status : statuses)
      EXPECT_TRUE(status) << status.message();
  }
}

/// copyBlocks() copies into the receive buffers of exchanges.
TEST(PeerCommunicator, BlocksAreCopiedToTheHeapsOfAll) {
  Mesh mesh{3, 2};
  std::vector<Status> statuses =
      runRanks(mesh, prepareNothing, [&](Rank rank) -> Status {
        PeerCommunicator &ranks = rank.communicator;
        constexpr int64_t axisRanks = 3, blockBytes = 4;
        std::vector<uint8_t> gathered(blockBytes), receive(12);
        if (Status made = reserveAndGather(rank, gathered, receive); !made)
          return made;
        const auto *heap = reinterpret_cast<const uint8_t *>(rank.word(2, 0));
        rank.peer.slots.clear();
        std::vector<uint8_t> blocks;
        for (int64_t index = 0; index < axisRanks; ++index)
          blocks.insert(blocks.end(), blockBytes,
                        uint8_t(10 * rank.index + index));
        // One block per rank, then one block for all in the other buffer.
        for (int64_t pitch : {blockBytes, int64_t(0)})
          if (Status copied =
                  ranks.copyBlocks(rank.stream, MeshAxis::Data, blocks.data(),
                                   pitch, blockBytes);
              !copied)
            return copied;
        EXPECT_EQ(rank.peer.lanes, 1U);
        for (size_t next = 0; next < rank.peer.copies.size(); ++next)
          EXPECT_EQ(rank.peer.copies[next].lane, next > 0);
        if (Status agreed = ranks.agree("test", "copied"); !agreed)
          return agreed;
        int64_t own = mesh.index(MeshAxis::Data, rank.index);
        for (int64_t index = 0; index < axisRanks; ++index) {
          auto from = static_cast<uint8_t>(
              10 * mesh.peer(MeshAxis::Data, rank.index, index));
          // Each rank has a third of the buffer, rounded down to the alignment.
          const uint8_t *copied = heap + PeerHeap::kBuffers + 80 * index;
          EXPECT_EQ(copied[3], from + own);
          EXPECT_EQ(copied[256 + 3], from);
        }
        if (Status agreed = ranks.agree("test", "looked"); !agreed)
          return agreed;
        // More than reserved does not fit in a heap.
        return ranks.copyBlocks(rank.stream, MeshAxis::Data, blocks.data(), 0,
                                100);
      });
  for (const Status &status : statuses)
    EXPECT_NE(status.message().find("copyBlocks: 300 bytes of a heap were not "
                                    "reserved"),
              std::string::npos)
        << status.message();
}

TEST(PeerCommunicator, WhoCopiesIsAgreedOn) {
  std::vector<Status> statuses =
      runRanks({2, 1}, prepareNothing,
               [](Rank rank) {
                 return rank.communicator.reserve(MeshAxis::Data, 48, 0);
               },
               {100, Communicator::kNeverCopied});
  for (const Status &status : statuses)
    EXPECT_NE(status.message().find("rows are copied from 100 bytes on"),
              std::string::npos)
        << status.message();
  statuses = runRanks(
      {2, 1},
      [](int64_t rank, HostPeer &peer) { peer.refusesStreams = rank == 1; },
      [](Rank rank) {
        return rank.communicator.reserve(MeshAxis::Data, 48, 48);
      });
  for (const Status &status : statuses)
    EXPECT_NE(status.message().find("streams that copy rows: no streams"),
              std::string::npos)
        << status.message();
}

TEST(PeerCommunicator, RefusedAccessIsToldToAll) {
  for (bool ofMemory : {false, true}) {
    std::vector<Status> statuses = runRanks(
        {2, 1},
        [&](int64_t rank, HostPeer &peer) {
          peer.refusesAccess = rank == 1 && !ofMemory;
          peer.refusesMemory = rank == 1 && ofMemory;
        },
        [](Rank rank) {
          return rank.communicator.reserve(MeshAxis::Data, 48, 0);
        });
    for (const Status &status : statuses) {
      EXPECT_NE(
          status.message().find(
              "peer memory (use NCCL, or ranks of one host with peer access)"),
          std::string::npos)
          << status.message();
      EXPECT_NE(
          status.message().find(ofMemory ? "out of memory" : "no peer access"),
          std::string::npos)
          << status.message();
    }
  }
}

TEST(PeerCommunicator, WhatCannotRunIsNamed) {
  std::vector<Status> statuses =
      runRanks({2, 1}, prepareNothing, [](Rank rank) -> Status {
        std::vector<uint8_t> send(4), receive(8);
        return reserveAndGather(rank, send, receive, /*hasKernel=*/false);
      });
  for (const Status &status : statuses)
    EXPECT_NE(status.message().find("the package has no kernel"),
              std::string::npos)
        << status.message();
  statuses = runRanks({17, 1}, prepareNothing, [](Rank rank) {
    return rank.communicator.reserve(MeshAxis::Data, 16, 0);
  });
  for (const Status &status : statuses)
    EXPECT_NE(status.message().find("supports up to 16 ranks, but dp has 17"),
              std::string::npos)
        << status.message();
}

TEST(PeerCommunicator, FailuresOfKernelsNameRankAndStep) {
  std::atomic<int> launched{0};
  std::vector<Status> statuses =
      runRanks({3, 1}, prepareNothing, [&](Rank rank) -> Status {
        std::vector<uint8_t> send(4), receive(12);
        if (Status status = reserveAndGather(rank, send, receive); !status)
          return status;
        // A chunk, whose rows begin at another column.
        constexpr int64_t firstColumn = 2;
        if (Status status = gather(rank, send, receive, true, {}, firstColumn);
            !status)
          return status;
        // The first failure must be the base's, which all others see.
        for (++launched; launched < 3;)
          std::this_thread::yield();
        // The words that a kernel leaves after waiting for rank 2 in vain.
        int64_t reason =
            rank.index == 0 ? PeerHeap::TimedOut : PeerHeap::Aborted;
        *rank.word(2, PeerHeap::kAddress) =
            static_cast<int64_t>(rank.peer.slots[1]) + firstColumn;
        *rank.word(2, PeerHeap::kFailure) =
            (reason << PeerHeap::kReasonShift) + 2;
        Status status = rank.communicator.synchronize(rank.stream);
        // Later calls return the same error.
        EXPECT_EQ(gather(rank, send, receive).message(), status.message());
        return status;
      });
  EXPECT_NE(statuses[0].message().find(
                "rank 0: steps[3] (all_gather over dp): rank 2 did not come "
                "within 2 s"),
            std::string::npos)
      << statuses[0].message();
  EXPECT_NE(statuses[1].message().find("rank 2 has failed, or did not reach"),
            std::string::npos)
      << statuses[1].message();
}

TEST(PeerCommunicator, AbortStopsKernelsOfAll) {
  std::atomic<int> launched{0};
  std::vector<Status> statuses =
      runRanks({2, 1}, prepareNothing, [&](Rank rank) -> Status {
        std::vector<uint8_t> send(4), receive(8);
        if (Status status = reserveAndGather(rank, send, receive); !status)
          return status;
        for (++launched; launched < 2;)
          std::this_thread::yield();
        if (rank.index == 1) {
          rank.communicator.abort("enough");
          EXPECT_EQ(*rank.word(2, PeerHeap::kAbort), 2);
          EXPECT_EQ(*rank.word(3, PeerHeap::kAbort), 2);
        }
        return rank.communicator.agree("test", "aborted");
      });
  EXPECT_NE(statuses[0].message().find("enough"), std::string::npos)
      << statuses[0].message();
  EXPECT_FALSE(statuses[1]);
}
