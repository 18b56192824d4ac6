//===- RowVectors.h - vectors that threads take of rows ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_ROWVECTORS_H
#define MOEC_SCHEDULES_ROWVECTORS_H

#include "Schedules.h"

namespace moec {

/// Columns that one thread handles at once: as many as fit in 16 bytes, but a
/// divisor of the number of columns, so that no vector crosses the end of a
/// row.
int64_t getVectorLanes(mlir::MemRefType result);

/// Reason why threads cannot take `lanes` columns of the result at once; empty
/// if they can.
std::string whyNotLanes(int64_t lanes, mlir::MemRefType result);

} // namespace moec

#endif // MOEC_SCHEDULES_ROWVECTORS_H
