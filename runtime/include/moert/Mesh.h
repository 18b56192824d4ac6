//===- Mesh.h - the ranks that share a layer --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_MESH_H
#define MOERT_MESH_H

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace moert {

enum class MeshAxis : uint8_t {
  /// Groups of ranks with tokens of their own; index: rank / tp.
  Data,
  /// Ranks of a group, which share its tokens; index: rank % tp.
  Tensor,
};

enum class CollectiveKind : uint8_t { AllGather, ReduceScatter, AllReduce };

/// "dp", "tp"; "all_gather", "reduce_scatter", "all_reduce".
const char *meshAxisName(MeshAxis axis);
const char *collectiveKindName(CollectiveKind kind);
std::optional<MeshAxis> parseMeshAxis(std::string_view name);
std::optional<CollectiveKind> parseCollectiveKind(std::string_view name);

/// `dp * tp` ranks.
struct Mesh {
  int64_t dp = 1;
  int64_t tp = 1;
  /// Whether each rank of a group has only some of its tokens (sequence
  /// parallelism). A property of the layer: the connections between ranks do
  /// not depend on it.
  bool sp = false;

  int64_t numRanks() const { return dp * tp; }
  /// Number of ranks, or of groups of ranks, with tokens of their own.
  int64_t tokenRanks() const { return sp ? numRanks() : dp; }
  /// Index of the rank, or of its group, among these.
  int64_t tokenRank(int64_t rank) const { return sp ? rank : rank / tp; }
  /// Ranks along an axis.
  int64_t size(MeshAxis axis) const { return axis == MeshAxis::Data ? dp : tp; }
  /// The index of a rank along an axis.
  int64_t index(MeshAxis axis, int64_t rank) const {
    return axis == MeshAxis::Data ? rank / tp : rank % tp;
  }
  /// The rank at index `i` along the axis through `rank`.
  int64_t peer(MeshAxis axis, int64_t rank, int64_t i) const {
    return axis == MeshAxis::Data ? i * tp + rank % tp : rank / tp * tp + i;
  }

  /// "dp 4 x tp 2"; "dp 4 x tp 2, sp".
  std::string str() const;

  /// Compares the ranks only, not `sp`.
  bool operator==(const Mesh &other) const {
    return dp == other.dp && tp == other.tp;
  }
};

} // namespace moert

#endif // MOERT_MESH_H
