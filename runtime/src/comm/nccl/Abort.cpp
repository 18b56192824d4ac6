//===- Abort.cpp - aborts NCCL communicators --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Abort.h"

#include <chrono>
#include <condition_variable>
#include <mutex>

#include <pthread.h>

namespace moert::nccl {

/// Shared with the thread, which may outlive everything else.
struct Abort::Job {
  std::shared_ptr<const Library> library;
  std::vector<ncclComm_t> comms;
  std::mutex mutex;
  std::condition_variable ended;
  bool isDone = false;

  static void *run(void *argument) {
    std::unique_ptr<std::shared_ptr<Job>> job(
        static_cast<std::shared_ptr<Job> *>(argument));
    (*job)->run();
    return nullptr;
  }

  void run() {
    // Errors are ignored: there is no caller left to report them to.
    for (ncclComm_t comm : comms)
      (void)library->ncclCommAbort(comm);
    std::lock_guard<std::mutex> lock(mutex);
    isDone = true;
    ended.notify_all();
  }
};

Abort::Abort(std::shared_ptr<const Library> library,
             std::vector<ncclComm_t> comms)
    : job(std::make_shared<Job>()) {
  job->library = std::move(library);
  job->comms = std::move(comms);
  auto argument = std::make_unique<std::shared_ptr<Job>>(job);
  pthread_t thread;
  // Not std::thread, whose failure is an exception.
  if (pthread_create(&thread, nullptr, &Job::run, argument.get()) != 0) {
    job->run();
    return;
  }
  (void)argument.release();
  pthread_detach(thread);
}

bool Abort::waitFor(double seconds) const {
  std::unique_lock<std::mutex> lock(job->mutex);
  return job->ended.wait_for(lock, std::chrono::duration<double>(seconds),
                             [&] { return job->isDone; });
}

} // namespace moert::nccl
