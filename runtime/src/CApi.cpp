//===- CApi.cpp - implements moert.h ----------------------------*- C++ -*-===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CApi.h"
#include "moert/CudaDevice.h"
#include "moert/PlanText.h"
#include "plan/ReadTensors.h"

#include <algorithm>
#include <limits>

using namespace moert;
using namespace moert::answers;

/// Maximum number of dimensions of a bound tensor.

int moert_api_version(void) { return MOERT_API_VERSION; }

//===----------------------------------------------------------------------===//
// Status
//===----------------------------------------------------------------------===//

moert_code moert_status_code(const moert_status *status) {
  if (!status)
    return MOERT_OK;
  switch (status->status.code()) {
  case StatusCode::Ok:
    return MOERT_OK;
  case StatusCode::InvalidArgument:
    return MOERT_INVALID_ARGUMENT;
  case StatusCode::NotFound:
    return MOERT_NOT_FOUND;
  case StatusCode::OutOfRange:
    return MOERT_OUT_OF_RANGE;
  case StatusCode::ResourceExhausted:
    return MOERT_RESOURCE_EXHAUSTED;
  case StatusCode::Unavailable:
    return MOERT_UNAVAILABLE;
  case StatusCode::Internal:
    return MOERT_INTERNAL;
  }
  return MOERT_INTERNAL;
}

const char *moert_status_message(const moert_status *status) {
  return status ? status->status.message().c_str() : "";
}

void moert_status_free(moert_status *status) { delete status; }

//===----------------------------------------------------------------------===//
// Packages
//===----------------------------------------------------------------------===//

static moert_status *keep(Result<Package> read, moert_package **package) {
  if (!read)
    return answer(read.status());
  *package = new moert_package{std::move(*read)};
  return nullptr;
}

moert_status *moert_package_open(const char *path, moert_package **package) {
  NEEDED(package);
  *package = nullptr;
  NEEDED(path);
  return keep(Package::open(path), package);
}

moert_status *moert_package_from_memory(const void *data, size_t size,
                                        moert_package **package) {
  NEEDED(package);
  *package = nullptr;
  NEEDED(data);
  return keep(Package::fromMemory(data, size), package);
}

void moert_package_free(moert_package *package) { delete package; }

const char *moert_package_spec(const moert_package *package) {
  return package ? package->package.spec.c_str() : "";
}

//===----------------------------------------------------------------------===//
// Devices
//===----------------------------------------------------------------------===//

moert_status *moert_device_create_cuda(int ordinal, moert_device **device) {
  NEEDED(device);
  *device = nullptr;
  Result<std::unique_ptr<Device>> made = createCudaDevice(ordinal);
  if (!made)
    return answer(made.status());
  *device = new moert_device();
  (*device)->device = std::move(*made);
  return nullptr;
}

void moert_device_free(moert_device *device) {
  if (device)
    device->memory.clear();
  delete device;
}

const char *moert_device_name(const moert_device *device) {
  return device ? device->device->name().c_str() : "";
}

moert_status *moert_device_allocate(moert_device *device, size_t bytes,
                                    void **memory) {
  NEEDED(memory);
  *memory = nullptr;
  NEEDED(device);
  if (bytes == 0)
    return nullptr;
  Result<std::unique_ptr<Buffer>> buffer =
      device->device->allocate(bytes, kWorkspaceAlignment);
  if (!buffer)
    return answer(buffer.status());
  *memory = (*buffer)->data();
  std::lock_guard<std::mutex> lock(device->mutex);
  device->memory[*memory] = std::move(*buffer);
  return nullptr;
}

void moert_device_release(moert_device *device, void *memory) {
  if (!device)
    return;
  std::unique_ptr<Buffer> released;
  std::lock_guard<std::mutex> lock(device->mutex);
  auto found = device->memory.find(memory);
  if (found == device->memory.end())
    return;
  released = std::move(found->second);
  device->memory.erase(found);
}

