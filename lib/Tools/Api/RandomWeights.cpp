//===- RandomWeights.cpp - generated weights, for C -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Run/HostTensor.h"
#include "Jit/CApi.h"
#include "WeightMemory.h"

using namespace moec;
using namespace moec::capi;
using moert::Result;
using moert::Status;

/// Copies a tensor to memory of the device that belongs to the layer, and binds
/// it.
static Status bind(moert_layer &layer, const HostTensor &tensor) {
  Result<std::unique_ptr<moert::Buffer>> buffer =
      layer.device.allocate(tensor.getNumBytes(), moert::kWorkspaceAlignment);
  if (!buffer)
    return buffer.status().withContext("tensor '" + tensor.name + "'");
  moert::TensorView view = tensor.getView();
  view.data = (*buffer)->data();
  Status status =
      layer.device.copyIn(view.data, tensor.data(), tensor.getNumBytes());
  if (status)
    status = layer.executor->bind(tensor.name, view);
  if (status)
    layer.loaded[tensor.name] = std::move(*buffer);
  return status;
}

static Status generate(moert_layer &layer, uint64_t seed) {
  layer.loadedLayer.reset();
  // Fails if the weights would not fit into the memory of this machine.
  Result<std::vector<HostTensor>> tensors =
      allocateTensors(layer.executor->plan(), /*tokens=*/0);
  if (!tensors)
    return tensors.status();
  GenerateOptions options;
  options.seed = seed;
  Status status = generateTensors(*tensors, options);
  // Runs in flight may still read the weights that are replaced here.
  if (status)
    status = awaitReaders(layer);
  for (HostTensor &tensor : *tensors) {
    if (status && tensor.role == moert::TensorRole::Weight)
      status = bind(layer, tensor);
    // Frees each tensor before the next one is copied.
    tensor = {};
  }
  return status;
}

moert_status *moejit_layer_generate_weights(moert_layer *layer, uint64_t seed) {
  MOEJIT_NEEDED(layer);
  moert::FloatState state;
  return answer(generate(*layer, seed));
}
