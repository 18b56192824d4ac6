//===- ThreadPool.h - threads that share a launch's CTAs --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_HOST_THREADPOOL_H
#define MOERT_SRC_HOST_THREADPOOL_H

#include "moert/Device.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include <pthread.h>

namespace moert {

/// A launch is a job: an atomic counter hands its CTAs to the launching thread
/// and to every free worker. Several threads may launch at once; workers serve
/// the oldest job that has CTAs left.
class ThreadPool {
public:
  /// `numThreads` includes the launching thread, so 1 starts no worker.
  static Result<std::unique_ptr<ThreadPool>> create(int numThreads);
  ~ThreadPool();

  /// Changes the number of threads, for jobs that come later; returns when
  /// threads that are left over have ended. Fails, with as many threads as
  /// could be started, if some cannot be.
  Status resize(int numThreads);
  int getNumThreads() const { return numWorkers + 1; }

  /// Calls `kernel` for CTAs 0 .. grid-1; returns when all are done.
  void run(HostKernelFn kernel, const uint64_t *args, int64_t grid);

private:
  struct Job {
    HostKernelFn kernel;
    const uint64_t *args;
    int64_t grid;
    std::atomic<int64_t> nextCta{0};
    /// Workers inside the job. Changed under the mutex; the job may be
    /// destroyed as soon as this is 0 and the job is not in the list.
    std::atomic<int> helpers{0};

    void drain();
  };

  ThreadPool() = default;
  static void *threadMain(void *worker);
  void work(int index);
  void removeJob(const Job *job);

  std::mutex mutex;
  /// Signals workers: a new job, or fewer workers are wanted.
  std::condition_variable jobCame;
  /// Signals launching threads: the last helper has left a job.
  std::condition_variable helpersLeft;
  /// Jobs that may have CTAs left, oldest first.
  std::vector<Job *> jobs;
  /// A copy of jobs.size() for spinning workers, read without the mutex.
  std::atomic<size_t> numJobs{0};
  int sleepers = 0;
  /// Workers with this number or a higher one end.
  std::atomic<int> numWorkers{0};
  /// Serializes resize(); guards `threads`.
  std::mutex resizing;
  std::vector<pthread_t> threads;
};

} // namespace moert

#endif // MOERT_SRC_HOST_THREADPOOL_H
