//===- AllToAllTest.cpp - tests of all-to-alls ----------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Ranks are threads on the host; host kernels implement tile.route_rows,
// tile.pack_rows and tile.sum_packed_rows.

#include "moert/AllToAll.h"
#include "CommunicatorTesting.h"
#include "moert/HostDevice.h"
#include "moert/LocalGroup.h"
#include "moert/PackedRows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <thread>

using namespace moert;
using namespace moert::test;

namespace {

constexpr int64_t kTopK = 2, kExperts = 8, kColumns = 3;

/// Number of launches of the kernels below.
std::atomic<int> numLaunches;

template <typename T>
T *pointer(uint64_t slot) {
  return reinterpret_cast<T *>(slot);
}

/// Number of ranks of the mesh, a constant in kernels.
int64_t numRanks;

void routeRows(const uint64_t *args, int64_t cta) {
  ++numLaunches;
  auto *ids = pointer<int32_t>(args[0]),
       *destinations = pointer<int32_t>(args[1]);
  auto *positions = pointer<int32_t>(args[2]),
       *counts = pointer<int32_t>(args[3]);
  auto rows = static_cast<int64_t>(args[4]);
  int32_t count = 0;
  for (int64_t row = 0; row < rows; ++row) {
    bool goes = false;
    for (int64_t i = 0; i < kTopK; ++i) {
      int32_t id = ids[row * kTopK + i];
      goes |= id >= 0 && id < kExperts && destinations[id] == cta;
    }
    positions[cta * rows + row] = goes ? count++ : -1;
  }
  counts[cta] = count;
}

/// Start of the rows for, or from, a rank.
int64_t beginOf(int64_t rank, const int32_t *counts, const int64_t *header) {
  int64_t begin = 0;
  for (int64_t other = 0; other < rank; ++other)
    if (other != header[PackedRows::kIndex])
      begin += header[PackedRows::kCapacity] > 0 ? header[PackedRows::kCapacity]
                                                 : counts[other];
  return begin;
}

bool isWithinCapacity(int64_t position, const int64_t *header) {
  return header[PackedRows::kCapacity] == 0 ||
         position < header[PackedRows::kCapacity];
}

/// Packs ids and rows of f32.
void packRows(const uint64_t *args, int64_t cta) {
  ++numLaunches;
  auto *positions = pointer<int32_t>(args[6]),
       *counts = pointer<int32_t>(args[7]);
  auto *header = pointer<int64_t>(args[8]);
  auto rows = static_cast<int64_t>(args[9]);
  int64_t own = header[PackedRows::kIndex], row = cta;
  for (int64_t rank = 0; rank < numRanks; ++rank) {
    int64_t position = positions[rank * rows + row];
    if (header[PackedRows::kCapacity] > 0)
      header[PackedRows::kMost] =
          counts[rank] > header[PackedRows::kCapacity]
              ? std::max<int64_t>(header[PackedRows::kMost], counts[rank])
              : header[PackedRows::kMost];
    if (position < 0 || (rank != own && !isWithinCapacity(position, header)))
      continue;
    int64_t to =
        position + (rank == own ? own * rows : beginOf(rank, counts, header));
    size_t which = rank == own ? 2 : 4;
    memcpy(pointer<int32_t>(args[which]) + to * kTopK,
           pointer<int32_t>(args[0]) + row * kTopK, kTopK * 4);
    memcpy(pointer<float>(args[which + 1]) + to * kColumns,
           pointer<float>(args[1]) + row * kColumns, kColumns * 4);
  }
}

void sumRows(const uint64_t *args, int64_t cta) {
  ++numLaunches;
  auto *mine = pointer<float>(args[0]), *packed = pointer<float>(args[1]);
  auto *positions = pointer<int32_t>(args[2]),
       *counts = pointer<int32_t>(args[3]);
  auto *header = pointer<int64_t>(args[4]);
  auto *result = pointer<float>(args[5]);
  auto rows = static_cast<int64_t>(args[6]);
  int64_t own = header[PackedRows::kIndex], row = cta;
  for (int64_t i = 0; i < kColumns; ++i) {
    float sum = -0.0F;
    for (int64_t rank = 0; rank < numRanks; ++rank) {
      int64_t position = positions[rank * rows + row];
      float part = 0;
      if (position >= 0 && rank != own && !isWithinCapacity(position, header))
        part = NAN;
      else if (position >= 0)
        part =
            rank == own
                ? mine[(own * rows + position) * kColumns + i]
                : packed[(beginOf(rank, counts, header) + position) * kColumns +
                         i];
      sum += part;
    }
    result[row * kColumns + i] = sum;
  }
}

struct Kernels {
  explicit Kernels(Device &device) {
    ModuleImage image;
    image.lookup = [](const std::string &name) -> Result<HostKernelFn> {
      return name == "route" ? routeRows : name == "pack" ? packRows : sumRows;
    };
    module = *device.loadModule(image);
  }

