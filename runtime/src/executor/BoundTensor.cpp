//===- BoundTensor.cpp - how a tensor is bound ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BoundTensor.h"
#include "../plan/TensorMaps.h"
#include "../support/Check.h"
#include "../support/Text.h"
#include "moert/Workspace.h"

#include <algorithm>
#include <limits>

namespace moert {

static std::string shapeText(const std::vector<Expr> &shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i)
    text += (i > 0 ? ", " : "") + shape[i].str();
  return text + "]";
}

/// The names of the tensors that a caller may bind.
static std::string bindableNames(const Plan &plan) {
  std::string names;
  for (const TensorDecl &tensor : plan.tensors)
    if (tensor.role == TensorRole::Input || tensor.role == TensorRole::Weight ||
        tensor.role == TensorRole::Output)
      names += (names.empty() ? "" : ", ") + tensor.name;
  return names;
}

std::vector<int64_t> usedStrides(const TensorView &view) {
  if (view.strides.empty() ||
      std::find(view.shape.begin(), view.shape.end(), 0) != view.shape.end())
    return contiguousStrides(view.shape);
  std::vector<int64_t> strides = view.strides;
  int64_t packed = 1;
  for (size_t i = strides.size(); i-- > 0;) {
    if (view.shape[i] == 1)
      strides[i] = packed;
    if (__builtin_mul_overflow(strides[i], view.shape[i], &packed))
      packed = std::numeric_limits<int64_t>::max();
  }
  return strides;
}

/// Success if rows with these strides, as returned by usedStrides(), do not
/// overlap, are in order, and are as aligned as contiguous rows.
static Status checkStrided(const TensorDecl &tensor, const TensorView &view,
                           const std::vector<int64_t> &strides) {
  auto wrong = [&](const std::string &expected) {
    return invalidArgument(expected + " expected, strides " +
                           listText(view.strides) + " found for shape " +
                           listText(view.shape) +
                           "; make the tensor contiguous");
  };
  std::vector<int64_t> packed = contiguousStrides(view.shape);
  int64_t bytes = dtypeBits(tensor.dtype) / 8;
  if (strides.back() != 1)
    return wrong("the stride 1 in the last dimension");
  for (size_t i = 0; i + 1 < strides.size(); ++i) {
    int64_t needed, extent;
    std::string dimension = " in dimension " + std::to_string(i);
    if (__builtin_mul_overflow(strides[i + 1], view.shape[i + 1], &needed) ||
        __builtin_mul_overflow(strides[i], view.shape[i], &extent) ||
        __builtin_mul_overflow(extent, bytes, &extent))
      return wrong("fewer than 2^63 bytes" + dimension);
    if (strides[i] < needed)
      return wrong("a stride of at least " + std::to_string(needed) +
                   " (no overlap)" + dimension);
    if (packed[i] * bytes % tensor.alignment == 0 &&
        strides[i] * bytes % tensor.alignment != 0)
      return wrong("a stride that is a multiple of " +
                   std::to_string(tensor.alignment) + " bytes" + dimension);
  }
  return Status::ok();
}

static Status checkStrides(const TensorDecl &tensor, const TensorView &view) {
  if (!view.strides.empty() && view.strides.size() != view.shape.size())
    return invalidArgument("strides " + listText(view.strides) +
                           " found for shape " + listText(view.shape) +
                           "; one per dimension is expected");
  std::vector<int64_t> strides = usedStrides(view);
  if (tensor.strided)
    return checkStrided(tensor, view, strides);
  std::vector<int64_t> packed = contiguousStrides(view.shape);
  if (strides == packed)
    return Status::ok();
  bool mayBeStrided =
      tensor.role == TensorRole::Weight && tensor.shape.size() > 1;
  return invalidArgument(
      "strides " + listText(packed) + " (contiguous) expected, " +
      listText(view.strides) + " found; make the tensor contiguous" +
      (mayBeStrided ? ", or compile the layer with \"strided_weights\": true "
                      "in its spec"
                    : ""));
}

