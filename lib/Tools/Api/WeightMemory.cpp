//===- WeightMemory.cpp - memory of a layer's weights ---------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightMemory.h"

#include "llvm/ADT/STLExtras.h"

using namespace moec;
using moert::Result;
using moert::Status;

bool moec::ownsWeights(const moert_layer &layer,
                       const std::vector<HostTensor> &tensors) {
  return llvm::all_of(tensors, [&](const HostTensor &tensor) {
    auto own = layer.loaded.find(tensor.name);
    Result<moert::TensorView> bound = layer.executor->bound(tensor.name);
    return own != layer.loaded.end() && bound &&
           bound->data == own->second->data();
  });
}

Status moec::awaitReaders(moert_layer &layer) {
  if (layer.watch)
    layer.watch->settle();
  return layer.executor->synchronize();
}

Status DeviceMemory::allocate(const std::vector<HostTensor> &tensors) {
  for (const HostTensor &tensor : tensors) {
    Result<std::unique_ptr<moert::Buffer>> buffer =
        layer.device.allocate(tensor.getNumBytes(), moert::kWorkspaceAlignment);
    if (!buffer)
      return buffer.status().withContext("tensor '" + tensor.name + "'");
    buffers[tensor.name] = std::move(*buffer);
  }
  return Status::ok();
}

Result<uint8_t *> DeviceMemory::open(const HostTensor &tensor, size_t offset,
                                     size_t bytes, bool isWhole) {
  target = static_cast<uint8_t *>(buffers[tensor.name]->data()) + offset;
  if (isOfHost())
    return target;
  staged.resize(bytes);
  if (!isWhole) {
    if (Status status = synchronize(); !status)
      return status;
    if (Status status = layer.device.copyOut(staged.data(), target, bytes);
        !status)
      return status;
  }
  return staged.data();
}

Status DeviceMemory::close() {
  return isOfHost() ? Status::ok()
                    : layer.device.copyIn(target, staged.data(), staged.size());
}

Result<bool> DeviceMemory::copyRows(const HostTensor &tensor,
                                    const moert::RowCopy &rows) {
  if (!stream) {
    Result<std::unique_ptr<moert::Stream>> created =
        layer.device.createStream();
    if (!created)
      return created.status();
    stream = std::move(*created);
  }
  moert::RowCopy copy = rows;
  copy.to = static_cast<uint8_t *>(buffers[tensor.name]->data()) +
            reinterpret_cast<uintptr_t>(rows.to);
  if (Status status = layer.device.copyRows(*stream, copy); !status)
    return status.withContext("tensor '" + tensor.name + "'");
  return true;
}

Status DeviceMemory::synchronize() {
  return stream ? layer.device.synchronize(*stream) : Status::ok();
}

Status DeviceMemory::bind(const std::vector<HostTensor> &tensors) {
  if (Status status = synchronize(); !status)
    return status;
  // Runs in flight may still read the weights that are replaced here.
  if (Status status = awaitReaders(layer); !status)
    return status;
  for (const HostTensor &tensor : tensors) {
    moert::TensorView view = tensor.getView();
    view.data = buffers[tensor.name]->data();
    if (Status status = layer.executor->bind(tensor.name, view); !status)
      return status;
    layer.loaded[tensor.name] = buffers[tensor.name];
  }
  return Status::ok();
}

Result<uint8_t *> ScratchMemory::open(const HostTensor &, size_t, size_t bytes,
                                      bool) {
  scratch.resize(bytes);
  return scratch.data();
}

Result<bool> ScratchMemory::copyRows(const HostTensor &,
                                     const moert::RowCopy &) {
  return true;
}
