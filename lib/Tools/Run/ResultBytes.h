//===- ResultBytes.h - serializes a run's results ---------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_RESULTBYTES_H
#define MOEC_LIB_TOOLS_RUN_RESULTBYTES_H

#include "RunLevel.h"

namespace moec {

/// Serializes the message of a rank's process to its parent: output, times and
/// traces of a run, or the error.
std::string packResult(moert::Result<RunResult> &result);
moert::Result<RunResult> unpackResult(const std::string &bytes);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_RESULTBYTES_H
