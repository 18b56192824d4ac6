//===- GroupTiling.h - how sm90.gemm tiles M --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_LIB_SCHEDULES_SM90GEMM_GROUPTILING_H
#define MOEC_LIB_SCHEDULES_SM90GEMM_GROUPTILING_H

#include "Shape.h"
#include "llvm/ADT/SmallVector.h"

#include <array>
#include <utility>

namespace moec::sm90 {

/// A group with two values of BLOCK_M has fewer tiles than `kMaxHigher`.
inline constexpr int64_t kMaxHigher = int64_t(1) << 19;
/// Without the dynamic scheduler, tiles of the largest BLOCK_M plus a low rest
/// have to save at least one part in `kUnevenShare`.
inline constexpr int64_t kUnevenShare = 8;

/// Approximate cost of a tile of BLOCK_M `blockM`, in units of the tensor
/// cores' time for one input row.
int64_t getTileCost(const GemmShape &shape, int64_t blockM);

/// The M tiling of a group: `higher` tiles of `low + more` rows, then tiles of
/// `low`; the last one has the remainder. All row counts but the last tile's
/// are multiples of 8.
struct GroupTiling {
  int64_t low, more, higher, tiles;

  /// Pairs of rows per tile and number of such tiles: higher, lower, last.
  std::array<std::pair<int64_t, int64_t>, 3> getTiles(int64_t rows) const;
};

/// Host version of the M tiling that kernels compute
/// (lib/Schedules/Sm90Gemm/MTiling.cpp). The cost model
/// evaluates it for every size that a group may have.
class GroupTiler {
public:
  explicit GroupTiler(const GemmShape &shape);

  /// Requires 1 <= `rows` < 2^31.
  GroupTiling tile(int64_t rows) const;
  /// The index of the lowest BLOCK_M that holds a tile of `rows`.
  size_t indexOf(int64_t rows) const {
    return indices[(rows + kBlockMMultiple - 1) / kBlockMMultiple];
  }

private:
  struct Candidate {
    GroupTiling tiling;
    int64_t cost;
  };
  int64_t costOf(int64_t rows) const { return costs[indexOf(rows)]; }
  Candidate getEven(int64_t rows, int64_t tiles) const;
  Candidate getHighest(int64_t rows) const;

  const GemmShape &shape;
  /// Cost of a tile, per BLOCK_M.
  llvm::SmallVector<int64_t> costs;
  /// `indexOf`, per multiple of `kBlockMMultiple` rows.
  std::array<uint8_t, kMaxBlockM / kBlockMMultiple + 1> indices{};
};

} // namespace moec::sm90

#endif // MOEC_LIB_SCHEDULES_SM90GEMM_GROUPTILING_H
