//===- Abort.h - aborts NCCL communicators ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_NCCL_ABORT_H
#define MOERT_SRC_COMM_NCCL_ABORT_H

#include "Library.h"

#include <vector>

namespace moert::nccl {

/// ncclCommAbort of several communicators in a separate thread, since NCCL may
/// never return from it (nccl#863).
class Abort {
public:
  /// Begins aborting; `comms` are no longer used elsewhere.
  Abort(std::shared_ptr<const Library> library, std::vector<ncclComm_t> comms);

  /// Waits for at most `seconds`; returns whether all are aborted.
  bool waitFor(double seconds) const;

private:
  struct Job;
  const std::shared_ptr<Job> job;
};

} // namespace moert::nccl

#endif // MOERT_SRC_COMM_NCCL_ABORT_H
