//===- BatchHalves.h - how a batch is cut in two ----------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_PLAN_BATCHHALVES_H
#define MOERT_SRC_PLAN_BATCHHALVES_H

#include "moert/Plan.h"

#include <array>
#include <cstdint>

namespace moert {

/// The tokens of each half, as plans count them: those of all ranks together.
using BatchHalves = std::array<int64_t, 2>;

/// Success where all that calls bring and get has rows of tokens; what is of
/// the whole batch is neither half's.
Status checkHalves(const Plan &plan);

/// Cuts a batch of so many tokens, a multiple of the ranks that have tokens:
/// the first half has the first rows of each rank, half of them or a few more,
/// so that those of the second begin where tensors are aligned to.
BatchHalves cutBatch(const Plan &plan, int64_t tokens);

/// Whether the halves of such a batch may run side by side: neither has a
/// launch that needs all of its CTAs at once, which the other could keep out.
Result<bool> mayRunBeside(const Plan &plan, int64_t tokens);

/// Bytes that hold the workspaces of both halves of every batch of up to
/// `tokens` tokens.
Result<int64_t> halvesWorkspaceBytes(const Plan &plan, int64_t tokens);

} // namespace moert

#endif // MOERT_SRC_PLAN_BATCHHALVES_H
