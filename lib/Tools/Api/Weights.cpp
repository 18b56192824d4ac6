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

namespace {

/// Device memory for weights, bound to the layer all at once.
class DeviceMemory : public TensorMemory {
public:
  explicit DeviceMemory(moert_layer &layer) : layer(layer) {}

  Status allocate(const std::vector<HostTensor> &tensors);
  Result<uint8_t *> open(const HostTensor &tensor, size_t offset,
                         size_t bytes) override;
  Status close() override;
  Status bind(const std::vector<HostTensor> &tensors);

private:
  bool isOfHost() const { return layer.device.architecture().empty(); }

  moert_layer &layer;
  std::map<std::string, std::shared_ptr<moert::Buffer>> buffers;
  /// Staging memory for `open`, unused if the device's memory is host memory,
  /// and the address on the device that it is copied to.
  std::vector<uint8_t> staged;
  uint8_t *target = nullptr;
};

} // namespace

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
                                     size_t bytes) {
  target = static_cast<uint8_t *>(buffers[tensor.name]->data()) + offset;
  if (isOfHost())
    return target;
  staged.resize(bytes);
  return staged.data();
}

Status DeviceMemory::close() {
  return isOfHost() ? Status::ok()
                    : layer.device.copyIn(target, staged.data(), staged.size());
}

Status DeviceMemory::bind(const std::vector<HostTensor> &tensors) {
  // Runs in flight may still read the weights that are replaced here.
  if (Status status = layer.executor->synchronize(); !status)
    return status;
  for (const HostTensor &tensor : tensors) {
    moert::TensorView view = tensor.getView();
    view.data = buffers[tensor.name]->data();
    if (Status status = layer.executor->bind(tensor.name, view); !status)
      return status;
    layer.loaded[tensor.name] = std::move(buffers[tensor.name]);
  }
  return Status::ok();
}

/// The rank whose weights to load into a layer of several ranks.
static Result<int64_t> findRank(const moert::Executor &executor,
                                const int64_t *rank) {
  if (rank) {
    Status status = executor.checkRank(*rank);
    return status ? Result<int64_t>(*rank) : status;
  }
  if (executor.plan().mesh.numRanks() == 1)
    return 0;
  if (executor.rank())
    return *executor.rank();
  return moert::invalidArgument(
      "the layer is for the ranks of " + executor.plan().mesh.str() +
      "; say the rank whose part of the checkpoint is read, or give the layer "
      "its communicator before");
}

/// The tensors of a checkpoint that the layer needs: by its spec, or without
/// one by the names of its tensors.
static Result<LayerRequest> getRequest(const moert_layer &layer,
                                       const std::vector<HostTensor> &tensors,
                                       const int64_t *decoderLayer,
                                       int64_t rank) {
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
    spec->setPacking(Packing(layer.packing));
    request = spec->parallel ? makeRequest(*spec, rank) : makeRequest(*spec);
  } else if (layer.executor->plan().mesh.numRanks() > 1) {
    return moert::invalidArgument(
        "the layer of several ranks was compiled from IR, which does not say "
        "how a checkpoint is cut; bind the weights of the rank, or compile it "
        "from a JSON description");
  }
  request.inputsAreRequired = false;
  request.layer =
      decoderLayer ? std::optional(*decoderLayer) : layer.decoderLayer;
  return request;
}

static Status load(moert_layer &layer, const std::string &path,
                   const int64_t *decoderLayer, const int64_t *rank,
                   moejit_message_fn message, void *user) {
  Result<std::vector<HostTensor>> tensors = describeTensors(
      layer.executor->plan(), /*tokens=*/0, {moert::TensorRole::Weight});
  if (!tensors)
    return tensors.status();
  Result<int64_t> ownRank = findRank(*layer.executor, rank);
  if (!ownRank)
    return ownRank.status();
  Result<LayerRequest> request =
      getRequest(layer, *tensors, decoderLayer, *ownRank);
  if (!request)
    return request.status();
  Result<moert::Checkpoint> checkpoint = moert::Checkpoint::open(path);
  if (!checkpoint)
    return checkpoint.status();
  size_t done = 0, all = 0;
  for (const HostTensor &tensor : *tensors)
    all += tensor.getNumBytes();
  auto tell = [&](size_t bytes) {
    done += bytes;
    tellStep(message, user, done, all);
  };
  DeviceMemory memory(layer);
  Status status = memory.allocate(*tensors);
  if (status)
    status = loadTensors(*tensors, *checkpoint, *request, memory, tell);
  if (status)
    status = memory.bind(*tensors);
  return status ? layer.executor->setRank(*ownRank) : status;
}

moert_status *moejit_layer_load_weights(moert_layer *layer, const char *path,
                                        const int64_t *decoder_layer,
                                        const int64_t *rank,
                                        moejit_message_fn message, void *user) {
  MOEJIT_NEEDED(layer);
  MOEJIT_NEEDED(path);
  // Sets the float state in which nested (quantized) scales are multiplied and
  // added.
  moert::FloatState state;
  return answer(load(*layer, path, decoder_layer, rank, message, user));
}
