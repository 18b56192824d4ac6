//===- Layer.cpp - the Python type of layers ------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Layer.h"
#include "Errors.h"
#include "moejit/moejit.h"

#include <cstring>

using namespace moec::python;

static PyTypeObject *layerType = nullptr;

//===----------------------------------------------------------------------===//
// State
//===----------------------------------------------------------------------===//

LayerState::LayerState(moert_layer *layer, DeviceObject *device)
    : layer(layer), device(Ref::share(reinterpret_cast<PyObject *>(device))) {
  int numTensors = moert_layer_num_tensors(layer);
  for (int i = 0; i < numTensors + moert_layer_num_prepared(layer); ++i) {
    const moert_tensor_info &info =
        i < numTensors ? *moert_layer_tensor(layer, i)
                       : *moert_layer_prepared(layer, i - numTensors);
    Operand &operand = operands.emplace_back();
    operand.text = info.name;
    operand.name = Ref::take(PyUnicode_InternFromString(info.name));
    operand.dtype = info.dtype;
    operand.role = info.role;
    operand.shape.assign(info.shape, info.shape + info.rank);
    operand.dependsOnTokens = info.depends_on_tokens != 0;
    operand.alignment = info.alignment;
    operand.isStrided = info.strided != 0;
    operand.isPrepared = info.prepared != 0;
    if (operand.isPrepared)
      preparedWeights.push_back(i);
    operand.isReadByRuns = info.read_by_runs != 0;
    if (info.role == MOERT_WEIGHT || info.role == MOERT_PREPARED)
      continue;
    auto argument = int(arguments.size());
    arguments.push_back(i);
    if (info.role == MOERT_OUTPUT) {
      if (numOutputs == 0 || operand.text == "output")
        output = argument;
      ++numOutputs;
    } else if (operand.text == "hidden_states" && info.rank == 2) {
      hiddenStates = argument;
    } else if (operand.text == "num_valid_tokens") {
      validTokens = argument;
    }
  }
  weights.resize(operands.size());
  versions.resize(operands.size());
}

LayerState::~LayerState() { moert_layer_free(layer); }

int LayerState::find(const char *name) const {
  for (size_t i = 0; i < operands.size(); ++i)
    if (operands[i].text == name)
      return int(i);
  return -1;
}

Locked::Locked(LayerState &state) : state(state) {
  if (state.mutex.try_lock())
    return;
  Unlocked unlocked;
  state.mutex.lock();
}

bool Locked::isOpen() const {
  return state.layer ||
         fail(Kind::Value, "the layer is closed; compile or clone another");
}

PyObject *moec::python::makeLayer(PyObject *type, moert_layer *layer,
                                  DeviceObject *device) {
  if (!PyType_Check(type) ||
      !PyType_IsSubtype(reinterpret_cast<PyTypeObject *>(type), layerType)) {
    moert_layer_free(layer);
    fail(Kind::Type, "a class below moec._core.Layer expected, " +
                         nameType(type) + " found");
    return nullptr;
  }
  auto state = std::make_unique<LayerState>(layer, device);
  if (state->arguments.size() > kMostArguments) {
    fail(Kind::Value,
         "the layer has " + std::to_string(state->arguments.size()) +
             " inputs and outputs, more than " +
             std::to_string(kMostArguments) + "; run it through moert.h");
    return nullptr;
  }
  auto *self = allocate<LayerObject>(reinterpret_cast<PyTypeObject *>(type));
  if (self)
    self->state = state.release();
  return reinterpret_cast<PyObject *>(self);
}

static void freeLayer(PyObject *self) {
  delete reinterpret_cast<LayerObject *>(self)->state;
  deallocate(self);
}

//===----------------------------------------------------------------------===//
// Binding
//===----------------------------------------------------------------------===//

/// Hint for a wrong dtype.
static const char *getRemedy(const Operand &operand, const char *found) {
  if (operand.dtype == "i32" && strcmp(found, "i64") == 0)
    return "convert it, as with .to(torch.int32)";
  if (operand.dtype == "i8" && strcmp(found, "u8") == 0)
    return "view it as int8 if these are packed bytes";
  if (operand.role == MOERT_WEIGHT)
    return "convert the tensor, or compile the layer for its dtype";
  return "convert the tensor";
}

/// Whether the operand holds ids of 8 bits, which have no sign.
static bool isByteIds(const Operand &operand) {
  return operand.dtype == "i8" && operand.text == "topk_ids";
}

