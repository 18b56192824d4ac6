//===- FakeNccl.h - an emulation of NCCL on the host ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_UNITTESTS_RUNTIME_FAKE_FAKENCCL_H
#define MOEC_UNITTESTS_RUNTIME_FAKE_FAKENCCL_H

#include "../../../runtime/src/comm/nccl/Api.h"

#include <map>
#include <string>
#include <vector>

namespace moert::test {

/// The state of the shared library `fakenccl`, returned by its function
/// fakeNcclState. The library has NCCL's functions; ranks are threads of the
/// process and memory is the host's. A collective completes when its last rank
/// has enqueued it; until then all of its streams are busy. Calls are
/// serialized; a test accesses the state only while no other thread is inside
/// the library.
struct FakeNccl {
  int version = 22809;

  /// Makes call number `failAt` (from 1) of the function `failCall` by rank
  /// `failRank` fail. A call that ends an object still ends it.
  std::string failCall;
  int failAt = 0;
  int failRank = 0;
  nccl::ncclResult_t failCode = nccl::ncclSystemError;
  /// Report the failure by ncclCommGetAsyncError, as that of an earlier call,
  /// instead of failing.
  bool failsLater = false;
  bool hasFailed = false;
  /// Whether ncclCommGetAsyncError reports the failure to other ranks.
  bool failureSpreads = false;

  /// Additional times that ncclCommGetAsyncError returns ncclInProgress after a
  /// call.
  int numPolls = 0;
  /// Duration of each call in milliseconds.
  int delay = 0;
  /// Whether ncclCommAbort blocks while this is set.
  bool abortHangs = false;

  /// Calls of each rank since the last reset().
  std::map<int, std::vector<std::string>> calls;
  /// Collectives as enqueued by rank 0: "ncclAllReduce 7 0 128", with type,
  /// operation (none for a gather) and count.
  std::vector<std::string> collectives;
  /// Descriptions of illegal calls.
  std::vector<std::string> misuse;
  /// Communicators neither destroyed nor aborted.
  int numAlive = 0;
};

} // namespace moert::test

#endif // MOEC_UNITTESTS_RUNTIME_FAKE_FAKENCCL_H
