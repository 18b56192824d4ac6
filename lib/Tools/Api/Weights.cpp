//===- Weights.cpp - weights of a checkpoint, for C -------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "../../../runtime/src/support/Text.h"
#include "../Run/TensorStream.h"
#include "WeightMemory.h"

#include "moec/Compiler/Compiler.h"
#include "moec/Import/Import.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"

using namespace moec;
using namespace moec::capi;
using moert::Result;
using moert::Status;

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
  return moert::invalidArgument("the layer has the ranks of " +
                                executor.plan().mesh.str() +
                                "; give the rank whose weights are read, or "
                                "set the layer's communicator first");
}

/// Adds to a package's spec how checkpoints store the weights, as the
/// config.json in a model's folder says. Weights that the model has in another
/// format are left to the loader, which names the difference.
static void adoptStorage(LayerSpec &spec, const std::string &folder,
                         std::optional<int64_t> decoderLayer) {
  std::string messages;
  llvm::raw_string_ostream os(messages);
  Diagnostics diagnostics(os);
  SpecOverrides overrides;
  overrides.layer = decoderLayer;
  overrides.part = llvm::StringRef(spec.modelType).split('.').second.str();
  mlir::FailureOr<SourceText> text = readSource(folder, overrides, os);
  if (failed(text) || !isJson(*text))
    return;
  mlir::FailureOr<LayerSpec> model = importJson(*text, overrides, diagnostics);
  if (failed(model) || model->modelType != spec.modelType)
    return;
  spec.mtpIndex = model->mtpIndex;
  spec.bank = model->bank;
  spec.numAlwaysChosen = model->numAlwaysChosen;
  if (spec.expertBias)
    spec.constantExperts = model->constantExperts;
  spec.adjugate = model->adjugate;
  spec.inputFactor = model->inputFactor;
  auto adopt = [&](const char *weight, std::optional<QuantizationSpec> &own,
                   const std::optional<QuantizationSpec> &stored) {
    bool isSame = own.has_value() == stored.has_value() &&
                  (!own || own->weight == stored->weight);
    if (!isSame)
      return;
    if (own) {
      own->packing = stored->packing;
      own->storedBits = stored->storedBits;
      own->storedBlocks = stored->storedBlocks;
    }
    if (auto found = model->stored.find(weight); found != model->stored.end())
      spec.stored[weight] = found->second;
  };
  for (const char *weight : {"gate.weight", "shared_experts.gate"})
    if (auto found = model->stored.find(weight); found != model->stored.end())
      spec.stored[weight] = found->second;
  adopt("experts.w13", spec.quantization.w13, model->quantization.w13);
  adopt("experts.w2", spec.quantization.w2, model->quantization.w2);
  if (!spec.sharedExperts || !model->sharedExperts)
    return;
  ExpertQuantization &own = spec.sharedExperts->quantization,
                     &stored = model->sharedExperts->quantization;
  adopt("shared_experts.w13", own.w13, stored.w13);
  adopt("shared_experts.w2", own.w2, stored.w2);
}

/// The tensors of a checkpoint that the layer needs: by its spec, or without
/// one by the names of its tensors. `folder` is that of the checkpoint, or
/// empty.
static Result<LayerRequest> getRequest(const moert_layer &layer,
                                       const std::vector<HostTensor> &tensors,
                                       const int64_t *decoderLayer,
                                       int64_t rank,
                                       const std::string &folder) {
  LayerRequest request = makeRequest(tensors);
  auto describe = [&](const LayerSpec &spec) {
    request = spec.parallel ? makeRequest(spec, rank) : makeRequest(spec);
  };
  if (layer.description) {
    describe(*static_cast<const LayerSpec *>(layer.description.get()));
  } else if (!layer.spec.empty()) {
    std::string messages;
    llvm::raw_string_ostream os(messages);
    Diagnostics diagnostics(os);
    mlir::FailureOr<LayerSpec> spec = importJson(
        SourceText("spec.json", layer.spec), /*overrides=*/{}, diagnostics);
    if (failed(spec))
      return moert::internalError(llvm::StringRef(messages).rtrim().str());
    spec->modelType = layer.modelType;
    if (!folder.empty() && !layer.modelType.empty())
      adoptStorage(*spec, folder,
                   decoderLayer ? std::optional(*decoderLayer)
                                : layer.decoderLayer);
    describe(*spec);
  } else if (layer.executor->plan().mesh.numRanks() > 1) {
    return moert::invalidArgument(
        "the layer of several ranks was compiled from IR, which does not "
        "describe how ranks slice a checkpoint; bind the rank's weights, or "
        "compile the layer from a JSON description");
  }
  request.inputsAreRequired = false;
  request.layer =
      decoderLayer ? std::optional(*decoderLayer) : layer.decoderLayer;
  return request;
}