/// Whether bytes are accepted for 8-bit elements that few frameworks have, or
/// booleans for bytes that are tested against 0.
static bool areBytesOf(const Operand &operand, const char *found) {
  const std::string &dtype = operand.dtype;
  return (strcmp(found, "u8") == 0 &&
          (dtype.rfind("f8", 0) == 0 || isByteIds(operand))) ||
         (strcmp(found, "bool") == 0 && dtype == "i8" && !isByteIds(operand));
}

bool moec::python::checkOperand(const LayerState &state, int operand,
                                const Tensor &tensor, const char *argument) {
  const Operand &expected = state.operands[size_t(operand)];
  const DeviceObject &device = state.getDevice();
  if (expected.dtype != tensor.dtype() && !areBytesOf(expected, tensor.dtype()))
    return fail(Kind::Type, std::string(argument) + ": dtype " +
                                (isByteIds(expected) ? "u8" : expected.dtype) +
                                " expected, " + tensor.dtype() + " found; " +
                                getRemedy(expected, tensor.dtype()));
  if (!isMemoryOf(device, tensor.get().device))
    return fail(Kind::Value, std::string(argument) + ": a tensor on " +
                                 showDevice(device.where) +
                                 " expected, one on " + tensor.showDevice() +
                                 " found; copy it to the device of the layer");
  return true;
}

moert_tensor moec::python::describeTensor(const LayerState &state, int operand,
                                          const Tensor &tensor) {
  const Operand &expected = state.operands[size_t(operand)];
  moert_tensor described = {};
  described.name = expected.text.c_str();
  described.dtype = expected.dtype.c_str();
  described.data = tensor.data();
  described.rank = tensor.get().ndim;
  described.shape = tensor.get().shape;
  described.strides = tensor.get().strides;
  return described;
}

bool moec::python::bindOperand(LayerState &state, int operand,
                               const Tensor &tensor, const char *argument) {
  moert_tensor described = describeTensor(state, operand, tensor);
  return check(moert_layer_bind(state.layer, &described), argument);
}

/// A reference to the current memory of a tensor. A PyTorch tensor may get
/// other storage later (`parameter.data = ...`), so a reference to the tensor
/// is not enough.
static Ref shareMemory(PyObject *tensor) {
  if (findTensorType(tensor)->framework != Framework::Torch)
    return Ref::share(tensor);
  return Ref::take(PyObject_CallMethod(tensor, "detach", nullptr));
}

/// `what`: the word for tensors of the role in messages.
static int findOperand(const LayerState &state, const char *name,
                       moert_role role, const char *what) {
  int operand = state.find(name);
  if (operand >= 0 && state.operands[size_t(operand)].role == role)
    return operand;
  std::string names;
  std::vector<std::string> accepted;
  for (const Operand &each : state.operands)
    if (each.role == role) {
      names += (names.empty() ? "" : ", ") + each.text;
      accepted.push_back(each.text);
    }
  fail(Kind::Value, std::string(name) + ": the layer has no such " + what +
                        "; it has " + (names.empty() ? "none" : names) +
                        suggest(name, accepted));
  return -1;
}

int moec::python::findWeight(const LayerState &state, const char *name) {
  return findOperand(state, name, MOERT_WEIGHT, "weight");
}

std::shared_ptr<Weight> moec::python::readWeight(LayerState &state, int operand,
                                                 PyObject *object,
                                                 bool isWritten,
                                                 void *&stream) {
  const char *name = state.operands[size_t(operand)].text.c_str();
  Asking asking;
  asking.argument = name;
  asking.keep = true;
  asking.write = isWritten;
  if (!state.isOnHost() &&
      !findCurrentStream(object, state.getDevice().where.device_id,
                         asking.stream))
    return nullptr;
  Ref shared = shareMemory(object);
  if (!shared) {
    failBecause(name, "the tensor cannot be read");
    return nullptr;
  }
  auto tensor = std::make_shared<Weight>();
  if (!tensor->read(shared.get(), asking) ||
      !checkOperand(state, operand, *tensor, name))
    return nullptr;
  tensor->watch(shared.get());
  stream = asking.stream;
  return tensor;
}

/// Binds a tensor to an operand permanently.
static PyObject *bindFor(LayerState &state, int operand, PyObject *object,
                         bool isWritten) {
  const char *name = state.operands[size_t(operand)].text.c_str();
  void *stream = nullptr;
  std::shared_ptr<Weight> tensor =
      readWeight(state, operand, object, isWritten, stream);
  if (!tensor)
    return nullptr;
  {
    Locked locked(state);
    if (!locked.isOpen() || !bindOperand(state, operand, *tensor, name))
      return nullptr;
    state.isPrepared = false;
    state.latestStream = stream;
    std::swap(state.weights[size_t(operand)], tensor);
  }
  Py_RETURN_NONE;
}

