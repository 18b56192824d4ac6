//===- Overlap.cpp - checks that written memory is not shared ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Overlap.h"
#include "../support/Check.h"
#include "moert/Workspace.h"

#include <algorithm>
#include <utility>

namespace moert {

BoundMemory::BoundMemory(std::vector<MemoryRange> ranges)
    : weights(std::move(ranges)) {
  std::sort(weights.begin(), weights.end(),
            [](const MemoryRange &a, const MemoryRange &b) {
              return a.begin < b.begin;
            });
  for (size_t i = 0; i < weights.size(); ++i) {
    bool isFurther = i == 0 || weights[i].end > weights[furthest.back()].end;
    furthest.push_back(isFurther ? i : furthest.back());
  }
}

const MemoryRange *BoundMemory::findWeight(const MemoryRange &range) const {
  auto behind = std::lower_bound(weights.begin(), weights.end(), range.end,
                                 [](const MemoryRange &weight, uintptr_t end) {
                                   return weight.begin < end;
                                 });
  if (behind == weights.begin())
    return nullptr;
  const MemoryRange &last =
      weights[furthest[static_cast<size_t>(behind - weights.begin()) - 1]];
  return last.overlaps(range) ? &last : nullptr;
}

static MemoryRange makeRange(const void *data, int64_t bytes, size_t tensor) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, data ? begin + static_cast<uintptr_t>(bytes) : begin, tensor};
}

/// The bytes of a weight, from its first to its last element.
static MemoryRange rangeOfWeight(const Plan &plan,
                                 const std::vector<BoundTensor> &tensors,
                                 size_t tensor) {
  const BoundTensor &bound = tensors[tensor];
  int64_t elements = 1;
  for (size_t i = 0; i < bound.shape.size(); ++i) {
    if (bound.shape[i] == 0)
      elements = 0;
    if (elements > 0)
      elements += (bound.shape[i] - 1) * bound.strides[i];
  }
  int64_t bits = elements * dtypeBits(plan.tensors[tensor].dtype);
  return makeRange(bound.data, (bits + 7) / 8, tensor);
}

BoundMemory BoundMemory::find(const Plan &plan,
                              const std::vector<BoundTensor> &tensors) {
  std::vector<MemoryRange> weights;
  for (size_t i = 0; i < tensors.size(); ++i)
    if (!isArgument(plan.tensors[i]) && tensors[i].bound)
      if (MemoryRange range = rangeOfWeight(plan, tensors, i);
          range.begin < range.end)
        weights.push_back(range);
  BoundMemory memory(std::move(weights));
  for (size_t i = 0; i < tensors.size(); ++i)
    if (isArgument(plan.tensors[i]))
      memory.arguments.push_back({0, 0, i});
  memory.argumentBytes.resize(memory.arguments.size());
  return memory;
}

Status BoundMemory::locate(const Plan &plan,
                           const std::vector<BoundTensor> &tensors,
                           int64_t count) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    size_t tensor = arguments[i].tensor;
    if (tokens != count) {
      Result<int64_t> bytes = tensorBytes(plan.tensors[tensor]).evaluate(count);
      if (!bytes)
        return bytes.status();
      argumentBytes[i] = *bytes;
    }
    arguments[i] = makeRange(tensors[tensor].data, argumentBytes[i], tensor);
  }
  tokens = count;
  return Status::ok();
}

/// "the weight 'gate.weight'".
static std::string describe(const TensorDecl &tensor) {
  return std::string("the ") + tensorRoleName(tensor.role) + " '" +
         tensor.name + "'";
}

Status BoundMemory::check(const Plan &plan,
                          const std::vector<BoundTensor> &tensors,
                          int64_t count, WorkspaceView given) {
  MOERT_CHECK(locate(plan, tensors, count));
  auto fail = [&](const MemoryRange &written, const std::string &other) {
    return invalidArgument("run '" + plan.tensors[written.tensor].name +
                           "': shares memory with " + other +
                           "; give it its own memory");
  };
  MemoryRange workspace = makeRange(given.data, given.bytes, 0);
  for (const MemoryRange &range : arguments) {
    if (range.overlaps(workspace))
      return fail(range, "the workspace");
    if (plan.tensors[range.tensor].role != TensorRole::Output)
      continue;
    if (const MemoryRange *weight = findWeight(range)) {
      const TensorDecl &tensor = plan.tensors[weight->tensor];
      return fail(
          range,
          describe(tensor) +
              (tensor.strided ? ", or with the gaps between its rows" : ""));
    }
    for (const MemoryRange &other : arguments)
      if (&other != &range && range.overlaps(other))
        return fail(range, describe(plan.tensors[other.tensor]));
  }
  if (const MemoryRange *weight = findWeight(workspace))
    return invalidArgument("run: the workspace shares memory with " +
                           describe(plan.tensors[weight->tensor]) +
                           "; give it its own memory");
  return Status::ok();
}

Status checkPrepareMemory(const Plan &plan,
                          const std::vector<BoundTensor> &tensors,
                          const std::vector<bool> &isGiven) {
  for (size_t prepared = 0; prepared < tensors.size(); ++prepared) {
    int64_t weight = plan.tensors[prepared].inPlaceOf;
    bool isInPlace = weight >= 0;
    size_t written = isInPlace ? static_cast<size_t>(weight) : prepared;
    if (plan.tensors[prepared].role != TensorRole::Prepared ||
        !isGiven[written])
      continue;
    MemoryRange range = rangeOfWeight(plan, tensors, written);
    for (size_t i = 0; i < tensors.size(); ++i)
      if (i != written && isGiven[i] &&
          range.overlaps(rangeOfWeight(plan, tensors, i)))
        return invalidArgument(
            "prepareWeights '" + plan.tensors[written].name +
            "': " + (isInPlace ? "is prepared in place, but " : "") +
            "shares memory with " + describe(plan.tensors[i]) +
            (isInPlace ? "; bind a copy of one of them"
                       : "; bind separate memory"));
  }
  return Status::ok();
}

} // namespace moert
