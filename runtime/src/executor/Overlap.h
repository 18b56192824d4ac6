//===- Overlap.h - memory that is written and bound twice -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels read inputs and weights after others have written rows of outputs and
// of the workspace. Memory that is written must therefore be nobody else's.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_OVERLAP_H
#define MOERT_SRC_EXECUTOR_OVERLAP_H

#include "moert/Plan.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moert {

/// Whether calls bring the tensor, often elsewhere than the call before.
inline bool isArgument(const TensorDecl &tensor) {
  return tensor.role == TensorRole::Input || tensor.role == TensorRole::Output;
}

/// The bytes from `begin` up to `end`; empty where both are equal.
struct MemoryRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  /// The tensor of the plan that is there.
  size_t tensor = 0;

  bool overlaps(const MemoryRange &other) const {
    return begin < other.end && other.begin < end && begin < end &&
           other.begin < other.end;
  }
};

/// Where the weights and the arguments of runs are.
class BoundMemory {
public:
  explicit BoundMemory(std::vector<MemoryRange> weights);

  /// A weight that shares bytes with the range; null for none. Takes time
  /// logarithmic in the number of weights.
  const MemoryRange *findWeight(const MemoryRange &range) const;

  /// Inputs and outputs, and the bytes that a run of `tokens` tokens uses of
  /// each.
  std::vector<MemoryRange> arguments;
  std::vector<int64_t> argumentBytes;
  /// -1 before the first run.
  int64_t tokens = -1;

private:
  /// Ascending by `begin`.
  std::vector<MemoryRange> weights;
  /// Per weight: the one that ends last of those up to it.
  std::vector<size_t> furthest;
};

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_OVERLAP_H
