//===- AdapterFragments.h - LoRA updates of fragments -----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERFRAGMENTS_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERFRAGMENTS_H

#include "AccumulatorLayout.h"

namespace moec {

/// What matrix `number` of `b` adds to `octets` fragments from `first` on of a
/// block: a list of elements for each. All lanes of a warp compute it together.
llvm::SmallVector<llvm::SmallVector<F32>>
computeSm90Updates(Sm90Gemm &gemm, const Sm90Part &part, int64_t number,
                   int64_t block, int64_t first, int64_t octets);

} // namespace moec

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_ADAPTERFRAGMENTS_H
