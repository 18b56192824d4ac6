//===- SimRanks.h - ranks that are threads ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Each rank is a thread with a device of its own; all of these are of one
// simulator, so that kernels write to the memory of other ranks.

#ifndef MOEC_UNITTESTS_TARGET_SIMRANKS_H
#define MOEC_UNITTESTS_TARGET_SIMRANKS_H

#include "moert/Device.h"
#include "moert/LocalGroup.h"
#include "moert/PeerCommunicator.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace moec::exchanges {

struct SimRank {
  int64_t index;
  moert::Device &device;
  moert::LocalGroup &group;
};

/// Whether `body` returns true on all ranks. No rank waits longer than the
/// limit for a missing one.
bool areRight(int64_t ranks, uint64_t seed, double limitSeconds,
              const std::function<bool(SimRank)> &body);

/// A communicator of the rank; `options` lack the rank's own fields.
moert::Result<std::unique_ptr<moert::PeerCommunicator>>
connect(const SimRank &rank, std::shared_ptr<moert::PeerDevice> peer,
        moert::PeerOptions options);

moert::ModuleImage makeImage(const std::vector<std::string> &texts);

template <typename T>
moert::Status copyIn(moert::Device &device, const moert::Buffer &to,
                     const std::vector<T> &values) {
  return device.copyIn(to.data(), values.data(), values.size() * sizeof(T));
}

template <typename T>
moert::Result<std::vector<T>>
copyOut(moert::Device &device, const moert::Buffer &from, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  moert::Status status =
      device.copyOut(values.data(), from.data(), values.size() * sizeof(T));
  return status ? moert::Result<std::vector<T>>(std::move(values)) : status;
}

} // namespace moec::exchanges

#endif // MOEC_UNITTESTS_TARGET_SIMRANKS_H
