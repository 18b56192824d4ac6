//===- TimedDevice.cpp - a device that times its launches -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "TimedDevice.h"

#include "../TryStatus.h"

using namespace moec::bench;
using moert::Result;
using moert::Status;

Status TimedDevice::launch(moert::Stream &stream, moert::Kernel &kernel,
                           const moert::LaunchDims &dims,
                           const moert::LaunchArgs &args) {
  // Not as a dependent launch, which would start within the one before it.
  moert::LaunchDims alone = dims;
  alone.dependent = dims.dependent && !isTiming && !isApart;
  if (!isTiming)
    return device.launch(stream, kernel, alone, args);
  Launch timed;
  timed.kernel = kernel.name();
  MOEC_TRY_ASSIGN(timed.begin, device.createTimedEvent());
  MOEC_TRY_ASSIGN(timed.end, device.createTimedEvent());
  MOEC_TRY(device.record(stream, *timed.begin));
  MOEC_TRY(device.launch(stream, kernel, alone, args));
  MOEC_TRY(device.record(stream, *timed.end));
  launches.push_back(std::move(timed));
  return Status::ok();
}
