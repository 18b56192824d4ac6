//===- TaskPool.cpp - a thread pool that needs no threads -----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/TaskPool.h"

#include "../../runtime/src/support/Threads.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Threading.h"

using namespace moec;

TaskPool::TaskPool(unsigned threads)
    : most(llvm::hardware_concurrency(threads).compute_thread_count()) {}

TaskPool::~TaskPool() {
  help(/*group=*/nullptr);
  {
    std::lock_guard<std::mutex> lock(mutex);
    isEnding = true;
  }
  changed.notify_all();
}

void TaskPool::wait() { help(/*group=*/nullptr); }
void TaskPool::wait(Group &group) { help(&group); }

void TaskPool::asyncEnqueue(llvm::unique_function<void()> run, Group *group) {
  std::lock_guard<std::mutex> lock(mutex);
  tasks.push_back({std::move(run), group});
  ++numLeft[nullptr];
  if (group)
    ++numLeft[group];
  changed.notify_all();
  // The waiting thread works too.
  if (!mayGrow || threads.size() + 1 >= most ||
      threads.size() >= numLeft[nullptr])
    return;
  auto thread = std::make_unique<moert::Thread>();
  mayGrow = thread->start([this] { work(); });
  if (mayGrow)
    threads.push_back(std::move(thread));
}

bool TaskPool::runOne(std::unique_lock<std::mutex> &lock, Group *group) {
  auto found = llvm::find_if(
      tasks, [&](const Task &task) { return !group || task.group == group; });
  if (found == tasks.end())
    return false;
  Task task = std::move(*found);
  tasks.erase(found);
  lock.unlock();
  task.run();
  task.run = nullptr;
  lock.lock();
  --numLeft[nullptr];
  if (task.group && --numLeft[task.group] == 0)
    numLeft.erase(task.group);
  changed.notify_all();
  return true;
}

void TaskPool::help(Group *group) {
  std::unique_lock<std::mutex> lock(mutex);
  auto count = [&] {
    auto found = numLeft.find(group);
    return found == numLeft.end() ? 0 : found->second;
  };
  while (count() > 0)
    if (!runOne(lock, group))
      changed.wait(lock);
}

void TaskPool::work() {
  std::unique_lock<std::mutex> lock(mutex);
  while (!isEnding)
    if (!runOne(lock, /*group=*/nullptr))
      changed.wait(lock);
}
