//===- RankProcesses.h - a process for each rank ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_RANKPROCESSES_H
#define MOEC_LIB_TOOLS_RUN_RANKPROCESSES_H

#include "RunLevel.h"
#include "moert/ProcessCommunicator.h"

#include <memory>
#include <optional>
#include <sys/types.h>

namespace moec {

/// The processes that run the ranks of a layer, and the one that started them,
/// which waits. They are copies of it from when it had one thread, read the
/// same options and come to their rank as it does to the end; what they have to
/// say comes through a pipe each. They end when it does, however that is, and
/// nothing of them is in a file.
class RankProcesses {
public:
  /// Returns in every one of them.
  static moert::Result<std::unique_ptr<RankProcesses>> start(int64_t ranks);
  /// Ends those that are left.
  ~RankProcesses();
  RankProcesses(const RankProcesses &) = delete;
  RankProcesses &operator=(const RankProcesses &) = delete;

  /// The rank that this process is; none for the one that started them.
  std::optional<int64_t> getRank() const { return ownRank; }

  /// In a rank's process: what connects it to the others, once.
  std::vector<int> takeSockets() { return std::move(sockets); }
  /// In a rank's process: what came of its run.
  moert::Status tell(moert::Result<RunResult> &result) const;

  /// In the one that started them: the results of all ranks, once all have
  /// ended. As soon as one has failed or ended before, the others get
  /// `limitSeconds` and some more to do so, and are ended; the error names it.
  moert::Result<std::vector<RunResult>> wait(double limitSeconds);

private:
  /// A rank's process as the one that started it sees it.
  struct Child {
    pid_t pid = -1;
    /// The end of the pipe; -1 once it was read to its end.
    int pipe = -1;
    /// What it has written as errors, without a name.
    int errors = -1;
    std::string said;
    /// As waitpid() has it, once it has ended.
    std::optional<int> ended;
    bool isStopped = false;
  };

  RankProcesses() = default;
  void readPipes();
  void reap(bool waits);
  void killAll();
  /// What is known to be wrong with a rank; empty where nothing is.
  std::string describeEnd(const Child &child, int64_t rank) const;

  std::optional<int64_t> ownRank;
  std::vector<int> sockets;
  int toParent = -1;
  std::vector<Child> children;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_RANKPROCESSES_H
