//===- SimDevice.h - the simulator as a device ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_PTX_SIM_SIMDEVICE_H
#define MOEC_PTX_SIM_SIMDEVICE_H

#include "moec/Ptx/Sim/Simulator.h"

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

} // namespace moec::ptx

#endif // MOEC_PTX_SIM_SIMDEVICE_H
