//===- ChooseExchange.cpp - who moves rows between GPUs ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moert/CudaDevice.h"
#include "moert/PeerCommunicator.h"

#include <charconv>
#include <cstdlib>

namespace moert {

Result<std::unique_ptr<Communicator>>
chooseExchange(std::unique_ptr<NcclCommunicator> made,
               const NcclOptions &options) {
  const char *given = getenv("MOERT_EXCHANGE");
  std::string exchange = given ? given : "nccl";
  if (exchange == "nccl")
    return std::unique_ptr<Communicator>(std::move(made));
  if (exchange != "peer")
    return invalidArgument("MOERT_EXCHANGE is '" + exchange +
                           "'; nccl and peer are accepted");
  PeerOptions peer;
  peer.limitSeconds = options.limitSeconds;
  if (const char *least = getenv("MOERT_COPY_ROWS_FROM")) {
    std::string text = least;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(),
                                        peer.leastCopiedBytes);
    if (error != std::errc() || end != text.data() + text.size() ||
        peer.leastCopiedBytes < 1)
      return invalidArgument("MOERT_COPY_ROWS_FROM is '" + text +
                             "'; a number of bytes from 1 on is accepted");
  }
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
