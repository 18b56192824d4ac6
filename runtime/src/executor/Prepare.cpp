//===- Prepare.cpp - weights before and after preparation -------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../plan/ReadTensors.h"
#include "../support/Check.h"
#include "Bindings.h"
#include "PreparedFile.h"
#include "moert/Workspace.h"

namespace moert {

Status Bindings::checkWeights() const {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorDecl &tensor = layer->plan.tensors[i];
    if (tensor.role != TensorRole::Weight)
      continue;
    std::string weight = "prepareWeights: weight '" + tensor.name + "' ";
    if (tensors[i].released && !hasFile)
      return invalidArgument(
          weight +
          "was released after its preparation; bind it again with its values");
    if (!tensors[i].bound)
      return invalidArgument(weight + "is not bound; bind it first");
    if (tensors[i].overwritten)
      return invalidArgument(weight +
                             "was overwritten by an earlier preparation; bind "
                             "it again with its values");
  }
  return Status::ok();
}

Status Bindings::checkPrepare() const {
  MOERT_CHECK(checkWeights());
  std::vector<bool> isGiven(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorRole role = layer->plan.tensors[i].role;
    isGiven[i] = role == TensorRole::Weight ||
                 (role == TensorRole::Prepared && hasGivenMemory(i));
  }
  return checkPrepareMemory(layer->plan, tensors, isGiven);
}

Status Bindings::allocate(size_t index, PrepareReport &made) {
  const TensorDecl &decl = layer->plan.tensors[index];
  BoundTensor &tensor = tensors[index];
  Result<int64_t> bytes = tensorBytes(decl).evaluate(0);
  if (!bytes)
    return bytes.status();
  if (decl.inPlaceOf >= 0) {
    // May be set if it was read from a prepared file.
    tensor.own.reset();
    made.inPlaceBytes += *bytes;
    return Status::ok();
  }
  if (hasGivenMemory(index)) {
    tensor.own.reset();
    return Status::ok();
  }
  std::shared_ptr<Buffer> own = std::move(tensor.own);
  tensor = BoundTensor();
  made.bytes += *bytes;
  if (haveWeightsMoved) {
    // Free the old memory ahead of taking the new.
    own.reset();
    Result<std::unique_ptr<Buffer>> buffer =
        layer->device.allocate(*bytes, kWorkspaceAlignment);
    if (!buffer)
      return buffer.status().withContext("prepareWeights: tensor '" +
                                         decl.name + "'");
    own = std::move(*buffer);
  }
  tensor.own = std::move(own);
  return Status::ok();
}

Result<PrepareReport> Bindings::beginPrepare() {
  PrepareReport made;
  hasPrepared = false;
  ++changes.layout;
  memory.reset();
  for (size_t i = 0; i < tensors.size(); ++i)
    if (layer->plan.tensors[i].role == TensorRole::Prepared)
      MOERT_CHECK(allocate(i, made));
  haveWeightsMoved = false;
  return made;
}

void Bindings::markOverwritten() {
  for (const TensorDecl &tensor : layer->plan.tensors)
    if (tensor.inPlaceOf >= 0)
      tensors[static_cast<size_t>(tensor.inPlaceOf)].overwritten = true;
}

void Bindings::endPrepare(const PrepareReport &made) {
  hasPrepared = true;
  hasFile = false;
  for (BoundTensor &tensor : tensors)
    tensor.isNew = false;
  report = made;
}

Status Bindings::release() {
  if (!hasPrepared)
    return invalidArgument("releaseWeights: the weights are not prepared; "
                           "prepare them first");
  std::vector<bool> isRead = findMemoryReadByRuns(layer->plan);
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (layer->plan.tensors[i].role != TensorRole::Weight || isRead[i])
      continue;
    tensors[i] = BoundTensor();
    tensors[i].released = true;
  }
  ++changes.layout;
  memory.reset();
  return Status::ok();
}

Status Bindings::useFile(const std::vector<PreparedTensor> &list) {
  Bindings made = *this;
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorRole role = layer->plan.tensors[i].role;
    if (role != TensorRole::Weight && role != TensorRole::Prepared)
      continue;
    // Unbind all; the loop below binds the tensors of the file.
    made.tensors[i] = BoundTensor();
    made.tensors[i].released = role == TensorRole::Weight;
  }
  for (const PreparedTensor &tensor : list) {
    const TensorDecl &decl = layer->plan.tensors[tensor.index];
    if (decl.role == TensorRole::Weight)
      MOERT_CHECK(made.bind(
          decl.name, {tensor.buffer->data(), decl.dtype, tensor.shape, {}}));
    made.tensors[tensor.index].own = tensor.buffer;
  }
  made.hasPrepared = made.hasFile = made.haveWeightsMoved = true;
  made.report = {};
  made.memory.reset();
  ++made.changes.layout;
  *this = std::move(made);
  return Status::ok();
}

} // namespace moert