moert_status *moert_device_copy_in(moert_device *device, void *to,
                                   const void *from, size_t bytes) {
  NEEDED(device);
  if (bytes == 0)
    return nullptr;
  NEEDED(to);
  NEEDED(from);
  return answer(device->device->copyIn(to, from, bytes));
}

moert_status *moert_device_copy_out(moert_device *device, void *to,
                                    const void *from, size_t bytes) {
  NEEDED(device);
  if (bytes == 0)
    return nullptr;
  NEEDED(to);
  NEEDED(from);
  return answer(device->device->copyOut(to, from, bytes));
}

moert_status *moert_device_synchronize(moert_device *device, void *stream) {
  NEEDED(device);
  if (device->device->checkTarget("cpu"))
    return nullptr;
  Result<std::unique_ptr<Stream>> wrapped = device->device->wrapStream(stream);
  if (!wrapped)
    return answer(wrapped.status());
  return answer(device->device->synchronize(**wrapped));
}

moert_status *moert_device_retain(moert_device *device, void *stream,
                                  void *object, moert_release_fn release) {
  NEEDED(release);
  std::shared_ptr<const void> owned(object, release);
  NEEDED(device);
  Result<std::unique_ptr<Stream>> wrapped = device->device->wrapStream(stream);
  if (!wrapped)
    return answer(wrapped.status());
  return answer(device->device->retain(**wrapped, std::move(owned)));
}

//===----------------------------------------------------------------------===//
// Layers
//===----------------------------------------------------------------------===//

int64_t moert_layer::getGroupTokens(int64_t tokens) const {
  int64_t ofGroup;
  if (__builtin_mul_overflow(tokens, executor->plan().mesh.tokenRanks(),
                             &ofGroup))
    return tokens < 0 ? -1 : std::numeric_limits<int64_t>::max();
  return ofGroup;
}

moert_layer::moert_layer(Device &device, std::unique_ptr<Executor> made,
                         std::string spec, std::string modelType)
    : device(device), executor(std::move(made)), spec(std::move(spec)),
      modelType(std::move(modelType)), planText(printPlan(executor->plan())) {
  const Plan &plan = executor->plan();
  std::vector<bool> isReadByPrepare = findReadByPrepare(plan);
  std::vector<bool> isRead = findMemoryReadByRuns(plan);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    const TensorDecl &tensor = plan.tensors[i];
    bool isPrepared = tensor.role == TensorRole::Prepared;
    if (tensor.role == TensorRole::Workspace || tensor.inPlaceOf >= 0)
      continue;
    moert_tensor_info info = {};
    info.name = tensor.name.c_str();
    info.dtype = dtypeName(tensor.dtype);
    info.role = tensor.role == TensorRole::Input    ? MOERT_INPUT
                : tensor.role == TensorRole::Weight ? MOERT_WEIGHT
                : isPrepared                        ? MOERT_PREPARED
                                                    : MOERT_OUTPUT;
    info.rank = static_cast<int>(tensor.shape.size());
    info.depends_on_tokens =
        !tensor.shape.empty() && tensor.shape[0].dependsOnTokens();
    info.alignment =
        isPrepared ? int64_t(kWorkspaceAlignment)
                   : std::max(tensor.alignment, dtypeAlignment(tensor.dtype));
    info.strided = tensor.strided;
    info.prepared = !isPrepared && isReadByPrepare[i];
    info.read_by_runs = isRead[i];
    std::vector<int64_t> &shape = shapes.emplace_back();
    for (const Expr &size : tensor.shape) {
      // Cannot fail: the plan's verifier has evaluated it.
      Result<int64_t> most = size.maxUpTo(plan.maxTokens);
      shape.push_back(most ? *most : 0);
    }
    info.shape = shape.data();
    (isPrepared ? preparedInfos : infos).push_back(info);
  }
}

