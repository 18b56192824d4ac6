//===- TaskPool.h - a thread pool that needs no threads ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SUPPORT_TASKPOOL_H
#define MOEC_SUPPORT_TASKPOOL_H

#include "llvm/ADT/FunctionExtras.h"
#include "llvm/Support/ThreadPool.h"

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace moert {
class Thread;
} // namespace moert

namespace moec {

/// A thread pool for MLIR that also runs tasks on the waiting thread. It works
/// with as many threads as the system can start, even none; LLVM's own pool
/// aborts the process then.
class TaskPool : public llvm::ThreadPoolInterface {
public:
  /// `threads` is the number of tasks that run at a time; 0: one per core that
  /// this process may use.
  explicit TaskPool(unsigned threads = 0);
  ~TaskPool() override;

  void wait() override;
  void wait(llvm::ThreadPoolTaskGroup &group) override;
  unsigned getMaxConcurrency() const override { return most; }

private:
  using Group = llvm::ThreadPoolTaskGroup;
  struct Task {
    llvm::unique_function<void()> run;
    Group *group;
  };

  void asyncEnqueue(llvm::unique_function<void()> run, Group *group) override;
  /// Runs tasks of `group`, or of all groups if null, until none is left.
  void help(Group *group);
  /// Runs one of them with the mutex unlocked. Returns whether there was one.
  bool runOne(std::unique_lock<std::mutex> &lock, Group *group);
  /// The body of each thread.
  void work();

  const unsigned most;
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  /// Tasks that run or wait, per group; the total is stored under null.
  std::map<Group *, size_t> numLeft;
  bool isEnding = false, mayGrow = true;
  std::vector<std::unique_ptr<moert::Thread>> threads;
};

} // namespace moec

#endif // MOEC_SUPPORT_TASKPOOL_H
