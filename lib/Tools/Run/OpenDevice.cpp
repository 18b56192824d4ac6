//===- OpenDevice.cpp - the device that --device names ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "OpenDevice.h"

#include "moec/PtxSim/SimDevice.h"
#include "moert/CudaDevice.h"
#include "moert/HostDevice.h"

moert::Result<std::unique_ptr<moert::Device>>
moec::openDevice(llvm::StringRef name, int threads) {
  if (name == "host")
    return moert::createHostDevice(threads);
  llvm::StringRef number = name;
  int ordinal = 0;
  if (number.consume_front("cuda") &&
      (number.empty() || (number.consume_front(":") &&
                          !number.getAsInteger(10, ordinal) && ordinal >= 0)))
    return moert::createCudaDevice(ordinal);
  ptx::SimDeviceOptions simulated;
  number = name;
  if (number.consume_front("sim") &&
      (number.empty() ||
       (number.consume_front(":") &&
        !number.getAsInteger(10, simulated.simulator.seed))))
    return ptx::createSimDevice(simulated);
  return moert::invalidArgument(
      "--device: '" + name.str() +
      "' is none of 'host', 'cuda', 'cuda:N', 'sim' and 'sim:SEED'");
}
