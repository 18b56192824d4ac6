//===- BoundTensor.h - how a tensor is bound --------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef MOERT_SRC_EXECUTOR_BOUNDTENSOR_H
#define MOERT_SRC_EXECUTOR_BOUNDTENSOR_H

#include "LoadedLayer.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace moert {

/// The memory of one tensor of the plan, outside the workspace.
struct BoundTensor {
  /// The caller's memory, or that of `own` for a weight; null if unbound.
  void *data = nullptr;
  std::vector<int64_t> shape;
  /// In elements; filled in for contiguous tensors too.
  std::vector<int64_t> strides;
  bool bound = false;
  /// Overwritten by prepare steps; for weights.
  bool overwritten = false;
  /// Unbound because no run reads it; for weights.
  bool released = false;
  /// Bound, but nothing was prepared in it yet; for prepared tensors.
  bool isNew = false;
  /// Memory of the runtime's: that of a prepared tensor, or of a weight read
  /// from a prepared file; null for memory of the caller's. Clones and captured
  /// graphs share it.
  std::shared_ptr<Buffer> own = nullptr;
};

/// Whether the tensor is passed with each call, usually at a new address.
inline bool isArgument(const TensorDecl &tensor) {
  return tensor.role == TensorRole::Input || tensor.role == TensorRole::Output;
}

/// The index of a tensor; an error of bind() names the tensors of the plan.
Result<size_t> findTensor(const Plan &plan, const std::string &name);

/// The strides of a view, filled in for contiguous tensors, with those of
/// dimensions of size 1 replaced by contiguous ones.
std::vector<int64_t> usedStrides(const TensorView &view);

/// Whether an input or output is already bound with the same layout, except its
/// address; then everything else has been checked. False for weights, whose
/// values change when they are bound anew.
bool hasSameLayout(const TensorDecl &tensor, const BoundTensor &bound,
                   const TensorView &view);

/// Success if the tensor may be bound to the view. `isLaidOut`: shape and
/// strides have been checked.
Status checkView(const LoadedLayer &layer, size_t tensor,
                 const TensorView &view, bool isLaidOut);

} // namespace moert

#endif // MOERT_SRC_EXECUTOR_BOUNDTENSOR_H
