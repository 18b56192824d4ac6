//===- PartialNccl.c - NCCL without its functions -------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

int ncclGetVersion(int *version) {
  *version = 22809;
  return 0;
}
