//===- OpenDevice.h - the device that --device names ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_OPENDEVICE_H
#define MOEC_LIB_TOOLS_RUN_OPENDEVICE_H

#include "moert/Device.h"
#include "llvm/ADT/StringRef.h"

namespace moec {

/// "host", "cuda" (the first GPU), "cuda:N", or "sim:SEED" (docs/ptx-sim.md).
/// `threads` is for the host.
moert::Result<std::unique_ptr<moert::Device>> openDevice(llvm::StringRef name,
                                                         int threads);

/// The same, or for "sim:FIRST-LAST" a device of each of these seeds.
moert::Result<std::vector<std::unique_ptr<moert::Device>>>
openDevices(llvm::StringRef name, int threads);

/// The version of NVIDIA's driver; empty where there is none.
std::string getDriverVersion();

/// Now, as records have it: "2026-01-31T12:00:00Z".
std::string getUtcTime();

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_OPENDEVICE_H
