//===- Sm90Heights.h - heights of tiles made for a load ---------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Which heights the tiles of a kernel should have follows from how many rows
// groups get, and how often. Nothing is listed: sets are grown height by
// height as long as that saves time.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90HEIGHTS_H
#define MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90HEIGHTS_H

#include "mlir/Support/LLVM.h"

#include <functional>
#include <vector>

namespace moec::sm90 {

/// Heights of the tiles of one kernel, ascending.
using Heights = llvm::SmallVector<int64_t>;

/// How long a kernel with those heights takes at a token count, by its number;
/// infinity if there cannot be such a kernel.
using HeightsTime =
    std::function<double(const Heights &tileRows, size_t point)>;

/// Sets of some of the `heights` for each window of the `points` token counts:
/// for each one, for two and for three side by side, and for all. Of each
/// window the four best single heights; then, from the best one, the two best
/// sets with one more height, as long as that saves `least` of the time, and so
/// on. Without repetitions, in a fixed order.
std::vector<Heights> growHeights(llvm::ArrayRef<int64_t> heights, size_t points,
                                 double least, const HeightsTime &time);

} // namespace moec::sm90

#endif // MOEC_LIB_ANALYSIS_SCHEDULES_SM90_SM90HEIGHTS_H
