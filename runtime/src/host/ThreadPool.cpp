//===- ThreadPool.cpp - threads that share a launch's CTAs ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ThreadPool.h"

#include "../support/FloatState.h"

#include <algorithm>
#include <chrono>
#include <cstring>

namespace moert {

/// Time that threads spin for work before they sleep. The launches of one layer
/// follow each other within microseconds, far less than waking a thread takes.
static constexpr std::chrono::microseconds kSpinTime(50);

static void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// Spins until `condition` holds; false after kSpinTime.
template <typename Condition>
static bool spinUntil(Condition condition) {
  auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  do {
    for (int i = 0; i < 32; ++i) {
      if (condition())
        return true;
      relax();
    }
  } while (std::chrono::steady_clock::now() < deadline);
  return false;
}

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int numThreads) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool());
  for (int i = 1; i < numThreads; ++i) {
    // Not std::thread, whose failure is an exception.
    pthread_t thread;
    int error = pthread_create(&thread, nullptr, &threadMain, pool.get());
    if (error != 0)
      return resourceExhausted("thread " + std::to_string(i) + " of " +
                               std::to_string(numThreads) +
                               " could not be started: " + strerror(error) +
                               "; ask for fewer threads");
    pool->threads.push_back(thread);
  }
  return pool;
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    closing = true;
  }
  jobCame.notify_all();
  for (pthread_t thread : threads)
    pthread_join(thread, nullptr);
}

void *ThreadPool::threadMain(void *pool) {
  // A thread inherits the floating-point state of its creator.
  FloatState state;
  static_cast<ThreadPool *>(pool)->work();
  return nullptr;
}

void ThreadPool::Job::drain() {
  while (true) {
    int64_t cta = ticket.fetch_add(1, std::memory_order_relaxed);
    if (cta >= grid)
      return;
    kernel(args, cta);
  }
}

/// Requires the mutex.
void ThreadPool::removeJob(const Job *job) {
  auto it = std::find(jobs.begin(), jobs.end(), job);
  if (it == jobs.end())
    return;
  jobs.erase(it);
  numJobs.store(jobs.size(), std::memory_order_relaxed);
}

void ThreadPool::work() {
  while (true) {
    spinUntil([&] {
      return numJobs.load(std::memory_order_relaxed) > 0 ||
             closing.load(std::memory_order_relaxed);
    });
    std::unique_lock<std::mutex> lock(mutex);
    while (jobs.empty() && !closing) {
      ++sleepers;
      jobCame.wait(lock);
      --sleepers;
    }
    if (jobs.empty())
      return;
    Job *job = jobs.front();
    job->helpers.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();

    job->drain();

    lock.lock();
    removeJob(job);
    // Makes the kernel's writes visible to the launching thread.
    if (job->helpers.fetch_sub(1, std::memory_order_acq_rel) == 1)
      helpersLeft.notify_all();
  }
}

void ThreadPool::run(HostKernelFn kernel, const uint64_t *args, int64_t grid) {
  // CTAs must give the same bits in every thread.
  FloatState state;
  Job job{kernel, args, grid};
  if (grid <= 1 || threads.empty()) {
    job.drain();
    return;
  }
  int toWake;
  {
    std::lock_guard<std::mutex> lock(mutex);
    jobs.push_back(&job);
    numJobs.store(jobs.size(), std::memory_order_relaxed);
    toWake = static_cast<int>(std::min<int64_t>(sleepers, grid - 1));
  }
  for (int i = 0; i < toWake; ++i)
    jobCame.notify_one();

  job.drain();

  auto isAlone = [&] {
    return job.helpers.load(std::memory_order_acquire) == 0;
  };
  std::unique_lock<std::mutex> lock(mutex);
  removeJob(&job);
  if (isAlone())
    return;
  lock.unlock();
  if (spinUntil(isAlone))
    return;
  lock.lock();
  helpersLeft.wait(lock, isAlone);
}

} // namespace moert
