//===- DeviceCalls.cpp - calls of devices of one simulator ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceCalls.h"

#include <algorithm>
#include <chrono>
#include <utility>

using namespace moec::ptx;
using moert::Status;

/// Makes all calls that wait for nothing, in the order of devices.
void DeviceCalls::makeAll() {
  auto make = [](Member &member) {
    Status status = member.waiting.front().make();
    if (member.failure.isOk())
      member.failure = status;
    member.waiting.pop_front();
  };
  while (true) {
    for (Member &member : devices)
      while (!member.waiting.empty() && !member.waiting.front().meets)
        make(member);
    if (!std::all_of(devices.begin(), devices.end(), [](const Member &member) {
          return !member.waiting.empty();
        }))
      break;
    for (Member &member : devices)
      make(member);
  }
  changed.notify_all();
}

/// Fails the waiting calls of all devices, so that no later call waits for
/// them.
void DeviceCalls::dropWaiting() {
  for (Member &member : devices) {
    if (member.waiting.empty())
      continue;
    member.waiting.clear();
    if (member.failure.isOk())
      member.failure =
          moert::unavailable("a kernel waits for the same kernel of other "
                             "devices, which was not launched on all of them");
  }
  changed.notify_all();
}

Status DeviceCalls::give(size_t device, DeviceCall call) {
  Member &member = devices[device];
  if (member.waiting.empty() && !call.meets)
    return call.make();
  member.waiting.push_back(std::move(call));
  makeAll();
  return Status::ok();
}

Status DeviceCalls::finish(Lock &lock, size_t device) {
  Member &member = devices[device];
  auto anyLeft = [&] {
    return std::any_of(devices.begin(), devices.end(),
                       [](const Member &other) { return other.hasLeft; });
  };
  (void)changed.wait_for(lock, std::chrono::duration<double>(limitSeconds),
                         [&] { return member.waiting.empty() || anyLeft(); });
  if (!member.waiting.empty()) {
    dropWaiting();
    return std::exchange(member.failure, Status::ok());
  }
  Status status = simulator.run();
  if (member.failure.isOk())
    return status;
  return std::exchange(member.failure, Status::ok());
}

void DeviceCalls::leave(size_t device) {
  Lock lock(mutex);
  devices[device].hasLeft = true;
  changed.notify_all();
}
