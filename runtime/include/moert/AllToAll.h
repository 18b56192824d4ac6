//===- AllToAll.h - rows go to destination ranks only -----------*- C++ -*-===//
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
  /// Moves the messages, and runs all collectives that are not all-to-alls.
  /// Must be equal on all ranks, like the fields below.
  std::shared_ptr<Communicator> base;
  /// This rank's device. A device of the caller's must outlive the
  /// communicator.
  std::shared_ptr<Device> device;
  /// From this number of rows per rank on, rows go to their destination ranks
  /// only.
  int64_t leastRows = 1;
  /// Capacity of the block for one other rank, as a fraction of a rank's rows,
  /// up to 1. Blocks then have a fixed size, so that calls can be captured. 0
  /// means exact sizes, which the host waits for ahead of each gather.
  double capacity = 0;
};

/// Collectives that send rows to their destination ranks only (Step::isPacked),
/// as point-to-point messages. Kernels of the package pack the rows for each
/// rank contiguously, and sum the returned rows in f32, in the order of ranks.
/// All other collectives use the base.
///
/// Without a capacity captured calls use the base too: all ranks must capture
/// the same calls. With a capacity a row that does not fit is not computed by
/// its destination rank and its result is NaN; synchronize() and check() report
/// it, and the communicator is broken.
Result<std::unique_ptr<Communicator>>
createAllToAll(const AllToAllOptions &options);

} // namespace moert

#endif // MOERT_ALLTOALL_H
