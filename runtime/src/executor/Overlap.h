//===- Overlap.h - checks that written memory is not shared -----*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels read inputs and weights after others have written rows of outputs and
// of the workspace. Memory that is written must therefore not be bound to
// another tensor.
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_OVERLAP_H
#define MOERT_SRC_EXECUTOR_OVERLAP_H

#include "BoundTensor.h"
#include "moert/SharedWorkspace.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace moert {

/// The bytes in [`begin`, `end`).
struct MemoryRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  /// The plan's tensor in this range.
  size_t tensor = 0;

  bool overlaps(const MemoryRange &other) const {
    return begin < other.end && other.begin < end && begin < end &&
           other.begin < other.end;
  }
};

/// Addresses of the weights and of the arguments of runs.
class BoundMemory {
public:
  explicit BoundMemory(std::vector<MemoryRange> weights);
  /// The memory of a plan's tensors, bound as in `tensors`.
  static BoundMemory find(const Plan &plan,
                          const std::vector<BoundTensor> &tensors);

  /// A weight that shares bytes with the range, or null, in time logarithmic in
  /// the number of weights.
  const MemoryRange *findWeight(const MemoryRange &range) const;

  /// Success if no memory that a run of `tokens` tokens writes is bound to
  /// another tensor. `tensors` has the weights that find() has seen; inputs and
  /// outputs may have moved.
  Status check(const Plan &plan, const std::vector<BoundTensor> &tensors,
               int64_t tokens, WorkspaceView workspace);

private:
  /// Finds the arguments' ranges in a run of `tokens` tokens.
  Status locate(const Plan &plan, const std::vector<BoundTensor> &tensors,
                int64_t tokens);

  /// Sorted by `begin`.
  std::vector<MemoryRange> weights;
  /// Per weight: among the weights up to it, the one with the largest `end`.
  std::vector<size_t> furthest;
  /// Inputs and outputs, and the number of bytes that a run of `tokens` tokens
  /// uses of each.
  std::vector<MemoryRange> arguments;
  std::vector<int64_t> argumentBytes;
  /// -1 before the first run.
  int64_t tokens = -1;
};

/// Success if prepare steps write to no memory that another tensor uses.
/// `isGiven`: the weights, and the prepared tensors made in memory of the
/// caller's.
Status checkPrepareMemory(const Plan &plan,
                          const std::vector<BoundTensor> &tensors,
                          const std::vector<bool> &isGiven);

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_OVERLAP_H
