//===- Threads.h - threads that may fail to start ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_SUPPORT_THREADS_H
#define MOERT_SRC_SUPPORT_THREADS_H

#include "moert/Status.h"

#include <cstddef>
#include <functional>

#include <pthread.h>

namespace moert {

/// A thread. std::thread and std::async abort the process if the system has no
/// thread left; here the caller is told.
class Thread {
public:
  Thread() = default;
  Thread(const Thread &) = delete;
  Thread &operator=(const Thread &) = delete;
  ~Thread() { join(); }

  /// Starts a thread that calls `given`; returns whether it started. Called
  /// once.
  bool start(std::function<void()> given);
  /// Waits for the work, if it was started.
  void join();

private:
  std::function<void()> work;
  pthread_t thread = {};
  bool isStarted = false;
};

/// Number of processors of this machine, at least 1.
size_t countProcessors();

/// Calls `work` on `count` threads, including the calling thread, and waits for
/// all. If fewer threads are available, fewer calls are made: `work` must take
/// its items from a counter until none is left.
void shareWork(size_t count, const std::function<void()> &work);

/// Calls work(0) to work(count - 1) concurrently, for work that waits for each
/// other. Calls nothing if there are too few threads.
Status runTogether(size_t count, const std::function<void(size_t)> &work);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_THREADS_H
