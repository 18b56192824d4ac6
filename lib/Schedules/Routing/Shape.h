//===- Shape.h - shapes of the schedules from logits to slots ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_ROUTING_SHAPE_H
#define MOEC_LIB_SCHEDULES_ROUTING_SHAPE_H

#include "moec/Schedules/Schedules.h"
#include "moec/Schedules/TokenChunks.h"
#include "moec/Support/GpuInstructions.h"

#include <optional>

namespace moec::anygpu {

/// Warps of a CTA that routes tokens and counts their slots, and of the one CTA
/// that ranks all slots: it routes few, and more warps start later.
constexpr int64_t kCountingWarps = 32, kSortingWarps = 16;

/// Routing. A CTA of `threads` routes the tokens of a chunk, one token per warp
/// at a time.
struct TopK {
  TopK(tile::TopKOp op, tile::ConfigAttr config);

  /// Storage of a warp's row: keys in registers; values and keys in shared
  /// memory; or none, so that keys are recomputed at each use.
  enum class Row { Held, Stored, Streamed };

  Row row;
  int64_t threads;
  /// `most` is 0 for any number.
  TokenChunks chunks;

  int64_t getWarps() const { return threads / kWarp; }
  static Row getRow(tile::TopKOp op);
  /// Whether the slots of a row in registers are found by counting, for each of
  /// the few keys that can be selected, the keys before it.
  static bool isRanked(tile::TopKOp op);
  /// Bytes of shared memory per warp.
  static int64_t getWarpBytes(tile::TopKOp op);
};

/// Without a list of local experts, all experts are local.
int64_t getNumLocalExperts(tile::SortByExpertOp op);
int64_t getNumLocalExperts(tile::CountSlotsOp op);

/// Counts slots per expert: a CTA of `threads` counts the slots of a chunk, for
/// `expertsAtOnce` local experts at a time.
struct CountSlots {
  CountSlots(tile::CountSlotsOp op, tile::ConfigAttr config);

  /// Limited by the counters in shared memory.
  static constexpr int64_t kMaxExpertsAtOnce = 8192;

  int64_t numLocal, threads, expertsAtOnce;
  TokenChunks chunks;

  /// i32 elements of shared memory: slots without a valid expert have a counter
  /// too.
  int64_t getWords() const { return expertsAtOnce + 1; }
};

/// Sort by expert. A CTA of `threads` gives positions to the slots of a chunk,
/// of at least `chunks.tokens` tokens, and counts all other slots or reads
/// their `counts`.
///
/// The CTA's own slots are divided into runs, one per warp while shared memory
/// lasts. Counters exist for `expertsAtOnce` local experts at a time: a row of
/// them per run, and one more. Rows are padded to whole warps, which sum over
/// 32 experts and then over these groups.
///
/// If there are few slots and no counts, the first CTA compares each with all.
/// If the kernel's `load` says that there are never more, there are no
/// counters.
struct SortByExpert {
  SortByExpert(tile::SortByExpertOp op, tile::ConfigAttr config);

  /// About one CTA per SM: each further one would only read all ids, or counts,
  /// once more.
  static constexpr int64_t kMaxCtas = 128;
  static constexpr int64_t kSlotsPerCta = 1024;
  /// Limited by the counters of one run in shared memory.
  static constexpr int64_t kMaxExpertsAtOnce = 4096;
  /// Up to this many slots, counting takes longer than comparing each with all.
  static constexpr int64_t kFewSlots = 256;

  int64_t numLocal, threads, expertsAtOnce;
  TokenChunks chunks;
  bool hasCounts;
  /// Maximum number of slots, if known.
  std::optional<int64_t> maxSlots;

  bool hasRounds() const { return expertsAtOnce < numLocal; }
  /// Stride of a row of counters, in i32.
  int64_t getStride() const;
  /// Sums of groups, padded to whole warps.
  int64_t getGroups() const;
  /// Runs that a CTA's own slots are divided into.
  int64_t getRuns() const;
  /// i32 elements of shared memory.
  int64_t getWords(int64_t runs) const;
  /// Maximum number of slots that are compared: a power of two, at most the
  /// threads; 0 with too many experts or with counts.
  int64_t getFewSlots() const;
  bool isAlwaysFew() const { return maxSlots && *maxSlots <= getFewSlots(); }
};

} // namespace moec::anygpu

#endif // MOEC_LIB_SCHEDULES_ROUTING_SHAPE_H
