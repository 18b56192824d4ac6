//===- Watchdog.cpp - ends a hanging process --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Watchdog.h"

#include "../../../../runtime/src/support/Threads.h"

#include <chrono>

using namespace moec::bench;

Watchdog::Watchdog(std::function<void()> expired)
    : expired(std::move(expired)), thread(std::make_unique<moert::Thread>()) {
  (void)thread->start([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    isEnding = true;
  }
  changed.notify_all();
  thread->join();
}

void Watchdog::arm(double limit) {
  std::lock_guard<std::mutex> lock(mutex);
  epoch += epoch % 2 ? 2 : 1;
  seconds = limit;
  changed.notify_all();
}

void Watchdog::disarm() {
  std::lock_guard<std::mutex> lock(mutex);
  epoch += epoch % 2;
  changed.notify_all();
}

void Watchdog::watch() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!isEnding) {
    if (epoch % 2 == 0) {
      changed.wait(lock, [&] { return isEnding || epoch % 2; });
      continue;
    }
    int64_t armed = epoch;
    if (changed.wait_for(lock, std::chrono::duration<double>(seconds),
                         [&] { return isEnding || epoch != armed; }))
      continue;
    ++epoch;
    lock.unlock();
    expired();
    lock.lock();
  }
}