moert_status *moert_layer_create(const moert_package *package,
                                 moert_device *device,
                                 const moert_layer_options *options,
                                 moert_layer **layer) {
  NEEDED(layer);
  *layer = nullptr;
  NEEDED(package);
  NEEDED(device);
  ExecutorOptions executorOptions;
  if (options) {
    if (options->size != sizeof(moert_layer_options))
      return answer(invalidArgument(
          "moert_layer_create: options.size is " +
          std::to_string(options->size) + "; sizeof(moert_layer_options) is " +
          std::to_string(sizeof(moert_layer_options)) +
          ", so compile against the header of this library"));
    executorOptions.poison = options->poison != 0;
  }
  Result<std::unique_ptr<Executor>> executor =
      createExecutor(package->package, *device->device, executorOptions);
  if (!executor)
    return answer(executor.status());
  *layer = new moert_layer(*device->device, std::move(*executor),
                           package->package.spec, package->package.modelType);
  return nullptr;
}

moert_status *moert_layer_clone(const moert_layer *layer, moert_layer **clone) {
  NEEDED(clone);
  *clone = nullptr;
  NEEDED(layer);
  Result<std::unique_ptr<Executor>> executor = layer->executor->clone();
  if (!executor)
    return answer(executor.status());
  *clone = new moert_layer(layer->device, std::move(*executor), layer->spec,
                           layer->modelType);
  (*clone)->loaded = layer->loaded;
  (*clone)->prefixes = layer->prefixes;
  (*clone)->decoderLayer = layer->decoderLayer;
  (*clone)->loadedLayer = layer->loadedLayer;
  (*clone)->description = layer->description;
  if (layer->watch)
    (*clone)->watch = layer->watch->clone(**clone);
  return nullptr;
}

void moert_layer_free(moert_layer *layer) { delete layer; }

int64_t moert_layer_max_tokens(const moert_layer *layer) {
  if (!layer)
    return 0;
  const Plan &plan = layer->executor->plan();
  return plan.maxTokens / plan.mesh.tokenRanks();
}

const char *moert_layer_plan(const moert_layer *layer) {
  return layer ? layer->planText.c_str() : "";
}

const char *moert_layer_spec(const moert_layer *layer) {
  return layer ? layer->spec.c_str() : "";
}

int moert_layer_num_tensors(const moert_layer *layer) {
  return layer ? static_cast<int>(layer->infos.size()) : 0;
}

const moert_tensor_info *moert_layer_tensor(const moert_layer *layer,
                                            int index) {
  if (!layer || index < 0 || index >= moert_layer_num_tensors(layer))
    return nullptr;
  return &layer->infos[static_cast<size_t>(index)];
}

int moert_layer_num_prepared(const moert_layer *layer) {
  return layer ? static_cast<int>(layer->preparedInfos.size()) : 0;
}

const moert_tensor_info *moert_layer_prepared(const moert_layer *layer,
                                              int index) {
  if (!layer || index < 0 || index >= moert_layer_num_prepared(layer))
    return nullptr;
  return &layer->preparedInfos[static_cast<size_t>(index)];
}

Result<TensorView> readTensor(const moert_tensor &tensor) {
  std::string context = std::string("bind '") + tensor.name + "'";
  std::optional<DType> dtype = parseDType(tensor.dtype);
  if (!dtype)
    return invalidArgument(context + ": dtype '" + tensor.dtype +
                           "' is not an element type of the runtime; give a "
                           "name such as bf16 or i32");
  if (tensor.rank < 0 || tensor.rank > moert::kMaxDimensions ||
      (tensor.rank > 0 && !tensor.shape))
    return invalidArgument(
        context + ": rank " + std::to_string(tensor.rank) +
        (tensor.shape ? "" : " without a shape") + "; a rank from 0 to " +
        std::to_string(moert::kMaxDimensions) + " and a shape are accepted");
  TensorView view;
  view.data = tensor.data;
  view.dtype = *dtype;
  view.shape.assign(tensor.shape, tensor.shape + tensor.rank);
  if (tensor.strides)
    view.strides.assign(tensor.strides, tensor.strides + tensor.rank);
  return view;
}