static PyObject *bind(PyObject *self, PyObject *const *arguments,
                      Py_ssize_t count) {
  LayerState &state = getState(self);
  if (!checkCount("bind", count, 2, 2))
    return nullptr;
  const char *name = getText(arguments[0], "name");
  int operand = name ? findWeight(state, name) : -1;
  return operand < 0 ? nullptr
                     : bindFor(state, operand, arguments[1],
                               /*isWritten=*/false);
}

static PyObject *bindMemory(PyObject *self, PyObject *const *arguments,
                            Py_ssize_t count) {
  LayerState &state = getState(self);
  if (!checkCount("bind_memory", count, 2, 2))
    return nullptr;
  const char *name = getText(arguments[0], "name");
  int operand =
      name ? findOperand(state, name, MOERT_PREPARED, "prepared tensor") : -1;
  return operand < 0 ? nullptr
                     : bindFor(state, operand, arguments[1],
                               /*isWritten=*/true);
}

namespace {

/// An optional int.
class GivenInt {
public:
  bool read(PyObject *object, const char *what) {
    isGiven = object != Py_None;
    return !isGiven || getInt(object, what, 0, INT32_MAX, value);
  }
  const int64_t *get() const { return isGiven ? &value : nullptr; }

private:
  int64_t value = 0;
  bool isGiven = false;
};

} // namespace

/// Calls `call`, which replaces all weights of the layer, and releases the
/// tensors bound before; `call` may clear `areReplaced` to keep them.
/// `arePrepared`: the new weights are in prepared form.
template <typename Call>
static PyObject *takeWeights(LayerState &state, bool arePrepared, Call call,
                             const int &areReplaced = 1) {
  std::vector<std::shared_ptr<Weight>> released(state.operands.size());
  Locked locked(state);
  if (!locked.isOpen())
    return nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = call();
  }
  if (!arePrepared)
    state.isPrepared = false;
  if (!check(status))
    return nullptr;
  if (!areReplaced)
    Py_RETURN_NONE;
  state.isPrepared = arePrepared;
  // The layer may still prepare weights in memory given to it.
  for (size_t i = 0; i < released.size(); ++i)
    if (arePrepared || state.operands[i].role != MOERT_PREPARED)
      std::swap(state.weights[i], released[i]);
  Py_RETURN_NONE;
}

static PyObject *load(PyObject *self, PyObject *const *arguments,
                      Py_ssize_t count) {
  LayerState &state = getState(self);
  const char *path = checkCount("load", count, 4, 4)
                         ? getText(arguments[0], "folder")
                         : nullptr;
  GivenInt decoderLayer, rank;
  if (!path || !decoderLayer.read(arguments[1], "layer") ||
      !rank.read(arguments[2], "rank"))
    return nullptr;
  return takeWeights(state, /*arePrepared=*/false, [&] {
    return moejit_layer_load_weights(state.layer, path, decoderLayer.get(),
                                     rank.get(), tell, arguments[3]);
  });
}

/// Tensors of a caller that weights are loaded from, and their names.
class GivenTensors {
public:
  /// Reads a list of pairs (name, tensor).
  bool read(const LayerState &state, PyObject *list);

  std::vector<moejit_named_tensor> described;
  /// The stream that wrote the tensors.
  void *stream = nullptr;

private:
  bool add(const LayerState &state, const char *name, PyObject *object);

  std::vector<std::unique_ptr<Tensor>> tensors;
};

bool GivenTensors::read(const LayerState &state, PyObject *list) {
  stream = state.isOnHost() ? MOERT_LAYER_STREAM : state.latestStream;
  Py_ssize_t count = PyList_Check(list) ? PyList_Size(list) : -1;
  if (count < 0)
    return fail(Kind::Type, "tensors: a list of (name, tensor) expected, " +
                                nameType(list) + " found");
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject *pair = PyList_GetItem(list, i);
    if (!pair || !PyTuple_Check(pair) || PyTuple_Size(pair) != 2)
      return fail(Kind::Type, "tensors: pairs (name, tensor) expected, " +
                                  (pair ? nameType(pair) : "nothing") +
                                  " found");
    const char *name = getText(PyTuple_GetItem(pair, 0), "name");
    if (!name || !add(state, name, PyTuple_GetItem(pair, 1)))
      return false;
  }
  return true;
}

