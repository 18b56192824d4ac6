//===- OpenDevice.h - opens the device of --device --------------*- C++ -*-===//
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

/// Opens "host", "cuda" (the first GPU), "cuda:N", or "sim:SEED"
/// (docs/design/ptx-simulator.md). `threads` applies to the host, `target` is
/// the target of code for a simulator.
moert::Result<std::unique_ptr<moert::Device>>
openDevice(llvm::StringRef name, int threads, llvm::StringRef target = {});

/// Opens the same devices, or for "sim:FIRST-LAST" a simulator for each seed,
/// for code of `target`.
moert::Result<std::vector<std::unique_ptr<moert::Device>>>
openDevices(llvm::StringRef name, int threads, llvm::StringRef target = {});

/// The device of each rank, and what it needs if ranks write to each other's
/// memory.
struct RankDevices {
  std::vector<std::unique_ptr<moert::Device>> devices;
  /// Empty if they do not.
  std::vector<std::shared_ptr<moert::PeerDevice>> peers;
};

/// Opens devices by name as `openDevice` does: "cuda" is a GPU for each of
/// `count` ranks, "cuda:N" one for all, and "host" one for all. With
/// `reachesPeers` ranks share one simulator, in which a rank waits for others
/// up to `limitSeconds`.
moert::Result<RankDevices> openRankDevices(llvm::StringRef name, int threads,
                                           int64_t count, bool reachesPeers,
                                           double limitSeconds);

/// The version of NVIDIA's driver; empty without one.
std::string getDriverVersion();

/// The current time in the format of records: "2026-01-31T12:00:00Z".
std::string getUtcTime();

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_OPENDEVICE_H
