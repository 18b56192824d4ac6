//===- Threads.cpp - threads that may fail to start -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Threads.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>

namespace moert {

bool Thread::start(std::function<void()> given) {
  work = std::move(given);
  auto call = [](void *self) -> void * {
    static_cast<Thread *>(self)->work();
    return nullptr;
  };
  isStarted = pthread_create(&thread, /*attr=*/nullptr, call, this) == 0;
  return isStarted;
}

void Thread::join() {
  if (isStarted)
    pthread_join(thread, /*retval=*/nullptr);
  isStarted = false;
}

size_t countProcessors() {
  return std::max(1U, std::thread::hardware_concurrency());
}

void shareWork(size_t count, const std::function<void()> &work) {
  std::deque<Thread> others;
  while (others.size() + 1 < count)
    if (!others.emplace_back().start(work))
      break;
  work();
}

Status runTogether(size_t count, const std::function<void(size_t)> &work) {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<bool> mayRun;
  auto tell = [&](bool may) {
    std::lock_guard<std::mutex> lock(mutex);
    mayRun = may;
    changed.notify_all();
  };
  std::deque<Thread> others;
  while (others.size() + 1 < count) {
    size_t index = others.size() + 1;
    bool isStarted = others.emplace_back().start([&, index] {
      std::unique_lock<std::mutex> lock(mutex);
      changed.wait(lock, [&] { return mayRun.has_value(); });
      lock.unlock();
      if (*mayRun)
        work(index);
    });
    if (isStarted)
      continue;
    tell(false);
    return resourceExhausted("the system gives " + std::to_string(index) +
                             " of the " + std::to_string(count) +
                             " threads that are needed; raise the limit of "
                             "processes (ulimit -u, pids of the container)");
  }
  tell(true);
  if (count > 0)
    work(0);
  return Status::ok();
}

} // namespace moert
