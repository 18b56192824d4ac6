//===- Watchdog.h - ends a hanging process ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RUN_WATCHDOG_H
#define MOEC_LIB_TOOLS_BENCH_RUN_WATCHDOG_H

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>

namespace moert {
class Thread;
} // namespace moert

namespace moec::bench {

/// Calls a function from its own thread if arm() is not followed by disarm() in
/// time. Without a thread nothing is watched. A hanging kernel cannot be
/// stopped, but the process that waits for it can.
class Watchdog {
public:
  explicit Watchdog(std::function<void()> expired);
  ~Watchdog();

  void arm(double seconds);
  void disarm();

private:
  void watch();

  std::function<void()> expired;
  std::mutex mutex;
  std::condition_variable changed;
  /// Number of calls of arm() and disarm(); odd while armed.
  int64_t epoch = 0;
  double seconds = 0;
  bool isEnding = false;
  std::unique_ptr<moert::Thread> thread;
};

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RUN_WATCHDOG_H
