//===- ProcessDrillTest.cpp - a failing rank in every phase ---------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
// Three processes per cell, all cells concurrently. One rank fails in a phase;
// each other one must get an error that names it, within the limit and some
// grace, or must end if all calls were done.

#include "moert/HostDevice.h"
#include "moert/ProcessCommunicator.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <dirent.h>
#include <poll.h>
#include <set>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace moert;

namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kRanks = 3, kVictim = 1;
constexpr double kLimit = 3;
/// Time beyond the limit, for a busy machine.
constexpr double kGrace = 20;
/// Time that the others wait before the victim fails, in microseconds.
constexpr useconds_t kPause = 100000;

enum Mode {
  KillIdle,
  KillSpinning,
  Stop,
  Skip,
  Exit,
  Throw,
  Unwind,
  OutOfMemory,
  Package
};
const char *const kModes[] = {"kill -9 (idle)",
                              "kill -9 (spinning)",
                              "SIGSTOP",
                              "call left out",
                              "exit",
                              "exception (uncaught)",
                              "exception (unwound)",
                              "out of memory",
                              "other package"};
enum Phase { Init, Idle, Dispatch, Compute, Combine, Teardown };
const char *const kPhases[] = {"init",    "idle",    "dispatch",
                               "compute", "combine", "teardown"};

/// Whether the failure is possible in the phase: a difference of packages shows
/// only in calls, and a call can be skipped only in phases with one.
bool isCell(Mode mode, Phase phase) {
  if (mode == Package)
    return phase == Init || phase == Dispatch || phase == Combine;
  if (mode == Skip && phase == Compute)
    return false;
  return (mode != Skip && mode != Unwind && mode != OutOfMemory) ||
         phase != Teardown;
}

void killMyself(int) { kill(getpid(), SIGKILL); }

/// Makes the victim fail in its phase.
void strike(Mode mode) {
  usleep(kPause);
  switch (mode) {
  case KillIdle:
  case KillSpinning: {
    signal(SIGALRM, killMyself);
    itimerval soon = {{0, 0}, {0, 50000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    while (mode == KillSpinning)
      continue;
    while (true)
      pause();
  }
  case Stop:
    kill(getpid(), SIGSTOP);
    break;
  case Exit:
    _exit(3);
  case Throw: {
    // The effect of an uncaught exception.
    rlimit none = {};
    setrlimit(RLIMIT_CORE, &none);
    abort();
  }
  case Skip:
  case Unwind:
  case OutOfMemory:
  case Package:
    break;
  }
}

class DrilledRank {
public:
  DrilledRank(int64_t rank, Mode mode, Phase phase)
      : rank(rank), mode(mode), phase(phase) {}

  /// Returns the first error.
  Status run(std::vector<int> sockets) {
    device = *createHostDevice(1);
    auto made = createProcessCommunicator(
        {{kRanks, 1}, rank, std::move(sockets), kLimit}, *device);
    if (!made)
      return made.status();
    communicator = std::move(*made);
    stream = *device->createStream();
    Status status = doCalls();
    communicator.reset();
    return status;
  }

private:
  bool isDue(Phase now) const { return rank == kVictim && phase == now; }
  bool isOther(Phase now) const { return isDue(now) && mode == Package; }
  /// Whether the phase's call is skipped, or all that follow.
  bool fails(Phase now) {
    if (isDue(now))
      strike(mode);
    isUnwound = isDue(now) && (mode == Unwind || runsOutOfMemory(now));
    return isUnwound || (isDue(now) && mode == Skip);
  }
  /// Fails to allocate memory and gives up.
  bool runsOutOfMemory(Phase now) {
    constexpr size_t tooMuch = size_t(1) << 46;
    return isDue(now) && mode == OutOfMemory && !device->allocate(tooMuch, 256);
  }

  Status call(CollectiveKind kind, const char *where, bool isOther) {
    // More than sockets buffer.
    int64_t count = isOther ? 4096 : 1 << 18;
    CollectivePart part{many.data(), few.data(), DType::F32, count};
    if (kind == CollectiveKind::AllGather)
      part = {few.data(), many.data(), DType::F32, count};
    Collective collective;
    collective.kind = kind;
    collective.parts = &part;
    collective.numParts = 1;
    collective.where = where;
    return communicator->run(*stream, collective);
  }

  Status doCalls() {
    Status status;
    if (!fails(Init))
      status =
          communicator->agree("the layer's plan", isOther(Init) ? "b" : "a");
    for (int round = 0; round < 2 && status && !isUnwound; ++round) {
      // Fail in the second round.
      bool isLast = round == 1;
      if (isLast && fails(Idle))
        return status;
      if (!isLast || !fails(Dispatch))
        status = call(CollectiveKind::AllGather, "steps[1]",
                      isLast && isOther(Dispatch));
      // The others wait for this rank's combine.
      if (status && !isUnwound && isLast)
        (void)fails(Compute);
      if (status && !isUnwound && (!isLast || !fails(Combine)))
        status = call(CollectiveKind::ReduceScatter, "steps[4]",
                      isLast && isOther(Combine));
    }
    if (status)
      (void)fails(Teardown);
    return status;
  }

  const int64_t rank;
  const Mode mode;
  const Phase phase;
  bool isUnwound = false;
  std::vector<float> many = std::vector<float>(kRanks << 18),
                     few = std::vector<float>(1 << 18);
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> communicator;
  std::unique_ptr<Stream> stream;
};

/// One rank's process and its output: a line at the start, and at the end its
/// duration and result.
struct Process {
  pid_t pid = -1;
  int from = -1;
  std::string said;
  bool isDone = false;

  bool hasStarted() const { return !said.empty(); }
  bool hangs() const { return hasStarted() && !isDone; }
  double getSeconds() const {
    return hasStarted() ? atof(said.c_str() + kStarted.size()) : 0;
  }
  std::string getResult() const {
    if (!hasStarted())
      return "not started";
    size_t space = said.find(' ');
    return space == std::string::npos ? "hangs" : said.substr(space + 1);
  }

  inline static const std::string kStarted = "started\n";
};

struct Cell {
  Mode mode;
  Phase phase;
  std::vector<Process> ranks = {};
  /// The time at which the last of its ranks was forked.
  Clock::time_point begin = {};

  bool isOutOfTime() const {
    std::chrono::duration<double> taken = Clock::now() - begin;
    return taken.count() >= kLimit + kGrace;
  }
};

void say(int to, const std::string &text) {
  (void)!write(to, text.data(), text.size());
}

[[noreturn]] void runRank(const Cell &cell, int64_t rank,
                          ProcessSockets &sockets, int to) {
  say(to, Process::kStarted);
  auto begin = Clock::now();
  Status status =
      DrilledRank(rank, cell.mode, cell.phase).run(sockets.take(rank));
  std::chrono::duration<double> taken = Clock::now() - begin;
  say(to, std::to_string(taken.count()) + " " +
              (status ? "done" : "error: " + status.message()));
  _exit(0);
}

void start(Cell &cell) {
  Result<ProcessSockets> sockets = ProcessSockets::create(kRanks);
  ASSERT_TRUE(sockets) << sockets.status().message();
  for (int64_t rank = 0; rank < kRanks; ++rank) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    Process &process = cell.ranks.emplace_back();
    process.from = ends[0];
    process.pid = fork();
    ASSERT_GE(process.pid, 0);
    if (process.pid == 0) {
      close(ends[0]);
      runRank(cell, rank, *sockets, ends[1]);
    }
    close(ends[1]);
  }
  cell.begin = Clock::now();
}

/// Reads output until all processes except victims have ended, or until all
/// remaining cells are out of time.
void waitForAll(std::vector<Cell> &cells) {
  while (true) {
    std::vector<pollfd> polled;
    std::vector<Process *> of;
    int wait = 0;
    for (Cell &cell : cells)
      for (int64_t rank = 0; rank < kRanks; ++rank)
        if (Process &process = cell.ranks[rank];
            rank != kVictim && !process.isDone) {
          polled.push_back({process.from, POLLIN, 0});
          of.push_back(&process);
          if (!cell.isOutOfTime())
            wait = 100;
        }
    int came = polled.empty() ? 0 : poll(polled.data(), polled.size(), wait);
    if (polled.empty() || came < 0 || (came == 0 && wait == 0))
      return;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0)
        continue;
      char bytes[4096];
      ssize_t count = read(of[i]->from, bytes, sizeof(bytes));
      of[i]->isDone = count <= 0;
      if (count > 0)
        of[i]->said.append(bytes, static_cast<size_t>(count));
    }
  }
}