namespace {

/// Description of the weights to load into a layer.
struct Weights {
  std::vector<HostTensor> tensors;
  LayerRequest request;
  int64_t rank = 0;
};

/// The names of a layer's weights in checkpoints.
struct Names {
  Names(LayerRequest described, const int64_t *decoderLayer)
      : request(std::move(described)), index(request) {
    if (decoderLayer)
      asked = *decoderLayer;
  }

  LayerRequest request;
  PartIndex index;
  /// The decoder layer that the caller named.
  std::optional<int64_t> asked;
};

/// Weights that arrive in several calls.
struct Arriving {
  Arriving(moert_layer &layer, Weights described, const std::string &source)
      : weights(std::move(described)), memory(layer),
        stream(weights.tensors, weights.request, memory, source) {}

  Weights weights;
  DeviceMemory memory;
  TensorStream stream;
};

} // namespace

static Result<Weights> describeWeights(const moert_layer &layer,
                                       const int64_t *decoderLayer,
                                       const int64_t *rank,
                                       const std::string &folder = "") {
  Result<std::vector<HostTensor>> tensors = describeTensors(
      layer.executor->plan(), /*tokens=*/0, {moert::TensorRole::Weight});
  if (!tensors)
    return tensors.status();
  Result<int64_t> ownRank = findRank(*layer.executor, rank);
  if (!ownRank)
    return ownRank.status();
  Result<LayerRequest> request =
      getRequest(layer, *tensors, decoderLayer, *ownRank, folder);
  if (!request)
    return request.status();
  return Weights{std::move(*tensors), std::move(*request), *ownRank};
}

/// Binds weights that are complete.
static Status finish(moert_layer &layer, const Weights &weights,
                     DeviceMemory &memory, PrefixMap prefixes) {
  if (Status status = memory.bind(weights.tensors); !status)
    return status;
  layer.prefixes = std::make_shared<const PrefixMap>(std::move(prefixes));
  layer.arriving.reset();
  layer.loadedLayer = weights.request.layer;
  return layer.executor->setRank(weights.rank);
}

/// Loads all weights into new memory.
static Status loadNew(moert_layer &layer, Weights &weights,
                      moert::Checkpoint &checkpoint, moejit_message_fn message,
                      void *user) {
  size_t done = 0, all = 0;
  for (const HostTensor &tensor : weights.tensors)
    all += tensor.getNumBytes();
  auto tell = [&](size_t bytes) {
    done += bytes;
    tellStep(message, user, done, all);
  };
  DeviceMemory memory(layer);
  if (Status status = memory.allocate(weights.tensors); !status)
    return status;
  if (Status status = loadTensors(weights.tensors, checkpoint, weights.request,
                                  memory, tell);
      !status)
    return status;
  Result<PrefixMap> prefixes = findPrefixes(checkpoint, weights.request);
  return prefixes ? finish(layer, weights, memory, std::move(*prefixes))
                  : prefixes.status();
}

static Status load(moert_layer &layer, const std::string &path,
                   const int64_t *decoderLayer, const int64_t *rank,
                   moejit_message_fn message, void *user) {
  Result<Weights> weights =
      describeWeights(layer, decoderLayer, rank,
                      llvm::sys::fs::is_directory(path) ? path : std::string());
  if (!weights)
    return weights.status();
  Result<moert::Checkpoint> checkpoint = moert::Checkpoint::open(path);
  if (!checkpoint)
    return checkpoint.status();
  return loadNew(layer, *weights, *checkpoint, message, user);
}