bool GivenTensors::add(const LayerState &state, const char *name,
                       PyObject *object) {
  Asking asking;
  asking.argument = name;
  asking.keep = true;
  const DeviceObject &device = state.getDevice();
  if (!state.isOnHost() &&
      !findCurrentStream(object, device.where.device_id, asking.stream))
    return false;
  auto tensor = std::make_unique<Tensor>();
  if (!tensor->read(object, asking))
    return false;
  DLDevice where = tensor->get().device;
  bool isHost = where.device_type == kDLCPU || where.device_type == kDLCUDAHost;
  if (!isHost && (state.isOnHost() || !isMemoryOf(device, where)))
    return fail(
        Kind::Value,
        std::string(name) + ": a tensor on the CPU" +
            (state.isOnHost() ? "" : " or " + showDevice(device.where)) +
            " expected, one on " + tensor->showDevice() +
            " found; copy it to one of these");
  if (!tensor->isContiguous())
    return fail(Kind::Value, std::string(name) +
                                 ": a contiguous tensor expected; make a "
                                 "contiguous copy of it");
  if (!isHost && asking.stream)
    stream = asking.stream;
  moejit_named_tensor one = {};
  one.name = name;
  one.dtype = tensor->dtype();
  one.data = tensor->data();
  one.rank = tensor->get().ndim;
  one.shape = tensor->get().shape;
  one.on_host = int(isHost);
  described.push_back(one);
  tensors.push_back(std::move(tensor));
  return true;
}

/// Arguments: pairs of names and tensors, layer, rank, moejit_tensor_set,
/// message.
static PyObject *loadTensors(PyObject *self, PyObject *const *arguments,
                             Py_ssize_t count) {
  LayerState &state = getState(self);
  GivenInt decoderLayer, rank;
  int64_t set = 0;
  if (!checkCount("load_tensors", count, 5, 5) ||
      !decoderLayer.read(arguments[1], "layer") ||
      !rank.read(arguments[2], "rank") ||
      !getInt(arguments[3], "set", MOEJIT_TENSORS_ALL, MOEJIT_TENSORS_NONE,
              set))
    return nullptr;
  GivenTensors given;
  if (!given.read(state, arguments[0]))
    return nullptr;
  int isComplete = 0;
  moejit_tensor_options options = {};
  options.size = sizeof(options);
  options.set = static_cast<moejit_tensor_set>(set);
  options.decoder_layer = decoderLayer.get();
  options.rank = rank.get();
  options.stream = given.stream;
  options.message = tell;
  options.user = arguments[4];
  options.is_complete = &isComplete;
  return takeWeights(
      state, /*arePrepared=*/false,
      [&] {
        return moejit_layer_load_tensors(state.layer, given.described.data(),
                                         int(given.described.size()), &options);
      },
      isComplete);
}

static PyObject *ownsWeights(PyObject *self, PyObject *) {
  LayerState &state = getState(self);
  int owns = 0;
  Locked locked(state);
  if (!locked.isOpen() || !check(moejit_layer_owns_weights(state.layer, &owns)))
    return nullptr;
  return PyBool_FromLong(owns);
}

/// Arguments: name, layer.
static PyObject *selects(PyObject *self, PyObject *const *arguments,
                         Py_ssize_t count) {
  LayerState &state = getState(self);
  const char *name = checkCount("selects", count, 2, 2)
                         ? getText(arguments[0], "name")
                         : nullptr;
  GivenInt decoderLayer;
  if (!name || !decoderLayer.read(arguments[1], "layer"))
    return nullptr;
  int selected = 0;
  Locked locked(state);
  if (!locked.isOpen() ||
      !check(moejit_layer_selects(state.layer, name, decoderLayer.get(),
                                  &selected)))
    return nullptr;
  return PyBool_FromLong(selected);
}

static void tellBytes(void *user, uint64_t done, uint64_t all) {
  std::string text = std::to_string(done) + "/" + std::to_string(all);
  tell(user, MOEJIT_STEP, text.c_str());
}

/// Reads the arguments (path, rank or None, verify, message) of both functions
/// below.
static const char *readPreparedArguments(const char *call,
                                         PyObject *const *arguments,
                                         Py_ssize_t count, GivenInt &rank,
                                         moert_prepared_options &options) {
  const char *path =
      checkCount(call, count, 4, 4) ? getText(arguments[0], "path") : nullptr;
  if (!path || !rank.read(arguments[1], "rank"))
    return nullptr;
  int verify = PyObject_IsTrue(arguments[2]);
  if (verify < 0)
    return nullptr;
  options.size = sizeof(options);
  options.rank = rank.get();
  options.no_digests = verify == 0;
  options.step = tellBytes;
  options.step_user = arguments[3];
  return path;
}