std::set<std::string> listSharedMemory() {
  std::set<std::string> names;
  DIR *folder = opendir("/dev/shm");
  while (const dirent *entry = folder ? readdir(folder) : nullptr)
    names.insert(entry->d_name);
  if (folder)
    closedir(folder);
  return names;
}

} // namespace

// field-bug: vllm#44428, TensorRT-LLM#13404
TEST(ProcessDrillTest, EveryFailureIsToldToAllOthers) {
  std::set<std::string> sharedBefore = listSharedMemory();
  std::vector<Cell> cells;
  for (int mode = KillIdle; mode <= Package; ++mode)
    for (int phase = Init; phase <= Teardown; ++phase)
      if (isCell(Mode(mode), Phase(phase)))
        cells.push_back({Mode(mode), Phase(phase)});
  for (Cell &cell : cells)
    ASSERT_NO_FATAL_FAILURE(start(cell));
  waitForAll(cells);

  int numHangs = 0;
  printf("%-20s %-10s %8s  %s\n", "failure", "phase", "seconds", "others");
  for (Cell &cell : cells) {
    double slowest = 0;
    for (int64_t rank = 0; rank < kRanks; ++rank) {
      Process &process = cell.ranks[rank];
      if (rank != kVictim) {
        numHangs += process.hangs();
        slowest = std::max(slowest, process.getSeconds());
        std::string result = process.getResult();
        // After the last call a failure is not reported.
        bool isTold = cell.phase != Teardown;
        EXPECT_EQ(result.find(isTold ? "error: " : "done"), 0U)
            << kModes[cell.mode] << " in " << kPhases[cell.phase] << ", rank "
            << rank << ": " << result;
        EXPECT_EQ(result.find("rank 1") != std::string::npos, isTold) << result;
        EXPECT_LT(process.getSeconds(), kLimit + kGrace);
      }
      kill(process.pid, SIGKILL);
      EXPECT_EQ(waitpid(process.pid, nullptr, 0), process.pid);
      close(process.from);
    }
    printf("%-20s %-10s %8.2f  %s\n", kModes[cell.mode], kPhases[cell.phase],
           slowest, cell.ranks[0].getResult().c_str());
  }
  printf("%zu cells, %d hangs\n", cells.size(), numHangs);
  EXPECT_EQ(numHangs, 0);
  EXPECT_EQ(listSharedMemory(), sharedBefore);
}