// NOLINTBEGIN(readability-identifier-naming): arguments are named as in
// moejit.h, which messages cite.
moert_status *moejit_layer_load_weights(moert_layer *layer, const char *path,
                                        const int64_t *decoder_layer,
                                        const int64_t *rank,
                                        moejit_message_fn message, void *user) {
  MOEJIT_NEEDED(layer);
  MOEJIT_NEEDED(path);
  // Sets the float state in which nested (quantized) scales are multiplied and
  // added.
  moert::FloatState state;
  return answer(load(*layer, path, decoder_layer, rank, message, user),
                LayerArgument::DecoderLayer);
}
// NOLINTEND(readability-identifier-naming)

//===----------------------------------------------------------------------===//
// Weights in memory
//===----------------------------------------------------------------------===//

static constexpr char kSource[] = "the given tensors";

static Result<std::vector<moert::SafetensorsEntry>>
readTensors(moert_layer &layer, const moejit_named_tensor *tensors, int count) {
  if (count < 0)
    return moert::invalidArgument("moejit_layer_load_tensors: count is " +
                                  std::to_string(count) +
                                  "; 0 or more is accepted");
  std::vector<moert::SafetensorsEntry> entries;
  for (int i = 0; i < count; ++i) {
    const moejit_named_tensor &tensor = tensors[i];
    auto fail = [&](const std::string &what) {
      return moert::invalidArgument(
          std::string(kSource) + ": tensor '" +
          (tensor.name ? moert::printable(tensor.name) : std::to_string(i)) +
          "' " + what);
    };
    if (!tensor.name || !tensor.dtype)
      return fail("has no name or no dtype (NULL)");
    std::optional<moert::DType> dtype = moert::parseDType(tensor.dtype);
    if (!dtype)
      return fail(std::string("has the dtype '") + tensor.dtype +
                  "', which is no element type of the runtime; give a name "
                  "such as bf16 or u8");
    if (tensor.rank < 0 || tensor.rank > moert::kMaxDimensions ||
        (tensor.rank > 0 && !tensor.shape))
      return fail(
          "has rank " + std::to_string(tensor.rank) +
          (tensor.shape ? "" : " without a shape") + "; a rank from 0 to " +
          std::to_string(moert::kMaxDimensions) + " and a shape are accepted");
    moert::SafetensorsEntry entry;
    entry.name = tensor.name;
    entry.dtype = *dtype;
    entry.shape.assign(tensor.shape, tensor.shape + tensor.rank);
    int64_t elements = 1;
    for (int64_t size : entry.shape)
      if (size < 0 || __builtin_mul_overflow(elements, size, &elements))
        return fail("has a negative size, or too many elements");
    entry.bytes = size_t(elements) * size_t(moert::dtypeBits(*dtype)) / 8;
    entry.data = static_cast<const uint8_t *>(tensor.data);
    if (!entry.data && entry.bytes > 0)
      return fail("has no memory (NULL)");
    bool isHost = tensor.on_host || layer.device.architecture().empty();
    if (!isHost) {
      entry.device = &layer.device;
      if (Status status = layer.device.checkAddress(entry.data);
          entry.bytes > 0 && !status)
        return fail(status.message());
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

/// Whether a tensor is one of the layer, or of no layer that is known.
static Result<bool> selects(moert_layer &layer, llvm::StringRef name,
                            const int64_t *decoderLayer) {
  auto names = std::static_pointer_cast<const Names>(layer.names);
  if (!names || (decoderLayer && names->asked != *decoderLayer)) {
    // Names are those of the whole layer, whichever rank reads them.
    int64_t rank = layer.executor->rank().value_or(0);
    Result<Weights> weights = describeWeights(layer, decoderLayer, &rank);
    if (!weights)
      return weights.status();
    names = std::make_shared<const Names>(std::move(weights->request),
                                          decoderLayer);
    layer.names = names;
  }
  return names->index.concerns(name);
}

// NOLINTBEGIN(readability-identifier-naming): arguments are named as in
// moejit.h, which messages cite.
moert_status *moejit_layer_selects(moert_layer *layer, const char *name,
                                   const int64_t *decoder_layer,
                                   int *selected) {
  MOEJIT_NEEDED(layer);
  MOEJIT_NEEDED(name);
  MOEJIT_NEEDED(selected);
  *selected = 0;
  Result<bool> answered = selects(*layer, name, decoder_layer);
  if (!answered)
    return answer(answered.status(), LayerArgument::DecoderLayer);
  *selected = *answered;
  return nullptr;
}
// NOLINTEND(readability-identifier-naming)

moert_status *moejit_layer_owns_weights(moert_layer *layer, int *owns) {
  MOEJIT_NEEDED(layer);
  MOEJIT_NEEDED(owns);
  *owns = 0;
  Result<std::vector<HostTensor>> tensors = describeTensors(
      layer->executor->plan(), /*tokens=*/0, {moert::TensorRole::Weight});
  if (!tensors)
    return answer(tensors.status());
  *owns = ownsWeights(*layer, *tensors);
  return nullptr;
}

/// Prepared copies follow their weights, in the same memory.
static Status prepareUpdated(moert_layer &layer, bool wasPrepared) {
  return wasPrepared ? layer.executor->prepareAgain().status() : Status::ok();
}

static bool preparesInPlace(const moert_layer &layer) {
  return llvm::any_of(layer.executor->plan().tensors,
                      [](const auto &tensor) { return tensor.inPlaceOf >= 0; });
}

/// Overwrites all weights where they are.
static Status updateAll(moert_layer &layer, Weights &weights,
                        moert::Checkpoint &checkpoint) {
  Result<PrefixMap> prefixes = findPrefixes(checkpoint, weights.request);
  if (!prefixes)
    return prefixes.status();
  ScratchMemory scratch;
  if (Status status = loadTensors(weights.tensors, checkpoint, weights.request,
                                  scratch, /*read=*/nullptr);
      !status)
    return status;
  for (HostTensor &tensor : weights.tensors)
    tensor.isGiven = false;
  if (Status status = awaitReaders(layer); !status)
    return status;
  bool wasPrepared = layer.executor->isPrepared();
  DeviceMemory memory(layer);
  memory.reuse();
  if (Status status = loadTensors(weights.tensors, checkpoint, weights.request,
                                  memory, /*read=*/nullptr);
      !status)
    return status;
  // Weights that were prepared in place have other contents again.
  Status status = preparesInPlace(layer) ? memory.bind(weights.tensors)
                                         : memory.synchronize();
  if (!status)
    return status;
  layer.prefixes = std::make_shared<const PrefixMap>(std::move(*prefixes));
  return prepareUpdated(layer, wasPrepared);
}

/// Overwrites some weights where they are.
static Status updateSome(moert_layer &layer, Weights &weights,
                         moert::Checkpoint &checkpoint) {
  bool wasPrepared = layer.executor->isPrepared();
  if (wasPrepared && preparesInPlace(layer))
    return moert::invalidArgument(
        std::string(kSource) +
        ": the layer prepares weights in place, which overwrites those that "
        "are not given; give all tensors in one call");
  static const PrefixMap none;
  const auto *prefixes = static_cast<const PrefixMap *>(layer.prefixes.get());
  auto write = [&](TensorMemory &memory) {
    return loadSome(weights.tensors, checkpoint, weights.request,
                    prefixes ? *prefixes : none, memory);
  };
  ScratchMemory scratch;
  if (Status status = write(scratch); !status)
    return status;
  if (Status status = awaitReaders(layer); !status)
    return status;
  DeviceMemory memory(layer);
  memory.reuse();
  if (Status status = write(memory); !status)
    return status;
  if (Status status = memory.synchronize(); !status)
    return status;
  return prepareUpdated(layer, wasPrepared);
}

/// Takes tensors of a layer that is being loaded; `isLast`: no others follow.
static Status addArriving(moert_layer &layer,
                          const std::vector<moert::SafetensorsEntry> &entries,
                          bool isLast) {
  auto arriving = std::static_pointer_cast<Arriving>(layer.arriving);
  Status added = Status::ok();
  for (const moert::SafetensorsEntry &entry : entries)
    if (added)
      added = arriving->stream.add(entry);
  // The caller's memory may be reused after the call.
  if (Status status = arriving->memory.synchronize(); !status)
    return status;
  if (!added || !(isLast || arriving->stream.isFull()))
    return added;
  PrefixMap prefixes;
  Status status = arriving->stream.finish(prefixes);
  if (status)
    return finish(layer, arriving->weights, arriving->memory,
                  std::move(prefixes));
  bool isWaiting = !isLast && status.code() == moert::StatusCode::NotFound;
  return isWaiting ? Status::ok() : status;
}

static Status loadGiven(moert_layer &layer, const moejit_named_tensor *tensors,
                        int count, const moejit_tensor_options &options) {
  if (options.set == MOEJIT_TENSORS_NONE) {
    layer.arriving.reset();
    return Status::ok();
  }
  Result<std::vector<moert::SafetensorsEntry>> entries =
      readTensors(layer, tensors, count);
  if (!entries)
    return entries.status();
  bool isLast = options.set == MOEJIT_TENSORS_LAST;
  if (layer.arriving && (isLast || options.set == MOEJIT_TENSORS_SOME))
    return addArriving(layer, *entries, isLast);
  Result<Weights> weights =
      describeWeights(layer, options.decoder_layer, options.rank);
  if (!weights)
    return weights.status();
  bool isUpdate = ownsWeights(layer, weights->tensors);
  if (isLast && isUpdate && entries->empty())
    return Status::ok();
  if (isLast || (options.set == MOEJIT_TENSORS_SOME && !isUpdate)) {
    auto arriving =
        std::make_shared<Arriving>(layer, std::move(*weights), kSource);
    if (Status status = arriving->memory.allocate(arriving->weights.tensors);
        !status)
      return status;
    layer.arriving = std::move(arriving);
    return addArriving(layer, *entries, isLast);
  }
  Result<moert::Checkpoint> checkpoint =
      moert::Checkpoint::fromTensors(std::move(*entries), kSource);
  if (!checkpoint)
    return checkpoint.status();
  if (options.set == MOEJIT_TENSORS_SOME)
    return updateSome(layer, *weights, *checkpoint);
  layer.arriving.reset();
  return isUpdate ? updateAll(layer, *weights, *checkpoint)
                  : loadNew(layer, *weights, *checkpoint, options.message,
                            options.user);
}

/// Work on a stream that is captured would be replayed, and a graph has no
/// place for the copies of an update.
static Status awaitStream(moert_layer &layer, void *native) {
  if (layer.device.architecture().empty() || native == MOERT_LAYER_STREAM)
    return Status::ok();
  Result<std::unique_ptr<moert::Stream>> stream =
      layer.device.wrapStream(native);
  if (!stream)
    return stream.status();
  Result<bool> isCaptured = layer.device.isCapturing(**stream);
  if (!isCaptured)
    return isCaptured.status();
  if (*isCaptured)
    return moert::invalidArgument(
        std::string(kSource) +
        ": the stream is being captured into a graph; load weights before or "
        "after the capture");
  return layer.device.synchronize(**stream);
}

moert_status *moejit_layer_load_tensors(moert_layer *layer,
                                        const moejit_named_tensor *tensors,
                                        int count,
                                        const moejit_tensor_options *options) {
  MOEJIT_NEEDED(layer);
  MOEJIT_NEEDED(options);
  if (Status status = checkSize(*options, "moejit_tensor_options"); !status)
    return answer(status);
  if (count > 0)
    MOEJIT_NEEDED(tensors);
  moert::FloatState state;
  if (Status status = awaitStream(*layer, options->stream); !status)
    return answer(status);
  Status status = loadGiven(*layer, tensors, count, *options);
  if (options->is_complete)
    *options->is_complete =
        status && !layer->arriving && options->set != MOEJIT_TENSORS_NONE;
  return answer(status, LayerArgument::DecoderLayer);
}
