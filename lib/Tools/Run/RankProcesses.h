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

/// The processes that run the ranks of a layer, and their parent, which waits.
/// Ranks are forked while the parent has one thread, and read the same options.
/// Each sends its result through a pipe. Ranks are killed when the parent ends,
/// in whatever way, and leave no files.
class RankProcesses {
public:
  /// Returns in the parent and in every rank.
  static moert::Result<std::unique_ptr<RankProcesses>> start(int64_t ranks);
  /// Kills the remaining ranks.
  ~RankProcesses();
  RankProcesses(const RankProcesses &) = delete;
  RankProcesses &operator=(const RankProcesses &) = delete;

  /// The rank of this process; nothing in the parent.
  std::optional<int64_t> getRank() const { return ownRank; }

  /// In a rank: the sockets to the other ranks. Callable once.
  std::vector<int> takeSockets() { return std::move(sockets); }
  /// In a rank: sends the result of its run to the parent.
  moert::Status tell(moert::Result<RunResult> &result) const;

  /// In the parent: waits until all ranks have ended and returns their results.
  /// Once one rank has failed or ended, the others get `limitSeconds` plus a
  /// grace period, and are then killed; the error names them.
  moert::Result<std::vector<RunResult>> wait(double limitSeconds);

private:
  /// A rank as the parent sees it.
  struct Child {
    pid_t pid = -1;
    /// The parent's end of the pipe; -1 after end of file.
    int pipe = -1;
    /// The rank's error output, an unnamed file.
    int errors = -1;
    std::string said;
    /// The status of waitpid() once the rank has ended.
    std::optional<int> ended;
    bool isStopped = false;
  };

  RankProcesses() = default;
  void readPipes();
  void reap(bool waits);
  void killAll();
  /// The reason why a rank ended without a result; empty if none is known.
  std::string describeEnd(const Child &child, int64_t rank) const;

  std::optional<int64_t> ownRank;
  std::vector<int> sockets;
  int toParent = -1;
  std::vector<Child> children;
};

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_RANKPROCESSES_H
