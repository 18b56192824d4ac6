//===- Layer.cpp - the Python type of layers ------------------------------===//
//
// Part of moec, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Layer.h"
#include "Errors.h"
#include "LayerMethods.h"
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

Locked::Locked(LayerState &state)
    : state(state), isNested(state.owner == std::this_thread::get_id()) {
  if (isNested)
    return;
  if (!state.mutex.try_lock()) {
    Unlocked unlocked;
    state.mutex.lock();
  }
  state.owner = std::this_thread::get_id();
}

Locked::~Locked() {
  if (isNested)
    return;
  state.owner = std::thread::id();
  state.mutex.unlock();
}

bool Locked::isOpen() const {
  if (isNested)
    return fail(Kind::Value,
                "the layer is in another call of this thread, whose progress "
                "function or signal handler calls it again; call it later");
  return isReadable();
}

bool Locked::isReadable() const {
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
  if (!locked.isReadable())
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
    if (state.layer && !locked.isOpen())
      return nullptr;
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
      !getInt(arguments[1], "rows", 1, INT64_MAX, options.rows) ||
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
  return locked.isReadable()
             ? PyLong_FromLongLong(moert_layer_max_tokens(state.layer))
             : nullptr;
}

static PyObject *getPlanText(PyObject *self, void *) {
  LayerState &state = getState(self);
  Locked locked(state);
  return locked.isReadable()
             ? PyUnicode_FromString(moert_layer_plan(state.layer))
             : nullptr;
}

static PyObject *getSpecText(PyObject *self, void *) {
  LayerState &state = getState(self);
  Locked locked(state);
  return locked.isReadable()
             ? PyUnicode_FromString(moert_layer_spec(state.layer))
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
      makeMethod("bind_weight", bindWeight),
      makeMethod("bind_memory", bindMemory),
      makeMethod("load_weights", loadWeights),
      {"fill_weights", generateWeights, METH_O, nullptr},
      makeMethod("load_tensors", loadTensors),
      makeMethod("selects", selectsTensor),
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