static PyObject *writePrepared(PyObject *self, PyObject *const *arguments,
                               Py_ssize_t count) {
  LayerState &state = getState(self);
  GivenInt rank;
  moert_prepared_options options = {};
  const char *path =
      readPreparedArguments("write_prepared", arguments, count, rank, options);
  if (!path)
    return nullptr;
  Locked locked(state);
  if (!locked.isOpen() || !prepare(state, state.latestStream))
    return nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moert_layer_write_prepared(state.layer, path, &options);
  }
  if (!check(status))
    return nullptr;
  Py_RETURN_NONE;
}

static PyObject *bindPrepared(PyObject *self, PyObject *const *arguments,
                              Py_ssize_t count) {
  LayerState &state = getState(self);
  GivenInt rank;
  moert_prepared_options options = {};
  const char *path =
      readPreparedArguments("bind_prepared", arguments, count, rank, options);
  if (!path)
    return nullptr;
  return takeWeights(state, /*arePrepared=*/true, [&] {
    return moert_layer_bind_prepared(state.layer, path, &options);
  });
}

static PyObject *prepareWeights(PyObject *self, PyObject *given) {
  LayerState &state = getState(self);
  int again = PyObject_IsTrue(given);
  if (again < 0)
    return nullptr;
  Locked locked(state);
  if (!locked.isOpen() || !prepare(state, state.latestStream, again != 0))
    return nullptr;
  // Does no new work; returns the report of the last preparation.
  moert_prepare_report report = {};
  if (!check(moert_layer_prepare_weights(state.layer, &report)))
    return nullptr;
  return Py_BuildValue("(LLd)", static_cast<long long>(report.bytes),
                       static_cast<long long>(report.in_place_bytes),
                       report.seconds);
}

static PyObject *releaseWeights(PyObject *self, PyObject *) {
  LayerState &state = getState(self);
  std::vector<std::shared_ptr<Weight>> released(state.operands.size());
  Ref names = Ref::take(PyList_New(0));
  if (!names)
    return nullptr;
  Locked locked(state);
  if (!locked.isOpen() || !prepare(state, state.latestStream) ||
      !check(moert_layer_release_weights(state.layer)))
    return nullptr;
  for (size_t i = 0; i < released.size(); ++i) {
    const Operand &operand = state.operands[i];
    if (operand.role != MOERT_WEIGHT || operand.isReadByRuns)
      continue;
    std::swap(state.weights[i], released[i]);
    if (PyList_Append(names.get(), operand.name.get()) < 0)
      return nullptr;
  }
  return names.release();
}

//===----------------------------------------------------------------------===//
// Workspace
//===----------------------------------------------------------------------===//

static PyObject *getWorkspaceBytes(PyObject *self, PyObject *tokens) {
  LayerState &state = getState(self);
  Locked locked(state);
  int64_t number = 0, bytes = 0;
  if (!locked.isOpen() || !getInt(tokens, "tokens", 0, INT64_MAX, number) ||
      !check(moert_layer_workspace_bytes(state.layer, number, &bytes),
             "tokens"))
    return nullptr;
  return PyLong_FromLongLong(bytes);
}

static PyObject *useWorkspace(PyObject *self, PyObject *memory) {
  LayerState &state = getState(self);
  constexpr int64_t kAlignment = 256;
  std::shared_ptr<Tensor> tensor;
  if (memory != Py_None) {
    tensor = std::make_shared<Tensor>();
    Asking asking;
    asking.argument = "workspace";
    asking.keep = asking.write = true;
    Ref shared = shareMemory(memory);
    if (!shared) {
      failBecause(asking.argument, "the tensor cannot be read");
      return nullptr;
    }
    if (!tensor->read(shared.get(), asking))
      return nullptr;
    std::string dtype = tensor->dtype();
    if (dtype != "u8" && dtype != "i8") {
      fail(Kind::Type, "workspace: a tensor of bytes (uint8) expected, " +
                           dtype + " found");
      return nullptr;
    }
    if (!isMemoryOf(state.getDevice(), tensor->get().device) ||
        !tensor->isContiguous() ||
        reinterpret_cast<uintptr_t>(tensor->data()) % kAlignment != 0) {
      fail(Kind::Value,
           "workspace: contiguous memory of " +
               showDevice(state.getDevice().where) + " aligned to " +
               std::to_string(kAlignment) + " bytes expected, " +
               tensor->showDevice() + " at address " +
               std::to_string(reinterpret_cast<uintptr_t>(tensor->data())) +
               " found");
      return nullptr;
    }
  }
  {
    Locked locked(state);
    if (!locked.isOpen())
      return nullptr;
    // The caller orders uses of the previous memory by the stream of its runs.
    // The layer's own stream is unknown to callers, so wait for it. (A captured
    // run cannot be waited for.)
    if (state.latestStream == MOERT_LAYER_STREAM &&
        !check(moert_layer_synchronize(state.layer)))
      return nullptr;
    std::swap(state.workspace, tensor);
  }
  Py_RETURN_NONE;
}