  PackedKernels get(const char *pack, int64_t rows, const int32_t *ids,
                    const int32_t *destinations) const {
    PackedKernels packed;
    packed.route = *module->kernel("route");
    packed.routeDims.grid = numRanks;
    packed.pack = *module->kernel(pack);
    packed.packDims.grid = rows;
    packed.ids = ids;
    packed.destinations = destinations;
    packed.destinationsOfRow = std::min(kTopK, numRanks - 1);
    return packed;
  }

  std::unique_ptr<Module> module;
};

/// One rank's rows, and the results of the exchange.
struct Rows {
  Rows(int64_t rank, int64_t rows) : rows(rows) {
    std::mt19937 random(static_cast<uint32_t>(7 * rank + rows));
    for (int64_t i = 0; i < rows * kTopK; ++i)
      ids.push_back(static_cast<int32_t>(random() % (kExperts + 1)) - 1);
    for (int64_t i = 0; i < rows * kColumns; ++i)
      values.push_back(static_cast<float>(100 * rank + i));
    for (int32_t i = 0; i < kExperts; ++i)
      destinations.push_back(i % static_cast<int32_t>(numRanks));
    allIds.resize(size_t(numRanks) * ids.size(), 77);
    all.resize(size_t(numRanks) * values.size());
    result.resize(values.size());
  }

  bool isDestination(int64_t rank, int64_t row) const {
    for (int64_t i = 0; i < kTopK; ++i)
      if (int32_t id = ids[size_t(row * kTopK + i)];
          id >= 0 && destinations[size_t(id)] == rank)
        return true;
    return false;
  }

  Status gather(Communicator &communicator, Stream &stream,
                const Kernels &kernels) {
    CollectivePart parts[] = {
        {ids.data(), allIds.data(), DType::I32, rows * kTopK, false, kTopK},
        {values.data(), all.data(), DType::F32, rows * kColumns, false,
         kColumns, /*isRouted=*/true}};
    Collective collective;
    collective.parts = parts;
    collective.numParts = 2;
    collective.where = "gather";
    collective.rows = rows;
    collective.packed =
        kernels.get("pack", rows, ids.data(), destinations.data());
    return communicator.run(stream, collective);
  }

  Status sum(Communicator &communicator, Stream &stream,
             const Kernels &kernels) {
    CollectivePart part{all.data(),      result.data(), DType::F32,
                        rows * kColumns, false,         kColumns};
    Collective collective;
    collective.kind = CollectiveKind::ReduceScatter;
    collective.parts = &part;
    collective.numParts = 1;
    collective.where = "sum";
    collective.rows = rows;
    collective.packed =
        kernels.get("sum", rows, ids.data(), destinations.data());
    return communicator.run(stream, collective);
  }

