//===- ChooseExchange.cpp - exchange by environment -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../support/Check.h"
#include "moert/AllToAll.h"
#include "moert/CudaDevice.h"
#include "moert/PeerCommunicator.h"

#include <charconv>
#include <cstdlib>

namespace moert {

/// Reads a number of at least 1 from the environment; leaves `value` unchanged
/// if the variable is not set.
static Status readNumber(const char *name, const char *unit, int64_t &value) {
  const char *given = getenv(name);
  if (!given)
    return Status::ok();
  std::string text = given;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 1)
    return Status::ok();
  return invalidArgument(std::string(name) + " is '" + text +
                         "'; a number of " + unit + " from 1 on is accepted");
}

static Result<std::unique_ptr<Communicator>>
chooseAllToAll(std::unique_ptr<NcclCommunicator> made,
               const NcclOptions &options) {
  AllToAllOptions allToAll;
  MOERT_CHECK(
      readNumber("MOERT_ALL_TO_ALL_FROM", "tokens", allToAll.leastRows));
  if (getenv("MOERT_ALL_TO_ALL_ROOM"))
    return invalidArgument("MOERT_ALL_TO_ALL_ROOM is set, which is now "
                           "MOERT_ALL_TO_ALL_CAPACITY");
  if (const char *given = getenv("MOERT_ALL_TO_ALL_CAPACITY")) {
    char *end = nullptr;
    allToAll.capacity = strtod(given, &end);
    if (end == given || *end != '\0')
      return invalidArgument(
          "MOERT_ALL_TO_ALL_CAPACITY is '" + std::string(given) +
          "'; a fraction of a rank's rows, 0 to 1, is accepted");
  }
  Result<std::unique_ptr<Device>> device =
      createCudaDevice(made->ordinal(), options.cudaLibrary);
  if (!device)
    return device.status();
  allToAll.device = std::move(*device);
  allToAll.base = std::move(made);
  return createAllToAll(allToAll);
}

Result<std::unique_ptr<Communicator>>
chooseExchange(std::unique_ptr<NcclCommunicator> made,
               const NcclOptions &options) {
  const char *given = getenv("MOERT_EXCHANGE");
  std::string exchange = given ? given : "nccl";
  if (exchange == "nccl")
    return std::unique_ptr<Communicator>(std::move(made));
  if (exchange == "all-to-all")
    return chooseAllToAll(std::move(made), options);
  if (exchange != "peer")
    return invalidArgument("MOERT_EXCHANGE is '" + exchange +
                           "'; nccl, all-to-all and peer are accepted");
  PeerOptions peer;
  peer.limitSeconds = options.limitSeconds;
  MOERT_CHECK(
      readNumber("MOERT_COPY_ROWS_FROM", "bytes", peer.leastCopiedBytes));
  int ordinal = made->ordinal();
  Result<std::unique_ptr<Device>> device =
      createCudaDevice(ordinal, options.cudaLibrary);
  if (!device)
    return device.status();
  peer.device = std::move(*device);
  Result<std::unique_ptr<PeerDevice>> opened =
      createCudaPeerDevice(*peer.device, ordinal, options.cudaLibrary);
  if (!opened)
    return opened.status();
  peer.peer = std::move(*opened);
  peer.base = std::move(made);
  Result<std::unique_ptr<PeerCommunicator>> created =
      createPeerCommunicator(peer);
  if (!created)
    return created.status();
  return std::unique_ptr<Communicator>(std::move(*created));
}

} // namespace moert
