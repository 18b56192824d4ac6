//===- Bindings.cpp - tensors bound to a layer ------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Bindings.h"
#include "../plan/ReadTensors.h"
#include "../support/Check.h"

namespace moert {

Bindings::Bindings(std::shared_ptr<const LoadedLayer> loaded)
    : layer(std::move(loaded)), tensors(layer->plan.tensors.size()),
      hasPrepared(layer->plan.prepare.empty()) {}

Bindings Bindings::shareWeights() const {
  Bindings copy = *this;
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (isArgument(layer->plan.tensors[i]))
      copy.tensors[i] = BoundTensor();
    // Otherwise both executors would prepare in it.
    copy.tensors[i].isNew = false;
  }
  return copy;
}

Status Bindings::check(const std::string &name, const TensorView &view) const {
  Result<size_t> index = findTensor(layer->plan, name);
  if (!index)
    return index.status();
  return checkView(*layer, *index, view, /*isLaidOut=*/false);
}

Status Bindings::encodeMaps(size_t tensor, const BoundTensor &bound) {
  const Plan &plan = layer->plan;
  auto index = static_cast<int64_t>(tensor);
  auto encode = [&](const std::vector<Step> &steps) -> Status {
    for (const Step &step : steps) {
      if (step.kind != Step::Kind::Launch)
        continue;
      const KernelDecl &kernel = plan.kernels[step.kernel];
      for (size_t i = 0; i < kernel.tensorMaps.size(); ++i)
        if (step.args[kernel.tensorMaps[i].argument].tensor == index)
          MOERT_CHECK(maps.encode(*layer, {step.kernel, i, index}, bound.data,
                                  bound.shape[0], bound.strides)
                          .status());
    }
    return Status::ok();
  };
  MOERT_CHECK(encode(plan.prepare));
  for (const Variant &variant : plan.variants)
    MOERT_CHECK(encode(variant.steps));
  return Status::ok();
}

Status Bindings::bind(const std::string &name, const TensorView &view) {
  Result<size_t> index = findTensor(layer->plan, name);
  if (!index)
    return index.status();
  const TensorDecl &tensor = layer->plan.tensors[*index];
  BoundTensor &bound = tensors[*index];
  bool isSame = hasSameLayout(tensor, bound, view);
  if (isSame && view.data == bound.data)
    return Status::ok();
  MOERT_CHECK(checkView(*layer, *index, view, isSame));
  if (isSame) {
    bound.data = view.data;
    ++changes.moves;
    return Status::ok();
  }
  BoundTensor made = {view.data, view.shape, usedStrides(view), true};
  // A weight that runs alone read, such as an adapter, changes no preparation.
  bool isOfPrepare =
      tensor.role == TensorRole::Prepared ||
      (!isArgument(tensor) && findReadByPrepare(layer->plan)[*index]);
  if (tensor.role == TensorRole::Weight) {
    if (Status status = encodeMaps(*index, made); !status)
      return status.withContext("bind '" + name + "'");
    haveWeightsMoved |= isOfPrepare && (made.data != bound.data ||
                                        made.strides != bound.strides);
  }
  if (tensor.role == TensorRole::Prepared) {
    made.isNew = true;
    // Runs may read it until the weights are prepared again.
    made.own = bound.own;
  }
  bound = std::move(made);
  ++changes.layout;
  if (isArgument(tensor))
    return Status::ok();
  memory.reset();
  if (!layer->plan.prepare.empty() && isOfPrepare)
    hasPrepared = false;
  return Status::ok();
}

Result<TensorView> Bindings::find(const std::string &name) const {
  Result<size_t> index = findTensor(layer->plan, name);
  if (!index)
    return index.status();
  const BoundTensor &bound = tensors[*index];
  if (!bound.bound)
    return unavailable("'" + name + "' is not bound; bind it first");
  return TensorView{bound.data, layer->plan.tensors[*index].dtype, bound.shape,
                    bound.strides};
}

bool Bindings::ownsWeight(const std::string &name) const {
  int64_t index = layer->plan.findTensor(name);
  return index >= 0 && layer->plan.tensors[index].role == TensorRole::Weight &&
         tensors[index].own != nullptr;
}

void *Bindings::addressOf(size_t tensor) const {
  if (tensors[tensor].own)
    return tensors[tensor].own->data();
  int64_t weight = layer->plan.tensors[tensor].inPlaceOf;
  return tensors[weight >= 0 ? static_cast<size_t>(weight) : tensor].data;
}

std::vector<void *> Bindings::findAddresses() const {
  std::vector<void *> addresses(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i)
    addresses[i] = addressOf(i);
  return addresses;
}

std::vector<std::shared_ptr<Buffer>> Bindings::findOwnMemory() const {
  std::vector<std::shared_ptr<Buffer>> own;
  for (const BoundTensor &tensor : tensors)
    if (tensor.own)
      own.push_back(tensor.own);
  return own;
}

Status Bindings::checkReady(int64_t tokens) const {
  if (!hasPrepared)
    return invalidArgument("the weights are not prepared; prepare "
                           "them first");
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorDecl &tensor = layer->plan.tensors[i];
    if (tensor.role == TensorRole::Workspace ||
        tensor.role == TensorRole::Prepared || tensors[i].released)
      continue;
    if (!tensors[i].bound)
      return invalidArgument(std::string(tensorRoleName(tensor.role)) + " '" +
                             tensor.name + "' is not bound; bind it first");
    if (tensor.shape.empty())
      continue;
    Result<int64_t> rows = tensor.shape[0].evaluate(tokens);
    if (!rows)
      return rows.status();
    if (tensors[i].shape[0] < *rows)
      return invalidArgument("tensor '" + tensor.name + "' is bound with " +
                             std::to_string(tensors[i].shape[0]) + " rows, " +
                             std::to_string(*rows) +
                             " are needed; bind a larger one");
  }
  return Status::ok();
}

Status Bindings::checkOverlap(int64_t tokens, WorkspaceView workspace) {
  if (!memory)
    memory = BoundMemory::find(layer->plan, tensors);
  return memory->check(layer->plan, tensors, tokens, workspace);
}

} // namespace moert
