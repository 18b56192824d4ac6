//===- BatchHalves.h - halves of a batch ------------------------*- C++ -*-===//
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

/// The tokens of each half, summed over all ranks, as plans count them.
using BatchHalves = std::array<int64_t, 2>;

/// Success if all inputs and outputs have a row per token: others cannot be
/// split.
Status checkHalves(const Plan &plan);

/// Splits a batch of `tokens` tokens, a multiple of the ranks with tokens. The
/// first half has the first rows of each rank: half of them, or slightly more
/// to align the tensors of the second half.
BatchHalves splitBatch(const Plan &plan, int64_t tokens);

/// Whether the halves of a batch may run concurrently: neither has a resident
/// launch, which the other could keep from starting.
Result<bool> mayRunBeside(const Plan &plan, int64_t tokens);

/// Bytes for the workspaces of both halves of every batch of up to `tokens`
/// tokens.
Result<int64_t> halvesWorkspaceBytes(const Plan &plan, int64_t tokens);

} // namespace moert

#endif // MOERT_SRC_PLAN_BATCHHALVES_H
