//===- MTilingChoice.h - values of BLOCK_M ----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Selection of the values of BLOCK_M of a kernel from the distribution of group
// sizes. No sets are listed: a set grows by one value at a time as long as that
// saves time.
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_MTILINGCHOICE_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_MTILINGCHOICE_H

#include "mlir/Support/LLVM.h"

#include <functional>
#include <vector>

namespace moec::sm90 {

/// Values of BLOCK_M of one kernel, ascending.
using BlockMs = llvm::SmallVector<int64_t>;

/// Time of a kernel with those values of BLOCK_M at the token count with index
/// `point`; infinity if no such kernel is possible.
using BlockMsTime =
    std::function<double(const BlockMs &tileRows, size_t point)>;

/// Candidate sets of `blockMs` for each window of the `points` token counts:
/// windows of one, two and three neighbours, and all. For each window: the four
/// best single values; then, from the best set, the two best sets with one more
/// value, as long as that saves `least` of the time, and so on. No duplicates,
/// in a fixed order.
std::vector<BlockMs> growBlockMs(llvm::ArrayRef<int64_t> blockMs, size_t points,
                                 double least, const BlockMsTime &time);

/// Time of a kernel with those values of BLOCK_M at the token count with index
/// `point`, with a uniform or a skewed load; infinity if no such kernel is
/// possible.
using LoadTime =
    std::function<double(const BlockMs &tileRows, size_t point, bool isSkewed)>;

/// Values of BLOCK_M in place of `chosen`, with the same largest one, for loads
/// that are skewed. A value of `blockMs` is added or takes the place of another
/// one, up to twice, if that saves more than `penalty` for each value added, by
/// the mean over both loads and the `points` token counts. Nowhere does a
/// uniform load take much longer than with `chosen`.
BlockMs adaptBlockMs(llvm::ArrayRef<int64_t> blockMs, const BlockMs &chosen,
                     size_t points, double penalty, const LoadTime &time);

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_MTILINGCHOICE_H
