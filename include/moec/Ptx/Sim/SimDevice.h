//===- SimDevice.h - the simulator as a device ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTX_SIM_SIMDEVICE_H
#define MOEC_PTX_SIM_SIMDEVICE_H

#include "moec/Ptx/Sim/Simulator.h"
#include "moert/PeerDevice.h"

#include <vector>

namespace moec::ptx {

struct SimDeviceOptions {
  SimulatorOptions simulator;
  /// What the device says it is; it runs the PTX of all targets that run there.
  std::string architecture = "sm_90";
};

/// A simulated GPU behind the runtime's interface. Work is put off until
/// somebody waits for it, or copies; kernels of streams that nothing orders run
/// in any order and side by side, as the seed says. There is no clock.
moert::Result<std::unique_ptr<moert::Device>>
createSimDevice(const SimDeviceOptions &options = {});

/// The devices of several ranks, in one simulator, whose kernels reach each
/// other's memory. What is launched through the PeerDevice of one waits until
/// the same has been launched through those of all others, and what follows on
/// that device waits with it: then it runs side by side. Calls that wait for
/// work end with an error where the others do not come within
/// `limitSeconds`.
moert::Result<std::vector<std::unique_ptr<moert::Device>>>
createSimDevices(const SimDeviceOptions &options, size_t count,
                 double limitSeconds);

/// `device` is one of createSimDevices(), and outlives it.
std::unique_ptr<moert::PeerDevice> createSimPeerDevice(moert::Device &device);

} // namespace moec::ptx

#endif // MOEC_PTX_SIM_SIMDEVICE_H
