//===- Shards.h - what a rank has of a layer's weights ----------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOEC_IMPORT_SHARDS_H
#define MOEC_IMPORT_SHARDS_H

#include "moec/Import/TensorSignature.h"

namespace moec {

/// Which part of a weight of the layer on one rank a rank of several has
/// (docs/parallel.md): all of it, some of its experts, or a part of each row or
/// column.
struct TensorShard {
  TensorInfo whole, local;
  /// Places along the first dimension, in their order; empty for all.
  std::vector<int64_t> experts;
  /// The dimension that ranks have a part of; -1 for none.
  int64_t dimension = -1;
  int64_t part = 0, numParts = 1;
  /// Equal runs of that dimension (gate and up rows), of each of which ranks
  /// have a part.
  int64_t numRuns = 1;
  /// A bias that another rank adds: zeros.
  bool isZero = false;
};

/// The weights of a rank of a layer with `parallel`, in the order of its
/// signature, but for `placement.local_ids` and `placement.owners`.
std::vector<TensorShard> shardWeights(const LayerSpec &spec, int64_t rank);

/// `placement.local_ids` of a rank: of each expert, or physical one where there
/// are replicas, its place there, or -1.
std::vector<int32_t> getLocalIds(const LayerSpec &spec, int64_t rank);

/// Whether ranks know who needs a row: groups of them have whole experts, of
/// which there are no replicas to choose.
bool hasOwners(const LayerSpec &spec);

/// `placement.owners` of a rank: of each expert the place on dp of the rank
/// that has it, or -1 where that has another place on tp.
std::vector<int32_t> getOwners(const LayerSpec &spec, int64_t rank);

/// Copies a part; both tensors are row-major without gaps.
void copyShard(const TensorShard &shard, const uint8_t *whole, uint8_t *local);

} // namespace moec

#endif // MOEC_IMPORT_SHARDS_H
