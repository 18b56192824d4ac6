//===- AppendAdapters.h - what append-adapters asks -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_REWRITES_APPENDADAPTERS_H
#define MOEC_SCHEDULES_REWRITES_APPENDADAPTERS_H

namespace moec {

/// A gemm schedule whose tensor cores multiply 16-bit `shrunk` rows by `b` as
/// further columns of the input. Its `whyIllegal` says which ones.
class AppendsAdapters {
public:
  virtual ~AppendsAdapters() = default;
};

} // namespace moec

#endif // MOEC_SCHEDULES_REWRITES_APPENDADAPTERS_H