/// Waits until nothing reads the weights of the layer.
static void settle(moert_layer &layer) {
  if (layer.watch)
    layer.watch->settle();
}

/// Success if weights need not stay bound.
static Status checkKept(const moert_layer &layer) {
  return layer.watch ? layer.watch->checkKept() : Status::ok();
}

/// What was found out about the layer's runs, once they are complete.
static Status reportRuns(moert_layer &layer, const Status &status) {
  return status && layer.watch ? layer.watch->report() : status;
}

static bool isWeight(const moert_layer &layer, const char *name) {
  const Plan &plan = layer.executor->plan();
  int64_t index = plan.findTensor(name);
  return index >= 0 &&
         plan.tensors[static_cast<size_t>(index)].role == TensorRole::Weight;
}

moert_status *moert_layer_bind(moert_layer *layer, const moert_tensor *tensor) {
  NEEDED(layer);
  NEEDED(tensor);
  NEEDED(tensor->name);
  NEEDED(tensor->dtype);
  Result<TensorView> view = readTensor(*tensor);
  if (!view)
    return answer(view.status());
  if ((layer->watch || layer->loadedLayer) && isWeight(*layer, tensor->name)) {
    if (layer->watch)
      settle(*layer);
    layer->loadedLayer.reset();
  }
  return answer(layer->executor->bind(tensor->name, *view));
}

static moert_status *answerWith(const Result<PrepareReport> &prepared,
                                moert_prepare_report *report) {
  if (!prepared)
    return answer(prepared.status());
  if (report)
    *report = {prepared->bytes, prepared->inPlaceBytes, prepared->seconds};
  return nullptr;
}

moert_status *moert_layer_prepare_weights(moert_layer *layer,
                                          moert_prepare_report *report) {
  NEEDED(layer);
  settle(*layer);
  return answerWith(layer->executor->prepareWeights(), report);
}

moert_status *moert_layer_prepare_again(moert_layer *layer,
                                        moert_prepare_report *report) {
  NEEDED(layer);
  settle(*layer);
  return answerWith(layer->executor->prepareAgain(), report);
}

moert_status *moert_layer_release_weights(moert_layer *layer) {
  NEEDED(layer);
  if (Status status = checkKept(*layer); !status)
    return answer(status);
  Status status = layer->executor->releaseWeights();
  if (status)
    for (const moert_tensor_info &info : layer->infos)
      if (info.role == MOERT_WEIGHT && !info.read_by_runs)
        layer->loaded.erase(info.name);
  return answer(std::move(status));
}

/// Reads the options of `call`, which may be NULL.
static Result<PreparedFileOptions>
readOptions(const char *call, const moert_prepared_options *options) {
  PreparedFileOptions read;
  if (!options)
    return read;
  if (options->size != sizeof(moert_prepared_options))
    return invalidArgument(std::string(call) + ": options.size is " +
                           std::to_string(options->size) +
                           "; sizeof(moert_prepared_options) is " +
                           std::to_string(sizeof(moert_prepared_options)) +
                           ", so compile against the header of this library");
  if (options->rank)
    read.rank = *options->rank;
  read.verify = options->no_digests == 0;
  if (options->step)
    read.step = [step = options->step, user = options->step_user](
                    uint64_t done, uint64_t all) { step(user, done, all); };
  return read;
}

moert_status *
moert_layer_write_prepared(moert_layer *layer, const char *path,
                           const moert_prepared_options *options) {
  NEEDED(layer);
  NEEDED(path);
  Result<PreparedFileOptions> read = readOptions(__func__, options);
  if (!read)
    return answer(read.status());
  read->decoderLayer = layer->loadedLayer;
  return answer(layer->executor->writePrepared(path, *read).status());
}

