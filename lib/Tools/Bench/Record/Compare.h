//===- Compare.h - compares two records by row ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_TOOLS_BENCH_RECORD_COMPARE_H
#define MOEC_LIB_TOOLS_BENCH_RECORD_COMPARE_H

#include "moert/Status.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace moec::bench {

/// Prints a line per row that both records have or that is lost, with both
/// fractions of the floor, each relative to its own record's ceilings. Returns
/// the number of rows that are lost, or slower than `tolerance` allows; fails
/// if the records are not comparable.
moert::Result<int64_t> compareRecords(const llvm::json::Value &before,
                                      const llvm::json::Value &after,
                                      double tolerance, llvm::raw_ostream &os);

} // namespace moec::bench

#endif // MOEC_LIB_TOOLS_BENCH_RECORD_COMPARE_H
