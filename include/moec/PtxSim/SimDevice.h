//===- SimDevice.h - the simulator as a device ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTXSIM_SIMDEVICE_H
#define MOEC_PTXSIM_SIMDEVICE_H

#include "Simulator.h"
#include "moert/PeerDevice.h"

#include <vector>

namespace moec::ptx {

struct SimDeviceOptions {
  SimulatorOptions simulator;
  /// The reported architecture. The device runs the PTX of all supported
  /// targets, whatever this says.
  std::string architecture = "sm_90";
};

/// A simulated GPU behind the runtime's device interface. Work is deferred
/// until the host waits for it, or copies. Kernels of unordered streams run
/// concurrently, in an order that the seed chooses. There is no clock.
moert::Result<std::unique_ptr<moert::Device>>
createSimDevice(const SimDeviceOptions &options = {});

/// The devices of several ranks, in one simulator, whose kernels access each
/// other's memory. A launch through one device's PeerDevice waits, with all
/// later work of that device, until every other device has the same launch;
/// then all run side by side. Calls that wait for work fail if the other
/// devices do not launch within `limitSeconds`.
moert::Result<std::vector<std::unique_ptr<moert::Device>>>
createSimDevices(const SimDeviceOptions &options, size_t count,
                 double limitSeconds);

/// `device` comes from createSimDevices() and must outlive the result.
std::unique_ptr<moert::PeerDevice> createSimPeerDevice(moert::Device &device);

} // namespace moec::ptx

#endif // MOEC_PTXSIM_SIMDEVICE_H
