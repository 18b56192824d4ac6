//===- Overlap.cpp - checks that written memory is not shared ---*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Overlap.h"
#include "../support/Check.h"
#include "moert/Executor.h"

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

//===----------------------------------------------------------------------===//
// Checks of the executor
//===----------------------------------------------------------------------===//

static MemoryRange makeRange(const void *data, int64_t bytes, size_t tensor) {
  auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, data ? begin + static_cast<uintptr_t>(bytes) : begin, tensor};
}

MemoryRange Executor::rangeOfWeight(size_t tensor) const {
  const Binding &binding = bindings[tensor];
  int64_t elements = 1;
  for (size_t i = 0; i < binding.shape.size(); ++i) {
    if (binding.shape[i] == 0)
      elements = 0;
    if (elements > 0)
      elements += (binding.shape[i] - 1) * binding.strides[i];
  }
  int64_t bits = elements * dtypeBits(thePlan->tensors[tensor].dtype);
  return makeRange(binding.data, (bits + 7) / 8, tensor);
}

BoundMemory &Executor::findMemory() {
  if (memory)
    return *memory;
  std::vector<MemoryRange> weights;
  for (size_t i = 0; i < bindings.size(); ++i)
    if (!isArgument(thePlan->tensors[i]) && bindings[i].bound)
      if (MemoryRange range = rangeOfWeight(i); range.begin < range.end)
        weights.push_back(range);
  memory = std::make_unique<BoundMemory>(std::move(weights));
  for (size_t i = 0; i < bindings.size(); ++i)
    if (isArgument(thePlan->tensors[i]))
      memory->arguments.push_back({0, 0, i});
  memory->argumentBytes.resize(memory->arguments.size());
  return *memory;
}

/// "the weight 'gate.weight'".
static std::string describe(const TensorDecl &tensor) {
  return std::string("the ") + tensorRoleName(tensor.role) + " '" +
         tensor.name + "'";
}

Status Executor::checkOverlap(int64_t tokens) {
  BoundMemory &bound = findMemory();
  for (size_t i = 0; i < bound.arguments.size(); ++i) {
    size_t tensor = bound.arguments[i].tensor;
    if (bound.tokens != tokens) {
      Result<int64_t> bytes =
          tensorBytes(thePlan->tensors[tensor]).evaluate(tokens);
      if (!bytes)
        return bytes.status();
      bound.argumentBytes[i] = *bytes;
    }
    bound.arguments[i] =
        makeRange(bindings[tensor].data, bound.argumentBytes[i], tensor);
  }
  bound.tokens = tokens;

  auto fail = [&](const MemoryRange &written, const std::string &other) {
    return invalidArgument("run '" + thePlan->tensors[written.tensor].name +
                           "': shares memory with " + other +
                           "; give memory of its own");
  };
  MemoryRange workspace =
      makeRange(resolvedWorkspace.data, resolvedWorkspace.bytes, 0);
  for (const MemoryRange &range : bound.arguments) {
    if (range.overlaps(workspace))
      return fail(range, "the workspace");
    if (thePlan->tensors[range.tensor].role != TensorRole::Output)
      continue;
    if (const MemoryRange *weight = bound.findWeight(range)) {
      const TensorDecl &tensor = thePlan->tensors[weight->tensor];
      return fail(range,
                  describe(tensor) +
                      (tensor.strided ? ", or with gaps of its rows" : ""));
    }
    for (const MemoryRange &other : bound.arguments)
      if (&other != &range && range.overlaps(other))
        return fail(range, describe(thePlan->tensors[other.tensor]));
  }
  if (const MemoryRange *weight = bound.findWeight(workspace))
    return invalidArgument("run: the workspace shares memory with " +
                           describe(thePlan->tensors[weight->tensor]) +
                           "; give memory of its own");
  return Status::ok();
}

Status Executor::checkPrepareMemory() const {
  auto has = [&](size_t i) {
    TensorRole role = thePlan->tensors[i].role;
    return role == TensorRole::Weight ||
           (role == TensorRole::Prepared && hasGivenMemory(i));
  };
  for (size_t prepared = 0; prepared < bindings.size(); ++prepared) {
    int64_t weight = thePlan->tensors[prepared].inPlaceOf;
    bool isInPlace = weight >= 0;
    size_t written = isInPlace ? static_cast<size_t>(weight) : prepared;
    if (thePlan->tensors[prepared].role != TensorRole::Prepared ||
        !has(written))
      continue;
    MemoryRange range = rangeOfWeight(written);
    for (size_t i = 0; i < bindings.size(); ++i)
      if (i != written && has(i) && range.overlaps(rangeOfWeight(i)))
        return invalidArgument(
            "prepareWeights '" + thePlan->tensors[written].name +
            "': " + (isInPlace ? "is prepared where it is, and " : "") +
            "shares memory with " + describe(thePlan->tensors[i]) +
            (isInPlace ? "; bind a copy of one of them"
                       : "; bind memory of its own"));
  }
  return Status::ok();
}

} // namespace moert