  int64_t rows;
  std::vector<int32_t> ids, destinations, allIds;
  std::vector<float> values, all, result;
};

PackedSizes sizesOf(int64_t rows) {
  return {rows, {kTopK * 4, kColumns * 4}, std::min(kTopK, numRanks - 1)};
}

/// Runs `body` on every rank and returns each rank's status.
std::vector<Status>
runRanks(int64_t ranks, const std::vector<AllToAllOptions> &options,
         const std::function<Status(Communicator &, Stream &, const Kernels &,
                                    int64_t)> &body) {
  numRanks = ranks;
  Mesh mesh{ranks, 1};
  auto group = *LocalGroup::create(mesh, 20);
  std::shared_ptr<Device> device = *createHostDevice(1);
  std::vector<std::shared_ptr<Communicator>> bases;
  for (int64_t i = 0; i < ranks; ++i)
    bases.push_back(*group->join(i, *device));
  std::vector<Status> statuses(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < ranks; ++i)
    threads.emplace_back([&, i] {
      AllToAllOptions own = options[size_t(i) % options.size()];
      own.base = std::move(bases[size_t(i)]);
      own.device = device;
      Result<std::unique_ptr<Communicator>> made = createAllToAll(own);
      Status &status = statuses[size_t(i)];
      status = made.status();
      if (!status)
        return;
      Kernels kernels(*device);
      auto stream = *device->createStream();
      status = body(**made, *stream, kernels, i);
    });
  for (std::thread &thread : threads)
    thread.join();
  return statuses;
}

AllToAllOptions withCapacity(double capacity, int64_t leastRows = 1) {
  AllToAllOptions options;
  options.capacity = capacity;
  options.leastRows = leastRows;
  return options;
}

/// Each sender's block must have its rows for this rank's experts,
/// contiguously, and then the id -1.
void expectGathered(const Rows &own, int64_t rank) {
  for (int64_t from = 0; from < numRanks; ++from) {
    Rows sent(from, own.rows);
    int64_t next = from * own.rows;
    for (int64_t row = 0; row < own.rows; ++row) {
      if (!sent.isDestination(rank, row))
        continue;
      for (int64_t i = 0; i < kTopK; ++i)
        EXPECT_EQ(own.allIds[size_t(next * kTopK + i)],
                  sent.ids[size_t(row * kTopK + i)]);
      for (int64_t i = 0; i < kColumns; ++i)
        EXPECT_EQ(own.all[size_t(next * kColumns + i)],
                  sent.values[size_t(row * kColumns + i)]);
      ++next;
    }
    for (; next < (from + 1) * own.rows; ++next)
      for (int64_t i = 0; i < kTopK; ++i)
        EXPECT_EQ(own.allIds[size_t(next * kTopK + i)], -1)
            << "rank " << rank << ", row " << next << " of rank " << from;
  }
}

} // namespace

TEST(AllToAllTest, MovesRowsToDestinationsAndBack) {
  for (double capacity : {0.0, 1.0})
    for (int64_t ranks : {2, 4, 5})
      for (const Status &status :
           runRanks(ranks, {withCapacity(capacity)},
                    [&](Communicator &communicator, Stream &stream,
                        const Kernels &kernels, int64_t rank) -> Status {
                      Status status = communicator.reservePacked(MeshAxis::Data,
                                                                 {sizesOf(9)});
                      for (int64_t rows : {9, 4, 1, 9}) {
                        Rows own(rank, rows);
                        if (status)
                          status = own.gather(communicator, stream, kernels);
                        expectGathered(own, rank);
                        // Every destination rank returns ten times the row it
                        // received.
                        for (float &value : own.all)
                          value *= 10;
                        if (status)
                          status = own.sum(communicator, stream, kernels);
                        for (int64_t row = 0; row < rows; ++row) {
                          int64_t destinations = 0;
                          for (int64_t other = 0; other < ranks; ++other)
                            destinations += own.isDestination(other, row);
                          EXPECT_EQ(own.result[size_t(row * kColumns)],
                                    float(destinations) * 10 *
                                        own.values[size_t(row * kColumns)]);
                        }
                      }
                      return status ? communicator.synchronize(stream) : status;
                    }))
        EXPECT_TRUE(status) << status.toString();
}

