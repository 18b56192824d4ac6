//===- NcclTesting.h - ranks that an emulated NCCL connects -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_NCCLTESTING_H
#define MOEC_UNITTESTS_RUNTIME_NCCLTESTING_H

#include "moert/NcclCommunicator.h"
#include "unittests/Runtime/Fake/FakeCuda.h"
#include "unittests/Runtime/Fake/FakeNccl.h"

#include <functional>

namespace moert::test {

/// Paths of the emulated NCCL and of one that lacks its functions.
extern const char *const kFakeNccl;
extern const char *const kPartialNccl;

/// The emulated NCCL and the emulated driver with 16 GPUs, whose streams are
/// busy as NCCL says, both reset.
FakeNccl &resetFakeNccl();
FakeCuda &fakeCudaOfNccl();

/// Lets ncclCommAbort come back again.
void letAbortEnd();

/// Whether all communicators of NCCL are ended, while threads may be inside.
bool ncclIsEmpty();

/// The rank that the calling thread is for the emulated NCCL.
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
  /// An all-reduce of one f32 over dp, and its end.
  Status step(const std::string &where) const;
};

NcclOptions ncclOptions(const Mesh &mesh, int64_t rank, double limitSeconds);

/// Connects the ranks, each in a thread of its own, and calls `body`. Answers
/// the first failure of each rank; those of `absent` do nothing.
std::vector<Status>
runNcclRanks(const Mesh &mesh, double limitSeconds,
             const std::function<Status(const NcclRankOfTest &)> &body,
             const std::vector<int64_t> &absent = {});

/// What is left that should not be, and what was done that no program may do;
/// empty where there is nothing.
std::string ncclLeaks();

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_NCCLTESTING_H
