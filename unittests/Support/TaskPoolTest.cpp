//===- TaskPoolTest.cpp - tests of the thread pool for MLIR -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/TaskPool.h"

#include "gtest/gtest.h"

#include <atomic>

#include <pthread.h>

using namespace moec;

static std::atomic<bool> hasThreads{true};

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
extern "C" int __real_pthread_create(pthread_t *thread,
                                     const pthread_attr_t *attributes,
                                     void *(*call)(void *), void *argument);
extern "C" int __wrap_pthread_create(pthread_t *thread,
                                     const pthread_attr_t *attributes,
                                     void *(*call)(void *), void *argument) {
  return hasThreads ? __real_pthread_create(thread, attributes, call, argument)
                    : EAGAIN;
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {

class TaskPoolTest : public ::testing::TestWithParam<bool> {
protected:
  void SetUp() override { hasThreads = GetParam(); }
  void TearDown() override { hasThreads = true; }
};

} // namespace

TEST_P(TaskPoolTest, RunsEachTaskOnce) {
  std::atomic<int> numRun{0};
  TaskPool pool(4);
  EXPECT_GE(pool.getMaxConcurrency(), 1u);
  for (int i = 0; i < 100; ++i)
    pool.async([&] { ++numRun; });
  pool.wait();
  EXPECT_EQ(numRun, 100);
  pool.wait();
}

/// As MLIR's parallel loops do, also within each other.
TEST_P(TaskPoolTest, GroupsAreWaitedForWithinTasks) {
  std::atomic<int> numRun{0};
  TaskPool pool(4);
  {
    llvm::ThreadPoolTaskGroup outer(pool);
    for (int i = 0; i < 10; ++i)
      outer.async([&] {
        llvm::ThreadPoolTaskGroup inner(pool);
        for (int j = 0; j < 10; ++j)
          inner.async([&] { ++numRun; });
        inner.wait();
        ++numRun;
      });
    outer.wait();
    EXPECT_EQ(numRun, 110);
  }
}

TEST_P(TaskPoolTest, WhatIsLeftRunsAtTheEnd) {
  std::atomic<int> numRun{0};
  {
    TaskPool pool(4);
    for (int i = 0; i < 10; ++i)
      pool.async([&] { ++numRun; });
  }
  EXPECT_EQ(numRun, 10);
}

INSTANTIATE_TEST_SUITE_P(Threads, TaskPoolTest, ::testing::Bool());