/// Compares a shape with its declaration; dimension 0 may be smaller if it
/// depends on the tokens.
static Status checkShape(const TensorDecl &tensor, const TensorView &view,
                         int64_t maxTokens) {
  auto mismatch = [&](const std::string &detail) {
    return invalidArgument("shape " + shapeText(tensor.shape) + " expected, " +
                           listText(view.shape) + " found" + detail);
  };
  if (view.shape.size() != tensor.shape.size())
    return mismatch("; the ranks differ");
  for (size_t i = 0; i < tensor.shape.size(); ++i) {
    Result<int64_t> most = tensor.shape[i].maxUpTo(maxTokens);
    if (!most)
      return most.status();
    if (tensor.shape[i].isConstant() ? view.shape[i] != *most
                                     : view.shape[i] < 0)
      return mismatch("; dimension " + std::to_string(i) + " differs");
    if (view.shape[i] > *most)
      return mismatch("; dimension " + std::to_string(i) + " is at most " +
                      std::to_string(*most) + " (max_tokens is " +
                      std::to_string(maxTokens) + ")");
  }
  return checkStrides(tensor, view);
}

bool hasSameLayout(const TensorDecl &tensor, const BoundTensor &bound,
                   const TensorView &view) {
  return bound.bound && isArgument(tensor) && view.dtype == tensor.dtype &&
         view.shape == bound.shape &&
         (view.strides.empty() || view.strides.size() == view.shape.size()) &&
         usedStrides(view) == bound.strides;
}

Result<size_t> findTensor(const Plan &plan, const std::string &name) {
  int64_t index = plan.findTensor(name);
  if (index < 0)
    return notFound("bind: the plan has no tensor '" + name + "'; it has " +
                    bindableNames(plan));
  return static_cast<size_t>(index);
}

Status checkView(const LoadedLayer &layer, size_t index, const TensorView &view,
                 bool isLaidOut) {
  const Plan &plan = layer.plan;
  const TensorDecl &tensor = plan.tensors[index];
  std::string context = "bind '" + tensor.name + "'";
  if (tensor.role == TensorRole::Workspace)
    return invalidArgument(context + ": a " + tensorRoleName(tensor.role) +
                           " tensor belongs to the executor; bind one of " +
                           bindableNames(plan));
  if (tensor.inPlaceOf >= 0)
    return invalidArgument(
        context + ": is prepared in the memory of the weight '" +
        plan.tensors[static_cast<size_t>(tensor.inPlaceOf)].name +
        "'; bind that weight");
  if (view.dtype != tensor.dtype)
    return invalidArgument(context + ": dtype " + dtypeName(tensor.dtype) +
                           " expected, " + dtypeName(view.dtype) +
                           " found; convert the tensor");
  if (!isLaidOut)
    if (Status status = checkShape(tensor, view, plan.maxTokens); !status)
      return status.withContext(context);
  bool hasElements =
      std::find(view.shape.begin(), view.shape.end(), 0) == view.shape.end();
  if (hasElements && !view.data)
    return invalidArgument(context + ": the data pointer is null");
  int64_t alignment =
      tensor.role == TensorRole::Prepared
          ? int64_t(kWorkspaceAlignment)
          : std::max(tensor.alignment, dtypeAlignment(tensor.dtype));
  auto address = reinterpret_cast<uintptr_t>(view.data);
  if (hasElements && address % alignment != 0)
    return invalidArgument(context + ": an address aligned to " +
                           std::to_string(alignment) + " bytes expected, " +
                           std::to_string(address) +
                           " found; copy the tensor to aligned memory");
  if (hasElements)
    if (Status status = layer.device.checkAddress(view.data); !status)
      return status.withContext(context);
  return Status::ok();
}

} // namespace moert
