//===- RankSum.h - sums over ranks ------------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_COMM_RANKSUM_H
#define MOERT_SRC_COMM_RANKSUM_H

#include "moert/DType.h"

#include <cstddef>
#include <vector>

namespace moert {

/// Sums `count` elements of all sources, element by element: in f32, from the
/// first source to the last, rounded once to nearest even of `dtype`, which is
/// f32, bf16 or f16. `out` may be one of the sources.
void sumRanks(DType dtype, const std::vector<const void *> &sources, void *out,
              size_t count);

} // namespace moert

#endif // MOERT_SRC_COMM_RANKSUM_H
