//===- FakeNccl.h - NCCL without GPUs ---------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_FAKE_FAKENCCL_H
#define MOEC_UNITTESTS_RUNTIME_FAKE_FAKENCCL_H

#include "runtime/src/comm/nccl/Api.h"

#include <map>
#include <string>
#include <vector>

namespace moert::test {

/// The state of the shared library `fakenccl`, which its function fakeNcclState
/// answers. The library has NCCL's functions; ranks are threads of the process,
/// and memory is the host's. A collective is done when its last rank has given
/// it to a stream; until then the streams of all are busy. Calls take turns; a
/// test touches the state while no other thread is inside the library.
struct FakeNccl {
  int version = 22809;

  /// The call that fails: number `failAt` (from 1) of the function `failCall`
  /// by rank `failRank`. A call that ends something ends it all the same.
  std::string failCall;
  int failAt = 0;
  int failRank = 0;
  nccl::ncclResult_t failCode = nccl::ncclSystemError;
  /// Whether ncclCommGetAsyncError reports the failure as that of an earlier
  /// call, in place of failing.
  bool failsLater = false;
  bool hasFailed = false;
  /// Whether ncclCommGetAsyncError tells other ranks of the failure.
  bool failureSpreads = false;

  /// How many times ncclCommGetAsyncError answers ncclInProgress after a call,
  /// beyond what other ranks make it wait for.
  int numPolls = 0;
  /// Milliseconds that each call takes.
  int delay = 0;
  /// Whether ncclCommAbort does not come back as long as this is set.
  bool abortHangs = false;

  /// Calls of each rank since the last reset().
  std::map<int, std::vector<std::string>> calls;
  /// Collectives as rank 0 has given them: "ncclAllReduce 7 0 128", with type,
  /// operation (none for a gather) and count.
  std::vector<std::string> collectives;
  /// What no program may do, in words.
  std::vector<std::string> misuse;
  /// Communicators that were neither destroyed nor aborted.
  int numAlive = 0;
};

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_FAKE_FAKENCCL_H
