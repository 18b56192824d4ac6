//===- TensorMapCache.h - encoded tensor maps -------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_TENSORMAPCACHE_H
#define MOERT_SRC_EXECUTOR_TENSORMAPCACHE_H

#include "LoadedLayer.h"

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

namespace moert {

/// A map of a kernel over a tensor, by indices of the plan.
struct TensorMapKey {
  int64_t kernel = 0;
  /// Index into KernelDecl::tensorMaps.
  size_t map = 0;
  int64_t tensor = 0;

  bool operator<(const TensorMapKey &other) const {
    return std::tie(kernel, map, tensor) <
           std::tie(other.kernel, other.map, other.tensor);
  }
};

/// Encoded maps, one per key. A map is encoded again only for another address,
/// number of rows or strides. A value: copies change independently.
class TensorMapCache {
public:
  /// The map over the tensor at `data` with `rows` rows, and strides in
  /// elements; all zeros for a tensor without rows, which needs none.
  Result<TensorMap> encode(const LoadedLayer &layer, const TensorMapKey &key,
                           void *data, int64_t rows,
                           const std::vector<int64_t> &strides);

private:
  struct Encoded {
    TensorMapRecipe recipe;
    TensorMap map;
  };

  std::map<TensorMapKey, Encoded> known;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_TENSORMAPCACHE_H
