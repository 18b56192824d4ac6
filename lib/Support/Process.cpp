//===- Process.cpp - runs another program -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// llvm/Support/Program.h implements timeouts with SIGALRM, which belongs to the
// whole process. A library must not use it.

#include "moec/Support/Process.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/FormatVariadic.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;
using namespace moec;

extern char **environ;

namespace {

using Clock = std::chrono::steady_clock;

/// Output beyond this size is discarded.
constexpr size_t kMaxOutputBytes = size_t(1) << 20;

template <typename... Values>
Error fail(StringRef program, const char *format, Values &&...values) {
  return createStringError(program + " " + formatv(format, values...).str());
}

double toSeconds(const timeval &time) {
  return double(time.tv_sec) + double(time.tv_usec) * 1e-6;
}

/// One run, from the start of the program to its end.
class Run {
public:
  Run(StringRef program, double timeoutSeconds)
      : program(program), timeoutSeconds(timeoutSeconds),
        deadline(Clock::now() +
                 std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double>(timeoutSeconds))) {}

  ~Run() {
    if (child > 0 && !hasEnded) {
      kill(-child, SIGKILL);
      while (!hasEnded)
        wait(/*flags=*/0);
    }
    for (int descriptor : pipe)
      if (descriptor >= 0)
        close(descriptor);
  }

  Error start(ArrayRef<std::string> arguments) {
    if (pipe2(pipe, O_CLOEXEC) != 0)
      return fail(program, "cannot be started: {0}", strerror(errno));
    std::string name = program.str();
    SmallVector<char *> argv{name.data()};
    for (const std::string &argument : arguments)
      argv.push_back(const_cast<char *>(argument.c_str()));
    argv.push_back(nullptr);

    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], 1);
    posix_spawn_file_actions_adddup2(&actions, pipe[1], 2);
    // A process group of its own, so that children can be killed with it.
    // Signals blocked in this thread are not blocked there.
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(&attributes,
                             POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
    int error = posix_spawnp(&child, name.c_str(), &actions, &attributes,
                             argv.data(), environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    close(std::exchange(pipe[1], -1));
    if (error == 0)
      return Error::success();
    child = 0;
    return fail(program, "cannot be started: {0}", strerror(error));
  }

  /// Reads until the program has ended. The stream may stay open longer, since
  /// children of the program can inherit it.
  Expected<ProcessResult> finish() {
    constexpr int sliceMs = 20;
    bool isOpen = true;
    while (!hasEnded) {
      if (Clock::now() >= deadline)
        return fail(program, "was stopped because it did not end within {0} s",
                    timeoutSeconds);
      if (isOpen)
        isOpen = readMore(sliceMs);
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      // At the end of the stream the program is about to end.
      wait(WNOHANG);
    }
    while (isOpen && readMore(/*waitMs=*/0)) {
    }
    if (!isKnown)
      return fail(program,
                  "has ended with an unknown status: this process ignores "
                  "SIGCHLD or has waited for the child elsewhere");
    if (WIFSIGNALED(status))
      return fail(program, "was killed by signal {0} ({1})", WTERMSIG(status),
                  strsignal(WTERMSIG(status)));
    result.exitCode = WEXITSTATUS(status);
    return std::move(result);
  }

private:
  /// Reads available output, waiting at most `waitMs`; false at the end of the
  /// stream.
  bool readMore(int waitMs) {
    pollfd poller = {pipe[0], POLLIN, 0};
    int ready = poll(&poller, 1, waitMs);
    if (ready < 0)
      return errno == EINTR;
    if (ready == 0)
      return waitMs > 0;
    char buffer[4096];
    ssize_t got = read(pipe[0], buffer, sizeof(buffer));
    if (got < 0)
      return errno == EINTR || errno == EAGAIN;
    if (got > 0 && result.output.size() < kMaxOutputBytes)
      result.output.append(buffer, size_t(got));
    return got > 0;
  }

  void wait(int flags) {
    rusage usage = {};
    pid_t got = wait4(child, &status, flags, &usage);
    if (got == 0 || (got < 0 && errno == EINTR))
      return;
    hasEnded = true;
    isKnown = got == child;
    result.cpuSeconds = toSeconds(usage.ru_utime) + toSeconds(usage.ru_stime);
  }

  StringRef program;
  double timeoutSeconds;
  Clock::time_point deadline;
  int pipe[2] = {-1, -1};
  pid_t child = 0;
  bool hasEnded = false;
  /// Whether `status` is the exit status of the program.
  bool isKnown = false;
  int status = 0;
  ProcessResult result;
};

} // namespace

Expected<ProcessResult> moec::runProcess(StringRef program,
                                         ArrayRef<std::string> arguments,
                                         double timeoutSeconds) {
  Run run(program, timeoutSeconds);
  if (Error error = run.start(arguments))
    return std::move(error);
  return run.finish();
}
