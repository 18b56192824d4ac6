//===- TokenChunks.h - how tokens are cut for counts ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_SCHEDULES_TOKENCHUNKS_H
#define MOEC_SCHEDULES_TOKENCHUNKS_H

#include <cstdint>

namespace moec {

/// Splitting of tokens into chunks by `tile.count_slots`: at most `most`
/// chunks, each of at least `tokens`.
struct TokenChunks {
  int64_t most, tokens;
};

} // namespace moec

#endif // MOEC_SCHEDULES_TOKENCHUNKS_H
