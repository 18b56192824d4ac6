//===- Weights.cpp - weights of a checkpoint, for C -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../Run/LoadTensors.h"
#include "lib/Jit/CApi.h"
#include "moec/Import/Import.h"
#include "llvm/ADT/STLExtras.h"

using namespace moec;
using namespace moec::capi;
using moert::Result;
using moert::Status;

/// What of a checkpoint the layer is: by its spec, or where it has none by the
/// names of its tensors.
static Result<LayerRequest> getRequest(const moert_layer &layer,
                                       const std::vector<HostTensor> &tensors,
                                       const int64_t *decoderLayer) {
  LayerRequest request = makeRequest(tensors);
  if (!layer.spec.empty()) {
    std::string messages;
    llvm::raw_string_ostream os(messages);
    Diagnostics diagnostics(os);
    mlir::FailureOr<LayerSpec> spec = importJson(
        SourceText("spec.json", layer.spec), /*overrides=*/{}, diagnostics);
    if (failed(spec))
      return moert::internalError(llvm::StringRef(messages).rtrim().str());
    spec->modelType = layer.modelType;
    request = makeRequest(*spec);
  }
  request.inputsAreRequired = false;
  request.layer =
      decoderLayer ? std::optional(*decoderLayer) : layer.decoderLayer;
  return request;
}

/// Gives the device its copy of a weight, and binds it.
static Status place(moert_layer &layer, const HostTensor &tensor) {
  Result<std::unique_ptr<moert::Buffer>> buffer =
      layer.device.allocate(tensor.getNumBytes(), moert::kWorkspaceAlignment);
  if (!buffer)
    return buffer.status();
  moert::TensorView view = tensor.getView();
  view.data = (*buffer)->data();
  if (Status status =
          layer.device.copyIn(view.data, tensor.data(), tensor.getNumBytes());
      !status)
    return status;
  if (Status status = layer.executor->bind(tensor.name, view); !status)
    return status;
  layer.loaded[tensor.name] = std::move(*buffer);
  return Status::ok();
}

static Status load(moert_layer &layer, const std::string &path,
                   const int64_t *decoderLayer, moejit_message_fn message,
                   void *user) {
  if (layer.executor->plan().mesh.numRanks() > 1)
    return moert::invalidArgument(
        "the layer is of several ranks, and a checkpoint is not cut by rank; "
        "bind each weight of this rank (docs/parallel.md)");
  Result<std::vector<HostTensor>> tensors = allocateTensors(
      layer.executor->plan(), /*tokens=*/0, {moert::TensorRole::Weight});
  if (!tensors)
    return tensors.status();
  Result<LayerRequest> request = getRequest(layer, *tensors, decoderLayer);
  if (!request)
    return request.status();
  Result<moert::Checkpoint> checkpoint = moert::Checkpoint::open(path);
  if (!checkpoint)
    return checkpoint.status();
  // Each is read, then placed.
  size_t done = 0, all = 0;
  for (const HostTensor &tensor : *tensors)
    all += 2 * tensor.getNumBytes();
  auto tell = [&](const HostTensor &tensor) {
    done += tensor.getNumBytes();
    tellStep(message, user, done, all);
  };
  if (Status status = loadTensors(*tensors, *checkpoint, *request, tell);
      !status)
    return status;
  // Runs may still read what is about to be replaced.
  if (Status status = layer.executor->synchronize(); !status)
    return status;
  for (const HostTensor &tensor : *tensors) {
    if (Status status = place(layer, tensor); !status)
      return status.withContext("tensor '" + tensor.name + "'");
    tell(tensor);
  }
  return Status::ok();
}

moert_status *moejit_layer_load_weights(moert_layer *layer, const char *path,
                                        const int64_t *decoder_layer,
                                        moejit_message_fn message, void *user) {
  MOEJIT_NEEDED(layer);
  MOEJIT_NEEDED(path);
  return answer(load(*layer, path, decoder_layer, message, user));
}
