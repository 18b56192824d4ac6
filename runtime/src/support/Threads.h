//===- Threads.h - threads that may not be had ------------------*- C++ -*-===//
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

/// A thread. std::thread and std::async end the process where a limit of
/// processes leaves no thread; here the caller learns it.
class Thread {
public:
  Thread() = default;
  Thread(const Thread &) = delete;
  Thread &operator=(const Thread &) = delete;
  ~Thread() { join(); }

  /// Whether there is a thread that does the work. Called once.
  bool start(std::function<void()> given);
  /// Waits for the work, if it was started.
  void join();

private:
  std::function<void()> work;
  pthread_t thread = {};
  bool isStarted = false;
};

/// The processors of this machine, at least 1.
size_t countProcessors();

/// Calls `work` on `count` threads, of which the calling one is one, and waits
/// for all. Where fewer threads can be had, fewer call it: `work` takes its
/// pieces from a counter, until none is left.
void shareWork(size_t count, const std::function<void()> &work);

/// Calls work(0) to work(count - 1) at the same time, for work that waits for
/// each other. Where there are too few threads nothing is called.
Status runTogether(size_t count, const std::function<void(size_t)> &work);

} // namespace moert

#endif // MOERT_SRC_SUPPORT_THREADS_H
