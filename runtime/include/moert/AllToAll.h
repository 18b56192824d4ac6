//===- AllToAll.h - rows go to their owners alone ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_ALLTOALL_H
#define MOERT_ALLTOALL_H

#include "moert/Communicator.h"

#include <memory>

namespace moert {

struct AllToAllOptions {
  /// Moves the messages, and does all collectives that are none of an
  /// all-to-all. The same on all ranks, as all that follows.
  std::shared_ptr<Communicator> base;
  /// This rank's device; the caller's may be, who lets it outlive the
  /// communicator.
  std::shared_ptr<Device> device;
  /// Rows of a rank from which on rows go to their owners alone.
  int64_t leastRows = 1;
  /// Which part of a rank's rows a block of one other rank's has room for, up
  /// to 1: what is sent is always as many rows, so that calls can be captured.
  /// 0: as many as there are, which the host waits for ahead of each gather.
  double room = 0;
};

/// Collectives whose rows are for their owners alone (Step::isPacked) as
/// messages between any two ranks: kernels of the package put rows one behind
/// the other for each rank, and sum what comes back, in f32, in the order of
/// ranks. All others are the base's.
///
/// Without room a call in a capture is the base's too: ranks capture alike.
/// With it a row that has no room is not computed where it should be, and its
/// result is NaN; synchronize() and check() say so, and the communicator is
/// broken.
Result<std::unique_ptr<Communicator>>
createAllToAll(const AllToAllOptions &options);

} // namespace moert

#endif // MOERT_ALLTOALL_H