moert_status *moert_layer_bind_prepared(moert_layer *layer, const char *path,
                                        const moert_prepared_options *options) {
  NEEDED(layer);
  NEEDED(path);
  Result<PreparedFileOptions> read = readOptions(__func__, options);
  if (!read)
    return answer(read.status());
  if (options && options->same_decoder_layer)
    read->decoderLayer = layer->decoderLayer;
  if (Status status = checkKept(*layer); !status)
    return answer(status);
  Status status = layer->executor->bindPrepared(path, *read).status();
  if (status) {
    layer->loaded.clear();
    layer->loadedLayer = read->decoderLayer;
  }
  return answer(std::move(status));
}

moert_status *moert_layer_workspace_bytes(const moert_layer *layer,
                                          int64_t tokens, int64_t *bytes) {
  NEEDED(layer);
  NEEDED(bytes);
  *bytes = 0;
  Result<int64_t> needed =
      layer->executor->workspaceBytes(layer->getGroupTokens(tokens));
  if (!needed)
    return answer(needed.status());
  *bytes = *needed;
  return nullptr;
}

moert_status *moert_workspace_create(moert_device *device, int64_t bytes,
                                     moert_workspace **workspace) {
  NEEDED(workspace);
  *workspace = nullptr;
  NEEDED(device);
  Result<std::shared_ptr<SharedWorkspace>> made =
      SharedWorkspace::create(*device->device, bytes);
  if (!made)
    return answer(made.status());
  *workspace = new moert_workspace{std::move(*made)};
  return nullptr;
}

void moert_workspace_free(moert_workspace *workspace) { delete workspace; }

moert_status *moert_layer_use_workspace(moert_layer *layer,
                                        const moert_workspace *workspace,
                                        int slot) {
  NEEDED(layer);
  return answer(layer->executor->useWorkspace(
      workspace ? workspace->workspace : nullptr, slot));
}

// NOLINTBEGIN(readability-identifier-naming): arguments are named as in
// moert.h, which messages cite.
moert_status *moert_layer_run(moert_layer *layer, int64_t tokens, void *stream,
                              void *workspace, int64_t workspace_bytes) {
  NEEDED(layer);
  if (stream != layer->native) {
    std::unique_ptr<Stream> wrapped;
    if (stream != MOERT_LAYER_STREAM) {
      Result<std::unique_ptr<Stream>> made = layer->device.wrapStream(stream);
      if (!made)
        return answer(made.status());
      wrapped = std::move(*made);
    }
    layer->stream = std::move(wrapped);
    layer->native = stream;
  }
  if (layer->watch)
    if (Status status = layer->watch->beforeRun(layer->stream.get()); !status)
      return answer(status);
  Executor &executor = *layer->executor;
  tokens = layer->getGroupTokens(tokens);
  Status status = workspace ? executor.run(tokens, {workspace, workspace_bytes},
                                           layer->stream.get())
                            : executor.run(tokens, layer->stream.get());
  if (status && executor.isCaptured() && layer->stream &&
      !layer->loaded.empty())
    status = layer->device.retain(
        *layer->stream,
        std::make_shared<const decltype(layer->loaded)>(layer->loaded));
  if (status && layer->watch)
    layer->watch->afterRun(tokens, layer->stream.get());
  return answer(std::move(status));
}
// NOLINTEND(readability-identifier-naming)

int moert_layer_is_captured(const moert_layer *layer) {
  return layer && layer->executor->isCaptured();
}

moert_status *moert_layer_synchronize(moert_layer *layer) {
  NEEDED(layer);
  return answer(reportRuns(*layer, layer->executor->synchronize()));
}

moert_status *moert_layer_synchronize_stream(moert_layer *layer, void *stream) {
  NEEDED(layer);
  if (stream == MOERT_LAYER_STREAM || layer->device.checkTarget("cpu"))
    return answer(reportRuns(*layer, layer->executor->synchronize()));
  Result<std::unique_ptr<Stream>> wrapped = layer->device.wrapStream(stream);
  if (!wrapped)
    return answer(wrapped.status());
  return answer(reportRuns(*layer, layer->executor->synchronize(**wrapped)));
}
