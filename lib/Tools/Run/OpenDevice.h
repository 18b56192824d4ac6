//===- OpenDevice.h - the device that --device names ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_OPENDEVICE_H
#define MOEC_LIB_TOOLS_RUN_OPENDEVICE_H

#include "moert/Device.h"
#include "moert/PeerDevice.h"
#include "llvm/ADT/StringRef.h"

namespace moec {

/// "host", "cuda" (the first GPU), "cuda:N", or "sim:SEED" (docs/ptx-sim.md).
/// `threads` is for the host, `target` says what code a simulated one runs.
moert::Result<std::unique_ptr<moert::Device>>
openDevice(llvm::StringRef name, int threads, llvm::StringRef target = {});

/// The same, or for "sim:FIRST-LAST" a device of each of these seeds. Simulated
/// ones run code for `target`.
moert::Result<std::vector<std::unique_ptr<moert::Device>>>
openDevices(llvm::StringRef name, int threads, llvm::StringRef target = {});

/// The device of each rank, and what it needs where ranks write to each other.
struct RankDevices {
  std::vector<std::unique_ptr<moert::Device>> devices;
  /// None where they do not.
  std::vector<std::shared_ptr<moert::PeerDevice>> peers;
};

/// As `openDevice`: "cuda" is a GPU for each of `count` ranks, "cuda:N" one for
/// all, and "host" one device for all. With `reachesPeers` ranks are in one
/// simulator, where a rank waits for others up to `limitSeconds`.
moert::Result<RankDevices> openRankDevices(llvm::StringRef name, int threads,
                                           int64_t count, bool reachesPeers,
                                           double limitSeconds);

/// The version of NVIDIA's driver; empty where there is none.
std::string getDriverVersion();

/// Now, as records have it: "2026-01-31T12:00:00Z".
std::string getUtcTime();

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_OPENDEVICE_H