// field-bug: DeepEP#427
TEST(AllToAllTest, RowsBeyondTheCapacityAreAnError) {
  std::atomic<int> numNan = 0, numDone = 0;
  std::vector<Status> statuses =
      runRanks(4, {withCapacity(0.25)},
               [&](Communicator &communicator, Stream &stream,
                   const Kernels &kernels, int64_t rank) -> Status {
                 Status status =
                     communicator.reservePacked(MeshAxis::Data, {sizesOf(8)});
                 Rows own(rank, 8);
                 // All rows of rank 0 go to rank 3.
                 if (rank == 0)
                   std::fill(own.ids.begin(), own.ids.end(), 3);
                 else
                   std::fill(own.ids.begin(), own.ids.end(), int32_t(rank));
                 if (status)
                   status = own.gather(communicator, stream, kernels);
                 if (status)
                   status = own.sum(communicator, stream, kernels);
                 for (float value : own.result)
                   numNan += std::isnan(value);
                 // A rank that lost no rows must finish with a right result
                 // before rank 0 detects its loss and aborts all ranks.
                 ++numDone;
                 while (rank == 0 && numDone < 4)
                   std::this_thread::yield();
                 Status lost =
                     rank == 0 ? communicator.synchronize(stream) : status;
                 if (rank == 0)
                   EXPECT_EQ(communicator.check().message(), lost.message());
                 return lost;
               });
  EXPECT_EQ(statuses[0].message(),
            "an all-to-all over dp has 8 rows for one rank, more than the "
            "capacity of 2, so results of some rows are NaN; increase the "
            "capacity, or give 0 (exact sizes, without graphs)");
  for (size_t rank = 1; rank < statuses.size(); ++rank)
    EXPECT_TRUE(statuses[rank]) << statuses[rank].toString();
  // Two of eight rows were within the capacity.
  EXPECT_EQ(numNan, 6 * kColumns);
}

TEST(AllToAllTest, FewRowsGoToAll) {
  numLaunches = 0;
  for (const Status &status :
       runRanks(4, {withCapacity(0, 5)},
                [&](Communicator &communicator, Stream &stream,
                    const Kernels &kernels, int64_t rank) -> Status {
                  Status status =
                      communicator.reservePacked(MeshAxis::Data, {sizesOf(5)});
                  Rows few(rank, 4);
                  if (status)
                    status = few.gather(communicator, stream, kernels);
                  EXPECT_EQ(numLaunches, 0);
                  Rows last(3, 4);
                  EXPECT_TRUE(
                      std::equal(last.values.begin(), last.values.end(),
                                 few.all.end() - int64_t(last.values.size())));
                  return status;
                }))
    EXPECT_TRUE(status) << status.toString();
}

TEST(AllToAllTest, RanksAgreeOnHowRowsGo) {
  auto nothing = [](Communicator &, Stream &, const Kernels &, int64_t) {
    return Status::ok();
  };
  expectAllSay(
      runRanks(2, {withCapacity(0), withCapacity(0.5)}, nothing),
      StatusCode::InvalidArgument,
      {"the all-to-all: ranks differ", "capacity 0.500000, from 1 rows on"});
  expectAllSay(runRanks(2, {withCapacity(0), withCapacity(0, 8)}, nothing),
               StatusCode::InvalidArgument,
               {"capacity 0.000000, from 8 rows on"});
  expectAllSay(runRanks(2, {withCapacity(1.5)}, nothing),
               StatusCode::InvalidArgument,
               {"the capacity of an all-to-all is 1.5", "0 (exact sizes) "
                                                        "to 1 is accepted"});
  expectAllSay(runRanks(2, {withCapacity(0, 0)}, nothing),
               StatusCode::InvalidArgument, {"1 or more is accepted"});
}

TEST(AllToAllTest, WhatWasNotReservedOrGatheredIsNamed) {
  // The first rank to fail reports the cause, others report the abort.
  auto expectNamed =
      [](int64_t reserved,
         const std::function<Status(Communicator &, Stream &, const Kernels &,
                                    int64_t)> &call,
         const std::string &text) {
        for (const Status &status :
             runRanks(2, {withCapacity(0)},
                      [&](Communicator &communicator, Stream &stream,
                          const Kernels &kernels, int64_t rank) -> Status {
                        Status status = communicator.reservePacked(
                            MeshAxis::Data, {sizesOf(reserved)});
                        return status
                                   ? call(communicator, stream, kernels, rank)
                                   : status;
                      }))
          EXPECT_NE(status.message().find(text), std::string::npos)
              << status.toString();
      };
  expectNamed(
      2,
      [](Communicator &communicator, Stream &stream, const Kernels &kernels,
         int64_t rank) {
        return Rows(rank, 40).gather(communicator, stream, kernels);
      },
      "gather (all_gather over dp): 1024 bytes of an all-to-all were not "
      "reserved");
  expectNamed(
      8,
      [](Communicator &communicator, Stream &stream, const Kernels &kernels,
         int64_t rank) {
        return Rows(rank, 8).sum(communicator, stream, kernels);
      },
      "sums rows that no all-to-all has gathered");
}
