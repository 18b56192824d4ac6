//===- DeviceCalls.h - calls of devices of one simulator --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_VERIFY_PTXSIM_DEVICECALLS_H
#define MOEC_VERIFY_PTXSIM_DEVICECALLS_H

#include "moec/PtxSim/Simulator.h"
#include "moert/Status.h"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <vector>

namespace moec::ptx {

/// A call on one device, to be made now or later.
struct DeviceCall {
  std::function<moert::Status()> make;
  /// Made only when all devices of the simulator have such a call next.
  bool meets = false;
};

/// Serializes access to one simulator that several devices share.
class DeviceCalls {
public:
  using Lock = std::unique_lock<std::mutex>;

  DeviceCalls(const SimulatorOptions &options, size_t numDevices,
              double limitSeconds)
      : simulator(options), limitSeconds(limitSeconds), devices(numDevices) {}

  /// Makes the device's call, or queues it behind one that meets others.
  moert::Status give(size_t device, DeviceCall call);
  /// Waits until all calls of the device are made, then runs all work.
  moert::Status finish(Lock &lock, size_t device);
  void leave(size_t device);

  std::mutex mutex;
  Simulator simulator;

private:
  struct Member {
    std::deque<DeviceCall> waiting;
    /// Error of a call that was queued and made later.
    moert::Status failure;
    bool hasLeft = false;
  };

  void makeAll();
  void dropWaiting();

  const double limitSeconds;
  std::condition_variable changed;
  std::vector<Member> devices;
};

} // namespace moec::ptx

#endif // MOEC_VERIFY_PTXSIM_DEVICECALLS_H
