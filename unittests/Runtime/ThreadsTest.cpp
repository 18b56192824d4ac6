//===- ThreadsTest.cpp - tests of threads that fail to start ----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../runtime/src/support/Threads.h"
#include "gtest/gtest.h"

#include <atomic>
#include <vector>

using namespace moert;

/// Number of threads that pthread_create() can still start; emulates a limit of
/// processes.
static std::atomic<int> numThreadsLeft{1 << 30};

// NOLINTBEGIN(bugprone-reserved-identifier): the linker's names.
extern "C" int __real_pthread_create(pthread_t *thread,
                                     const pthread_attr_t *attributes,
                                     void *(*call)(void *), void *argument);
extern "C" int __wrap_pthread_create(pthread_t *thread,
                                     const pthread_attr_t *attributes,
                                     void *(*call)(void *), void *argument) {
  if (numThreadsLeft-- <= 0)
    return EAGAIN;
  return __real_pthread_create(thread, attributes, call, argument);
}
// NOLINTEND(bugprone-reserved-identifier)

namespace {

/// Allows `count` more threads.
struct ThreadLimit {
  explicit ThreadLimit(int count) { numThreadsLeft = count; }
  ~ThreadLimit() { numThreadsLeft = 1 << 30; }
};

} // namespace

// field-bug: llama.cpp#17168
TEST(ThreadsTest, WorkIsDoneByTheThreadsThereAre) {
  for (int left : {0, 2, 100}) {
    ThreadLimit limit(left);
    std::atomic<int> next{0}, numCallers{0};
    std::vector<int> done(1000);
    shareWork(8, [&] {
      ++numCallers;
      for (int i = next++; i < 1000; i = next++)
        ++done[size_t(i)];
    });
    EXPECT_EQ(done, std::vector<int>(1000, 1));
    EXPECT_EQ(numCallers, std::min(left, 7) + 1);
  }
}

TEST(ThreadsTest, WorkThatWaitsForEachOtherRunsWholeOrNotAtAll) {
  std::atomic<int> numThere{0};
  auto meet = [&](size_t) {
    ++numThere;
    while (numThere < 4)
      ;
  };
  ASSERT_TRUE(runTogether(4, meet));
  EXPECT_EQ(numThere, 4);
  for (int left : {0, 2}) {
    ThreadLimit limit(left);
    Status status = runTogether(4, meet);
    EXPECT_EQ(status.code(), StatusCode::ResourceExhausted);
    EXPECT_NE(status.message().find(std::to_string(left + 1) + " of the 4"),
              std::string::npos)
        << status.message();
    EXPECT_EQ(numThere, 4);
  }
}
