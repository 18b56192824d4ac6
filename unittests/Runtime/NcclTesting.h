//===- NcclTesting.h - ranks connected by an emulated NCCL ------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_NCCLTESTING_H
#define MOEC_UNITTESTS_RUNTIME_NCCLTESTING_H

#include "Fake/FakeCuda.h"
#include "Fake/FakeNccl.h"
#include "moert/NcclCommunicator.h"

#include <functional>

namespace moert::test {

/// Paths of the emulated NCCL and of one without some functions.
extern const char *const kFakeNccl;
extern const char *const kPartialNccl;

/// The emulated NCCL, and the emulated driver with 16 GPUs whose streams are
/// busy while NCCL uses them; both reset.
FakeNccl &resetFakeNccl();
FakeCuda &fakeCudaOfNccl();

/// Lets ncclCommAbort return again.
void letAbortEnd();

/// Whether all NCCL communicators have ended; callable while threads are
/// inside.
bool ncclIsEmpty();

/// Sets the calling thread's rank in the emulated NCCL.
void setNcclRank(int64_t rank);

/// One rank in its thread.
struct NcclRankOfTest {
  NcclCommunicator &communicator;
  Device &device;
  Stream &stream;
  int64_t index;

  Status run(CollectiveKind kind, MeshAxis axis,
             const std::vector<CollectivePart> &parts,
             const std::string &where) const;
  /// An all-reduce of one f32 over dp, waited for.
  Status step(const std::string &where) const;
};

NcclOptions ncclOptions(const Mesh &mesh, int64_t rank, double limitSeconds);

/// Connects the ranks, each in its own thread, and calls `body`. Returns the
/// first failure of each rank; ranks in `absent` do nothing.
std::vector<Status>
runNcclRanks(const Mesh &mesh, double limitSeconds,
             const std::function<Status(const NcclRankOfTest &)> &body,
             const std::vector<int64_t> &absent = {});

/// Describes leaks and illegal calls; empty if there are none.
std::string ncclLeaks();

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_NCCLTESTING_H
