//===- ProcessTest.cpp - tests of running other programs --------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "moec/Support/Process.h"

#include "gtest/gtest.h"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <thread>

#include <unistd.h>

using namespace moec;

namespace {

llvm::Expected<ProcessResult> runShell(const std::string &script,
                                       double timeoutSeconds = 60) {
  return runProcess("/bin/sh", {"-c", script}, timeoutSeconds);
}

std::string getError(llvm::Expected<ProcessResult> result) {
  return result ? "it ran" : llvm::toString(result.takeError());
}

double getSeconds(const std::function<void()> &body) {
  auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

/// Whether a process exists and is not a zombie.
bool isRunning(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string number, name, state;
  return file >> number >> name >> state && state != "Z";
}

TEST(ProcessTest, AnswersOutputAndExitCode) {
  auto result = runShell("echo out; echo err >&2; exit 3");
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  EXPECT_EQ(result->exitCode, 3);
  EXPECT_EQ(result->output, "out\nerr\n");
}

TEST(ProcessTest, TakesArgumentsAsTheyAre) {
  auto result = runProcess("echo", {"a b", "$HOME; exit 1", "*"}, 60);
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  EXPECT_EQ(result->output, "a b $HOME; exit 1 *\n");
}

TEST(ProcessTest, HasNothingToRead) {
  auto result = runProcess("cat", {}, 60);
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  EXPECT_EQ(result->output, "");
}

TEST(ProcessTest, CountsProcessorTime) {
  auto idle = runShell("sleep 0.2");
  auto busy = runShell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done");
  ASSERT_TRUE(bool(idle) && bool(busy));
  EXPECT_LT(idle->cpuSeconds, 0.1);
  EXPECT_GT(busy->cpuSeconds, idle->cpuSeconds);
}

TEST(ProcessTest, NamesAProgramThatIsMissing) {
  EXPECT_EQ(getError(runProcess("/nonexistent/program", {}, 60)),
            "/nonexistent/program cannot be started: No such file or "
            "directory");
}

TEST(ProcessTest, SaysWhichSignalKilledIt) {
  EXPECT_EQ(getError(runShell("kill -9 $$")),
            "/bin/sh was killed by signal 9 (Killed)");
}

TEST(ProcessTest, StopsWhatHangsAndWhatItStarted) {
  std::string path =
      testing::TempDir() + "/moec-process-" + std::to_string(getpid()) + ".txt";
  double seconds = getSeconds([&] {
    EXPECT_EQ(getError(runShell("sleep 100 & echo $! > " + path + "; wait",
                                /*timeoutSeconds=*/0.5)),
              "/bin/sh was stopped because it did not end within 0.50 s");
  });
  EXPECT_LT(seconds, 20);
  pid_t started = 0;
  std::ifstream(path) >> started;
  ASSERT_GT(started, 0);
  // The call does not wait for the process.
  for (int i = 0; i < 500 && isRunning(started); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_FALSE(isRunning(started));
  std::remove(path.c_str());
}

TEST(ProcessTest, DoesNotWaitForWhatGoesOnInTheBackground) {
  double seconds = getSeconds([] {
    auto result = runShell("sleep 30 & echo done");
    ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
    EXPECT_EQ(result->output, "done\n");
  });
  EXPECT_LT(seconds, 20);
}

TEST(ProcessTest, KeepsSoMuchOutputAndNoMore) {
  auto result = runShell("yes | head -c 5000000; exit 7");
  ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
  EXPECT_EQ(result->exitCode, 7);
  EXPECT_GE(result->output.size(), size_t(1) << 20);
  EXPECT_LT(result->output.size(), size_t(1) << 21);
}

TEST(ProcessTest, RunsFromManyThreads) {
  std::vector<std::thread> threads;
  std::vector<std::string> outputs(16);
  for (size_t i = 0; i < outputs.size(); ++i)
    threads.emplace_back([&, i] {
      auto result = runShell("echo " + std::to_string(i));
      outputs[i] = result ? result->output : getError(std::move(result));
    });
  for (std::thread &thread : threads)
    thread.join();
  for (size_t i = 0; i < outputs.size(); ++i)
    EXPECT_EQ(outputs[i], std::to_string(i) + "\n");
}

} // namespace
