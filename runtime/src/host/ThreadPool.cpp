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

namespace {

/// The state that a new thread begins with.
struct Worker {
  ThreadPool *pool;
  int index;
};

} // namespace

Result<std::unique_ptr<ThreadPool>> ThreadPool::create(int numThreads) {
  std::unique_ptr<ThreadPool> pool(new ThreadPool());
  if (Status status = pool->resize(numThreads); !status)
    return status;
  return pool;
}

Status ThreadPool::resize(int numThreads) {
  std::lock_guard<std::mutex> alone(resizing);
  size_t wanted = static_cast<size_t>(std::max(numThreads, 1)) - 1;
  {
    std::lock_guard<std::mutex> lock(mutex);
    numWorkers = static_cast<int>(wanted);
  }
  jobCame.notify_all();
  for (; threads.size() > wanted; threads.pop_back())
    pthread_join(threads.back(), nullptr);
  while (threads.size() < wanted) {
    // Not std::thread, whose failure is an exception.
    pthread_t thread;
    auto *worker = new Worker{this, static_cast<int>(threads.size())};
    int error = pthread_create(&thread, nullptr, &threadMain, worker);
    if (error != 0) {
      delete worker;
      numWorkers = static_cast<int>(threads.size());
      return resourceExhausted("thread " + std::to_string(threads.size() + 1) +
                               " of " + std::to_string(numThreads) +
                               " could not be started: " + strerror(error) +
                               "; ask for fewer threads");
    }
    threads.push_back(thread);
  }
  return Status::ok();
}

ThreadPool::~ThreadPool() { (void)resize(1); }

void *ThreadPool::threadMain(void *given) {
  std::unique_ptr<Worker> worker(static_cast<Worker *>(given));
  // A thread inherits the floating-point state of its creator.
  FloatState state;
  worker->pool->work(worker->index);
  return nullptr;
}

void ThreadPool::Job::drain() {
  while (true) {
    int64_t cta = nextCta.fetch_add(1, std::memory_order_relaxed);
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

void ThreadPool::work(int index) {
  auto isWanted = [&] {
    return index < numWorkers.load(std::memory_order_relaxed);
  };
  while (true) {
    spinUntil([&] {
      return numJobs.load(std::memory_order_relaxed) > 0 || !isWanted();
    });
    std::unique_lock<std::mutex> lock(mutex);
    while (jobs.empty() && isWanted()) {
      ++sleepers;
      jobCame.wait(lock);
      --sleepers;
    }
    if (!isWanted())
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
  if (grid <= 1 || numWorkers.load(std::memory_order_relaxed) == 0) {
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
