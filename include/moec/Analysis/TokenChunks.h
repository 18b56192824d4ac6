//===- TokenChunks.h - how tokens are cut for counts ------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_ANALYSIS_TOKENCHUNKS_H
#define MOEC_ANALYSIS_TOKENCHUNKS_H

#include <cstdint>

namespace moec {

/// How `tile.count_slots` cuts tokens into chunks: into `most` at most, of at
/// least `tokens` each.
struct TokenChunks {
  int64_t most, tokens;
};

} // namespace moec

#endif // MOEC_ANALYSIS_TOKENCHUNKS_H