//===----------------------------------------------------------------------===//
// The rest
//===----------------------------------------------------------------------===//

static PyObject *cloneLayer(PyObject *self, PyObject *) {
  LayerState &state = getState(self);
  moert_layer *clone = nullptr;
  Locked locked(state);
  // Weights prepared before cloning are shared.
  if (!locked.isOpen() || !prepare(state, state.latestStream) ||
      !check(moert_layer_clone(state.layer, &clone)))
    return nullptr;
  Ref made = Ref::take(makeLayer(reinterpret_cast<PyObject *>(Py_TYPE(self)),
                                 clone, &state.getDevice()));
  if (!made)
    return nullptr;
  LayerState &other = getState(made.get());
  other.isPrepared = true;
  other.weights = state.weights;
  other.versions = state.versions;
  return made.release();
}

bool moec::python::isLayer(PyObject *object) {
  return PyObject_TypeCheck(object, layerType);
}

static PyObject *useMicroBatches(PyObject *self, PyObject *tokens) {
  LayerState &state = getState(self);
  int64_t number = 0;
  Locked locked(state);
  if (!locked.isOpen() || !getInt(tokens, "tokens", 0, INT64_MAX, number) ||
      !check(moert_layer_use_micro_batches(state.layer, number)))
    return nullptr;
  Py_RETURN_NONE;
}

static PyObject *useCommunicator(PyObject *self, PyObject *object) {
  LayerState &state = getState(self);
  moert_communicator *communicator = getCommunicator(object);
  if (!communicator)
    return nullptr;
  Locked locked(state);
  if (!locked.isOpen())
    return nullptr;
  moert_status *status;
  {
    // Other ranks may be Python threads.
    Unlocked unlocked;
    status = moert_layer_use_communicator(state.layer, communicator);
  }
  if (!check(status))
    return nullptr;
  Py_RETURN_NONE;
}

static PyObject *getMesh(PyObject *self, void *) {
  LayerState &state = getState(self);
  Locked locked(state);
  if (!locked.isOpen())
    return nullptr;
  int64_t dp = 1, tp = 1;
  moert_layer_mesh(state.layer, &dp, &tp);
  return Py_BuildValue("(LL)", static_cast<long long>(dp),
                       static_cast<long long>(tp));
}

static PyObject *closeLayer(PyObject *self, PyObject *) {
  LayerState &state = getState(self);
  std::vector<std::shared_ptr<Weight>> released(state.operands.size());
  std::shared_ptr<Tensor> workspace;
  {
    Locked locked(state);
    moert_layer_free(std::exchange(state.layer, nullptr));
    std::swap(state.weights, released);
    std::swap(state.workspace, workspace);
  }
  Py_RETURN_NONE;
}

static PyObject *synchronize(PyObject *self, PyObject *) {
  LayerState &state = getState(self);
  Locked locked(state);
  if (!locked.isOpen())
    return nullptr;
  moert_status *status;
  {
    Unlocked unlocked;
    status = moert_layer_synchronize_stream(state.layer, state.latestStream);
  }
  if (!check(status))
    return nullptr;
  Py_RETURN_NONE;
}

static PyObject *generateWeights(PyObject *self, PyObject *number) {
  LayerState &state = getState(self);
  int64_t seed = 0;
  if (!getInt(number, "seed", 0, INT64_MAX, seed))
    return nullptr;
  return takeWeights(state, /*arePrepared=*/false, [&] {
    return moejit_layer_generate_weights(state.layer, uint64_t(seed));
  });
}

