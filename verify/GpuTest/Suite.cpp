//===- Suite.cpp - runs cases -----------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Suite.h"

#include "../../runtime/src/support/Threads.h"
#include "Tools/Run/PlanRun.h"
#include "llvm/Support/FormatVariadic.h"

#include <chrono>
#include <cstdlib>

using namespace moec;
using namespace moec::gputest;

/// Seconds beyond the time limit for cases that have begun.
static constexpr double kGrace = 60;

double Suite::getSeconds() const { return moec::getSeconds() - begin; }

int Suite::run(const std::vector<Case> &cases) {
  begin = moec::getSeconds();
  numCases = cases.size();
  int cores = static_cast<int>(moert::countProcessors());
  int jobs =
      options.jobs > 0 ? static_cast<int>(options.jobs) : (cores + 1) / 2;
  // If the thread cannot be started, a hanging case is not detected.
  moert::Thread watcher;
  (void)watcher.start([&] { watch(); });
  std::vector<const Case *> others;
  for (const Case &one : cases) {
    if (!one.isAlone)
      others.push_back(&one);
    else if (!isOver())
      runOne(one);
  }
  moert::shareWork(static_cast<size_t>(jobs), [&] { work(others); });
  {
    std::lock_guard<std::mutex> lock(mutex);
    isDone = true;
    save();
  }
  doneChanged.notify_all();
  watcher.join();
  record.print(getSeconds());
  if (isLost)
    llvm::outs() << "the device does not respond after a failure; run again "
                    "with --resume for the remaining cases\n";
  return record.countFailed() > 0 ? 1 : record.countLeft() > 0 ? 2 : 0;
}

/// Whether no further case may begin.
bool Suite::isOver() const {
  return isLost || (options.timeLimit > 0 && getSeconds() > options.timeLimit);
}

void Suite::work(const std::vector<const Case *> &cases) {
  while (true) {
    const Case *mine;
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (next == cases.size() || isOver())
        return;
      mine = cases[next++];
    }
    runOne(*mine);
  }
}

void Suite::runOne(const Case &mine) {
  double started = getSeconds();
  {
    std::lock_guard<std::mutex> lock(mutex);
    running[mine.name] = started;
  }
  Outcome outcome = mine.run();
  outcome.seconds = getSeconds() - started;
  report(mine, std::move(outcome));
}

/// Whether an error makes the driver's context unusable.
static bool isFatal(llvm::StringRef message) {
  for (const char *name :
       {"CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED",
        "CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS",
        "CUDA_ERROR_LAUNCH_TIMEOUT", "CUDA_ERROR_ASSERT",
        "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_INVALID_PC",
        "CUDA_ERROR_INVALID_ADDRESS_SPACE"})
    if (message.contains(name))
      return true;
  return false;
}

void Suite::report(const Case &done, Outcome outcome) {
  std::lock_guard<std::mutex> lock(mutex);
  running.erase(done.name);
  bool wasLost = isLost;
  for (const std::string &failure : outcome.failures)
    isLost |= isFatal(failure);
  // A case that failed after the device was lost is not recorded.
  if (wasLost && !outcome.hasPassed())
    return;
  std::string line = llvm::formatv(
      "[{0,4}/{1}] {2} {3} ({4:F2} s{5}{6})", ++numDone, numCases,
      outcome.hasPassed() ? "PASS" : "FAIL", done.name, outcome.seconds,
      outcome.note.empty() ? "" : ", ", outcome.note);
  auto error = outcome.figures.find("error");
  if (error != outcome.figures.end())
    line += llvm::formatv(" error {0:e1}", error->second).str();
  llvm::outs() << line << "\n";
  for (const std::string &failure : outcome.failures)
    llvm::outs() << "    " << failure << "\n";
  llvm::outs().flush();
  record.set(done.name, std::move(outcome));
  if (getSeconds() - lastSaved > 2)
    save();
}

/// Writes the record; the caller holds the lock.
void Suite::save() {
  lastSaved = getSeconds();
  if (options.json.empty())
    return;
  if (moert::Status status = record.write(options.json, lastSaved); !status)
    llvm::errs() << "gpu-test: error: " << status.message() << "\n";
}

/// Ends the process if a case hangs beyond the time limit, because a hanging
/// kernel cannot be stopped from the host.
void Suite::watch() {
  std::unique_lock<std::mutex> lock(mutex);
  if (options.timeLimit <= 0) {
    doneChanged.wait(lock, [&] { return isDone; });
    return;
  }
  auto limit = std::chrono::duration<double>(options.timeLimit + kGrace);
  if (doneChanged.wait_for(lock, limit, [&] { return isDone; }))
    return;
  for (const auto &[name, since] : running) {
    Outcome outcome;
    outcome.seconds = getSeconds() - since;
    outcome.fail(
        llvm::formatv("still running after {0:F0} s", outcome.seconds));
    llvm::outs() << "HANGS " << name << "\n";
    record.set(name, std::move(outcome));
  }
  save();
  record.print(getSeconds());
  llvm::outs().flush();
  std::_Exit(1);
}
