//===- RankProcesses.cpp - a process for each rank --------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RankProcesses.h"

#include "PlanRun.h"
#include "ResultBytes.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace moec;
using moert::Result;
using moert::Status;

/// Additional time for ranks to notice a failure and to end.
static constexpr double kGraceSeconds = 5;

Result<std::unique_ptr<RankProcesses>> RankProcesses::start(int64_t ranks) {
  auto made = moert::ProcessSockets::create(ranks);
  if (!made)
    return made.status();
  std::unique_ptr<RankProcesses> processes(new RankProcesses());
  auto fail = [](const char *what) {
    return moert::unavailable(std::string(what) + ": " + strerror(errno));
  };
  pid_t parent = getpid();
  for (int64_t rank = 0; rank < ranks; ++rank) {
    Child &child = processes->children.emplace_back();
    int pipe[2];
    if (::pipe2(pipe, O_CLOEXEC) != 0)
      return fail("a pipe for a rank");
    child.pipe = pipe[0];
    child.errors = memfd_create("moe-run rank", MFD_CLOEXEC);
    // Flushes buffered text, which otherwise both processes would write.
    llvm::outs().flush();
    child.pid = child.errors < 0 ? -1 : fork();
    if (child.pid < 0) {
      close(pipe[1]);
      return fail("a process for a rank");
    }
    if (child.pid > 0) {
      close(pipe[1]);
      continue;
    }
    // In the rank's process, which is killed when its parent ends.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
      _exit(1);
    int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    dup2(child.errors, STDERR_FILENO);
    close(nothing);
    for (Child &other : processes->children) {
      close(other.pipe);
      close(other.errors);
    }
    processes->children.clear();
    processes->ownRank = rank;
    processes->toParent = pipe[1];
    processes->sockets = made->take(rank);
    return processes;
  }
  return processes;
}

RankProcesses::~RankProcesses() {
  if (toParent >= 0)
    close(toParent);
  killAll();
  for (Child &child : children) {
    if (child.pipe >= 0)
      close(child.pipe);
    if (child.errors >= 0)
      close(child.errors);
  }
}

Status RankProcesses::tell(Result<RunResult> &result) const {
  std::string bytes = packResult(result);
  for (size_t at = 0; at < bytes.size();) {
    ssize_t count = write(toParent, bytes.data() + at, bytes.size() - at);
    if (count < 0 && errno != EINTR)
      return moert::unavailable(std::string("sending a result: ") +
                                strerror(errno));
    at += count > 0 ? size_t(count) : 0;
  }
  return Status::ok();
}

//===----------------------------------------------------------------------===//
// The parent process
//===----------------------------------------------------------------------===//

/// Waits briefly if there is nothing to read.
void RankProcesses::readPipes() {
  std::vector<pollfd> polled;
  for (const Child &child : children)
    polled.push_back({child.pipe, POLLIN, 0});
  constexpr int kMilliseconds = 20;
  if (poll(polled.data(), polled.size(), kMilliseconds) <= 0)
    return;
  for (auto [child, at] : llvm::zip(children, polled)) {
    if (at.revents == 0)
      continue;
    char bytes[1 << 16];
    ssize_t count = read(child.pipe, bytes, sizeof(bytes));
    if (count > 0) {
      child.said.append(bytes, size_t(count));
    } else if (count == 0 || errno != EINTR) {
      close(child.pipe);
      child.pipe = -1;
    }
  }
}

void RankProcesses::reap(bool waits) {
  for (Child &child : children) {
    int status = 0;
    if (child.pid < 0 || child.ended ||
        waitpid(child.pid, &status,
                waits ? 0 : WNOHANG | WUNTRACED | WCONTINUED) != child.pid)
      continue;
    child.isStopped = WIFSTOPPED(status);
    if (WIFEXITED(status) || WIFSIGNALED(status))
      child.ended = status;
  }
}

void RankProcesses::killAll() {
  for (Child &child : children)
    if (child.pid >= 0 && !child.ended)
      kill(child.pid, SIGKILL);
  reap(/*waits=*/true);
}

Result<std::vector<RunResult>> RankProcesses::wait(double limitSeconds) {
  // The limit starts when the first rank ends, be it by success or failure:
  // after that the others only have to end.
  std::optional<double> firstEnd, allStopped;
  std::vector<std::string> late(children.size());
  while (true) {
    readPipes();
    reap(/*waits=*/false);
    bool hasEnded = llvm::any_of(children, [](const Child &child) {
      return child.ended || child.pipe < 0;
    });
    bool isDone = llvm::all_of(children, [](const Child &child) {
      return child.ended && child.pipe < 0;
    });
    if (isDone)
      break;
    if (hasEnded && !firstEnd)
      firstEnd = getSeconds();
    // If no rank runs any more, none will time out waiting for a stopped one.
    bool othersRun = llvm::any_of(children, [](const Child &child) {
      return !child.ended && !child.isStopped;
    });
    // If all are stopped none ends, so the limit starts here.
    if (othersRun)
      allStopped.reset();
    else if (!allStopped)
      allStopped = getSeconds();
    if (!firstEnd && !allStopped)
      continue;
    double limit = !firstEnd || othersRun ? limitSeconds : 0;
    double begin = firstEnd ? *firstEnd : *allStopped;
    if (getSeconds() < begin + kGraceSeconds + limit)
      continue;
    for (auto [rank, child] : llvm::enumerate(children))
      if (!child.ended)
        late[rank] = "rank " + std::to_string(rank) +
                     (child.isStopped ? " was stopped, and" : "") +
                     " did not exit within the limit and was killed";
    killAll();
    break;
  }
  std::vector<RunResult> results;
  std::string deaths, errors;
  auto add = [](std::string &to, const std::string &text) {
    to += (to.empty() || text.empty() ? "" : "; ") + text;
  };
  for (auto [rank, child] : llvm::enumerate(children)) {
    std::string death = late[rank];
    if (death.empty())
      death = describeEnd(child, int64_t(rank));
    add(deaths, death);
    Result<RunResult> result = unpackResult(child.said);
    if (result)
      results.push_back(std::move(*result));
    else if (!child.said.empty() && errors.empty())
      // All ranks report the same error; the first one is kept.
      errors = result.status().message();
  }
  if (deaths.empty() && errors.empty())
    return results;
  add(deaths, errors);
  return moert::unavailable(deaths);
}

std::string RankProcesses::describeEnd(const Child &child, int64_t rank) const {
  std::string text = "rank " + std::to_string(rank);
  int status = child.ended.value_or(0);
  if (WIFSIGNALED(status))
    text += " was killed by signal " + std::to_string(WTERMSIG(status)) + " (" +
            strsignal(WTERMSIG(status)) + ")";
  else if (WEXITSTATUS(status) != 0 && child.said.empty())
    text += " exited with code " + std::to_string(WEXITSTATUS(status));
  else if (child.said.empty())
    text += " exited without a result";
  else
    return "";
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
    return text;
  char bytes[1024];
  off_t size = lseek(child.errors, 0, SEEK_END);
  ssize_t count = pread(child.errors, bytes, sizeof(bytes),
                        std::max<off_t>(size - off_t(sizeof(bytes)), 0));
  llvm::StringRef written(bytes, size_t(std::max<ssize_t>(count, 0)));
  if (!written.trim().empty())
    text += ", and wrote: " + written.trim().str();
  return text;
}