/// verify_runs(every, rows, seed, folder or None, whether captured runs are
/// left out).
static PyObject *verifyRuns(PyObject *self, PyObject *const *arguments,
                            Py_ssize_t count) {
  LayerState &state = getState(self);
  moejit_verify_options options = {};
  options.size = sizeof(options);
  int64_t seed = 0;
  if (!checkCount("verify_runs", count, 5, 5) ||
      !getInt(arguments[0], "every", 0, INT64_MAX, options.every) ||
      !getInt(arguments[1], "rows", 0, INT64_MAX, options.rows) ||
      !getInt(arguments[2], "seed", 0, INT64_MAX, seed))
    return nullptr;
  options.seed = uint64_t(seed);
  if (arguments[3] != Py_None &&
      !(options.folder = getText(arguments[3], "folder")))
    return nullptr;
  int skips = PyObject_IsTrue(arguments[4]);
  if (skips < 0)
    return nullptr;
  options.skip_captured = skips;
  Locked locked(state);
  if (!locked.isOpen() || !check(moejit_layer_verify(state.layer, &options)))
    return nullptr;
  Py_RETURN_NONE;
}

static PyObject *verifiesRuns(PyObject *self, void *) {
  LayerState &state = getState(self);
  Locked locked(state);
  if (!locked.isOpen())
    return nullptr;
  return PyBool_FromLong(moejit_layer_is_verified(state.layer));
}

static PyObject *benchmark(PyObject *self, PyObject *const *arguments,
                           Py_ssize_t count) {
  LayerState &state = getState(self);
  int64_t tokens = 0, repeat = 0, seed = 0;
  if (!checkCount("benchmark", count, 3, 3) ||
      !getInt(arguments[0], "tokens", 1, INT64_MAX, tokens) ||
      !getInt(arguments[1], "repeat", 1, 1000000, repeat) ||
      !getInt(arguments[2], "seed", 0, INT64_MAX, seed))
    return nullptr;
  std::vector<double> seconds(static_cast<size_t>(repeat));
  {
    Locked locked(state);
    if (!locked.isOpen() || !prepare(state, state.latestStream))
      return nullptr;
    moert_status *status;
    {
      Unlocked unlocked;
      status = moejit_layer_benchmark(state.layer, tokens, int(repeat),
                                      uint64_t(seed), seconds.data());
    }
    if (!check(status))
      return nullptr;
  }
  Ref list = Ref::take(PyList_New(0));
  for (double each : seconds) {
    Ref number = Ref::take(PyFloat_FromDouble(each));
    if (!list || !number || PyList_Append(list.get(), number.get()) < 0)
      return nullptr;
  }
  return list.release();
}

/// A tuple (name, dtype, role, shape, depends on tokens, alignment, strided,
/// read by runs) per operand.
static PyObject *getOperands(PyObject *self, PyObject *) {
  constexpr const char *roles[] = {"input", "weight", "output", "prepared"};
  LayerState &state = getState(self);
  Ref list = Ref::take(PyList_New(0));
  for (const Operand &operand : state.operands) {
    Ref shape = Ref::take(PyTuple_New(Py_ssize_t(operand.shape.size())));
    for (size_t i = 0; shape && i < operand.shape.size(); ++i)
      PyTuple_SetItem(shape.get(), Py_ssize_t(i),
                      PyLong_FromLongLong(operand.shape[i]));
    Ref item = Ref::take(
        shape ? Py_BuildValue("(OssOOLOO)", operand.name.get(),
                              operand.dtype.c_str(), roles[operand.role],
                              shape.get(),
                              operand.dependsOnTokens ? Py_True : Py_False,
                              static_cast<long long>(operand.alignment),
                              operand.isStrided ? Py_True : Py_False,
                              operand.isReadByRuns ? Py_True : Py_False)
              : nullptr);
    if (!list || !item || PyList_Append(list.get(), item.get()) < 0)
      return nullptr;
  }
  return list.release();
}

static PyObject *getMaxTokens(PyObject *self, void *) {
  LayerState &state = getState(self);
  Locked locked(state);
  return locked.isOpen()
             ? PyLong_FromLongLong(moert_layer_max_tokens(state.layer))
             : nullptr;
}

static PyObject *getPlanText(PyObject *self, void *) {
  LayerState &state = getState(self);
  Locked locked(state);
  return locked.isOpen() ? PyUnicode_FromString(moert_layer_plan(state.layer))
                         : nullptr;
}

static PyObject *getSpecText(PyObject *self, void *) {
  LayerState &state = getState(self);
  Locked locked(state);
  return locked.isOpen() ? PyUnicode_FromString(moert_layer_spec(state.layer))
                         : nullptr;
}

static PyObject *getClosed(PyObject *self, void *) {
  LayerState &state = getState(self);
  Locked locked(state);
  return PyBool_FromLong(state.layer == nullptr);
}

static PyObject *getDeviceName(PyObject *self, void *) {
  return PyUnicode_FromString(
      showDevice(getState(self).getDevice().where).c_str());
}

