//===- SumLoads.cpp - sums of expert loads over ranks -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../support/Check.h"
#include "ExpertMap.h"
#include "moert/Balance.h"

#include <mutex>
#include <utility>

namespace moert {

static Status checkOwn(const std::vector<int64_t> &own, int64_t numRanks,
                       const std::vector<int64_t> &logicalIds) {
  if (static_cast<int64_t>(own.size()) * numRanks !=
      static_cast<int64_t>(logicalIds.size()))
    return invalidArgument(std::to_string(own.size()) + " loads on each of " +
                           std::to_string(numRanks) + " ranks, but a map of " +
                           std::to_string(logicalIds.size()) +
                           " physical experts; give one load for each physical "
                           "expert of the rank");
  return Status::ok();
}

/// Leaks memory that a failed transfer may still use, since freeing it would
/// wait for the transfer.
static void keepForever(std::unique_ptr<Buffer> buffer,
                        std::unique_ptr<Stream> stream) {
  static std::mutex mutex;
  static auto *kept = new std::vector<
      std::pair<std::unique_ptr<Buffer>, std::unique_ptr<Stream>>>();
  std::lock_guard<std::mutex> lock(mutex);
  kept->emplace_back(std::move(buffer), std::move(stream));
}

Result<std::vector<int64_t>> sumLoads(Communicator &communicator,
                                      Device &device,
                                      const std::vector<int64_t> &own,
                                      const std::vector<int64_t> &logicalIds,
                                      int64_t numExperts) {
  const std::string subject = "sumLoads";
  int64_t numRanks = communicator.mesh().numRanks();
  MOERT_CHECK(checkMap(logicalIds, numExperts).withContext(subject));
  MOERT_CHECK(checkOwn(own, numRanks, logicalIds).withContext(subject));
  // The loads of all ranks, followed by those that this rank sends.
  std::vector<int64_t> all(logicalIds.size());
  size_t ownBytes = own.size() * sizeof(int64_t);
  size_t allBytes = all.size() * sizeof(int64_t);
  Result<std::unique_ptr<Buffer>> buffer =
      device.allocate(allBytes + ownBytes, alignof(int64_t));
  if (!buffer)
    return buffer.status().withContext(subject);
  Result<std::unique_ptr<Stream>> stream = device.createStream();
  if (!stream)
    return stream.status().withContext(subject);
  auto *memory = static_cast<char *>((*buffer)->data());
  MOERT_CHECK(device.copyIn(memory + allBytes, own.data(), ownBytes));
  Transfer transfer;
  transfer.where = subject;
  for (int64_t rank = 0; rank < numRanks; ++rank) {
    auto bytes = static_cast<int64_t>(ownBytes);
    transfer.sends.push_back({rank, memory + allBytes, bytes});
    transfer.receives.push_back({rank, memory + rank * bytes, bytes});
  }
  Status status = communicator.transfer(**stream, transfer);
  if (status)
    status = communicator.synchronize(**stream);
  if (!status) {
    keepForever(std::move(*buffer), std::move(*stream));
    return status;
  }
  MOERT_CHECK(device.copyOut(all.data(), memory, allBytes));
  std::vector<int64_t> loads(static_cast<size_t>(numExperts), 0);
  for (size_t i = 0; i < all.size(); ++i)
    loads[static_cast<size_t>(logicalIds[i])] += all[i];
  return loads;
}

} // namespace moert
