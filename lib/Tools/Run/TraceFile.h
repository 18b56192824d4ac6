//===- TraceFile.h - timeline of a run as a file ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_RUN_TRACEFILE_H
#define MOEC_LIB_TOOLS_RUN_TRACEFILE_H

#include "RunLevel.h"

namespace moec {

using RankTrace = std::vector<moert::TracedStep>;

/// The traces of all ranks in order.
std::vector<RankTrace> getTraces(llvm::ArrayRef<RunResult> groups);

/// Writes traces of ranks in Chrome's format: a process for each rank, a thread
/// for each stream. Prints errors.
mlir::LogicalResult writeTrace(llvm::StringRef path,
                               llvm::ArrayRef<RankTrace> ranks);

} // namespace moec

#endif // MOEC_LIB_TOOLS_RUN_TRACEFILE_H