static PyObject *getDeviceObject(PyObject *self, void *) {
  return Ref::share(getState(self).device.get()).release();
}

bool moec::python::addLayer(PyObject *module) {
  static PyMethodDef methods[] = {
      makeMethod("bind_weight", bind),
      makeMethod("bind_memory", bindMemory),
      makeMethod("load_weights", load),
      {"fill_weights", generateWeights, METH_O, nullptr},
      makeMethod("load_tensors", loadTensors),
      makeMethod("selects", selects),
      makeMethod("write_prepared", writePrepared),
      makeMethod("bind_prepared", bindPrepared),
      makeMethod("benchmark_runs", benchmark),
      makeMethod("verify_runs", verifyRuns),
      makeMethod("time_calls", timeCalls),
      makeMethod("run", runLayer,
                 "run(tokens, tensors, stream=None): runs a layer compiled "
                 "from IR, with any inputs and outputs, on `tokens` tokens. "
                 "`tensors` has all inputs and outputs by name; outputs are "
                 "written. Streams are as in a call."),
      {"owns_weights", ownsWeights, METH_NOARGS, nullptr},
      {"prepare_weights", prepareWeights, METH_O, nullptr},
      {"release_weights", releaseWeights, METH_NOARGS,
       "Releases the weights that calls do not read, because they read "
       "prepared ones, so that the caller may free them; returns their names. "
       "Prepares weights first if needed. To prepare again, bind the weights "
       "again."},
      {"operands", getOperands, METH_NOARGS, nullptr},
      {"workspace_bytes", getWorkspaceBytes, METH_O,
       "Bytes of a workspace for calls of up to `tokens` tokens."},
      {"use_workspace", useWorkspace, METH_O,
       "Sets the workspace of later calls: a contiguous tensor of bytes "
       "(uint8) on the layer's device, aligned to 256 bytes, of at least "
       "workspace_bytes(). Layers whose calls do not overlap may share one. "
       "None: the layer allocates its own again."},
      {"use_micro_batches", useMicroBatches, METH_O,
       "For a layer of several ranks: calls of at least this many tokens per "
       "rank run as two micro-batches, one of which exchanges rows while the "
       "other computes; 0 for never. Call it before use_communicator(), with "
       "the same number on all ranks."},
      {"use_communicator", useCommunicator, METH_O,
       "Sets the moec.Communicator of the layer's mesh, which a layer of "
       "several ranks needs before its first call. All ranks must call it, "
       "since it checks that all have the same layer."},
      {"clone", cloneLayer, METH_NOARGS,
       "A second layer with the same weights and its own workspace, for calls "
       "that overlap with those of the first."},
      {"synchronize", synchronize, METH_NOARGS,
       "Waits for the stream of the latest call."},
      {"close", closeLayer, METH_NOARGS,
       "Waits for the layer's calls and frees its memory on the device. The "
       "layer cannot be used afterwards."},
      {}};
  static PyGetSetDef properties[] = {
      {"max_tokens", getMaxTokens, nullptr,
       "Largest number of tokens of a call.", nullptr},
      {"mesh", getMesh, nullptr,
       "(dp, tp): the ranks of the layer, (1, 1) for a single rank. The tokens "
       "of a call are those of one rank, equally many on all ranks.",
       nullptr},
      {"plan_text", getPlanText, nullptr, nullptr, nullptr},
      {"spec_text", getSpecText, nullptr, nullptr, nullptr},
      {"verifies_runs", verifiesRuns, nullptr,
       "Whether runs are compared with the reference (verify()).", nullptr},
      {"closed", getClosed, nullptr, "Whether close() was called.", nullptr},
      {"device", getDeviceName, nullptr, "\"cuda:0\" or \"cpu\".", nullptr},
      {"device_object", getDeviceObject, nullptr, nullptr, nullptr},
      {}};
  static PyType_Slot slots[] = {
      {Py_tp_dealloc, reinterpret_cast<void *>(freeLayer)},
      {Py_tp_call, reinterpret_cast<void *>(callLayer)},
      {Py_tp_methods, methods},
      {Py_tp_getset, properties},
      {}};
  static PyType_Spec spec = {"moec._core.Layer", sizeof(LayerObject), 0,
                             Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE |
                                 Py_TPFLAGS_DISALLOW_INSTANTIATION,
                             slots};
  layerType = reinterpret_cast<PyTypeObject *>(PyType_FromSpec(&spec));
  return layerType && addNames(module) && addWeights() &&
         PyModule_AddType(module, layerType) == 0;
}
