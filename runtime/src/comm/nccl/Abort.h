//===- Abort.h - aborts communicators of NCCL -------------------*- C++ -*-===//
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

/// ncclCommAbort of several communicators, in a thread of its own: NCCL may not
/// come back from it (nccl#863).
class Abort {
public:
  /// Begins; nobody else uses `comms`, now or later.
  Abort(std::shared_ptr<const Library> library, std::vector<ncclComm_t> comms);

  /// Whether all are aborted, which it waits for that long.
  bool waitFor(double seconds) const;

private:
  struct Job;
  const std::shared_ptr<Job> job;
};

} // namespace moert::nccl

#endif // MOERT_SRC_COMM_NCCL_ABORT_H
