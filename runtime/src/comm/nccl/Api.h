//===- Api.h - types of NCCL ------------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of NCCL's binary interface that the runtime uses, declared here so
// that NCCL need not be installed to build. Values are those of nccl.h, which
// within a major version only adds new ones.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_NCCL_API_H
#define MOERT_SRC_COMM_NCCL_API_H

#include "../../cuda/Api.h"

#include <climits>

namespace moert::nccl {

using ncclComm_t = struct ncclComm *;
/// Streams of the driver and of the CUDA runtime are the same.
using ncclStream_t = cuda::CUstream;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};

enum ncclDataType_t : int {
  ncclUint8 = 1,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclBfloat16 = 9,
};

enum ncclRedOp_t : int { ncclSum = 0 };

constexpr int kUndefinedInt = INT_MIN;

/// The configuration as of NCCL 2.18. Later versions append fields and use
/// their defaults if `version` is older.
struct ncclConfig_t {
  size_t size = sizeof(ncclConfig_t);
  unsigned magic = 0xcafebeef;
  unsigned version = 21900;
  int blocking = kUndefinedInt;
  int cgaClusterSize = kUndefinedInt;
  int minCTAs = kUndefinedInt;
  int maxCTAs = kUndefinedInt;
  const char *netName = nullptr;
  int splitShare = kUndefinedInt;
};

} // namespace moert::nccl

#endif // MOERT_SRC_COMM_NCCL_API_H
