//===- BoundWeight.cpp - weights that a layer is bound to -----------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SampledRun.h"
#include "llvm/ADT/StringRef.h"

#include <algorithm>
#include <cstring>
#include <limits>

using namespace moec;
using moert::Result;
using moert::Status;

/// Strides of a contiguous tensor, in elements.
static std::vector<int64_t> getPacked(const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;)
    strides[i - 1] = strides[i] * shape[i];
  return strides;
}

BoundWeight::BoundWeight(moert::Device &device, const moert::TensorView &bound,
                         bool isOfExperts)
    : device(device), view(bound),
      isSliced(isOfExperts && !bound.shape.empty()) {
  if (view.strides.empty())
    view.strides = getPacked(view.shape);
  for (size_t i = isSliced ? 1 : 0; i < view.shape.size(); ++i)
    sliceElements *= view.shape[i];
  if (device.checkTarget("cpu") && view.strides == getPacked(view.shape))
    direct = reference::makeSource(view.data, view.dtype);
}

Status BoundWeight::copy(int64_t index, std::vector<uint8_t> &bytes) const {
  auto elementBytes = static_cast<size_t>(moert::dtypeBits(view.dtype) / 8);
  bytes.resize(static_cast<size_t>(sliceElements) * elementBytes);
  std::vector<int64_t> shape(view.shape.begin() + (isSliced ? 1 : 0),
                             view.shape.end());
  std::vector<int64_t> strides(view.strides.begin() + (isSliced ? 1 : 0),
                               view.strides.end());
  const auto *data = static_cast<const uint8_t *>(view.data);
  if (isSliced)
    data += static_cast<size_t>(index * view.strides[0]) * elementBytes;
  if (strides == getPacked(shape))
    return device.copyOut(bytes.data(), data, bytes.size());
  // Only the last dimension is contiguous.
  size_t rowBytes = static_cast<size_t>(shape.back()) * elementBytes;
  std::vector<int64_t> at(shape.size(), 0);
  for (size_t to = 0; to < bytes.size(); to += rowBytes) {
    int64_t from = 0;
    for (size_t i = 0; i < shape.size(); ++i)
      from += at[i] * strides[i];
    if (Status copied = device.copyOut(
            bytes.data() + to, data + static_cast<size_t>(from) * elementBytes,
            rowBytes);
        !copied)
      return copied;
    for (size_t i = shape.size() - 1; i-- > 0;) {
      if (++at[i] < shape[i])
        break;
      at[i] = 0;
    }
  }
  return Status::ok();
}

Result<const std::vector<uint8_t> *>
BoundWeight::getSlice(int64_t index) const {
  std::lock_guard<std::mutex> lock(mutex);
  auto [it, isNew] = slices.try_emplace(index);
  if (isNew)
    if (Status copied = copy(index, it->second); !copied) {
      slices.erase(it);
      if (status)
        status = copied;
      return copied;
    }
  return &it->second;
}

Status BoundWeight::getStatus() const {
  std::lock_guard<std::mutex> lock(mutex);
  return status;
}

void BoundWeight::read(int64_t first, int64_t count, double *to) const {
  if (direct)
    return direct->read(first, count, to);
  while (count > 0) {
    int64_t slice = isSliced ? first / sliceElements : 0;
    int64_t begin = first - slice * sliceElements;
    int64_t part = std::min(count, sliceElements - begin);
    Result<const std::vector<uint8_t> *> bytes = getSlice(slice);
    if (bytes)
      reference::makeSource((*bytes)->data(), view.dtype)
          ->read(begin, part, to);
    else
      std::fill_n(to, part, std::numeric_limits<double>::quiet_NaN());
    first += part;
    to += part;
    count -= part;
  }
}

Result<BoundWeights> moec::findWeights(const moert::Executor &executor,
                                       moert::Device &device) {
  BoundWeights weights;
  for (const moert::TensorDecl &tensor : executor.plan().tensors) {
    if (tensor.role != moert::TensorRole::Weight)
      continue;
    Result<moert::TensorView> view = executor.bound(tensor.name);
    if (!view)
      return view.status();
    bool isOfExperts = llvm::StringRef(tensor.name).starts_with("experts.");
    weights[tensor.name] =
        std::make_shared<BoundWeight>(device, *view, isOfExperts);
  }
  return weights;
}
