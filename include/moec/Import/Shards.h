//===- Shards.h - weight shards of a rank -----------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_SHARDS_H
#define MOEC_IMPORT_SHARDS_H

#include "moec/Import/TensorSignature.h"

namespace moec {

/// The shard of a weight on one rank (docs/use/parallel.md): all of it, some of
/// its experts, or a slice of each row or column.
struct TensorShard {
  TensorInfo whole, local;
  /// Indices along the dimension of experts, in order; empty means all.
  std::vector<int64_t> experts;
  /// The dimension of experts: the first, or that behind adapters.
  int64_t expertDimension = 0;
  /// The dimension that is split; -1 if none.
  int64_t dimension = -1;
  /// Number of equal runs of that dimension (gate and up rows) that are split
  /// separately.
  int64_t numRuns = 1;
  /// The rank's indices of each run: `count` from `first` on. Zeros follow if
  /// the local run is longer.
  int64_t first = 0, count = 0;
  /// A bias that another rank adds, so that this rank gets zeros.
  bool isZero = false;

  /// Whether the local matrices end in zeros that are in no checkpoint.
  bool isPadded() const;
  /// The same shard without these zeros.
  TensorShard withoutPadding() const;
};

/// The weight shards of a rank of a layer with `parallel`, in the order of its
/// signature, without `placement.local_ids` and `placement.destinations`.
std::vector<TensorShard> shardWeights(const LayerSpec &spec, int64_t rank);

/// `placement.local_ids` of a rank: for each expert (each physical one if there
/// are replicas) its local index, or -1.
std::vector<int32_t> getLocalIds(const LayerSpec &spec, int64_t rank);

/// Whether the destination ranks of a row follow from its ids: groups of ranks
/// hold whole experts without replicas to choose from.
bool hasDestinations(const LayerSpec &spec);

/// `placement.destinations` of a rank: for each expert the dp coordinate of its
/// rank, or -1 if that rank has another tp coordinate.
std::vector<int32_t> getDestinations(const LayerSpec &spec, int64_t rank);

/// Copies a shard. Both tensors are row-major without gaps.
void copyShard(const TensorShard &shard, const uint8_t *whole, uint8_t *local);

} // namespace moec

#endif // MOEC_IMPORT_SHARDS_H
